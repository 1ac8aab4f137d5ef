"""A lock that was taken: it renews itself, and knows when it may have been lost."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable

from config.base.errors import DomainError
from config.base.redis import Client, RedisUnavailable, Script

logger = logging.getLogger(__name__)

_renew = Script.beside(__file__, "renew")
_unlock = Script.beside(__file__, "unlock")

# Of the time to live, what the holder does not count on: its clock and the server's need not run alike.
_MARGIN = 0.05
# Goes on while the machine sleeps, as the server's clock does; CLOCK_MONOTONIC does not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds that passed since some moment, on this machine."""
    return time.clock_gettime(_CLOCK)


class Lock:
    """A lock that was taken. fence: its fencing number. ttl: seconds. Made by `hold`, or by `acquire`.

    key: its name in Redis; redis: gives the client to ask. what: names it to the holder, shown: in the log (no name
    that somebody chose freely). on_lost: called once, from whatever thread notices.
    """

    def __init__(
        self,
        key: str,
        *,
        redis: Callable[[], Client],
        ttl: float,
        what: str,
        shown: str,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self.token = secrets.token_hex(16)
        self.ttl = ttl
        self.fence = 0
        self._key, self._redis = key, redis
        self._what, self._shown = what, shown
        self._on_lost = on_lost
        self._until = 0.0
        self._pid = os.getpid()
        self._lost = threading.Event()
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> bool:
        """Whether it is certain or possible that somebody else holds the lock now. Never False again after True."""
        if not self._ended.is_set() and clock() >= self._until:
            self._lose()
        return self._lost.is_set()

    @property
    def was_lost(self) -> bool:
        """Whether it was seen to be lost, be it that it was given back since."""
        return self._lost.is_set()

    def check(self) -> None:
        """Before each step that must not be done by two. Errors: LOCK_LOST (409)."""
        if self.lost:
            raise self.lost_error("; stop")

    def lost_error(self, advice: str = "") -> DomainError:
        return DomainError("LOCK_LOST", f"{self._what} was lost{advice}", fence=self.fence)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until it is lost, or ended, at most `timeout` seconds; returns `lost`."""
        self._lost.wait(timeout)
        return self.lost

    def renew(self) -> bool:
        """Once, now; the lock also does it by itself. False where it was lost. Errors: RedisUnavailable."""
        began = clock()
        if self.lost:
            return False
        if not _renew(self._redis(), [self._key], [self.token, milliseconds(self.ttl)]):
            self._lose()
            return False
        self._until = began + self.ttl * (1 - _MARGIN)
        return True

    def release(self) -> None:
        """Gives it back. Harmless when it is lost, or Redis is away: its time to live ends it."""
        self._ended.set()
        if os.getpid() != self._pid:
            return  # a forked child's copy: the lock is its parent's
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self.ttl)
        with contextlib.suppress(RedisUnavailable):
            if not _unlock(self._redis(), [self._key], [self.token]):
                self._lose()

    def start(self, began: float, fence: int) -> None:
        """It was taken: keeps it from now on. began: `clock()` before Redis was asked."""
        self.fence = fence
        self._until = began + self.ttl * (1 - _MARGIN)
        self._thread = threading.Thread(target=self._keep, name=f"lock-{self._shown}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: what nobody would renew is not given out
            self._thread = None
            self.release()
            raise

    def _lose(self) -> None:
        with self._telling:
            if self._lost.is_set():
                return
            self._lost.set()
        logger.warning("lock of %s lost, fence %s", self._shown, self.fence)
        if self._on_lost is not None:
            self._on_lost()

    def _keep(self) -> None:
        """Renews at a third of its time; while Redis is away tries again, until the time is over."""
        pause = self.ttl / 3
        while not self._ended.wait(pause):
            try:
                if not self.renew():
                    return
                pause = self.ttl / 3
            except RedisUnavailable:
                pause = min(0.2, self.ttl / 10)
                if self.lost:
                    return
            except Exception:
                # Whatever it is, an unrenewed lock is over when its time is.
                logger.exception("renewing the lock of %s failed", self._shown)
                pause = min(1.0, self.ttl / 10)
                if self.lost:
                    return


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))
