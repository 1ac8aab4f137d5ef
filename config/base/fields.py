"""Column types that every table shares."""

from __future__ import annotations

import json
from collections.abc import Callable
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


class Damaged:
    """What stands for a stored value that cannot be read, or is not of its column's kind: empty, and of that kind, so
    that whoever reads it goes on. text: what is stored. Saved again it is the same text: nothing hides a damage but
    another value."""

    text: str = ""


class DamagedTexts(Damaged, list[str]):
    """In the place of a list of texts."""


class DamagedObject(Damaged, dict[str, Any]):
    """In the place of an object."""


def texts(value: Any) -> DamagedTexts | None:
    """Kind of a column that holds a list of texts. None: it does; else what stands for it."""
    return None if type(value) is list and all(type(one) is str for one in value) else DamagedTexts()


def json_object(value: Any) -> DamagedObject | None:
    """Kind of a column that holds an object. None: it does; else what stands for it."""
    return None if type(value) is dict else DamagedObject()


class CanonicalJSONField(WholeTextField):
    """JSON in a LONGTEXT column, stored in its canonical spelling.

    kind: what the column holds (`texts`, `json_object`). With it a value that cannot be read, or is of another kind, is
    read as `Damaged`: one such row must not keep the others of a list from being read. Whoever decides by the value
    looks whether it is one. Without it reading raises ValueError. The kind is none of the database's business, so
    migrations do not know it.

    Not JSONField: MariaDB checks it with json_valid, which refuses more than 32 levels. The database compares
    and hashes the same text for the same value, whoever wrote it.
    """

    # For type checkers: an attribute of this kind holds whatever JSON holds, not text.
    _pyi_private_set_type: Any
    _pyi_private_get_type: Any

    def __init__(self, *args: Any, kind: Callable[[Any], Damaged | None] | None = None, **kwargs: Any) -> None:
        self._kind = kind
        super().__init__(*args, **kwargs)

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> Any:
        if value is None:
            return None
        if self._kind is None:
            return json.loads(value)
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None  # which is of no kind
        damage = self._kind(found)
        if damage is None:
            return found
        damage.text = value
        return damage

    def get_prep_value(self, value: Any) -> str | None:
        if isinstance(value, Damaged):
            return value.text
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
