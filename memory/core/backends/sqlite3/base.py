"""An SQLite file as the core system: opened read-only, its statements ended after their time."""

from __future__ import annotations

import hashlib
import time
from typing import Any
from urllib.parse import quote

from django.db.backends.sqlite3.base import DatabaseWrapper as SQLiteWrapper

from memory.core.window import CoreWindow, statement_seconds

_STEPS = 5000  # of SQLite's virtual machine between two looks at the clock: well under a millisecond


class RowsHash:
    """`rows_hash(a, b, …)` in SQL: how many rows, and a hash of them in any order (memory/core/digests.py)."""

    def __init__(self) -> None:
        self._rows, self._sum = 0, 0

    def step(self, *values: object) -> None:
        self._rows += 1
        self._sum += int.from_bytes(hashlib.sha256(repr(values).encode()).digest()[:8])

    def finalize(self) -> str:
        return f"{self._rows}:{self._sum}"


class DatabaseWrapper(CoreWindow, SQLiteWrapper):
    _deadline = 0.0

    def get_connection_params(self) -> dict[str, Any]:
        params = super().get_connection_params()
        return {**params, "database": f"file:{quote(str(params['database']))}?mode=ro", "uri": True}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.execute("PRAGMA query_only = ON")
        connection.create_aggregate("rows_hash", -1, RowsHash)
        connection.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)
        return connection

    def before_call(self) -> None:
        self._deadline = time.monotonic() + statement_seconds()
