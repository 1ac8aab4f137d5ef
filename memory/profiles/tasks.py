"""Tasks of the profiles, on the `persist` queue."""

from __future__ import annotations

from celery import shared_task

from memory.profiles.sweeping import sweep


@shared_task(name="memory.profiles.sweep")
def sweep_profile_changes() -> int:
    """Each second: finishes invalidations that their own process did not."""
    return sweep()
