"""What officers may do, in what order, with what words, and what happens when two act at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection, connections

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from risk.alerts import selectors
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert
from risk.alerts.services import add_note, claim, dispose, release, reopen
from tests.risk.alerts.people import DAY, REASON, make_hit, make_manager, make_person, settle, the_alert


def refused(code: str, act, /, **arguments) -> DomainError:
    with pytest.raises(DomainError) as caught:
        act(**arguments)
    assert caught.value.code == code
    return caught.value


def judge(alert: RiskAlert, officer: User, to_status: str = "closed", code: str = "K05", text: str = REASON, **more):
    seen = {"version": alert.version, "evidence_hash": evidence_hash(alert)}
    arguments = {"alert_id": alert.alert_id} | seen | more
    return dispose(officer=officer, to_status=to_status, code=code, text=text, **arguments)


@pytest.mark.django_db
def test_whoever_runs_the_system_decides_no_case_unless_an_officer_too() -> None:
    settle(make_hit())
    root = User.objects.create_user("root", is_staff=True, is_superuser=True)
    refused("FORBIDDEN", claim, alert_id=the_alert().alert_id, officer=root)
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id="root").count() == 1
    root.groups.add(Group.objects.get(name="risk_officer"))
    root = User.objects.get(pk=root.pk)  # as the next request reads it: what a person holds is kept with the object
    assert claim(alert_id=the_alert().alert_id, officer=root).assignee == root


@pytest.mark.django_db
def test_from_the_queue_to_a_disposition() -> None:
    alice = make_person("alice")
    settle(make_hit())
    alert = claim(alert_id=the_alert().alert_id, officer=alice, version=1)
    assert (alert.status, alert.assignee, alert.version) == ("in_review", alice, 2)
    alert = judge(alert, alice, "confirmed", "C01")
    alert.refresh_from_db()
    assert (alert.status, alert.disposition_code, alert.disposed_by, alert.version) == ("confirmed", "C01", alice, 3)
    alert = judge(alert, alice, "closed", "K05", REASON)  # the follow-up is done
    assert alert.status == "closed"

    acts = AlertAction.objects.values_list("action", "from_status", "to_status", "code", "alert_version")
    assert list(acts) == [
        ("claim", "pending", "in_review", "", 2),
        ("dispose", "in_review", "confirmed", "C01", 3),
        ("dispose", "confirmed", "closed", "K05", 4),
    ]
    rows = AuditLog.objects.filter(event_type="alert_status").order_by("id")
    assert [(row.decision, row.actor_type, row.actor_id, row.object_id) for row in rows] == [
        ("claimed", "staff", "alice", alert.alert_id),
        ("confirmed", "staff", "alice", alert.alert_id),
        ("closed", "staff", "alice", alert.alert_id),
    ]
    updates = [row.event for row in AlertOutbox.objects.filter(kind="update").order_by("id")]
    assert [(event["status"], event["assignee"], event["version"]) for event in updates] == [
        ("in_review", "alice", 2),
        ("confirmed", "alice", 3),
        ("closed", "alice", 4),
    ]


@pytest.mark.django_db
def test_disposing_from_pending_claims_in_the_same_transaction() -> None:
    alice = make_person("alice")
    settle(make_hit())
    alert = judge(the_alert(), alice)
    assert (alert.status, alert.assignee, alert.version, alert.merge_slot) == ("closed", alice, 3, None)
    assert list(AlertAction.objects.values_list("action", flat=True)) == ["claim", "dispose"]
    assert AlertOutbox.objects.filter(kind="update").count() == 1


@pytest.mark.django_db
def test_release_gives_it_back_and_any_officer_may() -> None:
    alice, bob = make_person("alice"), make_person("bob")
    settle(make_hit())
    alert = claim(alert_id=the_alert().alert_id, officer=alice)
    error = refused("ALERT_CONFLICT", judge, alert=alert, officer=bob)
    assert (error.extra["by"], error.extra["action"]) == ("alice", "claim")
    alert = release(alert_id=alert.alert_id, officer=bob, version=alert.version)
    assert (alert.status, alert.assignee) == ("pending", None)
    assert judge(alert, bob).status == "closed"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("to_status", "code", "text", "says"),
    [
        ("confirmed", "F01", REASON, "does not go with confirmed; use C01"),
        ("false_positive", "K01", REASON, "use F01"),
        ("closed", "C01", REASON, "use K01"),
        ("closed", "Z99", REASON, "use K01"),
        ("closed", "", REASON, "use K01"),
        ("pending", "K01", REASON, "is no disposition"),
        ("escalated", "C01", REASON, "is no disposition"),
        ("closed", "K05", "too short", "9 characters; it needs at least 10"),
        ("closed", "K05", "         x         ", "1 characters"),
        ("closed", "K05", "\u200b" * 12, "0 characters"),
        ("confirmed", "C01", "twenty characters ok", "20 characters; it needs at least 30"),
        ("closed", "K05", "x" * 4001, "at most 4000"),
    ],
)
def test_a_disposition_that_does_not_do_is_refused_with_the_way_out(to_status, code, text, says) -> None:
    settle(make_hit(score=40))
    error = refused(
        "INVALID_REQUEST", judge, alert=the_alert(), officer=make_person("alice"),
        to_status=to_status, code=code, text=text,
    )  # fmt: skip
    assert says in error.detail
    assert (the_alert().status, the_alert().version) == ("pending", 1)
    assert not AlertAction.objects.exists()


@pytest.mark.django_db
def test_from_score_60_on_the_text_is_longer() -> None:
    alice = make_person("alice")
    settle(make_hit(score=60))
    error = refused("INVALID_REQUEST", judge, alert=the_alert(), officer=alice, text="twelve chars")
    assert "at least 30 because the score is 60" in error.detail
    settle(make_hit("T9", customer="C-59", score=59))
    assert judge(the_alert(customer_id="C-59"), alice, text="十个字的处置说明文字").status == "closed"


@pytest.mark.django_db
def test_arrows_that_do_not_exist() -> None:
    alice = make_person("alice")
    settle(make_hit())
    alert = the_alert()
    refused("INVALID_TRANSITION", release, alert_id=alert.alert_id, officer=alice)
    refused("INVALID_TRANSITION", reopen, alert_id=alert.alert_id, officer=alice, version=1, text=REASON)
    alert = judge(alert, alice, "false_positive", "F04")
    refused("INVALID_TRANSITION", judge, alert=alert, officer=alice, to_status="confirmed", code="C01")
    error = refused("ALERT_CONFLICT", claim, alert_id=alert.alert_id, officer=make_person("bob"))
    assert "alice disposed of this alert as false_positive F04 at 20" in error.detail
    assert reopen(alert_id=alert.alert_id, officer=alice, version=alert.version, text=REASON).status == "in_review"


@pytest.mark.django_db
def test_a_manager_looks_and_does_not_touch() -> None:
    settle(make_hit())
    manager, alert = make_manager(), the_alert()
    for act in (claim, release):
        refused("FORBIDDEN", act, alert_id=alert.alert_id, officer=manager)
    refused("FORBIDDEN", judge, alert=alert, officer=manager)
    refused("FORBIDDEN", add_note, alert_id=alert.alert_id, officer=manager, text="a note")
    rows = AuditLog.objects.filter(event_type="authz", decision="forbidden").order_by("id")
    assert [row.input_summary["action"] for row in rows] == ["claim", "release", "dispose", "note"]
    assert {(row.actor_id, row.object_id, row.code) for row in rows} == {("mei", alert.alert_id, "FORBIDDEN")}
    assert (the_alert().status, AlertAction.objects.count()) == ("pending", 0)


@pytest.mark.django_db
def test_someone_who_left_does_nothing() -> None:
    settle(make_hit())
    gone = make_person("gone")
    gone.is_active = False
    refused("FORBIDDEN", judge, alert=the_alert(), officer=gone)


@pytest.mark.django_db
def test_another_tenants_alert_does_not_exist() -> None:
    settle(make_hit())
    stranger = make_person("stranger", tenant="acme")
    refused("ALERT_NOT_FOUND", judge, alert=the_alert(), officer=stranger)
    refused("ALERT_NOT_FOUND", add_note, alert_id=the_alert().alert_id, officer=stranger, text="hello")
    refused("ALERT_NOT_FOUND", selectors.alert_page, tenant="acme", alert_id=the_alert().alert_id)
    assert selectors.queue(tenant="acme") == []


@pytest.mark.django_db
def test_new_evidence_since_the_officer_looked_stops_the_disposition() -> None:
    alice = make_person("alice")
    settle(first := make_hit())
    seen = the_alert()
    settle(first, make_hit("T2"))
    error = refused("VERSION_CONFLICT", judge, alert=seen, officer=alice)
    assert "2 hits, you saw version 1" in error.detail


@pytest.mark.django_db
def test_a_note_moves_nothing() -> None:
    alice = make_person("alice")
    settle(make_hit())
    seen = the_alert()
    add_note(alert_id=seen.alert_id, officer=alice, text="asked the branch")
    assert the_alert().version == seen.version
    refused("INVALID_REQUEST", add_note, alert_id=seen.alert_id, officer=alice, text="  ")
    assert judge(seen, alice).status == "closed"


@pytest.mark.django_db
def test_queries_of_the_console(django_assert_max_num_queries, django_assert_num_queries) -> None:
    alice = make_person("alice")
    settle(*(make_hit(f"T{n}", at=DAY) for n in range(5)))
    alert = the_alert()
    alice.has_perm("risk.dispose_alert")  # the request has asked by now
    with django_assert_num_queries(4):
        page = selectors.alert_page(tenant="default", alert_id=alert.alert_id)
    assert len(page.hits) == len(page.live_hits) == 5
    with django_assert_num_queries(1):
        assert selectors.queue(tenant="default") == [alert]
    # tenant, savepoint, read, evidence (here and there), two times (update, action, audit), outbox row, release
    with django_assert_max_num_queries(13):
        judge(alert, alice)
    assert selectors.queue(tenant="default") == []
    assert selectors.counts(tenant="default") == {}


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Runs all at the same moment, each on its own connection; results or DomainErrors in order."""
    gate, results = threading.Barrier(len(works)), cast(list[Any], [None] * len(works))

    def run(n: int, work) -> None:
        try:
            gate.wait(10)
            results[n] = work()
        except DomainError as error:
            results[n] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(n, work)) for n, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("claimed", [False, True])
