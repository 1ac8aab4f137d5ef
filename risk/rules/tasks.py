"""The beat's ticks of the scanner and of backtests: one query when there is nothing to do."""

from __future__ import annotations

from celery import shared_task

from risk.rules import services, trials


@shared_task(name="risk.rules.scan")
def scan() -> int:
    """Evaluates customers whose facts changed; how many."""
    return services.scan(limit=services.TICK_CUSTOMERS).customers


@shared_task(name="risk.rules.backtests")
def backtests() -> int:
    """Runs the backtests that wait; how many."""
    return trials.run_waiting()
