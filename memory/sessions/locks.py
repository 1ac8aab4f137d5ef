"""One holder at a time works on a session: `with locks.hold(caller=..., session_id=...) as lock:`.

A lock with a time to live can always be lost: its holder was suspended, or Redis lost it. So the holder is told
(`lost`, `check()`, and LOCK_LOST at the end of the block), and each lock has a fencing number, higher than all before
it: who writes somewhere else passes it along, and that place refuses a lower one than it has seen.
Redis away: closed. No lock is given, and one that cannot be renewed counts as lost when its time is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

from django.db import transaction

from config.base import redis as base_redis
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.offload import in_thread
from config.base.redis import RUN_ID, RedisUnavailable, Script
from guard.access.services import Caller
from memory.sessions.healing import healed
from memory.sessions.keys import FENCE, FENCE_SECONDS, LOCK, LOCK_SECONDS
from memory.sessions.owners import Owner, admit
from memory.sessions.reopen import locked

logger = logging.getLogger(__name__)

_lock = Script.beside(__file__, "lock")
_fence = Script.beside(__file__, "fence")
_renew = Script.beside(__file__, "renew")
_unlock = Script.beside(__file__, "unlock")

FENCE_LEASE = 100  # fencing numbers that MySQL leases at once
_ATTEMPTS = 20
_LONGEST_WAIT = 86_400.0  # s
_POLL = (0.02, 0.2)  # s between tries of who waits, at random: those who wait together do not try together
# Of the time to live, what the holder does not count on: its clock and the server's need not run alike.
_MARGIN = 0.05


class SessionLock:
    """A lock that was taken. fence: its fencing number. ttl: seconds. Made by `hold`, or by `acquire`."""

    def __init__(self, owner: Owner, token: str, ttl: float, on_lost: Callable[[], None] | None) -> None:
        self.session_id = owner.session_id
        self.token = token
        self.ttl = ttl
        self.fence = 0
        self._key = LOCK(owner.tenant, agent=owner.agent, session_id=owner.session_id)
        self._on_lost = on_lost
        self._until = 0.0
        self._lost = threading.Event()
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> bool:
        """Whether it is certain or possible that somebody else holds the lock now. Never False again after True."""
        if not self._ended.is_set() and time.monotonic() >= self._until:
            self._lose()
        return self._lost.is_set()

    def check(self) -> None:
        """Before each step that must not be done by two. Errors: LOCK_LOST (409)."""
        if self.lost:
            raise DomainError("LOCK_LOST", f"the lock of session {self.session_id!r} was lost; stop", fence=self.fence)

    def wait_lost(self, timeout: float | None = None) -> bool:
        """Waits until it is lost, or ended, at most `timeout` seconds; returns `lost`."""
        self._lost.wait(timeout)
        return self.lost

    def renew(self) -> bool:
        """Once, now; the lock also does it by itself. False where it was lost. Errors: RedisUnavailable."""
        began = time.monotonic()
        if self.lost:
            return False
        if not _renew(base_redis.state(), [self._key], [self.token, _ms(self.ttl)]):
            self._lose()
            return False
        self._until = began + self.ttl * (1 - _MARGIN)
        return True

    def release(self) -> None:
        """Gives it back. Harmless when it is lost, or Redis is away: its time to live ends it."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=self.ttl)
        with contextlib.suppress(RedisUnavailable):
            if not _unlock(base_redis.state(), [self._key], [self.token]):
                self._lose()

    def _lose(self) -> None:
        with self._telling:
            if self._lost.is_set():
                return
            self._lost.set()
        logger.warning("lock of session %s lost, fence %s", self.session_id, self.fence)
        if self._on_lost is not None:
            self._on_lost()

    def _start(self, began: float) -> None:
        self._until = began + self.ttl * (1 - _MARGIN)
        name = f"lock-{self.session_id}"
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

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
                logger.exception("renewing the lock of session %s failed", self.session_id)
                pause = min(1.0, self.ttl / 10)
                if self.lost:
                    return


def _ms(seconds: float) -> int:
    return max(1, int(seconds * 1000))


def check_times(ttl: float, wait: float) -> None:
    """Seconds of a lock. Errors: INVALID_REQUEST."""
    for name, seconds, low, high in (("ttl", ttl, 0.1, LOCK_SECONDS), ("wait", wait, 0, _LONGEST_WAIT)):
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not low <= seconds <= high:
            raise DomainError("INVALID_REQUEST", f"a lock's {name} is {low} to {high} s, not {str(seconds)[:40]!r}")


