"""Observations that could not be written: counted, alarmed, and told in the audit log itself once it takes rows again.

The count lives in Redis, for the database is what has just failed; where Redis is away too, in the process, until the
next chance. Nothing of a lost row is kept but its event: its content belongs into the log or nowhere.

Redis down or slow: counted in the process (local), after a wait of PATIENCE that comes once a second. Restarted:
nothing is lost that its file holds.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.clock import from_micros
from config.base.redis import RedisUnavailable, Script, state, translated
from guard.audit.keys import LOST, LOST_SECONDS
from guard.audit.models import EventType

logger = logging.getLogger(__name__)

# s, for connecting and for the answer: whoever has just lost an observation has waited for the database already.
PATIENCE = 0.08
# Of a count or of microseconds since 1970, up to the year 2286.
_NUMBER = re.compile(r"[0-9]{1,16}", re.ASCII)
_lost = Script.beside(__file__, "lost")

_unsaved: Counter[str] = Counter()  # event -> losses that Redis does not know of yet
_lock = threading.Lock()


class Losses(NamedTuple):
    """total: of the last days, 0 once there was none for 7 days. untold: not in the audit log yet, by event."""

    total: int
    untold: dict[str, int]
    first_at: datetime | None
    last_at: datetime | None


def count_loss(event_type: str, error: BaseException) -> None:
    """One observation was lost. The line names the event and the kind of error, nothing of the row."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else ""
    logger.error("audit: an observation was lost: %s (%s %s)", event_type, type(error).__name__, number)
    with _lock:
        _unsaved[event_type] += 1
    save_losses()


def save_losses() -> bool:
    """What this process has counted, to Redis: 1 round trip, none where there is nothing. Raises for no outage."""
    if not _unsaved:
        return True
    with _lock:
        counted = dict(_unsaved)
        _unsaved.clear()
    args: list[str | int] = [LOST_SECONDS]
    for event_type, many in counted.items():
        args += [event_type, many]
    try:
        _lost(base_redis.client_for(settings.REDIS_URL, timeout=PATIENCE), [LOST()], args)
    except RedisUnavailable:
        with _lock:
            _unsaved.update(counted)
        return False
    return True


def read_losses() -> Losses:
    """What was lost. 1 round trip. What others wrote there is left out. Errors: RedisUnavailable."""
    client = base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")
    try:
        with translated():
            found = client.hgetall(LOST())
    except ResponseError:  # of another type: the next loss makes it anew
        found = {}
    numbers = {name: int(text) for name, text in found.items() if _NUMBER.fullmatch(text)}
    events = {f"untold:{event}": event for event in EventType.values}
    untold = {events[name]: many for name, many in numbers.items() if name in events and many > 0}
    moments = {name: from_micros(numbers[name]) for name in ("first_at", "last_at") if name in numbers}
    return Losses(numbers.get("total", 0), untold, moments.get("first_at"), moments.get("last_at"))


def told(untold: dict[str, int]) -> None:
    """These are in the audit log now. Errors: RedisUnavailable: they may be told a second time."""
    with translated():
        pipe = state().pipeline(transaction=True)
        for event_type, many in untold.items():
            pipe.hincrby(LOST(), f"untold:{event_type}", -many)
        pipe.hdel(LOST(), "first_at")
        pipe.execute()
