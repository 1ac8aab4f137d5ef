"""One holder at a time works on a session: `with locks.hold(caller=..., session_id=...) as lock:`.

The machinery is guard.locks'; here is whose lock it is, and where its fencing numbers come from: the session's row.
Redis away: closed. No lock is given, and one that cannot be renewed counts as lost when its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction

from config.base import redis as base_redis
from config.base.db import refuse_inside_transaction, retry_conflicts
from config.base.errors import DomainError
from guard.access.services import Caller
from guard.locks import taking
from guard.locks.fences import Range, take_once
from guard.locks.held import Lock
from memory.sessions.healing import healed
from memory.sessions.keys import FENCE, FENCE_SECONDS, LOCK, LOCK_SECONDS
from memory.sessions.owners import Owner, admit
from memory.sessions.reopen import locked

FENCE_LEASE = 100  # fencing numbers that MySQL leases at once


class SessionLock(Lock):
    """A session's lock that was taken. fence: its fencing number. ttl: seconds. Made by `hold`, or by `acquire`."""

    def __init__(self, owner: Owner, ttl: float, on_lost: Callable[[], None] | None) -> None:
        self.session_id = owner.session_id
        super().__init__(
            LOCK(owner.tenant, agent=owner.agent, session_id=owner.session_id),
            redis=base_redis.state,
            ttl=ttl,
            what=_what(owner.session_id),
            shown=owner.session_id,
            on_lost=on_lost,
        )


def check_times(ttl: float, wait: float) -> None:
    """Seconds of a lock. Errors: INVALID_REQUEST."""
    taking.check_times(ttl, wait, longest=LOCK_SECONDS)


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
    RedisUnavailable (503): a lock that Redis does not know of is none. RuntimeError inside a transaction of the
    caller's: it would end before that commits.
    """
    check_times(ttl, wait)
    refuse_inside_transaction("taking a session's lock")
    owner = admit(caller, session_id, "write")
    lock = SessionLock(owner, ttl, on_lost)
    refused = partial(_held, session_id)
    return taking.take(lock, lambda: _try(owner, lock), wait=wait, refused=refused, what=_what(session_id))


def _what(session_id: str) -> str:
    return f"the lock of session {session_id!r}"


def _held(session_id: str, left: float) -> DomainError:
    return DomainError("SESSION_LOCKED", f"session {session_id!r} is locked for up to {left:.1f} s", expires_in=left)


@healed
def _try(owner: Owner, lock: SessionLock) -> tuple[str, int]:
    fence = FENCE(owner.tenant, agent=owner.agent, session_id=owner.session_id)
    return take_once(
        base_redis.state(), lock, fence_key=fence, fence_ttl=FENCE_SECONDS, lease=lambda: _lease_fences(owner)
    )


def _lease_fences(owner: Owner) -> Range:
    """The next fencing numbers, never given before: committed before Redis hears of them. 2 queries."""

    def work() -> Range:
        with transaction.atomic(durable=True):
            row = locked(owner)
            first = row.fence_ceiling + 1
            row.fence_ceiling += FENCE_LEASE
            row.save(update_fields=["fence_ceiling"])
            return first, row.fence_ceiling

    return retry_conflicts(work)


class Hold(taking.Hold[SessionLock]):
    """See guard.locks.Hold; arguments are those of `acquire`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(acquire, "SESSION_LOCKED", **arguments)


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
