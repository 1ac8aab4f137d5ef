"""A MariaDB of a test's own, which it may kill, with the tables and rows of the test database in it.

The fixture `own_database_server` (conftest.py) points every thread's connections at it: only host and port change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections

from tests.services import MariaDB

# Seconds that a statement may wait for a server that says nothing, as where requests are served, but shorter.
PATIENCE = 3


class OwnDatabase:
    """The server, and what `reset` makes of it again before each test."""

    def __init__(self, server: MariaDB) -> None:
        self.server = server
        self.name = ""
        self._rows: dict[str, tuple[list[str], list[tuple[Any, ...]]]] = {}

    def copy_from_default(self) -> None:
        """Tables, triggers and rows of the database that tests use. Cost: about a second, once."""
        if self.name:
            return
        own = self.server.connect()
        name = str(connection.settings_dict["NAME"])
        with connection.cursor() as source, own.cursor() as target:
            target.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
            target.execute(f"USE `{name}`")
            target.execute("SET foreign_key_checks=0")
            source.execute("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
            for table in [row[0] for row in source.fetchall()]:
                source.execute(f"SHOW CREATE TABLE `{table}`")
                target.execute(source.fetchone()[1])
                source.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() "
                    "AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position",
                    [table],
                )
                columns = [row[0] for row in source.fetchall()]
                source.execute(f"SELECT {_quoted(columns)} FROM `{table}`")
                self._rows[table] = (columns, list(source.fetchall()))
            source.execute("SHOW TRIGGERS")
            for trigger in [row[0] for row in source.fetchall()]:
                source.execute(f"SHOW CREATE TRIGGER `{trigger}`")
                target.execute(source.fetchone()[2])
        own.close()
        self.name = name
        self.reset()

    def reset(self) -> None:
        """Starts what a test has killed, and puts the rows back as they were copied."""
        assert self.server.process is not None
        if self.server.process.poll() is not None:
            self.server.start()
        self.server.resume()
        own = self.server.connect(self.name)
        with own.cursor() as target:
            target.execute("SET foreign_key_checks=0")
            for table, (columns, rows) in self._rows.items():
                if target.execute(f"SELECT 1 FROM `{table}` LIMIT 1"):
                    target.execute(f"TRUNCATE TABLE `{table}`")
                if rows:
                    marks = ", ".join(["%s"] * len(columns))
                    target.executemany(f"INSERT INTO `{table}` ({_quoted(columns)}) VALUES ({marks})", rows)
        own.close()

    @contextmanager
    def in_use(self) -> Iterator[MariaDB]:
        """Every connection that is opened in this block, by whatever thread, goes to this server."""
        default = connections.settings["default"]
        moved = [place for place in connections.settings.values() if place["NAME"] == default["NAME"]]
        own = {"HOST": "127.0.0.1", "PORT": str(self.server.port), "USER": "root", "PASSWORD": ""}
        patience = {"connect_timeout": PATIENCE, "read_timeout": PATIENCE, "write_timeout": PATIENCE}
        before = [(place, {name: place[name] for name in (*own, "OPTIONS")}) for place in moved]
        connections.close_all()
        for place in moved:
            place.update(own, OPTIONS={**place["OPTIONS"], **patience})
        try:
            yield self.server
        finally:
            connections.close_all()
            for place, values in before:
                place.update(values)


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
