"""Tasks: drain each second, catch up after an outage. Beat calls them; nothing waits for one `.delay()`."""

from celery import shared_task

from config.base.redis import RedisUnavailable
from memory.sessions.drain import drain as drain_stream
from memory.sessions.reopen import reattach as reattach_sessions


@shared_task(name="memory.sessions.drain")
def drain() -> None:
    try:
        drain_stream()
    except RedisUnavailable:
        return  # nothing can be drained; the next tick is a second away


@shared_task(name="memory.sessions.reattach")
def reattach() -> None:
    try:
        reattach_sessions()
    except RedisUnavailable:
        return  # they stay marked; the next tick is a second away
