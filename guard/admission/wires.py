"""The connection that admission uses: its own, since it may wait for Redis a tenth of a second and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from config.base import redis as base_redis
from config.base.redis import Client, RedisUnavailable
from guard.admission import periods
from guard.admission.tuning import tuning

# Seconds for connecting and for each answer. After one time-out this process does without for BREAKER_SECONDS, so that
# a hanging server costs one caller this wait, and the others nothing.
TIMEOUT = 0.1


def client() -> Client:
    return base_redis.client_for(tuning().redis_url, timeout=TIMEOUT)


@contextmanager
def translated() -> Iterator[Client]:
    """`client()` for plain commands, with the driver's ways of saying "away" as RedisUnavailable."""
    impatient = client()
    with base_redis.translated(impatient.breaker):
        yield impatient


def deadline() -> int:
    """What a script that takes something is told: ms, by the server's clock, after which its caller has given up. A
    server that hung does what it was sent when it goes on, whoever waits for it."""
    return periods.clock.deadline_ms(int(TIMEOUT * 1000))


def may_be_done(error: RedisUnavailable) -> bool:
    """Whether the server may have done what it was asked: it was sent, and only the answer is missing."""
    cause = error.__cause__
    if cause is None:
        return False  # not even tried, a moment after a time-out
    return not isinstance(cause.__cause__ or cause.__context__, ConnectionRefusedError | FileNotFoundError)


def prefix() -> str:
    return tuning().prefix
