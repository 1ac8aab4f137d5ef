"""A deadline for a driver's call as a whole, whatever its server drips.

A driver's own time-out begins anew with each byte that comes, so a server that sends its answer a byte at a time holds
the caller for as long as it likes. Here one thread of the process looks at the clock for all calls: past its deadline a
call's socket is shut down, and the call fails at once with the driver's own "connection lost".

On the healthy path a call costs some microseconds and no system call; the thread wakes no more than once a deadline.
"""

from __future__ import annotations

import heapq
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Line:
    """A connection's socket, by a descriptor of our own: the driver may close its own at any moment, and its number may
    then be somebody else's connection. What is shut down here is this connection, or nothing any more."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))

    def shut(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Lets go of the descriptor, so that the other side learns of the driver's close."""
        self._socket.close()

    def __del__(self) -> None:
        with suppress(AttributeError):
            self._socket.close()


class _Watch:
    __slots__ = ("line", "missed", "over")

    def __init__(self, line: Line) -> None:
        self.line, self.over, self.missed = line, False, False


class _Watchman:
    """The thread, and the calls it looks after, the nearest deadline first."""

    def __init__(self) -> None:
        self._waiting = threading.Condition(threading.Lock())
        self._calls: list[tuple[float, int, _Watch]] = []
        self._count = 0
        self._wakes = math.inf
        self._thread: threading.Thread | None = None

    def begin(self, line: Line, seconds: float) -> _Watch:
        watch = _Watch(line)
        deadline = time.monotonic() + seconds
        with self._waiting:
            calls = self._calls
            while calls and calls[0][2].over:
                heapq.heappop(calls)
            self._count += 1
            heapq.heappush(calls, (deadline, self._count, watch))
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="deadlines", daemon=True)
                self._thread.start()
            elif self._wakes > deadline:
                # After a call that ended the thread sleeps on to that one's deadline: mostly it wakes early enough.
                self._wakes = deadline
                self._waiting.notify()
        return watch

    def end(self, watch: _Watch) -> bool:
        """Whether the deadline was missed. After this nothing of the line is touched on this call's account."""
        with self._waiting:
            watch.over = True
        return watch.missed

    def _look(self) -> None:
        with self._waiting:
            while True:
                calls = self._calls
                at = time.monotonic()
                while calls and (calls[0][2].over or calls[0][0] <= at):
                    watch = heapq.heappop(calls)[2]
                    if not watch.over:
                        watch.missed = True
                        watch.line.shut()
                self._wakes = calls[0][0] if calls else math.inf
                self._waiting.wait(self._wakes - at if calls else None)


_watchman = _Watchman()


def _anew() -> None:
    # A child of fork has no such thread, and the lock may have been held.
    global _watchman
    _watchman = _Watchman()


os.register_at_fork(after_in_child=_anew)


class Missed:
    """over: the deadline passed, and the connection is of no use any more."""

    over = False


@contextmanager
def within(line: Line, seconds: float) -> Iterator[Missed]:
    """The block's calls on this line end after so many seconds, together."""
    missed = Missed()
    watch = _watchman.begin(line, seconds)
    try:
        yield missed
    finally:
        missed.over = _watchman.end(watch)
