"""Everything that writes alerts. Keyword-only; one transaction each; alert, audit and outbox rows together."""

from risk.alerts.escalating import SweepResult, sweep
from risk.alerts.officers import add_note, assign, claim, dispose, release, reopen
from risk.alerts.reviewing import approve, escalate, give_back
from risk.alerts.settling import SettleResult, live_hits_of, settle_advisor, settle_and_read, settle_customer
from risk.alerts.snoozing import snooze, wake

__all__ = [
    "SettleResult", "SweepResult", "add_note", "approve", "assign", "claim", "dispose", "escalate", "give_back",
    "live_hits_of", "release", "reopen", "settle_advisor", "settle_and_read", "settle_customer", "snooze",
    "sweep", "wake",
]  # fmt: skip
