"""The column of an amount."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

from guard.admission.amounts import PLACES


class MoneyField(models.DecimalField):
    """An amount with six places, exact to the last: DECIMAL(20,6), and on SQLite a whole number of units.

    SQLite has no decimals: it would keep a binary fraction and add those up, so that a sum is not the sum.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["max_digits"], kwargs["decimal_places"] = 20, PLACES
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        del kwargs["max_digits"], kwargs["decimal_places"]
        return name, path, args, kwargs

    def get_internal_type(self) -> str:
        return "MoneyField"  # not one that Django's SQLite converts through a float

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "bigint" if connection.vendor == "sqlite" else f"decimal(20,{PLACES})"

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> Decimal | None:
        if value is None or connection.vendor != "sqlite":
            return value  # type: ignore[no-any-return]
        return Decimal(value).scaleb(-PLACES)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        number = self.to_python(value)
        if number is None or connection.vendor != "sqlite":
            return number
        return int(number.scaleb(PLACES))

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        if hasattr(value, "as_sql"):
            return value
        return self.get_db_prep_value(value, connection)
