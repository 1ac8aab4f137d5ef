"""The beat's ticks of the scanner and of backtests: a query or two when there is nothing to do."""

from __future__ import annotations

from celery import shared_task

from risk.rules import evaluating, marking, services, trials


@shared_task(name="risk.rules.scan")
def scan() -> int:
    """Evaluates customers whose facts changed; how many."""
    return services.scan(limit=services.TICK_CUSTOMERS).customers


@shared_task(name="risk.rules.backtests")
def backtests() -> int:
    """Runs the backtests that wait; how many. Before them, what an activation that died has left to mark."""
    marking.finish_marking()
    return trials.run_waiting()


@shared_task(name="risk.rules.evaluate")
def evaluate(tenant: str, trade_id: str) -> int:
    """Evaluates one trade now; how many live hits it has. Safe to repeat; what it misses, the scanner finds."""
    return len(evaluating.evaluate_trade(tenant=tenant, trade_id=trade_id).hits)
