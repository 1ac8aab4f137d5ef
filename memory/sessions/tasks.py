"""Tasks: drain each second, catch up after an outage. Beat calls them; nothing waits for one `.delay()`."""

from __future__ import annotations

import time
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from config.base.redis import RedisUnavailable
from memory.sessions.drain import drain as drain_stream
from memory.sessions.reopen import reattach as reattach_sessions

# A tick goes on looking for so much of its second, s; the rest is for the other tasks of its queue.
LINGER_SECONDS = 0.8


class Ticks:
    """When the drain of this process may linger.

    Ticks that waited in the queue (behind a long task, or an outage) come one after the other: only the first of them
    does, so that they delay nobody. And none does in a worker that was asked to end.
    """

    def __init__(self) -> None:
        self._began = float("-inf")
        self._ending = False

    def begin(self) -> float:
        """How long this tick may linger, s."""
        before, self._began = self._began, time.monotonic()
        return LINGER_SECONDS if self._began - before > LINGER_SECONDS else 0.0

    def ending(self) -> bool:
        return self._ending

    def end(self, **_: Any) -> None:
        self._ending = True


ticks = Ticks()
worker_shutting_down.connect(ticks.end, weak=False)


@shared_task(name="memory.sessions.drain")
def drain() -> None:
    try:
        drain_stream(linger=ticks.begin(), ending=ticks.ending)
    except RedisUnavailable:
        return  # nothing can be drained; the next tick is a second away


@shared_task(name="memory.sessions.reattach")
def reattach() -> None:
    try:
        reattach_sessions()
    except RedisUnavailable:
        return  # they stay marked; the next tick is a second away
