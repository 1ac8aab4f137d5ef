"""A database that hangs: the first append that wants to commit what is queued waits for it, the next ones do not.

What they would commit is in the stream, whence the drain takes it; so nothing is lost by not trying.
"""

from __future__ import annotations

import threading
import time

# So long after a commit that got no answer nobody tries; then one does, and the others go on without.
HOLD_SECONDS = 5.0


class _Breaker:
    """Per process: whether batches that are queued shall be committed by the appends themselves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until = 0.0

    def may_try(self) -> bool:
        """True for everybody while the database answers; after a failure for one caller each HOLD_SECONDS."""
        if not self._until:
            return True
        with self._lock:
            if time.monotonic() < self._until:
                return False
            self._until = time.monotonic() + HOLD_SECONDS
            return True

    def trip(self) -> None:
        with self._lock:
            self._until = time.monotonic() + HOLD_SECONDS

    def reset(self) -> None:
        """The database has answered."""
        if self._until:
            with self._lock:
                self._until = 0.0


database = _Breaker()
