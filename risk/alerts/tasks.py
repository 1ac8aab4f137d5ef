"""Tasks of the alerts."""

from __future__ import annotations

from celery import shared_task

from risk.alerts.services import sweep


@shared_task(name="risk.alerts.escalate")
def escalate_task() -> None:
    sweep()
