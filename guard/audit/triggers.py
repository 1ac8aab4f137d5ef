"""Triggers that make `audit_log` and `audit_seal` INSERT-only, reinstalled after every migrate.

What they cannot refuse: TRUNCATE and DROP TABLE fire no triggers on MariaDB and MySQL, nor does whoever owns the
SQLite file need SQL at all. In production the application's account has neither the DROP nor the TRIGGER privilege
(TRUNCATE needs DROP); what was done past the triggers shows in the seals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from config.base.clock import now

TABLE = "audit_log"
# Table -> its primary key.
TABLES = {TABLE: "id", "audit_seal": "number"}
_ACCEPTS = "accepts INSERT only"
# Of other rooms' tables: unique columns beside the primary key, and a row to try the triggers on.
_UNIQUE: dict[str, tuple[tuple[str, ...], ...]] = {}
_PROBES: dict[str, Callable[[], models.Model]] = {}


def protect(
    table: str, *, key: str, unique: tuple[tuple[str, ...], ...] = (), probe: Callable[[], models.Model]
) -> None:
    """Told at ready() by a room whose table is INSERT-only too. key: its primary key; unique: columns that are unique
    together, through which a REPLACE would remove a row; probe: makes a row that can be inserted."""
    TABLES[table], _UNIQUE[table], _PROBES[table] = key, unique, probe


def _create_sql(vendor: str) -> dict[str, tuple[str, str]]:
    """Of each trigger, by name: its table, and the statement that creates it."""
    made: dict[str, tuple[str, str]] = {}
    for table, key in TABLES.items():
        for verb in ("UPDATE", "DELETE"):
            name = f"{table}_refuse_{verb.lower()}"
            refusal = f"{table} {_ACCEPTS}: {verb} refused"
            # REPLACE and ON DUPLICATE KEY UPDATE fire the DELETE and UPDATE triggers on MariaDB and MySQL.
            act = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{refusal}'"
            if vendor == "sqlite":
                act = f"BEGIN SELECT RAISE(ABORT, '{refusal}'); END"
            made[name] = (table, f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW {act}")
        if vendor == "sqlite":
            # SQLite's INSERT OR REPLACE removes the old row without firing DELETE triggers (recursive_triggers is off).
            name = f"{table}_refuse_replace"
            same = " OR ".join(
                f"({' AND '.join(f'{column} = NEW.{column}' for column in columns)})"
                for columns in ((key,), *_UNIQUE.get(table, ()))
            )
            made[name] = (
                table,
                f"CREATE TRIGGER {name} BEFORE INSERT ON {table} FOR EACH ROW "  # noqa: S608 - constants
                f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
                f"BEGIN SELECT RAISE(ABORT, '{table} {_ACCEPTS}: REPLACE refused'); END",
            )
    return made


class _NotRefused(Exception):
    pass


def _probe(table: str) -> models.Model:
    """A row to try the triggers on where the table has none; rolled back whatever happens."""
    from guard.audit.models import AuditLog, AuditSeal, Decision, EventType

    if table in _PROBES:
        return _PROBES[table]()
    if table == TABLE:
        return AuditLog(
            tenant="default", event_type=EventType.AUDIT_VERIFY, decision=Decision.PASSED, actor_id="doctor"
        )
    nothing: dict[str, Any] = {"members": [], "opened": [], "closed": []}
    numbers = dict.fromkeys(("number", "from_id", "head_id", "count", "total", "oldest_open"), 0)
    return AuditSeal(at=now(), **nothing, **numbers)


def _not_refused(connection: BaseDatabaseWrapper, tables: set[str]) -> list[str]:
    """Of these tables, names of the triggers that do not do their work, by trying: change and delete a row in
    transactions that are rolled back whatever happens. Needs no right beyond those that serving needs."""
    gone = []
    for table, key in ((table, TABLES[table]) for table in sorted(tables)):
        attempts = {
            f"{table}_refuse_update": f"UPDATE {table} SET {key} = {key} WHERE {key} = %s",  # noqa: S608 - constants
            f"{table}_refuse_delete": f"DELETE FROM {table} WHERE {key} = %s",  # noqa: S608 - constants
        }
        for name, attempt in attempts.items():
            try:
                with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
                    cursor.execute(f"SELECT {key} FROM {table} ORDER BY {key} LIMIT 1")  # noqa: S608 - constants
                    row = cursor.fetchone()
                    if row is None:
                        probe = _probe(table)
                        probe.save(using=connection.alias, force_insert=True)
                        row = (probe.pk,)
                    cursor.execute(attempt, row)
                    raise _NotRefused
            except _NotRefused:
                gone.append(name)
            except DatabaseError as error:
                if _ACCEPTS not in str(error):
                    raise
    return gone


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Names of the triggers that are not there or do not refuse; empty is as it should be.

    An account without the TRIGGER right does not see what they say (MariaDB) or that they are there (MySQL): then
    they are tried.
    """
    places = ", ".join(["%s"] * len(TABLES))
    if connection.vendor == "sqlite":
        query = f"SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name IN ({places})"  # noqa: S608
    else:
        query = (
            "SELECT trigger_name, action_statement FROM information_schema.triggers "  # noqa: S608 - placeholders
            f"WHERE event_object_schema = DATABASE() AND event_object_table IN ({places})"
        )
    with connection.cursor() as cursor:
        cursor.execute(query, list(TABLES))
        bodies = dict(cursor.fetchall())
    wanted = _create_sql(connection.vendor)
    unseen = {table for name, (table, _sql) in wanted.items() if bodies.get(name) is None}
    if connection.vendor != "sqlite" and unseen:
        there = set(connection.introspection.table_names())
        absent = [name for name, (table, _sql) in wanted.items() if table in unseen - there]
        return absent + _not_refused(connection, set(TABLES) & there)
    return [name for name, (table, _sql) in wanted.items() if f"{table} {_ACCEPTS}" not in bodies.get(name, "")]


def install(connection: BaseDatabaseWrapper) -> None:
    """Creates what is missing, replaces what was made harmless; harmless to repeat."""
    try:
        gone = missing(connection)
    except DatabaseError:
        # Half-way through the migrations a table has not yet the columns that a try would fill.
        gone = list(_create_sql(connection.vendor))
    there = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for name, (table, statement) in _create_sql(connection.vendor).items():
            if name in gone and table in there:
                cursor.execute(f"DROP TRIGGER IF EXISTS {name}")
                cursor.execute(statement)


def drop(connection: BaseDatabaseWrapper) -> None:
    """Removes the triggers: for a test database that must be emptied."""
    with connection.cursor() as cursor:
        for name in _create_sql(connection.vendor):
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def install_after_migrate(sender: Any, using: str, **_: Any) -> None:
    connection = connections[using]
    if TABLE in connection.introspection.table_names():
        install(connection)
