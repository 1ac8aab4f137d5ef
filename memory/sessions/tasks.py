"""Tasks: drain each second, catch up after an outage. Beat calls them; nothing waits for one `.delay()`."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down
from redis.exceptions import ResponseError

from config.base.clock import now
from config.base.redis import RedisUnavailable
from memory.sessions.drain import drain as drain_stream
from memory.sessions.healing import is_damage
from memory.sessions.looking import queue_fault, read_stream
from memory.sessions.reconcile import reconcile as reconcile_sessions
from memory.sessions.reconcile import select
from memory.sessions.reopen import reattach as reattach_sessions

logger = logging.getLogger(__name__)

# Redis keeps a session two hours after its last message: looked at each hour, none of it goes unseen.
LOOK_BACK = timedelta(hours=3)
# A queue that nobody can drain is told so often, s, and not each second.
TELL_SECONDS = 60.0

# A tick goes on looking for so much of its second, s; the rest is for the other tasks of its queue. Where they need
# more than that, ticks wait in the queue and expire; each kind still runs about once a second.
LINGER_SECONDS = 0.9


class _Ending:
    """Whether this worker was asked to end: its drain ends with the batch that it has in hand.

    A plain flag: the signal comes in the thread that drains, where an Event could wait for itself.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def note(self, **_: Any) -> None:
        self.asked = True


class _Broken:
    """The queue's key is no stream: one line a minute."""

    def __init__(self) -> None:
        self._told = -TELL_SECONDS

    def tell(self, fault: str) -> None:
        if time.monotonic() - self._told >= TELL_SECONDS:
            self._told = time.monotonic()
            logger.error("nothing is drained: %s", fault)


broken = _Broken()
ending = _Ending()
worker_shutting_down.connect(ending.note, weak=False)


@shared_task(name="memory.sessions.drain")
def drain() -> None:
    try:
        drain_stream(linger=LINGER_SECONDS, ending=ending)
    except RedisUnavailable:
        return  # nothing can be drained; the next tick is a second away
    except ResponseError as error:
        if not is_damage(error):
            raise
        # It may be in order again by now.
        broken.tell(queue_fault(read_stream(only_itself=True)) or "sess:pending was no stream a moment ago")


@shared_task(name="memory.sessions.reattach")
def reattach() -> None:
    try:
        reattach_sessions()
    except RedisUnavailable:
        return  # they stay marked; the next tick is a second away


@shared_task(name="memory.sessions.reconcile")
def reconcile() -> None:
    """Looks at the sessions in use lately: what is wrong is told, nothing is mended, and what is seen is remembered."""
    try:
        report = reconcile_sessions(rows=select(since=now() - LOOK_BACK), whole=False)
    except RedisUnavailable:
        return  # readiness tells of that
    counts = ", ".join(f"{kind} {count}" for kind, count in sorted(report.open_counts().items()))
    if counts:
        logger.error("reconcile: %s; `manage.py reconcile` tells more", counts)
