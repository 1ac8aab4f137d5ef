"""Triggers that make `audit_log` INSERT-only, reinstalled after every migrate."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

TABLE = "audit_log"
_NAMES = {"UPDATE": "audit_log_refuse_update", "DELETE": "audit_log_refuse_delete"}


def _create_sql(vendor: str, verb: str) -> str:
    message = f"audit_log accepts INSERT only: {verb} refused"
    if vendor == "sqlite":
        return (
            f"CREATE TRIGGER {_NAMES[verb]} BEFORE {verb} ON {TABLE} FOR EACH ROW "
            f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
    return (
        f"CREATE TRIGGER {_NAMES[verb]} BEFORE {verb} ON {TABLE} FOR EACH ROW "
        f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{message}'"
    )


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Names of the triggers that are not there; empty is as it should be."""
    if connection.vendor == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s"
    else:
        query = (
            "SELECT trigger_name FROM information_schema.triggers "
            "WHERE event_object_schema = DATABASE() AND event_object_table = %s"
        )
    with connection.cursor() as cursor:
        cursor.execute(query, [TABLE])
        present = {row[0] for row in cursor.fetchall()}
    return [name for name in _NAMES.values() if name not in present]


def install(connection: BaseDatabaseWrapper) -> None:
    """Creates what is missing; harmless to repeat."""
    gone = missing(connection)
    with connection.cursor() as cursor:
        for verb, name in _NAMES.items():
            if name in gone:
                cursor.execute(_create_sql(connection.vendor, verb))


def drop(connection: BaseDatabaseWrapper) -> None:
    """Removes the triggers: for a test database that must be emptied."""
    with connection.cursor() as cursor:
        for name in _NAMES.values():
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def install_after_migrate(sender: Any, using: str, **_: Any) -> None:
    connection = connections[using]
    if TABLE in connection.introspection.table_names():
        install(connection)
