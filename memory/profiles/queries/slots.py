"""How many statements run at one time in this process: each has a connection of its own and may work for seconds."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from config.base.errors import DomainError

RETRY_AFTER = 1  # seconds


class Slots:
    """No queue: who finds none is told at once, and waits on their own side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def one(self, tenant: str, actor_id: str) -> Iterator[None]:
        """Errors: SQL_BUSY (429), while the analyst has ANALYTICS_AT_ONCE statements at work in this process, or
        everybody together ANALYTICS_AT_ONCE_ALL."""
        who = (tenant, actor_id)
        with self._lock:
            if self._taken[who] >= settings.ANALYTICS_AT_ONCE:
                raise _busy(f"{settings.ANALYTICS_AT_ONCE} of your statements are at work")
            if self._taken.total() >= settings.ANALYTICS_AT_ONCE_ALL:
                raise _busy(f"{settings.ANALYTICS_AT_ONCE_ALL} statements are at work")
            self._taken[who] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[who] -= 1
                if not self._taken[who]:
                    del self._taken[who]


def _busy(why: str) -> DomainError:
    return DomainError("SQL_BUSY", f"{why}; ask again when one has ended", retry_after=RETRY_AFTER)


slots = Slots()


def _after_fork() -> None:
    """In a forked child: the statements at work are the parent's."""
    global slots
    slots = Slots()


os.register_at_fork(after_in_child=_after_fork)
