"""Empties the database after a transactional test, in a few statements and not by a flush of every table.

Django's flush deletes from every table, makes content types, permissions and roles again and has triggers installed
anew: a third of a second on MariaDB, for each of some hundred tests. Here one query finds the tables that have rows,
only they are emptied, and what migrations and post_migrate made (content types, permissions, roles) stays, unless a
test has changed it: then it is Django's flush all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from guard.audit import triggers
from guard.audit.origin import begin

# What post_migrate makes.
_MADE = ("django_content_type", "auth_permission", "auth_group", "auth_group_permissions")
_LOG = {"audit_log", "audit_seal"}
_ALWAYS = {"audit_seal": " WHERE number <> 0"}
_FINGERPRINTS = {
    "django_content_type": "SELECT COUNT(*), SUM(id), MAX(id) FROM django_content_type",
    "auth_permission": "SELECT COUNT(*), SUM(id), SUM(content_type_id) FROM auth_permission",
    "auth_group": "SELECT COUNT(*), SUM(id), SUM(LENGTH(name)) FROM auth_group",
    "auth_group_permissions": "SELECT COUNT(*), SUM(id), SUM(group_id * permission_id) FROM auth_group_permissions",
}
_FINGERPRINT = " UNION ALL ".join(_FINGERPRINTS[table] for table in _MADE)


class Emptier:
    """One for the run; knows each database's tables and what post_migrate made there."""

    def __init__(self) -> None:
        self._tables: dict[str, list[str]] = {}
        self._made: dict[str, Sequence[Any]] = {}

    def look(self, alias: str) -> None:
        """Told once the database is migrated, before the first test: what is there then is what is to stay."""
        connection = connections[alias]
        there = connection.introspection.django_table_names(only_existing=True, include_views=False)
        self._tables[alias] = [table for table in there if table not in _MADE]
        self._made[alias] = self._fingerprint(connection)

    def empty(self, alias: str) -> bool:
        """False: something is other than known (tables, roles, permissions), and a flush has to do it."""
        connection = connections[alias]
        try:
            if alias not in self._tables or self._fingerprint(connection) != self._made[alias]:
                return False
            rows = self._with_rows(connection, self._tables[alias])
            if rows & _LOG:
                rows |= _LOG  # the first seal speaks of the rows
            gone = triggers.missing(connection)
            if not rows and not gone:
                return True
            if connection.vendor == "sqlite":
                self._empty_sqlite(connection, rows)
            else:
                self._empty_mariadb(connection, rows)
            if rows & _LOG:
                begin(connection, apps.get_model("guard", "AuditSeal"))
            if gone or (connection.vendor == "sqlite" and rows & triggers.TABLES.keys()):
                triggers.install(connection)
        except DatabaseError:
            return False
        return True

    @staticmethod
    def _fingerprint(connection: BaseDatabaseWrapper) -> Sequence[Any]:
        with connection.cursor() as cursor:
            cursor.execute(_FINGERPRINT)
            return list(cursor.fetchall())

    @staticmethod
    def _with_rows(connection: BaseDatabaseWrapper, tables: Sequence[str]) -> set[str]:
        found: set[str] = set()
        quote = connection.ops.quote_name
        # SQLite takes 500 parts in one compound SELECT; there are some sixty tables.
        dual = "" if connection.vendor == "sqlite" else " FROM DUAL"
        # Of the seals the first, which the migration makes, is there always.
        query = " UNION ALL ".join(
            f"SELECT '{table}'{dual} WHERE EXISTS (SELECT 1 FROM {quote(table)}{_ALWAYS.get(table, '')})"
            for table in tables
        )
        with connection.cursor() as cursor:
            cursor.execute(query)
            found.update(row[0] for row in cursor.fetchall())
        return found

    @staticmethod
    def _empty_sqlite(connection: BaseDatabaseWrapper, tables: set[str]) -> None:
        quote = connection.ops.quote_name
        with connection.constraint_checks_disabled(), transaction.atomic(using=connection.alias):
            if tables & triggers.TABLES.keys():
                triggers.drop(connection)
            with connection.cursor() as cursor:
                for table in tables:
                    cursor.execute(f"DELETE FROM {quote(table)}")

    @staticmethod
    def _empty_mariadb(connection: BaseDatabaseWrapper, tables: set[str]) -> None:
        quote = connection.ops.quote_name
        with connection.constraint_checks_disabled(), connection.cursor() as cursor:
            with transaction.atomic(using=connection.alias):
                for table in tables - triggers.TABLES.keys():
                    cursor.execute(f"DELETE FROM {quote(table)}")
            for table in tables & triggers.TABLES.keys():
                cursor.execute(f"TRUNCATE TABLE {quote(table)}")  # which fires no trigger


def teardown(original: Callable[[Any], None], emptier: Emptier) -> Callable[[Any], None]:
    """A `TransactionTestCase._fixture_teardown` that asks the emptier first."""

    def empty_or_flush(case: Any) -> None:
        aliases = case._databases_names(include_mirrors=False)
        plain = case.available_apps is None and not case.serialized_rollback and aliases == [DEFAULT_DB_ALIAS]
        if plain and emptier.empty(DEFAULT_DB_ALIAS):
            return
        for connection in connections.all():
            if triggers.TABLE in connection.introspection.table_names():
                triggers.drop(connection)
        original(case)
        for connection in connections.all():
            if triggers.TABLE in connection.introspection.table_names():
                begin(connection, apps.get_model("guard", "AuditSeal"))
                triggers.install(connection)
        if DEFAULT_DB_ALIAS in aliases:
            emptier.look(DEFAULT_DB_ALIAS)

    return empty_or_flush
