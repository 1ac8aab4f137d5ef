"""The beat's tick of the scan of advisors' conduct: four or five queries when nothing changed."""

from __future__ import annotations

from celery import shared_task

from risk.conduct import services


@shared_task(name="risk.conduct.scan")
def scan_conduct() -> int:
    """Judges advisors of whom something changed; how many."""
    return services.scan_conduct(limit=services.TICK_ADVISORS).advisors
