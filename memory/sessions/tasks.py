"""Tasks: drain each second, catch up after an outage. Beat calls them; nothing waits for one `.delay()`."""

from __future__ import annotations

from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from config.base.redis import RedisUnavailable
from memory.sessions.drain import drain as drain_stream
from memory.sessions.reopen import reattach as reattach_sessions

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


ending = _Ending()
worker_shutting_down.connect(ending.note, weak=False)


@shared_task(name="memory.sessions.drain")
def drain() -> None:
    try:
        drain_stream(linger=LINGER_SECONDS, ending=ending)
    except RedisUnavailable:
        return  # nothing can be drained; the next tick is a second away


@shared_task(name="memory.sessions.reattach")
def reattach() -> None:
    try:
        reattach_sessions()
    except RedisUnavailable:
        return  # they stay marked; the next tick is a second away
