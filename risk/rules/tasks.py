"""The beat's tick of the scanner: one query when nothing changed."""

from __future__ import annotations

from celery import shared_task

from risk.rules import services


@shared_task(name="risk.rules.scan")
def scan() -> int:
    """Evaluates customers whose facts changed; how many."""
    return services.scan(limit=services.TICK_CUSTOMERS).customers
