"""A service that hangs: the first caller waits for it, the next ones do not, and now and then one tries."""

from __future__ import annotations

import threading
import time


class Breaker:
    """Per process: whether a service that gave no answer a moment ago is asked again."""

    def __init__(self, hold_seconds: float) -> None:
        """hold_seconds: so long after a failure nobody tries; then one does, and the others go on without."""
        self._hold = hold_seconds
        self._lock = threading.Lock()
        self._until = 0.0

    @property
    def open(self) -> bool:
        """Whether the last one who tried has failed."""
        return bool(self._until)

    def may_try(self) -> bool:
        """True for everybody while the service answers; after a failure for one caller each `hold_seconds`."""
        if not self._until:
            return True
        with self._lock:
            if time.monotonic() < self._until:
                return False
            self._until = time.monotonic() + self._hold
            return True

    def trip(self) -> None:
        """The service gave no answer."""
        with self._lock:
            self._until = time.monotonic() + self._hold

    def reset(self) -> None:
        """The service has answered."""
        if self._until:
            with self._lock:
                self._until = 0.0
