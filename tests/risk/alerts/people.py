"""The cast of these stories: officers, a manager, and findings about customers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib.auth.models import Group, User

from config.base.clock import now
from guard.access.models import StaffMember
from guard.access.roles import RISK_MANAGER, RISK_OFFICER, ensure_roles
from risk.alerts.models import AlertOutbox, RiskAlert, RiskAlertHit
from risk.alerts.services import SettleResult, settle_customer
from risk.rules.hit import FinalTrade, Hit

# Noon of a business day in Shanghai.
DAY = datetime(2026, 3, 2, 12, 0, tzinfo=ZoneInfo("Asia/Shanghai"))
REASON = "checked the recording and the signed form of the day"


def make_person(name: str, role: str = RISK_OFFICER, tenant: str = "default") -> User:
    ensure_roles()
    user = User.objects.create_user(name, password="secret-of-" + name, is_staff=True)
    if role:
        user.groups.add(Group.objects.get(name=role))
    if tenant != "default":
        StaffMember.objects.create(user=user, tenant=tenant)
    return user


def make_manager(name: str = "mei") -> User:
    return make_person(name, RISK_MANAGER)


def make_hit(
    trade_id: str = "T1",
    *,
    customer: str = "C0000017",
    rule: str = "RISK-001",
    score: int = 60,
    subtypes: tuple[str, ...] = ("suitability_mismatch",),
    at: datetime = DAY,
    version: int = 1,
    evidence: str = "",
    figures: dict[str, Any] | None = None,
    rule_version: int = 1,
) -> Hit:
    return Hit(
        rule_id=rule,
        rule_version=rule_version,
        evidence_key=evidence or f"{trade_id}@{version}",
        customer_id=customer,
        trade_id=trade_id,
        trade_version=version,
        occurred_at=at,
        score=score,
        subtypes=subtypes,
        figures=figures if figures is not None else {"c_level": "C2", "risk_level": "R3"},
        advisor_id="A001",
        product_id="P001",
    )


def settle(
    *hits: Hit, final: dict[str, FinalTrade] | None = None, tenant: str = "default", **more: Any
) -> SettleResult:
    """All that is true of the customer now."""
    customer = more.pop("customer", hits[0].customer_id if hits else "C0000017")
    trades = {hit.trade_id: FinalTrade(hit.trade_version, "executed") for hit in hits} | (final or {})
    return settle_customer(
        tenant=tenant, customer_id=customer, hits=hits, final_trades=trades, trace_id="a" * 32, **more
    )[0]


def the_alert(**where: Any) -> RiskAlert:
    return RiskAlert.objects.get(**where)


def live() -> list[RiskAlertHit]:
    return list(RiskAlertHit.objects.filter(state="live").order_by("id"))


def outbox() -> list[tuple[str, dict[str, Any]]]:
    return [(row.kind, row.event) for row in AlertOutbox.objects.order_by("id")]


def age(alert: RiskAlert, **by: Any) -> None:
    RiskAlert.objects.filter(pk=alert.pk).update(opened_at=now() - timedelta(**by))
