"""Everything that writes alerts. Keyword-only; one transaction each; alert, audit and outbox rows together."""

from risk.alerts.bulk import assign_many, claim_many, claim_next, dispose_many
from risk.alerts.escalating import SweepResult, sweep
from risk.alerts.handover import hand_over
from risk.alerts.notes import add_note
from risk.alerts.officers import assign, claim, dispose, release, reopen
from risk.alerts.requests import answer, ask, withdraw
from risk.alerts.reviewing import approve, escalate, give_back
from risk.alerts.settlement import SettleResult
from risk.alerts.settling import (
    Findings,
    live_hits_of,
    settle_advisor,
    settle_customer,
    settle_customers,
)
from risk.alerts.snoozing import snooze, wake
from risk.alerts.stopping import go_on, stop

__all__ = [
    "Findings", "SettleResult", "SweepResult", "add_note", "answer", "approve", "ask", "assign", "assign_many",
    "claim", "claim_many", "claim_next", "dispose", "dispose_many", "escalate", "give_back", "go_on", "hand_over",
    "live_hits_of", "release", "reopen", "settle_advisor", "settle_customer", "settle_customers", "snooze", "stop",
    "sweep", "wake", "withdraw",
]  # fmt: skip
