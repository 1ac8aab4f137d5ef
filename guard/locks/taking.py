"""Waiting for a lock, and `with` and `async with`."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

from config.base.errors import DomainError
from config.base.offload import in_thread
from config.base.redis import RedisUnavailable
from guard.locks.held import Lock, clock

LongLock = TypeVar("LongLock", bound=Lock)

_LONGEST_WAIT = 86_400.0  # s
_POLL = (0.02, 0.2)  # s between tries of who waits, at random: those who wait together do not try together


def check_times(ttl: float, wait: float, *, longest: float) -> None:
    """Seconds of a lock. Errors: INVALID_REQUEST."""
    for name, seconds, low, high in (("ttl", ttl, 0.1, longest), ("wait", wait, 0, _LONGEST_WAIT)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not low <= seconds <= high:
            raise DomainError("INVALID_REQUEST", f"a lock's {name} is {low} to {high} s, not {str(seconds)[:40]!r}")


def take(
    lock: LongLock,
    attempt: Callable[[], tuple[str, int]],
    *,
    wait: float,
    refused: Callable[[float], DomainError],
    what: str,
) -> LongLock:
    """Tries until the lock is taken or `wait` seconds are over; keeps it until `release()`.

    attempt: one try, as `fences.take_once` answers it. refused: the error for a lock that is held for so many seconds
    more. Errors: that one; RedisUnavailable: a lock that Redis does not know of is none.
    """
    give_up = time.monotonic() + wait
    try:
        while True:
            began = clock()
            state, number = attempt()
            if state == "OK":
                lock.start(began, number)
                return lock
            pause = random.uniform(*_POLL)  # noqa: S311 - not a secret
            if time.monotonic() + pause > give_up:
                raise refused(max(0, number) / 1000)
            time.sleep(pause)
    except RedisUnavailable as error:
        # Its answer may be what was lost: then the time to live ends the lock.
        raise RedisUnavailable(f"{what} cannot be taken: {error}") from error


class Hold(Generic[LongLock]):
    """`with` and `async with`. At the end of the block the lock is given back; LOCK_LOST is raised there when it was
    lost meanwhile and the block itself did not raise: its work may have met another's.

    Cancelled while it waits, `async with` holds nothing; cancelled within the block, it ends as with any exception.
    Either way the lock is free before the CancelledError goes on (a second cancellation does not wait for that).

    acquire: takes the lock; busy: the code of its error for a lock that somebody else holds. arguments: for `acquire`,
    `wait` among them.
    """

    def __init__(self, acquire: Callable[..., LongLock], busy: str, **arguments: Any) -> None:
        self._acquire, self._busy = acquire, busy
        self._arguments = arguments
        self._lock: LongLock | None = None

    def __enter__(self) -> LongLock:
        self._lock = self._acquire(**self._arguments)
        return self._lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock = self._lock
        assert lock is not None
        was_lost = lock.lost
        lock.release()
        if kind is None and (was_lost or lock.was_lost):
            raise lock.lost_error()

    async def __aenter__(self) -> LongLock:
        give_up = time.monotonic() + self._arguments["wait"]
        while True:
            try:
                self._lock = await _Taking(self._acquire, {**self._arguments, "wait": 0.0}).taken()
                return self._lock
            except DomainError as refused:
                # Waited for here and not in a thread: whoever holds it needs one to give it back.
                pause = random.uniform(*_POLL)  # noqa: S311 - not a secret
                if refused.code != self._busy or time.monotonic() + pause > give_up:
                    raise
            await asyncio.sleep(pause)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(partial(self.__exit__, kind, error, trace), always=True)


class _Taking(Generic[LongLock]):
    """One try to take the lock, in a thread, for somebody who may be cancelled meanwhile: a lock that nobody holds
    would be renewed for ever. Whether it is handed over or given back is settled in the thread that took it, for the
    event loop may be gone by then."""

    def __init__(self, acquire: Callable[..., LongLock], arguments: dict[str, Any]) -> None:
        self._acquire, self._arguments = acquire, arguments
        self._settling = threading.Lock()
        self._given_up = False
        self._taken: LongLock | None = None

    def _take(self) -> LongLock:
        lock = self._acquire(**self._arguments)
        with self._settling:
            if not self._given_up:
                self._taken = lock
                return lock
        lock.release()
        return lock

    async def taken(self) -> LongLock:
        try:
            return await in_thread(self._take)
        except asyncio.CancelledError:
            with self._settling:
                self._given_up = True
                lock = self._taken
            if lock is not None:
                await in_thread(lock.release, always=True)
            raise
