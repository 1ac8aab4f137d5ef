"""Who is called, when: levels at every edge, at the opening, by time, by what was confirmed before; each once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime, timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import DatabaseError

from config.base.clock import now
from guard.audit.models import AuditLog
from risk.alerts import escalating
from risk.alerts.evidence import evidence_hash
from risk.alerts.levels import Standing, level_of
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert
from risk.alerts.services import claim, dispose, reopen, sweep
from risk.calendar.models import Holiday
from risk.calendar.services import delete_holiday, save_holiday
from risk.rules.hit import DATA_QUALITY
from tests.dying import dies_at
from tests.risk.alerts.people import DAY, REASON, make_hit, make_person, outbox, settle, the_alert
from tests.risk.alerts.test_officers import at_once, judge
from tests.risk.conduct.make import clock_at

DUE = datetime(2026, 11, 30, 8, tzinfo=DAY.tzinfo)
LATER = DUE + timedelta(microseconds=1)


def standing(**fields: Any) -> Standing:
    return Standing(**{"status": "pending", "score": 60, **fields})


@pytest.mark.parametrize(
    ("fields", "level"),
    [
        ({}, ""),
        ({"claim_due_at": LATER}, ""),
        ({"claim_due_at": DUE}, "LEVEL_1"),
        ({"claim_due_at": DUE, "status": "in_review"}, ""),
        ({"dispose_due_at": LATER}, ""),
        ({"dispose_due_at": DUE}, "LEVEL_2"),
        ({"dispose_due_at": DUE, "status": "in_review"}, "LEVEL_2"),
        ({"dispose_due_at": DUE, "status": "escalated"}, "LEVEL_2"),
        ({"dispose_due_at": DUE, "status": "confirmed"}, ""),
        ({"score": 79}, ""),
        ({"score": 80}, "LEVEL_1"),
        ({"score": 89}, "LEVEL_1"),
        ({"score": 90}, "LEVEL_2"),
        ({"score": 90, "status": "closed"}, ""),
        ({"hits": Counter(A=2, B=2)}, ""),
        ({"hits": Counter(A=3)}, "LEVEL_1"),
        ({"hits": Counter(A=9)}, "LEVEL_1"),
        ({"hits": Counter(A=10)}, "LEVEL_2"),
        ({"hits": Counter(A=5, B=5)}, "LEVEL_2"),
        ({"hits": Counter(A=1, B=1)}, ""),
        ({"hits": Counter(A=1, B=1, C=1)}, "LEVEL_2"),
        ({"confirmed_before": True}, "LEVEL_2"),
        # low alerts are called for by nothing
        ({"score": 39, "dispose_due_at": DUE, "hits": Counter(A=10), "confirmed_before": True}, ""),
        ({"score": 40, "confirmed_before": True}, "LEVEL_2"),
    ],
)
def test_each_condition_on_both_sides(fields: dict[str, Any], level: str) -> None:
    # A limit is past after it, not at it.
    assert level_of(standing(**fields), LATER) == level
    assert level_of(standing(claim_due_at=DUE, dispose_due_at=DUE), DUE) == ""


def levels() -> list[str]:
    return [str(event.get("escalation_level", "")) for kind, event in outbox() if kind == "alert"]


def audited() -> list[str]:
    return list(AuditLog.objects.filter(event_type="alert_escalated").order_by("id").values_list("decision", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("score", "level", "roles"),
    [
        (79, "", ["risk_officer"]),
        (80, "LEVEL_1", ["risk_officer", "risk_manager"]),
        (90, "LEVEL_2", ["risk_officer", "risk_manager"]),
    ],
)
def test_true_at_opening_the_first_message_carries_it(score: int, level: str, roles: list[str]) -> None:
    settle(make_hit(score=score))
    [(kind, event)] = outbox()
    assert (kind, event.get("escalation_level", "none")) == ("alert", level or "none")
    assert event["notify_role"] == roles
    assert (the_alert().escalation_level, the_alert().status) == (level, "pending")
    assert audited() == ([level.lower()] if level else [])
    assert sweep().level_1 == sweep().level_2 == 0
    assert len(outbox()) == 1


@pytest.mark.django_db
def test_hits_that_join_raise_it_once_each_and_never_down() -> None:
    hits = [make_hit(f"T{n}", score=50, at=DAY + timedelta(minutes=n)) for n in range(4)]
    settle(*hits[:2])
    assert levels() == [""]
    settle(*hits[:3])
    assert levels() == ["", "LEVEL_1"]
    settle(*hits)
    assert levels() == ["", "LEVEL_1"], "a fourth says nothing new"
    settle(*hits, make_hit("U", rule="RISK-002", score=50), make_hit("V", rule="RISK-006", score=50))
    assert levels()[-1] == "LEVEL_2"
    settle(make_hit("T0", score=50, at=DAY))
    assert the_alert().escalation_level == "LEVEL_2", "what is gone takes no level away"
    assert audited() == ["level_1", "level_2"]
    acts = AlertAction.objects.filter(action__startswith="level", actor=None).values_list("action", flat=True)
    assert list(acts) == ["level_1", "level_2"]


@pytest.mark.django_db
def test_time_escalates_after_the_limits_and_not_at_them() -> None:
    settle(make_hit(score=60))
    alert = the_alert()
    assert alert.claim_due_at is not None
    assert alert.dispose_due_at is not None
    assert sweep(at=alert.claim_due_at).level_1 == 0
    result = sweep(at=alert.claim_due_at + timedelta(microseconds=1))
    assert (result.level_1, result.level_2) == (1, 0)
    assert sweep(at=alert.dispose_due_at).level_2 == 0
    version = the_alert().version
    assert sweep(at=alert.dispose_due_at + timedelta(microseconds=1)).level_2 == 1
    assert levels() == ["", "LEVEL_1", "LEVEL_2"]
    assert (the_alert().version, the_alert().status) == (version, "pending"), "a level disturbs no officer's work"


@pytest.mark.django_db
def test_long_past_everything_it_skips_the_first_level() -> None:
    settle(make_hit(score=60))
    assert sweep(at=now() + timedelta(days=30)).level_2 == 1
    assert (levels(), audited()) == (["", "LEVEL_2"], ["level_2"])


@pytest.mark.django_db
def test_claimed_in_time_only_the_disposition_is_waited_for() -> None:
    settle(make_hit(score=60))
    alert = claim(alert_id=the_alert().alert_id, officer=make_person("alice"))
    assert alert.claim_due_at is not None
    assert sweep(at=alert.claim_due_at + timedelta(seconds=1)).level_1 == 0
    judge(the_alert(), alert.assignee)  # type: ignore[arg-type]
    assert sweep(at=now() + timedelta(days=30)).level_2 == 0, "disposed of: nobody waits"


@pytest.mark.django_db
def test_low_alerts_reports_and_faults_are_never_escalated() -> None:
    settle(make_hit("T1", score=39))
    settle(make_hit("T2", rule="RISK-003", score=35, subtypes=("large_amount",), customer="C2"))
    settle(make_hit("T3", rule=DATA_QUALITY, score=0, customer="C3"))
    result = sweep(at=now() + timedelta(days=365))
    assert (result.level_1, result.level_2, result.dated) == (0, 0, 0)
    fault = the_alert(alert_type="data_quality")
    assert (fault.claim_due_at, fault.dispose_due_at) == (None, None)
    report = the_alert(alert_type="report")
    assert report.claim_due_at is None
    assert report.dispose_due_at is not None


def large(number: int) -> Any:
    key = f"cash:in:T{number}@1"
    return make_hit(f"T{number}", rule="RISK-003", score=35, subtypes=("large_amount",), evidence=key)


@pytest.mark.django_db
def test_a_report_is_due_in_five_working_days_and_never_escalated_however_often_its_day_repeats() -> None:
    """A dozen large amounts of one day score 41: no longer low, and still a filing duty."""
    opened = datetime(2026, 9, 29, 17, 0, tzinfo=DAY.tzinfo)
    for day in range(1, 8):
        Holiday.objects.create(day=date(2026, 10, day), name="National Day")
    Holiday.objects.create(day=date(2026, 10, 10), name="National Day", kind=Holiday.Kind.WORKDAY)
    hits = [large(number) for number in range(12)]
    with clock_at(opened):
        settle(*hits[:1])
        alert = the_alert()
        # 29 and 30 September, 8, 9 and (a Saturday that is worked) 10 October, until 17:00 on Monday the 12th
        due = datetime(2026, 10, 12, 17, 0, tzinfo=DAY.tzinfo)
        assert (alert.alert_type, alert.claim_due_at, alert.dispose_due_at) == ("report", None, due)
        settle(*hits)
    alert.refresh_from_db()
    assert (alert.score, alert.hit_count, alert.escalation_level) == (41, 12, "")
    assert (alert.claim_due_at, alert.dispose_due_at) == (None, due)
    result = sweep(at=due + timedelta(days=30))
    assert (result.level_1, result.level_2) == (0, 0)
    assert not [event for _kind, event in outbox() if event.get("escalation_level") or event.get("level")]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("days", "rule", "customer", "level"),
    [
        (89, "RISK-001", "C0000017", "LEVEL_2"),
        (91, "RISK-001", "C0000017", ""),
        (89, "RISK-002", "C0000017", ""),
        (89, "RISK-001", "C0000018", ""),
    ],
)
def test_the_same_confirmed_before(days: int, rule: str, customer: str, level: str) -> None:
    alice = make_person("alice")
    settle(make_hit(score=60))
    old = judge(the_alert(), alice, "confirmed", "C01")
    judge(old, alice, "closed", "K05")  # its follow-up is done: it was confirmed all the same
    RiskAlert.objects.update(confirmed_at=now() - timedelta(days=days))
    new = make_hit("T9", customer=customer, rule=rule, score=50, at=DAY + timedelta(days=1))
    settle(*([make_hit(score=60)] if customer == "C0000017" else []), new)
    assert RiskAlert.objects.exclude(pk=old.pk).get().escalation_level == level


@pytest.mark.django_db
def test_confirmed_while_another_waits_the_sweep_finds_it_and_a_reopening_takes_it_back() -> None:
    alice = make_person("alice")
    settle(first := make_hit(score=60))
    old = claim(alert_id=the_alert().alert_id, officer=alice)
    settle(first, make_hit("T2", score=50, at=DAY + timedelta(days=1)))
    waiting = RiskAlert.objects.exclude(pk=old.pk).get()
    assert sweep().level_2 == 0
    old = judge(old, alice, "confirmed", "C01")
    reopened = reopen(alert_id=old.alert_id, officer=alice, version=old.version, text=REASON)
    assert sweep().level_2 == 0, "nothing is confirmed any more"
    judge(reopened, alice, "confirmed", "C01")
    assert sweep().level_2 == 1
    waiting.refresh_from_db()
    assert waiting.escalation_level == "LEVEL_2"


@pytest.mark.django_db
def test_a_higher_band_has_shorter_limits_from_the_opening_on() -> None:
    settle(first := make_hit(score=50))
    slow = the_alert()
    settle(first, make_hit("T2", rule="RISK-002", score=82))
    fast = the_alert()
    assert fast.claim_due_at == slow.opened_at + timedelta(hours=1)
    assert fast.dispose_due_at == slow.opened_at + timedelta(hours=4)


@pytest.mark.django_db(transaction=True)
def test_a_day_that_becomes_a_holiday_moves_the_limits_of_open_alerts() -> None:
    settle(make_hit(score=60))
    alert = the_alert()
    assert alert.dispose_due_at is not None
    due = alert.dispose_due_at.astimezone(DAY.tzinfo).date()
    holiday = save_holiday(holiday=Holiday(day=due), by="test")
    moved = the_alert().dispose_due_at
    assert moved is not None
    assert moved > alert.dispose_due_at
    save_holiday(holiday=Holiday(day=date(2020, 1, 1)), by="test")
    assert the_alert().dispose_due_at == moved
    delete_holiday(holiday=holiday, by="test")
    assert the_alert().dispose_due_at == alert.dispose_due_at
    RiskAlert.objects.update(dispose_due_at=None)  # whoever died between the commit and the count
    assert sweep().dated == 1
    assert the_alert().dispose_due_at == alert.dispose_due_at


@pytest.mark.django_db(transaction=True)
def test_sweeps_at_once_tell_each_level_once() -> None:
    for n in range(6):
        settle(make_hit(f"T{n}", customer=f"C{n}", score=60))
    late = now() + timedelta(days=30)
    results = at_once(*[lambda: sweep(at=late)] * 3)
    assert sum(result.level_2 for result in results) == 6, results
    assert AlertOutbox.objects.filter(kind="alert").count() == 12
    assert (AuditLog.objects.filter(event_type="alert_escalated").count(), AlertAction.objects.count()) == (6, 6)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("place", ["record_level", "tell_alert"])
def test_a_sweep_that_dies_at_any_step_leaves_nothing_half_done(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        settle(make_hit(f"T{n}", customer=f"C{n}", score=60))
    late, real, calls = now() + timedelta(days=30), getattr(escalating, place), []

    def dies(*args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise DatabaseError("gone")
        return real(*args, **more)

    monkeypatch.setattr(escalating, place, dies)
    first = sweep(at=late)
    assert (first.level_2, first.failed) == (2, 1)
    second = sweep(at=late)
    assert (second.level_2, second.failed) == (1, 0)
    assert AuditLog.objects.filter(event_type="alert_escalated").count() == 3
    assert AlertOutbox.objects.filter(kind="alert").count() == 6


@pytest.mark.django_db
def test_the_command_says_what_it_did() -> None:
    settle(make_hit(score=60))
    RiskAlert.objects.update(claim_due_at=now() - timedelta(seconds=1))
    said = StringIO()
    call_command("escalate_alerts", "--json", stdout=said)
    nothing = {"level_2": 0, "woken": 0, "dated": 0, "overdue": 0, "failed": 0}
    assert json.loads(said.getvalue()) == {"level_1": 1, **nothing}
    said = StringIO()
    call_command("escalate_alerts", "--tenant", "acme", stdout=said)
    assert said.getvalue().startswith("level 1: 0, level 2: 0")


@pytest.mark.django_db
def test_a_sweep_with_nothing_to_do_is_cheap(django_assert_num_queries: Any) -> None:
    for n in range(20):
        settle(make_hit(f"T{n}", customer=f"C{n}", score=60))
    with django_assert_num_queries(4):
        sweep()


@pytest.mark.django_db
def test_the_clock_starts_anew_with_a_reopening() -> None:
    alice = make_person("alice")
    settle(make_hit(score=60))
    alert = the_alert()
    RiskAlert.objects.update(opened_at=now() - timedelta(days=60), dispose_due_at=now() - timedelta(days=50))
    alert = dispose(
        alert_id=alert.alert_id, officer=alice, version=1, evidence_hash=evidence_hash(alert),
        to_status="closed", code="K05", text=REASON,
    )  # fmt: skip
    alert = reopen(alert_id=alert.alert_id, officer=alice, version=alert.version, text=REASON)
    assert alert.dispose_due_at is not None
    assert alert.dispose_due_at > now()
    assert sweep().level_2 == 0


@pytest.mark.django_db(transaction=True)
def test_killed_at_every_statement_nothing_is_lost_and_nothing_told_twice() -> None:
    rounds, late = 0, now() + timedelta(days=30)
    while True:
        rounds += 1
        settle(make_hit(f"T{rounds}", customer=f"C{rounds}", score=60))
        snoozed = now() if rounds % 2 else None
        RiskAlert.objects.filter(customer_id=f"C{rounds}").update(snoozed_until=snoozed)
        if not dies_at(rounds, partial(sweep, at=late)):
            break
    assert rounds > 8
    sweep(at=late)
    assert set(RiskAlert.objects.values_list("escalation_level", "snoozed_until")) == {("LEVEL_2", None)}
    for alert_id in RiskAlert.objects.values_list("pk", flat=True):
        told = AlertOutbox.objects.filter(alert_id=alert_id, kind="alert")
        assert [row.event.get("escalation_level", "") for row in told.order_by("id")] == ["", "LEVEL_2"]
        assert AuditLog.objects.filter(object_id=alert_id, event_type="alert_escalated").count() == 1
        assert AlertAction.objects.filter(alert_id=alert_id, action="level_2").count() == 1
