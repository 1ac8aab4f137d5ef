"""Triggers that make `audit_log` INSERT-only, reinstalled after every migrate.

What they cannot refuse: TRUNCATE and DROP TABLE fire no triggers on MariaDB and MySQL, nor does whoever owns the
SQLite file need SQL at all. In production the application's account has neither the DROP nor the TRIGGER privilege
(TRUNCATE needs DROP); what was done past the triggers shows in the seals.
"""

from __future__ import annotations

from typing import Any

from django.db import DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

TABLE = "audit_log"
_UPDATE, _DELETE, _REPLACE = "audit_log_refuse_update", "audit_log_refuse_delete", "audit_log_refuse_replace"
_MARK = "audit_log accepts INSERT only"


def _create_sql(vendor: str) -> dict[str, str]:
    """The statement that creates each trigger, by name."""
    if vendor != "sqlite":
        # REPLACE and ON DUPLICATE KEY UPDATE fire the DELETE and UPDATE triggers here.
        return {
            name: f"CREATE TRIGGER {name} BEFORE {verb} ON {TABLE} FOR EACH ROW "
            f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{_MARK}: {verb} refused'"
            for name, verb in ((_UPDATE, "UPDATE"), (_DELETE, "DELETE"))
        }
    refusals = {
        name: f"CREATE TRIGGER {name} BEFORE {verb} ON {TABLE} FOR EACH ROW "
        f"BEGIN SELECT RAISE(ABORT, '{_MARK}: {verb} refused'); END"
        for name, verb in ((_UPDATE, "UPDATE"), (_DELETE, "DELETE"))
    }
    # SQLite's INSERT OR REPLACE removes the old row without firing DELETE triggers (recursive_triggers is off).
    refusals[_REPLACE] = (
        f"CREATE TRIGGER {_REPLACE} BEFORE INSERT ON {TABLE} FOR EACH ROW "  # noqa: S608 - constants
        f"WHEN EXISTS (SELECT 1 FROM {TABLE} WHERE id = NEW.id) "
        f"BEGIN SELECT RAISE(ABORT, '{_MARK}: REPLACE refused'); END"
    )
    return refusals


class _NotRefused(Exception):
    pass


def _not_refused(connection: BaseDatabaseWrapper) -> list[str]:
    """Names of the triggers that do not do their work, by trying: change and delete a row in transactions that are
    rolled back whatever happens. Needs no right beyond those that serving needs."""
    from guard.audit.models import AuditLog, Decision, EventType

    attempts = {
        _UPDATE: f"UPDATE {TABLE} SET code = code WHERE id = %s",  # noqa: S608 - a constant
        _DELETE: f"DELETE FROM {TABLE} WHERE id = %s",  # noqa: S608 - a constant
    }
    gone = []
    for name, attempt in attempts.items():
        try:
            with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
                cursor.execute(f"SELECT id FROM {TABLE} ORDER BY id LIMIT 1")  # noqa: S608 - a constant
                row = cursor.fetchone()
                if row is None:
                    probe = AuditLog(
                        tenant="default",
                        event_type=EventType.AUDIT_VERIFY,
                        decision=Decision.PASSED,
                        actor_id="doctor",
                    )
                    probe.save(using=connection.alias)
                    row = (probe.pk,)
                cursor.execute(attempt, row)
                raise _NotRefused
        except _NotRefused:
            gone.append(name)
        except DatabaseError as error:
            if _MARK not in str(error):
                raise
    return gone


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """Names of the triggers that are not there or do not refuse; empty is as it should be.

    An account without the TRIGGER right does not see what they say (MariaDB) or that they are there (MySQL): then
    they are tried.
    """
    if connection.vendor == "sqlite":
        query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s"
    else:
        query = (
            "SELECT trigger_name, action_statement FROM information_schema.triggers "
            "WHERE event_object_schema = DATABASE() AND event_object_table = %s"
        )
    with connection.cursor() as cursor:
        cursor.execute(query, [TABLE])
        bodies = dict(cursor.fetchall())
    names = list(_create_sql(connection.vendor))
    if connection.vendor != "sqlite" and any(bodies.get(name) is None for name in names):
        return _not_refused(connection)
    return [name for name in names if _MARK not in bodies.get(name, "")]


def install(connection: BaseDatabaseWrapper) -> None:
    """Creates what is missing, replaces what was made harmless; harmless to repeat."""
    gone = missing(connection)
    statements = _create_sql(connection.vendor)
    with connection.cursor() as cursor:
        for name in gone:
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")
            cursor.execute(statements[name])


def drop(connection: BaseDatabaseWrapper) -> None:
    """Removes the triggers: for a test database that must be emptied."""
    with connection.cursor() as cursor:
        for name in _create_sql(connection.vendor):
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def install_after_migrate(sender: Any, using: str, **_: Any) -> None:
    connection = connections[using]
    if TABLE in connection.introspection.table_names():
        install(connection)
