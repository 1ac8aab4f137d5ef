"""What is queued in Redis and not yet in the database: for people who look after it."""

from __future__ import annotations

from dataclasses import dataclass

from config.base import redis as base_redis
from memory.sessions.keys import PENDING
from memory.sessions.models import MessageDeadLetter


@dataclass(frozen=True)
class Backlog:
    """entries: messages that wait, of all tenants; age: seconds of the oldest of them."""

    entries: int
    age: float


def backlog() -> Backlog:
    """1 round trip. Errors: RedisUnavailable; redis' ResponseError where the key is no stream."""
    pipe = base_redis.state().pipeline(transaction=False)
    pipe.xlen(PENDING())
    pipe.xrange(PENDING(), count=1)
    pipe.time()
    entries, oldest, (seconds, micros) = pipe.execute()
    age = 0.0
    if oldest:
        age = max(0.0, seconds + micros / 1e6 - int(str(oldest[0][0]).partition("-")[0]) / 1000)
    return Backlog(int(entries), age)


def waiting_letters(*, tenant: str, limit: int) -> int:
    """Messages that could not be stored and that nobody has settled, up to `limit`. 1 query, by an index."""
    return MessageDeadLetter.objects.filter(tenant=tenant, settled="").order_by()[:limit].count()
