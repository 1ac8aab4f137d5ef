"""Everything that writes alerts. Keyword-only; one transaction each; alert, audit and outbox rows together."""

from risk.alerts.officers import add_note, claim, dispose, release, reopen
from risk.alerts.settling import SettleResult, settle_advisor, settle_customer

__all__ = ["SettleResult", "add_note", "claim", "dispose", "release", "reopen", "settle_advisor", "settle_customer"]
