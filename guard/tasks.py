"""Tasks of guard as a whole; the rooms have their own."""

from __future__ import annotations

from celery import shared_task

from guard import pruning


@shared_task(name="guard.prune")
def prune() -> dict[str, int]:
    """Each ten minutes: removes what is over of tokens, logins, blocks, limits and keys."""
    return pruning.prune_guard()
