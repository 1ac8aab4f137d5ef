"""Column types of the core tables."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

MAX_DIGITS = 48
DECIMAL_PLACES = 20
# Enough for every value of the column, so that taking the trailing zeros off never rounds.
_WIDE = Context(prec=2 * MAX_DIGITS)
_NOTHING = Decimal("-0")  # added to any number it gives that number, spelt without a positive exponent; to -0 too


def plain(value: Decimal) -> Decimal:
    """The same number without trailing zeros and without an exponent: 1E+2 and 100.00 become 100."""
    return _WIDE.add(_WIDE.normalize(value), _NOTHING)


class ExactDecimalField(models.DecimalField):
    """A decimal that comes back as it was given, on every database: 28 digits before the point, 20 after it.

    SQLite would keep a DECIMAL as a binary double (15 digits), so there the column is text; hence compare and add
    up such columns in Python, not in SQL.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_digits", MAX_DIGITS)
        kwargs.setdefault("decimal_places", DECIMAL_PLACES)
        super().__init__(*args, **kwargs)

    def get_internal_type(self) -> str:
        return "ExactDecimalField"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        if connection.vendor == "sqlite":
            return "text"
        return f"numeric({self.max_digits}, {self.decimal_places})"

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        value = self.to_python(value)
        if value is None:
            return None
        return format(plain(value), "f") if connection.vendor == "sqlite" else value

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        # An expression (bulk_update's CASE) prepares the values inside it itself.
        return value if hasattr(value, "as_sql") else self.get_db_prep_value(value, connection)

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Decimal | None:
        return None if value is None else plain(value if isinstance(value, Decimal) else Decimal(str(value)))
