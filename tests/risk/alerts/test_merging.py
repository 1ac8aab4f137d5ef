"""Which alert a finding joins, and what is told of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User

from guard.audit.models import AuditLog
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import AlertOutbox, RiskAlert, RiskAlertHit
from risk.alerts.services import add_note, claim, dispose, release, reopen
from risk.rules.hit import DATA_QUALITY, FinalTrade
from tests.risk.alerts.people import DAY, REASON, age, live, make_hit, make_person, outbox, settle, the_alert

pytestmark = pytest.mark.django_db


def audit() -> list[str]:
    return [f"{row.event_type}/{row.decision}" for row in AuditLog.objects.order_by("id")]


def test_a_first_finding_opens_an_alert_with_its_audit_and_outbox_rows() -> None:
    result = settle(make_hit())

    assert (result.new, result.alerts_opened, result.alerts_merged) == (1, 1, 0)
    alert, hit = the_alert(), live()[0]
    assert (alert.status, alert.score, alert.subtypes, alert.hit_count) == ("pending", 60, ["suitability_mismatch"], 1)
    assert (alert.merge_slot, hit.anchor) == ("C0000017", "C0000017:RISK-001:2026-03-02")
    assert audit() == ["risk_hit/detected", "alert_opened/opened"]
    assert outbox() == [
        (
            "alert",
            {
                "alert_id": alert.alert_id,
                "alert_type": "event",
                "customer_id_mask": "C0***7",
                "risk_score": 60,
                "trace_id": "a" * 32,
                "notify_role": ["risk_officer"],
                "alert_subtype": ["suitability_mismatch"],
            },
        )
    ]


def test_the_day_is_shanghais() -> None:
    settle(make_hit(at=DAY.replace(hour=0, minute=0)), make_hit("T2", at=DAY.replace(hour=23, minute=59)))
    assert [hit.anchor for hit in live()] == ["C0000017:RISK-001:2026-03-02", None]


def test_settling_again_changes_nothing() -> None:
    hits = [make_hit("T1"), make_hit("T2", rule="RISK-002", subtypes=("concentration",))]
    settle(*hits)
    before = (AuditLog.objects.count(), AlertOutbox.objects.count(), the_alert().version)

    result = settle(*hits)

    assert result.unchanged == 2
    assert not result.changed
    assert (AuditLog.objects.count(), AlertOutbox.objects.count(), the_alert().version) == before


def test_an_unchanged_customer_costs_one_query(django_assert_num_queries) -> None:
    hits = [make_hit(f"T{n}", at=DAY + timedelta(days=n)) for n in range(20)]
    settle(*hits)
    with django_assert_num_queries(1):
        settle(*hits)
    with django_assert_num_queries(1):
        settle(customer="C-without-any")


def test_a_repeat_is_told_as_an_update_and_a_new_subtype_or_band_as_an_alert() -> None:
    settle(first := make_hit("T1", score=60))
    settle(first, repeat := make_hit("T2", score=60))
    settle(first, repeat, other := make_hit("T3", rule="RISK-002", score=50, subtypes=("concentration",)))
    settle(first, repeat, other, high := make_hit("T4", score=95, at=DAY + timedelta(days=1)))
    settle(first, repeat, other, high, make_hit("T5", score=95, at=DAY + timedelta(days=1)))

    alert = the_alert()
    assert [kind for kind, _ in outbox()] == ["alert", "update", "alert", "alert", "update"]
    # 60; +2 repeat; +5 further rule; 95 +5 and two repeats; three repeats
    assert [event.get("risk_score") for kind, event in outbox() if kind == "alert"] == [60, 67, 100]
    assert (alert.score, alert.hit_count, alert.subtypes) == (100, 5, ["suitability_mismatch", "concentration"])
    assert outbox()[1][1] == {
        "alert_id": alert.alert_id, "status": "pending", "assignee": None, "level": None, "version": 2,
    }  # fmt: skip


def test_an_alert_in_review_takes_the_days_repeats_and_nothing_else() -> None:
    officer = make_person("alice")
    settle(first := make_hit("T1"))
    claim(alert_id=the_alert().alert_id, officer=officer)
    settle(first, repeat := make_hit("T2"), other := make_hit("T3", rule="RISK-002", subtypes=("concentration",)))

    in_review, opened = RiskAlert.objects.order_by("opened_at")
    assert [hit.alert_id for hit in live()] == [in_review.alert_id, in_review.alert_id, opened.alert_id]
    assert (in_review.status, in_review.hit_count, opened.status) == ("in_review", 2, "pending")

    release(alert_id=in_review.alert_id, officer=officer)
    settle(first, repeat, other, make_hit("T4", at=DAY + timedelta(days=1)))
    in_review.refresh_from_db()
    assert in_review.merge_slot is None, "released, but it has been looked at: the slot is gone for good"
    assert live()[-1].alert_id == opened.alert_id


def test_after_seven_days_a_pending_alert_takes_no_more() -> None:
    settle(first := make_hit("T1"))
    age(the_alert(), days=6, hours=23)
    settle(first, second := make_hit("T2", at=DAY + timedelta(days=1)))
    assert RiskAlert.objects.count() == 1
    age(the_alert(), days=7)
    settle(first, second, make_hit("T3", at=DAY + timedelta(days=2)))
    old, new = RiskAlert.objects.order_by("opened_at")
    assert (old.merge_slot, new.merge_slot, old.hit_count, new.hit_count) == (None, "C0000017", 2, 1)


def disposed(score: int, to_status: str, code: str) -> RiskAlert:
    settle(make_hit("T1", score=score))
    alert = the_alert()
    return dispose(
        alert_id=alert.alert_id, officer=make_person("alice"), version=alert.version,
        evidence_hash=evidence_hash(alert), to_status=to_status, code=code, text=REASON,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("to_status", "code", "later", "follow_up"),
    [
        ("false_positive", "F04", 69, False),
        ("false_positive", "F04", 70, True),
        ("closed", "K05", 70, True),
        ("confirmed", "C01", 95, False),
    ],
)
def test_a_disposed_alert_is_left_alone_but_for_one_follow_up(
    to_status: str, code: str, later: int, follow_up: bool
) -> None:
    old = disposed(60, to_status, code)
    first = make_hit("T1", score=60)

    settle(first, second := make_hit("T2", score=later))

    old.refresh_from_db()
    assert (old.status, old.score, old.hit_count, old.version) == (to_status, 60, 1, 3)
    hit = live()[-1]
    if not follow_up:
        assert (hit.alert_id, hit.after_disposition, hit.anchor) == (old.alert_id, True, None)
        assert audit()[-2:] == ["risk_hit/detected", "alert_merged/after_disposition"]
        assert outbox()[-1][0] == "update"
        return
    new = the_alert(parent=old)
    assert (hit.alert_id, hit.anchor) == (new.alert_id, "C0000017:RISK-001:2026-03-02:f")
    settle(first, second, third := make_hit("T3", score=20))
    assert live()[-1].alert_id == new.alert_id, "the follow-up takes the rest"
    new, officer = the_alert(pk=new.pk), User.objects.get()
    dispose(
        alert_id=new.alert_id, officer=officer, version=new.version, evidence_hash=evidence_hash(new),
        to_status="false_positive", code="F04", text=REASON,
    )  # fmt: skip
    settle(first, second, third, make_hit("T4", score=100))
    assert (live()[-1].alert_id, live()[-1].after_disposition) == (new.alert_id, True)
    assert RiskAlert.objects.count() == 2, "one follow-up, not two"


def test_a_follow_up_leaves_the_slot_to_another_pending_alert() -> None:
    disposed(60, "closed", "K05")
    first = make_hit("T1")
    settle(first, other := make_hit("T2", rule="RISK-002", at=DAY + timedelta(days=1)))
    settle(first, other, make_hit("T3", score=90))
    assert sorted((alert.merge_slot or "-") for alert in RiskAlert.objects.all()) == ["-", "-", "C0000017"]


def test_other_figures_make_a_revision_that_supersedes() -> None:
    settle(make_hit(score=60))
    result = settle(make_hit(score=80, figures={"c_level": "C1", "risk_level": "R4"}))

    assert (result.new, result.revised) == (0, 1)
    old, new = RiskAlertHit.objects.order_by("revision")
    assert (old.state, old.live_key, new.state, new.revision) == ("superseded", None, "live", 2)
    alert = the_alert()
    assert (alert.hit_count, alert.score) == (1, 80)
    assert [kind for kind, _ in outbox()] == ["alert", "alert"], "the band rose"
    settle(make_hit(score=40))
    assert the_alert().score == 80, "the score only rises"


def test_what_is_gone_says_why() -> None:
    settle(*(make_hit(name) for name in ("T1", "T2", "T3", "T4", "T5")))
    result = settle(
        make_hit("T5"),
        make_hit("T3", version=2),
        final={
            "T1": FinalTrade(2, "cancelled"),
            "T2": FinalTrade(2, "reversed"),
            "T3": FinalTrade(2, "executed"),
            "T4": FinalTrade(1, "executed"),
        },
    )
    assert (result.cancelled, result.superseded, result.withdrawn, result.new, result.unchanged) == (2, 1, 1, 1, 1)
    states = {(hit.trade_id, hit.trade_version): hit.state for hit in RiskAlertHit.objects.all()}
    assert states == {
        ("T1", 1): "cancelled",
        ("T2", 1): "cancelled",
        ("T3", 1): "superseded",
        ("T3", 2): "live",
        ("T4", 1): "withdrawn",
        ("T5", 1): "live",
    }
    alert = the_alert()
    assert (alert.status, alert.hit_count) == ("pending", 2)
    assert RiskAlert.objects.count() == 1
    again = settle(make_hit("T5"), make_hit("T3", version=2))
    assert not again.changed

    back = settle(make_hit("T5"), make_hit("T3", version=2), make_hit("T4"))
    assert back.new == 1
    assert RiskAlertHit.objects.get(trade_id="T4", state="live").revision == 2


def test_a_finding_of_a_disposed_alert_that_is_gone_changes_the_hit_alone() -> None:
    old = disposed(60, "confirmed", "C01")
    result = settle(final={"T1": FinalTrade(2, "cancelled")})
    old.refresh_from_db()
    assert result.cancelled == 1
    assert (old.status, old.version, old.hit_count) == ("confirmed", 3, 1)


def test_rules_that_were_not_evaluated_are_left_alone() -> None:
    settle(make_hit("T1"), make_hit("T2", rule="RISK-002"))
    result = settle(customer="C0000017", rule_ids={"RISK-002"})
    assert result.withdrawn == 1
    assert [hit.rule_id for hit in live()] == ["RISK-001"]


def test_missing_facts_are_for_operators_and_are_not_told() -> None:
    lacking = [
        make_hit(name, rule=DATA_QUALITY, score=0, subtypes=("price_missing",), at=DAY + timedelta(days=n))
        for n, name in enumerate(("T1", "T2"))
    ]
    settle(*lacking, make_hit("T3"))
    assert sorted(RiskAlert.objects.values_list("alert_type", "hit_count")) == [("data_quality", 2), ("event", 1)]
    assert len(outbox()) == 1
    assert audit()[0] == "data_quality/detected"
    quality = the_alert(alert_type="data_quality")
    dispose(
        alert_id=quality.alert_id, officer=make_person("alice"), version=quality.version,
        evidence_hash=evidence_hash(quality),
        to_status="closed", code="K05", text=REASON,
    )  # fmt: skip
    assert len(outbox()) == 1


def test_a_large_amount_report_is_one_a_day_outside_merging() -> None:
    def report(name: str, day: int):
        return make_hit(name, rule="RISK-003", score=30, subtypes=("large_amount",), at=DAY + timedelta(days=day))

    settle(make_hit("T1"), report("T2", 0), report("T3", 0), report("T4", 1))
    rows = RiskAlert.objects.order_by("opened_at").values_list("alert_type", "hit_count", "merge_slot")
    assert list(rows) == [("event", 1, "C0000017"), ("report", 2, None), ("report", 1, None)]


def test_tenants_do_not_meet() -> None:
    settle(make_hit())
    settle(make_hit(), tenant="acme")
    assert sorted(RiskAlert.objects.values_list("tenant", "hit_count")) == [("acme", 1), ("default", 1)]
    assert settle(make_hit(), tenant="acme").unchanged == 1


@pytest.mark.parametrize(
    "hits",
    [[make_hit(customer="C-other")], [make_hit(), make_hit()], [make_hit(rule="RISK-002")]],
)
def test_hits_that_do_not_belong_are_refused_before_anything_is_written(hits) -> None:
    with pytest.raises(ValueError, match="does not belong"):
        settle(*hits, customer="C0000017", rule_ids={"RISK-001"})
    assert not RiskAlertHit.objects.exists()


def test_a_reopened_alert_is_open_again_for_its_days_repeats() -> None:
    old = disposed(60, "closed", "K05")
    officer = User.objects.get()
    reopen(alert_id=old.alert_id, officer=officer, version=old.version, text="new facts from the branch")
    add_note(alert_id=old.alert_id, officer=officer, text="asked the branch for the tape")
    settle(make_hit("T1"), make_hit("T2"))
    old.refresh_from_db()
    assert (old.status, old.hit_count, old.disposition_code, old.score) == ("in_review", 2, "", 62)
