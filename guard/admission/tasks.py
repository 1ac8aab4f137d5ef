"""Tasks of admission."""

from __future__ import annotations

from celery import shared_task

from guard.admission import blocks, budget


@shared_task(name="guard.admission.sweep")
def sweep_task() -> None:
    blocks.sweep()


@shared_task(name="guard.admission.tell_budgets")
def tell_budgets_task() -> None:
    budget.tell_untold()
