"""Whether the cache may hold what is older than MySQL: from the first call that Redis did not answer, or refused, until
this process has looked after every invalidation that waits in `profile_change`.

While Redis was away (or took no writes) a save may have committed whose `DEL` did not reach it. Who saw that, a reader
or a writer, trusts no value any more: it goes to MySQL until the rows that wait are read and their keys deleted. A
server that this process has not met before (restarted, promoted) is doubted too: it may have forgotten deletions.
Whoever saw nothing of it is served by `retrying`: the process whose `DEL` failed tries again ten times a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable

from django.db import DatabaseError

from config.base.redis import RedisUnavailable, on_other_server
from memory.profiles.models import ProfileChange

BATCH = 500
# One look reads no more rows than this; who has more to look after goes on at the next.
MAX_ROWS = 5_000
# Seconds between two looks of a process that failed, and between two tries of a DEL that failed.
PAUSE = 0.1
# A DEL is tried again for so long, of so many keys; what is left is the sweeper's.
RETRY_SECONDS, RETRY_KEYS = 120.0, 20_000

DropRows = Callable[[list[ProfileChange]], None]


class Doubt:
    """count: grows with each new doubt, so that a reader can tell whether one arose while it asked."""

    def __init__(self) -> None:
        self.standing = False
        self.count = 0
        self._lock = threading.Lock()
        self._not_before = 0.0
        self._after = 0

    def raise_it(self, *, pausing: bool = False) -> None:
        """pausing: there is no use in looking before PAUSE seconds are over."""
        self.count += 1
        if pausing:
            self._not_before = time.monotonic() + PAUSE
        self._after = 0
        self.standing = True

    def forget(self) -> None:
        self.standing, self._not_before, self._after = False, 0.0, 0

    def settled(self, drop: DropRows, *, patience: float) -> bool:
        """Whether the cache may be trusted (again). Cost where it may not: 1 SQL and 1 round trip for each 500 rows
        that wait, once each PAUSE; other threads wait for that, but no longer than `patience` seconds."""
        if time.monotonic() < self._not_before or not self._lock.acquire(timeout=patience):
            return False
        try:
            if self.standing and time.monotonic() >= self._not_before:
                count = self.count
                done = self._looked_after(drop)
                if done and count == self.count:
                    self.standing = False
                else:
                    self._not_before = time.monotonic() + PAUSE
            return not self.standing
        finally:
            self._lock.release()

    def _looked_after(self, drop: DropRows) -> bool:
        try:
            for _batch in range(MAX_ROWS // BATCH):
                rows = list(ProfileChange.objects.filter(id__gt=self._after).order_by("id")[:BATCH])
                if rows:
                    drop(rows)
                if len(rows) < BATCH:
                    return True
                self._after = rows[-1].pk
        except (RedisUnavailable, DatabaseError):
            pass
        return False


doubt = Doubt()
on_other_server(doubt.raise_it)


# --- a DEL that failed ----------------------------------------------------------------------------------------------


class Retrying:
    """Keys whose DEL failed, and the thread that tries again while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._thread: threading.Thread | None = None

    def add(self, names: Iterable[str], drop: Callable[[list[str]], None]) -> None:
        with self._lock:
            if len(self._names) < RETRY_KEYS:
                self._names.update(names)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(drop,), name="profile-drops", daemon=True)
                self._thread.start()

    def forget(self) -> None:
        """Its thread ends without a further try; what fails later has another."""
        with self._lock:
            self._names.clear()
            self._thread = None

    def _run(self, drop: Callable[[list[str]], None]) -> None:
        until = time.monotonic() + RETRY_SECONDS
        while True:
            time.sleep(PAUSE)
            with self._lock:
                if self._thread is not threading.current_thread():
                    return
                names = sorted(self._names)
                if not names or time.monotonic() > until:
                    self._names.clear()
                    self._thread = None
                    return
            try:
                drop(names)
            except RedisUnavailable:
                continue
            with self._lock:
                self._names.difference_update(names)


retrying = Retrying()


def forget() -> None:
    """What this process doubts and tries again."""
    doubt.forget()
    retrying.forget()


def _after_fork() -> None:
    """The threads, and who holds which lock, are the parent's."""
    global retrying
    retrying = Retrying()
    doubt._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
