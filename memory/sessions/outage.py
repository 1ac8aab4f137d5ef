"""What an outage of Redis looks like in the log of a process: one line when it begins and one, with counts, when it
is over, however many sessions went on past it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter

from config.base import redis as base_redis

logger = logging.getLogger(__name__)


class _Outage:
    """Per process. Whoever does something past Redis notes it here and logs nothing of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self._noted: Counter[str] = Counter()

    @property
    def open(self) -> bool:
        return self._since is not None

    def begin(self) -> None:
        with self._lock:
            if self._since is not None:
                return
            self._since = time.monotonic()
            self._noted.clear()  # what went past a Redis that was there
        logger.warning("Redis is away: sessions go on in the database")

    def note(self, what: str) -> None:
        """what: in the plural, as it stands after a number."""
        with self._lock:
            self._noted[what] += 1

    def end(self) -> None:
        """Redis has answered again."""
        with self._lock:
            if self._since is None:
                return
            seconds = time.monotonic() - self._since
            noted = ", ".join(f"{count} {what}" for what, count in sorted(self._noted.items())) or "nothing was done"
            self._since = None
            self._noted.clear()
        logger.warning("Redis is back after %.1f s; past it: %s", seconds, noted)


outage = _Outage()
base_redis.on_outage(outage.begin)
