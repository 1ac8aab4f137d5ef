"""Tasks of admission."""

from __future__ import annotations

from celery import shared_task

from guard.admission import blocks


@shared_task(name="guard.admission.sweep")
def sweep_task() -> None:
    blocks.sweep()
