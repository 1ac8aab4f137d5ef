"""The connection that admission uses: its own, since it may wait for Redis a tenth of a second and no longer."""

from __future__ import annotations

from config.base import redis as base_redis
from config.base.redis import Client
from guard.admission.tuning import tuning

# Seconds for connecting and for each answer. After one time-out this process does without for BREAKER_SECONDS, so that
# a hanging server costs one caller this wait, and the others nothing.
TIMEOUT = 0.1


def client() -> Client:
    return base_redis.client_for(tuning().redis_url, timeout=TIMEOUT)


def prefix() -> str:
    return tuning().prefix
