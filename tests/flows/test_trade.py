"""The story of a trade: from the core's files to an officer's decision, and what a later correction does to it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from config.base import redis as base_redis
from guard.audit.models import AuditLog
from memory.core.models import CoreChange
from risk.alerts.evidence import evidence_hash
from risk.alerts.keys import DEDUP
from risk.alerts.models import AlertOutbox, AlertStatus, HitState, RiskAlert, RiskAlertHit
from risk.alerts.services import approve, claim, dispose
from risk.feed.keys import PUB_ALERT
from risk.feed.services import publish
from risk.rules import tasks
from tests.memory.core.build import ASSESSMENT, CUSTOMER, POSITION, PRODUCT, TRADE, write
from tests.risk.alerts.people import make_person

pytestmark = pytest.mark.django_db(transaction=True)

CAROL = {**CUSTOMER, "customer_id": "C0000042", "name": "王芳"}
LOWEST = {**ASSESSMENT, "customer_id": "C0000042", "c_level": "C1", "is_lowest": "true"}
HOLDING = {**POSITION, "customer_id": "C0000042", "product_id": "P-BOND", "market_value": "200000"}
BOND = {**PRODUCT, "product_id": "P-BOND", "risk_level": "R1", "asset_class": "fixed_income", "issuer_id": "i2"}
DERIVATIVE = {**PRODUCT, "product_id": "P-WILD", "risk_level": "R5", "asset_class": "derivative"}
# Half a million beside 200,000: 5/7 of the assets. Product: 50 + 40 x 0.3143/0.6 + 10 = 80.95.
PURCHASE = {**TRADE, "customer_id": "C0000042", "product_id": "P-WILD", "amount": "500000", "price": "1"}


def test_the_story_of_a_trade(tmp_path: Path) -> None:
    # The core's files come in; the customer is marked in the same transaction.
    call_command("import_core", write(
        tmp_path, customers=[CAROL], products=[BOND, DERIVATIVE], assessments=[LOWEST], positions=[HOLDING],
        trades=[PURCHASE],
    ), stdout=StringIO())  # fmt: skip
    assert CoreChange.objects.filter(customer_id="C0000042").exists()

    # The beat's next tick finds both violations, and the tick after it finds nothing to do.
    assert tasks.scan() == 1
    assert tasks.scan() == 0
    hits = {hit.rule_id: hit for hit in RiskAlertHit.objects.filter(state=HitState.LIVE)}
    assert {rule: (hit.score, hit.subtypes) for rule, hit in hits.items()} == {
        "RISK-001": (95, ["suitability_lowest"]),
        "RISK-002": (81, ["concentration"]),
        "RISK-003": (30, ["large_amount"]),
    }
    # One case for the customer and one report of the day, with audit rows and the feed's events beside them.
    alert = RiskAlert.objects.get(alert_type="event")
    report = RiskAlert.objects.get(alert_type="report")
    assert (report.customer_id, report.score, report.rule_ids) == ("C0000042", 30, ["RISK-003"])
    assert (alert.customer_id, alert.score, alert.status) == ("C0000042", 100, AlertStatus.PENDING)
    audited = set(AuditLog.objects.values_list("event_type", "decision"))
    assert audited >= {("data_import", "completed"), ("risk_hit", "detected"), ("alert_opened", "opened")}
    assert AlertOutbox.objects.filter(kind="alert", published_at=None).exists()
    day = "2026-06-15"
    assert base_redis.state().exists(DEDUP(customer_id="C0000042", rule_id="RISK-001", date=day)) == 1

    # The publisher tells whoever listens, in exactly these words.
    listener = base_redis.state().pubsub(ignore_subscribe_messages=True)
    listener.subscribe(PUB_ALERT())
    listener.get_message(timeout=1)
    publish()
    payloads = heard(listener)
    assert payloads
    for payload in payloads:
        assert set(payload) <= {
            "alert_id", "alert_type", "customer_id_mask", "risk_score", "trace_id", "notify_role", "alert_subtype",
            "escalation_level",
        }  # fmt: skip
        assert payload["alert_id"] == (report if payload["alert_type"] == "report" else alert).alert_id
        assert "C0000042" not in json.dumps(payload)
    assert {payload["alert_type"] for payload in payloads} == {"event", "report"}
    publish()
    assert heard(listener) == []

    # An officer takes it and decides.
    alice = make_person("alice")
    taken = claim(alert_id=alert.alert_id, officer=alice)
    decided = dispose(
        alert_id=alert.alert_id, officer=alice, version=taken.version, evidence_hash=evidence_hash(taken),
        to_status="confirmed", code="C01",
        text="sold an R5 derivative to a customer of the lowest class, against the rules",
    )  # fmt: skip
    assert decided.status == AlertStatus.ESCALATED
    # It is critical: another officer sees the same evidence and approves.
    decided = approve(
        alert_id=alert.alert_id, officer=make_person("bob"), version=decided.version,
        evidence_hash=evidence_hash(decided),
    )  # fmt: skip
    assert decided.status == AlertStatus.CONFIRMED

    # Later the trade is reversed: the hits stay, marked, and the decision stands.
    call_command(
        "import_core",
        write(tmp_path / "later", trades=[{**PURCHASE, "version": "2", "status": "reversed"}]),
        stdout=StringIO(),
    )
    assert tasks.scan() == 1
    assert set(RiskAlertHit.objects.values_list("state", flat=True)) == {HitState.CANCELLED}
    assert RiskAlert.objects.get(pk=alert.pk).status == AlertStatus.CONFIRMED
    report.refresh_from_db()
    assert (report.status, report.hit_count) == (AlertStatus.PENDING, 0)


def heard(listener: Any) -> list[dict[str, Any]]:
    messages = []
    while (message := listener.get_message(timeout=0.2)) is not None:
        messages.append(json.loads(message["data"]))
    return messages
