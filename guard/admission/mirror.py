"""The copy in Redis of blocks and pauses: written after the commit, and never waited for long."""

from __future__ import annotations

import logging

from config.base.redis import RedisUnavailable
from guard.admission import wires

logger = logging.getLogger(__name__)


def put(name: str, milliseconds: int, *, quietly: bool = True) -> None:
    """quietly: Redis away is no error; the tables' copies in each process do the same within 5 s."""
    try:
        with wires.translated() as client:
            client.set(name, "1", px=milliseconds)
    except RedisUnavailable:
        if not quietly:
            raise
        logger.warning("a block or pause is not in Redis yet: it counts within 5 s")


def remove(name: str) -> None:
    """Redis away: the sweep removes it, else its own time ends it."""
    try:
        with wires.translated() as client:
            client.delete(name)
    except RedisUnavailable:
        logger.warning("the end of a block or pause is not in Redis yet: the sweep tells it")
