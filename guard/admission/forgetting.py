"""What this process remembers of admission, forgotten: as in one that has just started."""

from __future__ import annotations

from guard.admission import budget, counting, later, local, periods, refusals, wires
from guard.admission.plans import forget_plans
from guard.admission.policy import forget_policy


def forget_everything() -> None:
    forget_policy()
    forget_plans()
    local.forget_local()
    refusals.forget_refusals()
    later.forget_later()
    budget.forget_untold()
    periods.clock.forget()
    counting.forget_counts()
    wires.client().breaker.reset()