def acquire(
    *,
    caller: Caller,
    session_id: str,
    ttl: float = LOCK_SECONDS,
    wait: float = 0.0,
    on_lost: Callable[[], None] | None = None,
) -> SessionLock:
    """Takes the lock and keeps it until `release()`; `hold` does both.

    ttl: seconds, 0.1 to 30; renewed by a thread of its own while this process lives. wait: seconds to try for.
    on_lost: called once, from whatever thread notices.
    Cost: 1 round trip, 0 queries; each 100th lock, and the first after Redis was restarted or emptied: 3 round trips
    and 2 queries, for numbers are leased from MySQL before they are used.
    Errors: SESSION_LOCKED (409, `expires_in` s), those of `admit`, SESSION_DELETED (410), INVALID_REQUEST;
    RedisUnavailable (503): a lock that Redis does not know of is none.
    """
    check_times(ttl, wait)
    owner = admit(caller, session_id, "write")
    lock = SessionLock(owner, secrets.token_hex(16), ttl, on_lost)
    give_up = time.monotonic() + wait
    try:
        while True:
            began = time.monotonic()
            reply = _try(owner, lock)
            if reply[0] == "OK":
                lock.fence = int(reply[1])
                lock._start(began)
                return lock
            left = max(0, int(reply[1])) / 1000
            pause = random.uniform(*_POLL)  # noqa: S311 - not a secret
            if time.monotonic() + pause > give_up:
                raise DomainError(
                    "SESSION_LOCKED", f"session {session_id!r} is locked for up to {left:.1f} s", expires_in=left
                )
            time.sleep(pause)
    except RedisUnavailable as error:
        # Its answer may be what was lost: then the time to live ends the lock.
        raise RedisUnavailable(f"the lock of session {session_id!r} cannot be taken: {error}") from error


@healed
def _try(owner: Owner, lock: SessionLock) -> list[Any]:
    client = base_redis.state()
    fence = FENCE(owner.tenant, agent=owner.agent, session_id=owner.session_id)
    for _ in range(_ATTEMPTS):
        reply: list[Any] = _lock(client, [lock._key, fence], [RUN_ID, lock.token, _ms(lock.ttl), FENCE_SECONDS])
        if reply[0] != "FENCE":
            return reply
        first, last = _lease_fences(owner)
        _fence(client, [fence], [RUN_ID, reply[1], reply[2], first, last, FENCE_SECONDS])
    raise RedisUnavailable("its fencing numbers do not stay in Redis")


def _lease_fences(owner: Owner) -> tuple[int, int]:
    """The next fencing numbers, never given before: committed before Redis hears of them. 2 queries."""

    def work() -> tuple[int, int]:
        with transaction.atomic(durable=True):
            row = locked(owner)
            first = row.fence_ceiling + 1
            row.fence_ceiling += FENCE_LEASE
            row.save(update_fields=["fence_ceiling"])
            return first, row.fence_ceiling

    return retry_conflicts(work)


class Hold:
    """`with` and `async with`. At the end of the block the lock is given back; LOCK_LOST is raised there when it was
    lost meanwhile and the block itself did not raise: its work may have met another's.

    Cancelled while it waits, `async with` holds nothing; cancelled within the block, it ends as with any exception.
    Either way the lock is free before the CancelledError goes on (a second cancellation does not wait for that).
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._lock: SessionLock | None = None

    def __enter__(self) -> SessionLock:
        self._lock = acquire(**self._arguments)
        return self._lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lock = self._lock
        assert lock is not None
        was_lost = lock.lost
        lock.release()
        if kind is None and (was_lost or lock._lost.is_set()):
            raise DomainError("LOCK_LOST", f"the lock of session {lock.session_id!r} was lost", fence=lock.fence)

    async def __aenter__(self) -> SessionLock:
        give_up = time.monotonic() + self._arguments["wait"]
        while True:
            try:
                self._lock = await _Taking({**self._arguments, "wait": 0.0}).taken()
                return self._lock
            except DomainError as refused:
                # Waited for here and not in a thread: whoever holds it needs one to give it back.
                pause = random.uniform(*_POLL)  # noqa: S311 - not a secret
                if refused.code != "SESSION_LOCKED" or time.monotonic() + pause > give_up:
                    raise
            await asyncio.sleep(pause)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(partial(self.__exit__, kind, error, trace), always=True)


class _Taking:
    """One try to take the lock, in a thread, for somebody who may be cancelled meanwhile: a lock that nobody holds
    would be renewed for ever. Whether it is handed over or given back is settled in the thread that took it, for the
    event loop may be gone by then."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._settling = threading.Lock()
        self._given_up = False
        self._taken: SessionLock | None = None

    def _take(self) -> SessionLock:
        lock = acquire(**self._arguments)
        with self._settling:
            if not self._given_up:
                self._taken = lock
                return lock
        lock.release()
        return lock

    async def taken(self) -> SessionLock:
        try:
            return await in_thread(self._take)
        except asyncio.CancelledError:
            with self._settling:
                self._given_up = True
                lock = self._taken
            if lock is not None:
                await in_thread(lock.release, always=True)
            raise


def hold(
    *,
    caller: Caller,
    session_id: str,
    ttl: float = LOCK_SECONDS,
    wait: float = 0.0,
    on_lost: Callable[[], None] | None = None,
) -> Hold:
    """The lock of a session for a `with` or `async with` block; see `acquire` for arguments and errors."""
    check_times(ttl, wait)
    return Hold(caller=caller, session_id=session_id, ttl=ttl, wait=wait, on_lost=on_lost)
