"""A core system that is another server or file: the alias `core` for one test."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, connections

from config.base.env import core_database
from memory.core import window
from memory.core.models import FACT_MODELS

Row = tuple[str, tuple[Any, ...]]


@contextmanager
def external_core(settings: Any, url: str, *, statement_ms: int = 1000, connect_seconds: int = 1) -> Iterator[None]:
    """CORE_DATABASE_URL=url in this block, for every thread that opens a connection in it."""
    entry = {**core_database("CORE_DATABASE_URL", url, connect_seconds, statement_ms), "CONN_HEALTH_CHECKS": True}
    default = connections.settings["default"]
    connections.settings["core"] = connections.configure_settings({"default": default, "core": entry})["core"]
    settings.CORE_IS_EXTERNAL = True
    settings.CORE_STATEMENT_TIMEOUT_MS = statement_ms
    window.breaker.reset()
    # Django's tests let nobody connect to a database that was not there when they began.
    window.CoreWindow.ensure_connection = _ensure_connection  # type: ignore[attr-defined]
    try:
        yield
    finally:
        forget_connection()
        del window.CoreWindow.ensure_connection  # type: ignore[attr-defined]
        settings.CORE_IS_EXTERNAL = False
        del connections.settings["core"]
        window.breaker.reset()


def _ensure_connection(self: Any) -> None:
    if self.connection is None:
        with self.wrap_database_errors:
            self.connect()


def forget_connection() -> None:
    """This thread's connection to the core, as a new process would begin."""
    connections["core"].close()
    del connections["core"]


def make_sqlite_core(path: Path, *rows: Row) -> str:
    """A file with the fact tables as they stand in the test database, and these rows. Gives its URL."""
    own = sqlite3.connect(path)
    own.execute("PRAGMA journal_mode=WAL")
    with connection.cursor() as cursor:
        for model in FACT_MODELS:
            table = model._meta.db_table
            if connection.vendor == "sqlite":
                cursor.execute("SELECT sql FROM sqlite_master WHERE name = %s", [table])
                own.execute(cursor.fetchone()[0])
            else:
                columns = ", ".join(field.column for field in model._meta.local_fields)
                own.execute(f"CREATE TABLE {table} ({columns})")
    for statement, values in rows:
        own.execute(statement, values)
    own.commit()
    own.close()
    return f"sqlite://{path}"


def sqlite_assignment(advisor_id: str, customer_id: str) -> Row:
    return (
        "INSERT INTO core_assignment (id, tenant, advisor_id, customer_id, valid_from) VALUES (1, 'default', ?, ?, ?)",
        (advisor_id, customer_id, "2020-01-01 00:00:00"),
    )
