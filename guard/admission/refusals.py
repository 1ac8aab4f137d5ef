"""Audit rows of refusals: of an actor at most one a minute and limit, with the number of refusals since the last one.

An attacker writes no log by knocking. The counts are kept where the refusal was decided: in Redis (admit.lua), or in
this process while Redis is away.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable, translated
from guard.admission import keys
from guard.audit import told
from guard.audit.models import Decision, EventType
from guard.audit.services import record

if TYPE_CHECKING:
    from guard.admission.verdict import Verdict

_EVENTS = {
    "block": (EventType.ADMISSION, Decision.DENIED),
    "pause": (EventType.ADMISSION, Decision.DENIED),
    "session": (EventType.ADMISSION, Decision.DENIED),
    "budget": (EventType.BUDGET, Decision.REFUSED),
}
_THROTTLED = (EventType.ADMISSION, Decision.THROTTLED)

_MOST = 10_000
_told: dict[tuple[str, str, str], tuple[int, int]] = {}  # minute of the last row, refusals since
_counting = threading.Lock()


def tell(verdict: Verdict, count: int) -> None:
    """Writes the row. If it cannot be written the refusal is none: the caller hears the database's error instead."""
    event, decision = _EVENTS.get(verdict.refused_by, _THROTTLED)
    caller = verdict.caller
    record(
        tenant=caller.tenant,
        event_type=event,
        decision=decision,
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        agent=caller.agent,
        object_type="admission",
        code=verdict.error().code,
        input_summary={
            "limit": verdict.refused_by,
            "allowed": verdict.limit,
            "action": told.word(caller.tenant, verdict.action),  # the caller's own word
            "refusals": count,
            "local": verdict.local,
        },
    )


def put_back(verdict: Verdict, count: int) -> None:
    """The row could not be written: its refusals are counted for the next one."""
    caller = verdict.caller
    with contextlib.suppress(RedisUnavailable, ResponseError), translated():
        name = keys.REFUSED(caller.tenant, actor_id=caller.actor_id)
        base_redis.state().hincrby(name, f"{verdict.refused_by}:n", count)


def tell_locally(verdict: Verdict) -> None:
    """The same by this process's own count."""
    minute = int(time.monotonic() // 60)
    place = (verdict.caller.tenant, verdict.caller.actor_id, verdict.refused_by)
    with _counting:
        if len(_told) > _MOST:
            _told.clear()
        last, since = _told.get(place, (-1, 0))
        if last == minute:
            _told[place] = (minute, since + 1)
            return
        _told[place] = (minute, 0)
    tell(verdict, since + 1)


def forget_refusals() -> None:
    _told.clear()