def test_two_officers_dispose_at_once_one_wins_and_the_other_is_told_who(claimed: bool) -> None:
    officers = [make_person("alice"), make_person("bob")]
    for n in range(4):
        settle(make_hit(f"T{n}", customer=f"C{n}"))
        alert = the_alert(customer_id=f"C{n}")
        works: list[Callable[[], Any]] = [partial(judge, alert, who) for who in officers]
        if claimed:  # one claims while the other disposes
            works[0] = partial(claim, alert_id=alert.alert_id, officer=officers[0], version=alert.version)
        results = at_once(*works)
        winners = [result for result in results if isinstance(result, RiskAlert)]
        losers = [result for result in results if isinstance(result, DomainError)]
        assert (len(winners), len(losers)) == (1, 1), results
        assert losers[0].code == "ALERT_CONFLICT"
        alert.refresh_from_db()
        assert losers[0].extra["by"] == alert.assignee.username
        assert alert.assignee.username in losers[0].detail
        disposals = AlertAction.objects.filter(alert=alert, action="dispose").count()
        assert disposals == (1 if alert.status == "closed" else 0)
        audited = AuditLog.objects.filter(object_id=alert.alert_id, event_type="alert_status").count()
        assert audited == AlertAction.objects.filter(alert=alert).count()


