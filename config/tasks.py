"""Tasks of the system as a whole."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from config import pruning, retention_registry
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from guard.locks import hold

LOCK = "prune"


@shared_task(name="config.prune")
def prune() -> dict[str, int]:
    """At night, PRUNE_SECONDS at a time: removes what is over of every table; how many rows of each.

    The lock only spares two runs the same work: with Redis away it goes on without, and two at once do no harm.
    """
    try:
        with hold(LOCK, ttl=60):
            return _run()
    except DomainError as error:
        if error.code != "LOCK_HELD":
            raise
        return {}
    except RedisUnavailable:
        return _run()


def _run() -> dict[str, int]:
    rules = [rule for rule in retention_registry.load() if rule.rows is not None]
    return {one.name: one.removed for one in pruning.prune(rules, seconds=settings.PRUNE_SECONDS) if one.removed}
