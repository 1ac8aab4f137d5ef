"""A small cast: Lin and Zhou are officers, Meng is the manager, An audits, Ops runs the platform."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User
from django.test import Client

from config.base.clock import now
from guard.access.models import StaffMember
from guard.access.roles import COMPLIANCE_AUDITOR, PLATFORM_ADMIN, RISK_MANAGER, RISK_OFFICER, ensure_roles
from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer, CorePosition, CoreProduct, CoreTrade
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import RiskAlert, RiskAlertHit

MISMATCH = {
    "product_risk_level": "R4", "tolerance_level": "C2", "is_lowest": False, "assessed_on": "2026-03-02",
    "valid_through": "2027-03-02", "traded_on": "2026-11-29", "channel": "branch", "solicited": True,
    "mismatch_confirm": False, "risk_disclosure": True, "dual_recording": False,
    "parts": {"suitability_mismatch": 80},
}  # fmt: skip
CONCENTRATION = {
    "dimension": "product", "share": "0.634512", "limit": "0.400000", "amount": "350000.00", "assets": "812400.55",
    "cash": "120000.00", "product_risk_level": "R4", "issuer_id": "ISS01", "asset_class": "equity",
    "over": {"product": {"held": "165000.00", "share": "0.634512", "limit": "0.400000"}},
}  # fmt: skip


def make_person(name: str, role: str = "", *, tenant: str = "", superuser: bool = False) -> User:
    """Without a password: `make_client` logs in by itself, and hashing one is slow on purpose."""
    ensure_roles()
    person = User.objects.create_user(name, is_staff=True, is_superuser=superuser)
    if role:
        person.groups.add(Group.objects.get(name=role))
    if tenant:
        StaffMember.objects.create(user=person, tenant=tenant)
    return person


def make_officer(name: str = "lin", **kwargs: Any) -> User:
    return make_person(name, RISK_OFFICER, **kwargs)


def make_manager(name: str = "meng", **kwargs: Any) -> User:
    return make_person(name, RISK_MANAGER, **kwargs)


def make_auditor(name: str = "an", **kwargs: Any) -> User:
    return make_person(name, COMPLIANCE_AUDITOR, **kwargs)


def make_operator(name: str = "ops", **kwargs: Any) -> User:
    return make_person(name, PLATFORM_ADMIN, **kwargs)


def make_client(person: User, *, language: str = "en") -> Client:
    client = Client(enforce_csrf_checks=False)
    client.force_login(person)
    client.cookies["django_language"] = language
    return client


def make_customer(customer_id: str = "C00017", *, tenant: str = "default") -> None:
    """With an assessment, an advisor, a product, positions and two trades."""
    base: dict[str, Any] = {"tenant": tenant, "customer_id": customer_id}
    CoreCustomer.objects.create(
        **base, name="王建国", kind="natural", investor_type="ordinary", opened_at=now() - timedelta(days=900)
    )
    CoreAssessment.objects.create(**base, assessed_at=now() - timedelta(days=100), c_level=2)
    CoreAssignment.objects.create(**base, advisor_id="ADV001")
    CoreProduct.objects.get_or_create(
        tenant=tenant,
        product_id="F0101",
        defaults={"issuer_id": "ISS01", "asset_class": "equity", "risk_level": 4},
    )
    day = (now() - timedelta(days=3)).date()
    CorePosition.objects.create(**base, product_id="F0101", as_of=day, market_value=Decimal("165000"))
    for number, days in enumerate((1, 5), 1):
        CoreTrade.objects.create(
            **base, trade_id=f"T-{customer_id}-{number}", version=1, product_id="F0101", advisor_id="ADV001",
            trade_type="buy", traded_at=now() - timedelta(days=days), amount=Decimal("350000"), currency="CNY",
            fx_cny=Decimal(1), status="executed", channel="branch", solicited=True,
        )  # fmt: skip


def make_alert(customer_id: str = "C00017", *, score: int = 79, tenant: str = "default", **fields: Any) -> RiskAlert:
    """An alert with one live RISK-001 hit on the customer's first trade."""
    alert = RiskAlert.objects.create(
        **{
            "tenant": tenant, "customer_id": customer_id, "advisor_id": "ADV001", "score": score,
            "subtypes": ["suitability_mismatch"], "rule_ids": ["RISK-001"], **fields,
        }
    )  # fmt: skip
    make_hit(alert)
    return alert


def seen(alert: RiskAlert) -> dict[str, Any]:
    """What the page's forms send along: the version and the evidence that it shows."""
    return {"version": alert.version, "evidence_hash": evidence_hash(alert)}


def make_hit(alert: RiskAlert, *, number: int = 1, **fields: Any) -> RiskAlertHit:
    trade_id = f"T-{alert.customer_id}-{number}"
    return RiskAlertHit.objects.create(
        **{
            "tenant": alert.tenant, "alert": alert, "rule_id": "RISK-001", "rule_version": 1,
            "evidence_key": f"{trade_id}@{alert.pk}", "live_key": f"{trade_id}@{alert.pk}",
            "customer_id": alert.customer_id, "advisor_id": "ADV001", "product_id": "F0101", "trade_id": trade_id,
            "trade_version": 1, "occurred_at": now() - timedelta(days=1), "score": alert.score,
            "subtypes": ["suitability_mismatch"], "figures": MISMATCH, **fields,
        }
    )  # fmt: skip
