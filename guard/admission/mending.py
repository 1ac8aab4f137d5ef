"""Keys that hold what admission did not put there: of another type, or values that are no numbers.

Whoever wrote them, a call must not fail for it again and again: they are removed, and what they stood for comes from
MySQL or is counted anew, as after a loss of Redis.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from redis.exceptions import ResponseError

from config.base.keys import Key
from config.base.redis import Script
from guard.admission import keys, wires

logger = logging.getLogger(__name__)

T = TypeVar("T")

_mend = Script.beside(__file__, "mend")
_NUMBERS = {
    keys.RATE.pattern: "ring",
    keys.HOURLY.pattern: "count",
    keys.ADDRESS.pattern: "count",
    keys.QUOTA.pattern: "quota",
    keys.BUDGET.pattern: "budget",
}


def mend(kinds: Sequence[Key], names: Sequence[str]) -> set[Key]:
    """Removes what is not of our making among these, and says of which kinds it was.

    Cost: 1 round trip. Errors: RedisUnavailable."""
    checks = [_NUMBERS.get(kind.pattern, kind.type) for kind in kinds]
    found = {kinds[place - 1] for place in _mend(wires.client(), names, checks)}
    if found:
        # Patterns, no names: those are of customers.
        patterns = ", ".join(sorted(kind.pattern for kind in found))
        logger.warning("keys in Redis were not of admission's making and are begun anew: %s", patterns)
    return found


def mending(kinds: Sequence[Key], names: Sequence[str], ask: Callable[[], T]) -> T:
    """`ask()`, and once more where a key was to be mended first. Errors: RedisUnavailable; ResponseError where none
    was, a fault of ours."""
    try:
        return ask()
    except ResponseError:
        if not mend(kinds, names):
            raise
        return ask()
