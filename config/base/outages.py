"""What callers are told when Redis or the database is away: the same over HTTP and in process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError

from config.base.errors import DomainError
from config.base.redis import RedisUnavailable

logger = logging.getLogger(__name__)

OUTAGES = (RedisUnavailable, OperationalError, InterfaceError)


def outage(error: Exception) -> DomainError:
    """REDIS_UNAVAILABLE or DATABASE_UNAVAILABLE (503) for one of OUTAGES."""
    if isinstance(error, RedisUnavailable):
        return DomainError("REDIS_UNAVAILABLE")
    # Its text may quote a statement, and with it a customer's words: the log gets type and number.
    logger.error("database unavailable: %s %s", type(error).__name__, error.args[0] if error.args else "")
    return DomainError("DATABASE_UNAVAILABLE")


@contextmanager
def outages_told() -> Iterator[None]:
    """In this block an outage is raised as a DomainError."""
    try:
        yield
    except DomainError:
        raise  # the core's being away says so itself
    except OUTAGES as error:
        raise outage(error) from error