@pytest.mark.django_db(transaction=True)
def test_scanners_at_once_end_with_one_finding_one_alert_and_one_event() -> None:
    connection.close()
    for n in range(5):
        customer = f"C{n}"
        hits = [make_hit(f"T{n}-{k}", customer=customer, rule=rule) for k, rule in enumerate(("RISK-001", "RISK-002"))]
        results = at_once(*[lambda hits=hits: settle(*hits)] * 4)
        assert sum(result.new for result in results) == 2, results
        assert sum(result.alerts_opened for result in results) == 1
        alert = the_alert(customer_id=customer)
        assert alert.hit_count == 2
        assert AlertOutbox.objects.filter(alert_id=alert.alert_id).count() == 2
        assert AuditLog.objects.filter(object_id=alert.alert_id, event_type="alert_opened").count() == 1


@pytest.mark.django_db(transaction=True)
def test_scanners_that_revise_and_retire_at_once_agree() -> None:
    for n in range(5):
        customer = f"C{n}"
        settle(make_hit(f"A{n}", customer=customer), make_hit(f"B{n}", customer=customer))
        results = at_once(*[lambda n=n, customer=customer: settle(make_hit(f"A{n}", customer=customer, score=81))] * 4)
        assert sum(result.revised for result in results) == 1, results
        assert sum(result.withdrawn for result in results) == 1
        assert the_alert(customer_id=customer).hit_count == 1


@pytest.mark.django_db(transaction=True)
def test_a_hit_and_a_claim_at_once_never_change_what_is_being_judged() -> None:
    """A different rule's hit merges before the claim or opens an alert of its own after it."""
    alice = make_person("alice")
    for n in range(6):
        customer = f"C{n}"
        settle(first := make_hit(f"T{n}", customer=customer))
        alert = the_alert(customer_id=customer)
        other = make_hit(f"U{n}", customer=customer, rule="RISK-002")
        at_once(
            lambda alert=alert: claim(alert_id=alert.alert_id, officer=alice),
            lambda first=first, other=other: settle(first, other),
        )
        alerts = list(RiskAlert.objects.filter(customer_id=customer).order_by("opened_at"))
        assert sum(row.hit_count for row in alerts) == 2
        assert alerts[0].status == "in_review"
        assert len(alerts) == (1 if alerts[0].hit_count == 2 else 2)
