"""Locks by name, for whatever has no lock of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from django.conf import settings

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.keys import DEFAULT_TENANT
from config.base.redis import Client
from guard.locks.fences import Range, lease_range, refuse_in_transaction, take_once
from guard.locks.held import Lock
from guard.locks.keys import FENCE, FENCE_SECONDS, LOCK, LOCK_SECONDS, MAX_LOCK_SECONDS
from guard.locks.taking import Hold, check_times, take

FENCE_LEASE = 1000  # fencing numbers that the database leases at once
# Seconds for connecting and for each answer: a hanging server costs a caller this wait, the next ones nothing.
TIMEOUT = 0.08
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}(?::[A-Za-z0-9_.-]{1,64}){0,7}\Z")


def check_name(name: object) -> str:
    """`name` itself when it is 1 to 8 identifiers with `:` between them. Errors: INVALID_ID (422)."""
    if isinstance(name, str) and _NAME.match(name):
        return name
    shown = repr(name[:40]) if isinstance(name, str) else type(name).__name__
    raise DomainError(
        "INVALID_ID", f"a lock's name is 1 to 8 parts of 1 to 64 of A-Z a-z 0-9 _ . - with ':' between, not {shown}"
    )


def acquire(
    name: str,
    *,
    ttl: float = LOCK_SECONDS,
    wait: float = 0.0,
    on_lost: Callable[[], None] | None = None,
    tenant: str = DEFAULT_TENANT,
) -> Lock:
    """Takes the lock and keeps it until `release()`; `hold` does both.

    ttl: seconds, 0.1 to 3600, the longest that the lock outlives its process; renewed at a third of it by a thread of
    its own while the process lives. wait: seconds to try for. on_lost: called once, from whatever thread notices.
    Cost: 1 round trip, 0 queries; each 1000th lock, and the first after Redis was restarted or emptied: 3 round trips
    and 2 queries, for numbers are leased from the database before they are used.
    Errors: LOCK_HELD (409, `expires_in` s), INVALID_ID, INVALID_REQUEST; RedisUnavailable (503) within TIMEOUT;
    RuntimeError inside a transaction.
    """
    check_times(ttl, wait, longest=MAX_LOCK_SECONDS)
    key = LOCK(tenant, name=check_name(name))
    refuse_in_transaction()
    what = f"the lock {name!r}"
    # A name may hold somebody's id: the log gets the kind of thing alone.
    shown = name.split(":")[0] if ":" in name else "one name"
    lock = Lock(key, redis=_redis, ttl=ttl, what=what, shown=shown, on_lost=on_lost)
    return take(lock, partial(_try, lock), wait=wait, refused=partial(_held, name), what=what)


def hold(
    name: str,
    *,
    ttl: float = LOCK_SECONDS,
    wait: float = 0.0,
    on_lost: Callable[[], None] | None = None,
    tenant: str = DEFAULT_TENANT,
) -> Hold[Lock]:
    """The lock `lock:{name}` for a `with` or `async with` block; see `acquire` for arguments and errors."""
    check_times(ttl, wait, longest=MAX_LOCK_SECONDS)
    check_name(name)
    return Hold(acquire, "LOCK_HELD", name=name, ttl=ttl, wait=wait, on_lost=on_lost, tenant=tenant)


def _redis() -> Client:
    return base_redis.client_for(settings.REDIS_URL, timeout=TIMEOUT)


def _held(name: str, left: float) -> DomainError:
    return DomainError("LOCK_HELD", f"the lock {name!r} is held for up to {left:.1f} s", expires_in=left)


def _try(lock: Lock) -> tuple[str, int]:
    return take_once(_redis(), lock, fence_key=FENCE(), fence_ttl=FENCE_SECONDS, lease=_lease)


def _lease() -> Range:
    return lease_range("locks", FENCE_LEASE)
