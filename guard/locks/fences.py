"""Taking a lock together with its fencing number, which only grows and outlives Redis.

Redis gives the numbers out, from ranges that the database leased to it. Another server process than the one that a
range was leased to may have lost what it gave last (a restart, a failover, a flush): it asks for a new range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import IntegrityError, connection, transaction

from config.base.db import retry_conflicts
from config.base.redis import RUN_ID, Client, RedisUnavailable, Script
from guard.locks.held import Lock, milliseconds
from guard.locks.models import LockFence

_lock = Script.beside(__file__, "lock")
_fence = Script.beside(__file__, "fence")

Range = tuple[int, int]  # first and last number
_ATTEMPTS = 20


def take_once(
    client: Client, lock: Lock, *, fence_key: str, fence_ttl: int, lease: Callable[[], Range]
) -> tuple[str, int]:
    """`("OK", fencing number)`, or `("HELD", ms until it ends at the latest)`.

    fence_key: the hash of the numbers, fence_ttl: seconds. lease: takes a range from the database, committed before it
    returns. Cost: 1 round trip; 3 where numbers are leased. Errors: RedisUnavailable, those of `lease`.
    """
    keys = [lock._key, fence_key]
    for _ in range(_ATTEMPTS):
        reply: list[Any] = _lock(client, keys, [RUN_ID, lock.token, milliseconds(lock.ttl), fence_ttl])
        if reply[0] != "FENCE":
            return reply[0], int(reply[1])
        first, last = lease()
        _fence(client, [fence_key], [RUN_ID, reply[1], reply[2], first, last, fence_ttl])
    raise RedisUnavailable("its fencing numbers do not stay in Redis")


def lease_range(series: str, size: int) -> Range:
    """The next numbers of a series, never given before: committed before Redis hears of them. 2 queries.

    Errors: RuntimeError inside a transaction: rolled back, it would give the same numbers twice.
    """

    def work() -> Range:
        with transaction.atomic(durable=True):
            row = LockFence.objects.select_for_update().filter(series=series).first()
            if row is None:
                row = LockFence.objects.create(series=series)
            first = row.ceiling + 1
            row.ceiling += size
            row.save(update_fields=["ceiling"])
            return first, row.ceiling

    return retry_conflicts(work, also=(IntegrityError,))


def refuse_in_transaction() -> None:
    """Said each time and not only when numbers are leased: a lock that is given back before the transaction commits
    lets the next holder work on what is not there yet. Errors: RuntimeError."""
    blocks = connection.atomic_blocks
    if blocks and not getattr(blocks[-1], "_from_testcase", False):
        raise RuntimeError("a lock is taken before the transaction opens, and given back after it has ended")
