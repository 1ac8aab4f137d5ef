"""Column types that every table shares."""

from __future__ import annotations

import json
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class IdField(models.CharField):
    """An identifier: VARCHAR(64) compared byte by byte, without padding.

    MariaDB and MySQL compare text without regard to case or trailing spaces by default, which would give
    'alice' the session of 'Alice' or 'alice '. utf8mb4_bin pads on MariaDB, so the collations without padding
    are named here. SQLite compares bytes by itself.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 64)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if kwargs.get("max_length") == 64:
            del kwargs["max_length"]
        return name, path, args, kwargs

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            mariadb = getattr(connection, "mysql_is_mariadb", False)
            parameters["collation"] = "utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        return parameters


class WholeTextField(models.TextField):
    """LONGTEXT in utf8mb4, whatever character set the database was created with: a database of latin1 or utf8mb3
    would refuse or damage most of Unicode."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters


def canonical_json(value: Any) -> str:
    """JSON with one spelling: sorted keys, no spaces, text as it is. Errors: ValueError for NaN and infinities."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


class CanonicalJSONField(WholeTextField):
    """JSON in a LONGTEXT column, stored in its canonical spelling.

    Not JSONField: MariaDB checks it with json_valid, which refuses more than 32 levels. The database compares
    and hashes the same text for the same value, whoever wrote it.
    """

    # For type checkers: an attribute of this kind holds whatever JSON holds, not text.
    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        return None if value is None else json.loads(value)

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else canonical_json(value)

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return json.loads(value)
            except ValueError:
                return value
        return value

    def value_to_string(self, obj: models.Model) -> str:
        return canonical_json(self.value_from_object(obj))
