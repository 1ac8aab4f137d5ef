"""Work whose database connection dies at a chosen statement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection, connections


class Killed(BaseException):
    """Whatever the process was doing, it is over: nobody catches it."""


def dies_at(statement: int, work: Callable[[], Any]) -> bool:
    """The work in a thread whose connection dies at that statement (1: the first). Whether it came so far."""
    left = [statement]
    died: list[bool] = []

    def dying(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            raise Killed
        return execute(sql, params, many, context)

    def run() -> None:
        with connection.execute_wrapper(dying):
            try:
                work()
            except Killed:
                died.append(True)
            finally:
                connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return bool(died)
