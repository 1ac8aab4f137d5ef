"""Alerts and their hits stay when a customer is erased: they are evidence of what was found and who decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory.erasure.keeping import EVIDENCE
from memory.erasure.registry import Kept, Subject, register_kept
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.conduct.models import TradeRequest
from risk.rules.models import ShadowHit


def _rows(model: Any) -> Callable[[Subject], int]:
    def count(subject: Subject) -> int:
        rows = model.objects.filter(tenant=subject.tenant)
        return int((rows if subject.whole_tenant else rows.filter(customer_id=subject.customer_id)).count())

    return count


def register_own() -> None:
    for model in (RiskAlert, RiskAlertHit):
        register_kept(Kept(model._meta.db_table, f"alerts, with what was decided about them: {EVIDENCE}", _rows(model)))
    why = f"what versions of rules in trial said of trades: {EVIDENCE}"
    register_kept(Kept(ShadowHit._meta.db_table, why, _rows(ShadowHit)))
    register_kept(Kept(TradeRequest._meta.db_table, f"trades that advisors asked for: {EVIDENCE}", _rows(TradeRequest)))
