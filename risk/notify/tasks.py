"""Tasks of outward notifications. They have a queue and workers of their own."""

from __future__ import annotations

from celery import shared_task

from risk.notify.dispatch import work
from risk.notify.following import follow

WORK_SECONDS = 5.0  # of one task, and then as long as one try may take


@shared_task(name="risk.notify.work")
def work_task() -> None:
    follow()
    work(seconds=WORK_SECONDS)
