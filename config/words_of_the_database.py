"""Refuses `migrate` in a database that cannot hold Chinese: its tables would be made, and the first name would fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import DEFAULT_DB_ALIAS, connections


def holds_every_character(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """An Error where the main database's tables would not be utf8mb4. One query, none for SQLite."""
    connection = connections[DEFAULT_DB_ALIAS]
    if DEFAULT_DB_ALIAS not in (databases or ()) or connection.vendor != "mysql":
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@character_set_database")
        [charset] = cursor.fetchone()
    if charset == "utf8mb4":
        return []
    return [
        Error(
            f"The database's character set is {charset}, which cannot hold every name.",
            hint="ALTER DATABASE ... CHARACTER SET utf8mb4; tables that are there: ALTER TABLE ... CONVERT TO it.",
            id="xinghuo.E001",
        )
    ]
