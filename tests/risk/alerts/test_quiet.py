"""Quiet periods after a disposition, and alerts put aside for a while."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from config.base.clock import now
from guard.audit.models import AuditLog
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import AlertAction, RiskAlert, RiskAlertHit
from risk.alerts.services import claim, reopen, snooze, sweep, wake
from risk.rules.hit import Hit
from tests.risk.alerts.people import DAY, REASON, live, make_hit, make_person, settle, the_alert
from tests.risk.alerts.test_officers import at_once, judge, refused

pytestmark = pytest.mark.django_db
NEXT = DAY + timedelta(days=1)


def quiet(days: int, to_status: str = "false_positive", code: str = "F04") -> tuple[RiskAlert, Hit]:
    settle(first := make_hit("T1", score=60))
    return judge(the_alert(), make_person("alice"), to_status, code, quiet_days=days), first


def merged() -> list[str]:
    return list(AuditLog.objects.filter(event_type="alert_merged").order_by("id").values_list("decision", flat=True))


@pytest.mark.parametrize(
    ("days", "passed", "change", "opens"),
    [
        (0, timedelta(0), {}, True),
        (7, timedelta(days=7, seconds=-5), {}, False),
        (7, timedelta(days=7, seconds=5), {}, True),
        (30, timedelta(days=29), {}, False),
        (30, timedelta(days=31), {}, True),
        (7, timedelta(0), {"score": 69}, False),
        (7, timedelta(0), {"score": 70}, True),
        (7, timedelta(0), {"product_id": "P002"}, True),
        (7, timedelta(0), {"rule_id": "RISK-002"}, True),
        (7, timedelta(0), {"customer_id": "C0000018"}, True),
    ],
)
def test_the_same_customer_rule_and_product_open_nothing_for_so_long(
    days: int, passed: timedelta, change: dict[str, Any], opens: bool
) -> None:
    old, first = quiet(days)
    assert (old.quiet_until is not None) == (days > 0)
    RiskAlert.objects.filter(quiet_until__isnull=False).update(quiet_until=now() + timedelta(days=days) - passed)
    later = dataclasses.replace(make_hit("T2", score=60, at=NEXT), **change)
    settle(*([first] if later.customer_id == first.customer_id else []), later)
    assert RiskAlert.objects.count() == (2 if opens else 1)
    hit = RiskAlertHit.objects.get(trade_id="T2")
    assert (hit.alert_id == old.alert_id) != opens  # type: ignore[attr-defined]
    assert merged() == ([] if opens else ["quieted"])
    old.refresh_from_db()
    assert (old.status, old.score, old.hit_count, old.version) == ("false_positive", 60, 1, 3)


def test_a_quiet_hit_keeps_no_other_product_quiet_that_day() -> None:
    _old, first = quiet(7)
    second = make_hit("T2", score=60, at=NEXT)
    settle(first, second)
    assert (live()[-1].anchor, live()[-1].after_disposition) == (None, True)
    settle(first, second, dataclasses.replace(make_hit("T3", score=60, at=NEXT), product_id="P002"))
    assert RiskAlert.objects.count() == 2
    again = settle(first, second, dataclasses.replace(make_hit("T3", score=60, at=NEXT), product_id="P002"))
    assert not again.changed


def test_a_reopened_alert_is_quiet_no_more() -> None:
    old, first = quiet(30)
    old = reopen(alert_id=old.alert_id, officer=User.objects.get(), version=old.version, text=REASON)
    assert old.quiet_until is None
    settle(first, make_hit("T2", score=60, at=NEXT))
    assert RiskAlert.objects.count() == 2


@pytest.mark.parametrize(
    ("to_status", "code", "days"),
    [("confirmed", "C01", 7), ("closed", "K05", 1), ("closed", "K05", -7), ("closed", "K05", 90)],
)
def test_periods_that_do_not_exist(to_status: str, code: str, days: int) -> None:
    settle(make_hit(score=50))
    error = refused(
        "INVALID_REQUEST", judge, alert=the_alert(), officer=make_person("alice"), to_status=to_status, code=code,
        quiet_days=days,
    )  # fmt: skip
    assert error.extra["field"] == "quiet_days"


def test_a_duty_to_report_is_never_quiet() -> None:
    settle(make_hit(rule="RISK-003", score=30, subtypes=("large_amount",)))
    error = refused("INVALID_REQUEST", judge, alert=the_alert(), officer=make_person("alice"), quiet_days=7)
    assert error.extra["field"] == "quiet_days"
    assert judge(the_alert(), make_person("bob")).status == "closed"


@pytest.mark.django_db(transaction=True)
def test_scanners_at_once_note_a_quiet_hit_once() -> None:
    old, first = quiet(7)
    results = at_once(*[lambda: settle(first, make_hit("T2", score=60, at=NEXT))] * 4)
    assert sum(result.new for result in results) == 1
    assert (RiskAlertHit.objects.filter(alert=old).count(), merged()) == (2, ["quieted"])


# --- put aside ------------------------------------------------------------------------------------------------------


def aside(alert: RiskAlert, officer: Any, **hours: Any) -> RiskAlert:
    until = now() + timedelta(**hours)
    return snooze(alert_id=alert.alert_id, officer=officer, version=alert.version, until=until, text="asked the branch")


def far(alert: RiskAlert) -> RiskAlert:
    """With limits far away, whatever day these tests run on."""
    RiskAlert.objects.update(claim_due_at=now() + timedelta(days=9), dispose_due_at=now() + timedelta(days=10))
    alert.refresh_from_db()
    return alert


def test_72_hours_at_most_and_never_past_its_due() -> None:
    alice = make_person("alice")
    settle(make_hit(score=50))
    alert = far(the_alert())
    refused("INVALID_REQUEST", aside, alert=alert, officer=alice, hours=72, seconds=5)
    refused("INVALID_REQUEST", aside, alert=alert, officer=alice, seconds=-1)
    slot = alert.merge_slot
    alert = aside(alert, alice, hours=72, seconds=-5)
    assert (alert.status, alert.version, alert.merge_slot) == ("pending", 2, slot), "an attribute and no status"
    RiskAlert.objects.update(claim_due_at=now() + timedelta(hours=1))
    error = refused("INVALID_REQUEST", aside, alert=the_alert(), officer=alice, hours=2)
    assert "past its due" in error.detail
    # In review the disposition is what is waited for.
    alert = claim(alert_id=alert.alert_id, officer=alice)
    assert alert.snoozed_until is None
    bob = make_person("bob")
    assert refused("ALERT_CONFLICT", aside, alert=alert, officer=bob, hours=2).extra["by"] == "alice"
    assert aside(alert, alice, hours=2).snoozed_until is not None
    assert the_alert().claim_due_at is not None


def test_it_comes_back_by_itself_with_the_reason() -> None:
    settle(make_hit(score=50))
    alert = aside(far(the_alert()), make_person("alice"), hours=5)
    assert alert.snoozed_until is not None
    assert sweep(at=alert.snoozed_until - timedelta(microseconds=1)).woken == 0
    assert sweep(at=alert.snoozed_until).woken == 1
    back = the_alert()
    assert (back.snoozed_until, back.woken_by, back.version) == (None, "time", alert.version)
    assert back.woken_at is not None
    assert sweep(at=now() + timedelta(days=2)).woken == 0
    rows = AuditLog.objects.filter(event_type="alert_status").order_by("id")
    assert [(row.decision, row.actor_type) for row in rows] == [("snoozed", "staff"), ("woken", "system")]
    assert AlertAction.objects.get(action="wake").text == "time"


def test_an_escalation_wakes_it_and_the_clock_runs_on() -> None:
    settle(first := make_hit(score=50))
    alert = aside(far(the_alert()), make_person("alice"), hours=70)
    due = alert.claim_due_at
    settle(first, make_hit("T2", score=60))
    assert the_alert().snoozed_until is not None
    settle(first, make_hit("T2", score=60), make_hit("T3", score=50))
    back = the_alert()
    assert (back.escalation_level, back.snoozed_until, back.woken_by) == ("LEVEL_1", None, "level")
    assert due is not None


def test_a_shorter_limit_brings_it_back_sooner() -> None:
    settle(first := make_hit(score=30))
    RiskAlert.objects.update(dispose_due_at=now() + timedelta(days=9))
    alert = aside(the_alert(), make_person("alice"), hours=71)
    assert alert.snoozed_until is not None
    settle(first, make_hit("T2", score=50))
    back = the_alert()
    assert back.claim_due_at is not None
    assert back.snoozed_until is not None
    assert back.snoozed_until == min(alert.snoozed_until, back.claim_due_at)


def test_an_officer_takes_it_up_again() -> None:
    alice = make_person("alice")
    settle(make_hit(score=50))
    alert = aside(far(the_alert()), alice, hours=5)
    back = wake(alert_id=alert.alert_id, officer=alice, version=alert.version)
    assert (back.snoozed_until, back.woken_by) == (None, "officer")
    refused("INVALID_REQUEST", wake, alert_id=alert.alert_id, officer=alice, version=back.version)
    assert evidence_hash(back) == evidence_hash(alert)


@pytest.mark.django_db(transaction=True)
def test_sweeps_at_once_wake_it_once() -> None:
    settle(make_hit(score=50))
    aside(far(the_alert()), make_person("alice"), hours=5)
    late = now() + timedelta(hours=6)
    assert sum(result.woken for result in at_once(*[lambda: sweep(at=late)] * 3)) == 1
    assert AuditLog.objects.filter(decision="woken").count() == 1
