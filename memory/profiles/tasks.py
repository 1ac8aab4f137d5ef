"""Tasks of the profiles, on the `persist` queue."""

from __future__ import annotations

from celery import shared_task

from memory.profiles.drafts.services import EXPIRE_AT_ONCE, expire_drafts
from memory.profiles.sweeping import sweep

MAX_BATCHES = 50  # of a tick; the next one goes on


@shared_task(name="memory.profiles.sweep")
def sweep_profile_changes() -> int:
    """Each second: finishes invalidations that their own process did not."""
    return sweep()


@shared_task(name="memory.profiles.expire_drafts")
def expire_waiting_drafts() -> int:
    """Each minute: drafts that waited too long expire, in batches."""
    expired = 0
    for _batch in range(MAX_BATCHES):
        done = expire_drafts()
        expired += done
        if done < EXPIRE_AT_ONCE:
            break
    return expired
