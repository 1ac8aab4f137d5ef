"""Tasks of the console."""

from __future__ import annotations

from celery import shared_task

from risk.console.tallies import tally_all


@shared_task(name="risk.console.tally")
def tally_task() -> None:
    tally_all()
