"""What one officer proposes another approves, on the same evidence; assignments; and two at once on every arrow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert, RiskAlertHit
from risk.alerts.services import (
    add_note,
    approve,
    assign,
    claim,
    dispose,
    escalate,
    give_back,
    release,
    reopen,
    snooze,
    wake,
)
from tests.risk.alerts.people import DAY, REASON, make_hit, make_manager, make_person, settle, the_alert
from tests.risk.alerts.test_officers import at_once, judge, refused


def seen(alert: RiskAlert) -> dict[str, Any]:
    return {"alert_id": alert.alert_id, "version": alert.version, "evidence_hash": evidence_hash(alert)}


def decisions() -> list[str]:
    return list(AuditLog.objects.filter(event_type="alert_status").order_by("id").values_list("decision", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize(("score", "status"), [(79, "confirmed"), (80, "escalated")])
def test_from_score_80_on_a_disposition_is_a_proposal(score: int, status: str) -> None:
    settle(make_hit(score=score))
    assert judge(the_alert(), make_person("alice"), "confirmed", "C01").status == status


@pytest.mark.django_db
def test_at_level_2_a_disposition_is_a_proposal() -> None:
    settle(make_hit(score=60))
    RiskAlert.objects.update(escalation_level="LEVEL_1")
    RiskAlert.objects.update(escalation_level="LEVEL_2")
    assert judge(the_alert(), make_person("alice")).status == "escalated"


@pytest.mark.django_db
def test_a_second_officer_approves_what_the_first_proposed() -> None:
    alice, bob = make_person("alice"), make_person("bob")
    settle(make_hit(score=85))
    alert = judge(the_alert(), alice, "false_positive", "F04", quiet_days=7)
    assert (alert.status, alert.proposed_status, alert.proposed_by, alert.disposed_at) == (
        "escalated", "false_positive", alice, None,
    )  # fmt: skip
    assert alert.quiet_until is None
    alert = approve(officer=bob, text="I agree.", **seen(alert))
    alert.refresh_from_db()
    assert (alert.status, alert.disposition_code, alert.disposition_text) == ("false_positive", "F04", REASON)
    assert (alert.disposed_by, alert.proposed_by, alert.four_eyes) == (bob, alice, True)
    assert alert.quiet_until is not None
    assert decisions() == ["claimed", "proposed", "approved"]
    acts = AlertAction.objects.filter(actor__isnull=False).values_list(
        "action", "from_status", "to_status", "actor__username"
    )
    assert list(acts) == [
        ("claim", "pending", "in_review", "alice"),
        ("propose", "in_review", "escalated", "alice"),
        ("approve", "escalated", "false_positive", "bob"),
    ]
    updates = AlertOutbox.objects.filter(kind="update").order_by("id").values_list("event", flat=True)
    assert [event["status"] for event in updates] == ["escalated", "false_positive"]
    proposed = AuditLog.objects.get(decision="approved")
    assert proposed.input_summary["evidence"] == alert.proposed_hash

    # Reopened it takes two again, whatever its score is.
    RiskAlert.objects.update(score=50, escalation_level="")
    alert = reopen(alert_id=alert.alert_id, officer=bob, version=alert.version, text=REASON)
    assert (alert.proposed_by, alert.proposed_hash) == (None, "")
    assert judge(alert, bob).status == "escalated"


@pytest.mark.django_db
def test_nobody_approves_their_own_and_nobody_without_the_permission() -> None:
    alice, bob = make_person("alice"), make_person("bob")
    settle(make_hit(score=85))
    alert = judge(the_alert(), alice)
    refused("FOUR_EYES", approve, officer=alice, **seen(alert))
    row = AuditLog.objects.get(event_type="authz", decision="forbidden")
    assert (row.code, row.actor_id, row.object_id) == ("FOUR_EYES", "alice", alert.alert_id)
    manager = make_manager()
    manager.user_permissions.add(Permission.objects.get(codename="review_alert"))
    refused("FORBIDDEN", approve, officer=User.objects.get(pk=manager.pk), **seen(alert))
    Group.objects.get(name="risk_officer").permissions.remove(Permission.objects.get(codename="review_alert"))
    bob = User.objects.get(pk=bob.pk)
    refused("FORBIDDEN", approve, officer=bob, **seen(alert))
    refused("FORBIDDEN", give_back, officer=bob, alert_id=alert.alert_id, version=alert.version, text=REASON)
    assert the_alert().status == "escalated"
    # Who proposed it may think again.
    mine = give_back(officer=alice, alert_id=alert.alert_id, version=alert.version, text="I overlooked a trade.")
    assert (mine.status, mine.assignee) == ("in_review", alice)


@pytest.mark.django_db
def test_new_hits_since_the_proposal_are_listed_and_it_can_only_be_returned() -> None:
    alice, bob = make_person("alice"), make_person("bob")
    settle(first := make_hit(score=85))
    alert = judge(the_alert(), alice)
    settle(first, make_hit("T2", score=70))
    stale = refused("VERSION_CONFLICT", approve, officer=bob, **seen(alert))
    assert [hit["trade_id"] for hit in stale.extra["new_hits"]] == ["T2"]
    alert = the_alert()
    error = refused("VERSION_CONFLICT", approve, officer=bob, **seen(alert))
    assert [(hit["trade_id"], hit["score"]) for hit in error.extra["new_hits"]] == [("T2", 70)]
    assert "C0000017" not in str(error.extra)
    back = give_back(alert_id=alert.alert_id, officer=bob, version=alert.version, text="There is a second trade now.")
    assert (back.status, back.assignee, back.proposed_hash) == ("in_review", alice, "")
    assert decisions()[-1] == "returned"
    assert approve(officer=bob, **seen(judge(back, alice))).status == "closed"


@pytest.mark.django_db
def test_a_disposition_names_the_evidence_that_it_saw() -> None:
    alice = make_person("alice")
    settle(first := make_hit(score=50))
    alert = the_alert()
    saw = evidence_hash(alert)
    refused("VERSION_CONFLICT", judge, alert=alert, officer=alice, evidence_hash="0" * 64)
    settle(first, make_hit("T2", score=50))
    assert evidence_hash(the_alert()) != saw
    error = refused("VERSION_CONFLICT", judge, alert=alert, officer=alice, evidence_hash=saw)
    assert [hit["trade_id"] for hit in error.extra["new_hits"]] == ["T2"]
    both = evidence_hash(the_alert())
    settle(make_hit(score=50, rule_version=2), make_hit("T2", score=50))
    assert evidence_hash(the_alert()) == both, "another version of the rule that finds the same is no other evidence"
    settle(make_hit(score=50, rule_version=2, figures={"limit": "2"}), make_hit("T2", score=50))
    assert evidence_hash(the_alert()) != both


@pytest.mark.django_db
def test_the_evidence_is_the_same_whatever_the_order_and_whatever_came_after() -> None:
    one, two = make_hit("T1", score=50), make_hit("T2", score=50)
    settle(one, two)
    first = evidence_hash(the_alert())
    RiskAlertHit.objects.all().delete()
    RiskAlert.objects.all().delete()
    settle(two, one)
    assert evidence_hash(the_alert()) == first
    alert = judge(the_alert(), make_person("alice"), "confirmed", "C01")
    settle(one, two, make_hit("T3", score=95))
    assert evidence_hash(the_alert()) == first
    officer = User.objects.get()
    alert = reopen(alert_id=alert.alert_id, officer=officer, version=alert.version, text=REASON)
    assert evidence_hash(alert) != first, "reopened, it is part of what is judged"
    assert (alert.score, alert.hit_count, alert.escalation_level) == (99, 3, "LEVEL_2")


@pytest.mark.django_db
def test_a_second_opinion_may_be_asked_for_where_it_is_not_needed() -> None:
    alice = make_person("alice")
    settle(make_hit(score=50))
    about: dict[str, Any] = {"to_status": "closed", "code": "K05", "text": REASON}
    alert = escalate(officer=alice, **about, **seen(the_alert()))
    assert (alert.status, decisions()) == ("escalated", ["claimed", "proposed"])
    assert refused("ALERT_CONFLICT", judge, alert=alert, officer=alice).extra["action"] == "propose"
    refused("ALERT_CONFLICT", claim, alert_id=alert.alert_id, officer=alice)
    assert approve(officer=make_person("bob"), **seen(alert)).status == "closed"


@pytest.mark.django_db
def test_assignments_and_notes_survive_every_hit() -> None:
    alice, bob = make_person("alice"), make_person("bob")
    settle(first := make_hit(score=50))
    alert = assign(alert_id=the_alert().alert_id, officer=alice, to=bob, version=1)
    assert (alert.status, alert.assignee, alert.version, alert.merge_slot) == ("in_review", bob, 2, None)
    add_note(alert_id=alert.alert_id, officer=alice, text="asked the branch")
    settle(first, make_hit("T2", score=95))
    settle(make_hit(score=55), make_hit("T2", score=95))
    alert = the_alert()
    assert (alert.assignee, alert.status, alert.hit_count) == (bob, "in_review", 2)
    assert AlertAction.objects.get(action="note").text == "asked the branch"
    assert assign(alert_id=alert.alert_id, officer=bob, to=alice).assignee == alice
    refused("INVALID_REQUEST", assign, alert_id=alert.alert_id, officer=bob, to=alice)
    refused("INVALID_REQUEST", assign, alert_id=alert.alert_id, officer=bob, to=make_manager())
    refused("INVALID_REQUEST", assign, alert_id=alert.alert_id, officer=bob, to=make_person("eve", tenant="acme"))
    assert decisions() == ["assigned", "assigned"]


def _closed(alert: RiskAlert, alice: User) -> RiskAlert:
    return judge(alert, alice)


def _claimed(alert: RiskAlert, alice: User) -> RiskAlert:
    return claim(alert_id=alert.alert_id, officer=alice)


ARROWS: dict[str, tuple[int, Callable[[RiskAlert, User], RiskAlert], Callable[..., Any]]] = {
    "claim": (50, lambda alert, who: alert, lambda a, who, to: claim(alert_id=a.pk, officer=who, version=a.version)),
    "assign": (
        50, lambda alert, who: alert,
        lambda a, who, to: assign(alert_id=a.pk, officer=who, to=to, version=a.version),
    ),
    "release": (50, _claimed, lambda a, who, to: release(alert_id=a.pk, officer=who, version=a.version)),
    "propose": (85, lambda alert, who: alert, lambda a, who, to: judge(a, who)),
    "approve": (85, _closed, lambda a, who, to: approve(officer=who, **seen(a))),
    "return": (85, _closed, lambda a, who, to: give_back(alert_id=a.pk, officer=who, version=a.version, text=REASON)),
    "reopen": (50, _closed, lambda a, who, to: reopen(alert_id=a.pk, officer=who, version=a.version, text=REASON)),
    "snooze": (
        50, lambda alert, who: alert,
        lambda a, who, to: snooze(
            alert_id=a.pk, officer=who, version=a.version, until=now() + timedelta(minutes=5), text=REASON
        ),
    ),
    "wake": (
        50,
        lambda alert, who: snooze(
            alert_id=alert.pk, officer=who, version=1, until=now() + timedelta(minutes=5), text=REASON
        ),
        lambda a, who, to: wake(alert_id=a.pk, officer=who, version=a.version),
    ),
}  # fmt: skip


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("arrow", ARROWS)
def test_two_officers_at_once_on_every_arrow_one_wins_and_the_other_is_told(arrow: str) -> None:
    alice, bob, carol = (make_person(name) for name in ("alice", "bob", "carol"))
    score, prepare, deed = ARROWS[arrow]
    settle(make_hit(score=score))
    alert = prepare(the_alert(), alice)
    acts, rows = AlertAction.objects.count(), len(decisions())
    results = at_once(*[partial(deed, alert, who, alice) for who in (bob, carol)])
    winners = [result for result in results if isinstance(result, RiskAlert)]
    losers = [result for result in results if isinstance(result, DomainError)]
    assert (len(winners), len(losers)) == (1, 1), results
    assert losers[0].code == "ALERT_CONFLICT", losers
    assert losers[0].extra["action"] == arrow
    assert losers[0].extra["by"] in ("bob", "carol")
    assert losers[0].extra["by"] in losers[0].detail
    # a proposal from pending claims first
    steps = 2 if arrow == "propose" else 1
    assert (AlertAction.objects.count() - acts, len(decisions()) - rows) == (steps, steps)


@pytest.mark.django_db
def test_a_disposition_in_one_call_says_all_that_it_needs() -> None:
    settle(make_hit(score=50, at=DAY))
    alert = the_alert()
    with pytest.raises(TypeError, match="evidence_hash"):
        dispose(  # type: ignore[call-arg]
            alert_id=alert.alert_id,
            officer=make_person("alice"),
            version=1,
            to_status="closed",
            code="K05",
            text=REASON,
        )


@pytest.mark.django_db
@pytest.mark.parametrize("act", ["dispose", "propose", "escalate", "approve"])
def test_new_hits_follow_the_evidence_that_was_seen_and_not_the_version(act: str) -> None:
    """A page was read, a hit came, and somebody sends the new version with the old evidence."""
    alice, bob = make_person("alice"), make_person("bob")
    score = 85 if act in ("propose", "approve") else 50
    settle(first := make_hit(score=score))
    alert = judge(the_alert(), alice) if act == "approve" else the_alert()
    told = {"to_status": "closed", "code": "K05", "text": REASON}

    def refusal(saw: str) -> list[str]:
        about = {"alert_id": alert.alert_id, "version": the_alert().version, "evidence_hash": saw}
        if act == "approve":
            error = refused("VERSION_CONFLICT", approve, officer=bob, **about)
        else:
            error = refused(
                "VERSION_CONFLICT", escalate if act == "escalate" else dispose, officer=alice, **about, **told
            )
        return [hit["trade_id"] for hit in error.extra["new_hits"]]

    saw = evidence_hash(alert)
    second = make_hit("T2", score=40)
    settle(first, second)
    assert refusal(saw) == ["T2"]
    then = evidence_hash(the_alert())
    settle(make_hit(score=score, figures={"limit": "2"}), second, make_hit("T3", score=40))
    assert refusal(then) == ["T1", "T3"]
    assert refusal(saw) == ["T2", "T1", "T3"]
    latest = evidence_hash(the_alert())
    settle(make_hit(score=score, figures={"limit": "2"}), make_hit("T3", score=40), make_hit("T4", score=40))
    assert refusal(latest) == ["T4"], "one that was seen is gone"
    assert refusal("0" * 64) == ["T1", "T3", "T4"], "of no evidence that ever was: everything is new"
