"""An SQLite file as the core system: opened read-only, its statements ended after their time."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

from django.db.backends.sqlite3.base import DatabaseWrapper as SQLiteWrapper

from memory.core.window import CoreWindow, statement_seconds

_STEPS = 5000  # of SQLite's virtual machine between two looks at the clock: well under a millisecond


class DatabaseWrapper(CoreWindow, SQLiteWrapper):
    _deadline = 0.0

    def get_connection_params(self) -> dict[str, Any]:
        params = super().get_connection_params()
        return {**params, "database": f"file:{quote(str(params['database']))}?mode=ro", "uri": True}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.execute("PRAGMA query_only = ON")
        connection.set_progress_handler(lambda: time.monotonic() > self._deadline, _STEPS)
        return connection

    def before_call(self) -> None:
        self._deadline = time.monotonic() + statement_seconds()
