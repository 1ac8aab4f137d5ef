"""Tasks of the erasure, on the `default` queue: a long one must not be in the way of the drain."""

from __future__ import annotations

from celery import shared_task

from memory.erasure.services import finish_open


@shared_task(name="memory.erasure.finish")
def finish() -> int:
    """Every few seconds: what was open because Redis was away, and the second removal of what it may have forgotten."""
    return finish_open()
