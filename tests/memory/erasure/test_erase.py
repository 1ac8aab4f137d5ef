"""A customer is erased: nothing is left, nobody writes on, the receipt says all of it."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.access.services import Caller, issue_key
from guard.audit.models import AuditLog
from guard.audit.origin import begin
from guard.audit.sealing import seal_waiting
from memory.core.models import CoreCustomer
from memory.erasure.models import CustomerTombstone, ErasureReceipt
from memory.erasure.services import finish_open
from memory.profiles import selectors as profile_reads
from memory.profiles import services as profiles
from memory.profiles.models import CustomerProfileL1
from memory.sessions import locks, selectors, services
from memory.sessions.drain import drain
from memory.sessions.keys import CTX, DRAFT, HEARTBEAT, MSGS, PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from memory.sessions.owners import find_owner, forget_owners
from memory.sessions.reconcile import reconcile, select
from risk.alerts.keys import DEDUP
from tests.guard.audit.sealing import tamper
from tests.memory.erasure.helpers import (
    ALICE,
    ALICE_ID,
    BOB,
    BOB_ID,
    SECRET,
    WEI,
    command,
    erase,
    found_in_redis,
    left_of,
    make_profiles,
    make_session,
    say,
)
from tests.memory.sessions.helpers import let_expire

pytestmark = pytest.mark.django_db(transaction=True)


def refused(code: str, work: Any, *args: Any, **kwargs: Any) -> None:
    with pytest.raises(DomainError) as caught:
        work(*args, **kwargs)
    assert (caught.value.code, caught.value.status) == (code, 410)


def a_life() -> tuple[str, str]:
    """Alice has talked to her agent, Wei's agent has talked about her; some is queued, some stored, some cached."""
    own, about = make_session(), make_session(WEI)
    for session_id, caller in ((own, ALICE), (about, WEI)):
        say(session_id, caller=caller, durability="sync", entry_id="given-1")
        services.change_context(caller=caller, session_id=session_id, intent=SECRET, slots={"note": SECRET})
    drain(seconds=0.2)
    say(own)
    say(about, caller=WEI)
    make_profiles()
    profile_reads.read_l1(caller=ALICE, customer_id=ALICE_ID)
    MessageDeadLetter.objects.create(
        session_id=own, tenant="default", entry_id="e", reason="refused", stream_id="1-1", raw=SECRET
    )
    issue_key(agent="customer", actor_id=ALICE_ID)
    client = base_redis.state()
    for kind in (DRAFT, HEARTBEAT):
        client.set(kind("default", agent="customer", session_id=own), SECRET)
    client.set(DEDUP("default", customer_id=ALICE_ID, rule_id="RISK-001", date="2026-11-30"), "1", ex=60)
    lock = locks.acquire(caller=ALICE, session_id=own)
    lock._ended.set()  # and never given back
    return own, about


def test_nothing_is_left_anywhere() -> None:
    own, about = a_life()
    bobs = make_session(BOB, BOB_ID)
    say(bobs, "bob's", caller=BOB, durability="sync")
    make_profiles(BOB_ID, text="bob's")

    code, receipt = erase()

    assert code == 0
    assert left_of(SECRET, ALICE_ID) == []
    assert receipt["state"] == "done"
    assert receipt["remains"] == {}
    removed = receipt["removed"]
    assert removed["memory.sessions"]["sessions"] == 2
    assert removed["memory.sessions"]["messages"] == 2
    assert removed["memory.sessions"]["queued"] == 2
    assert removed["memory.sessions"]["dead_letters"] == 1
    assert removed["memory.profiles"] == {"l1": 1, "l2": 1, "l3": 1, "versions": 3}
    assert removed["guard.access"] == {"keys_revoked": 1}
    assert "audit_log" in receipt["kept"]
    # Bob has what he had.
    assert [m.content for m in selectors.read_messages(caller=BOB, session_id=bobs).messages] == ["bob's"]
    assert CustomerProfileL1.objects.filter(customer_id=BOB_ID).count() == 1
    # What stays of the sessions is their ids.
    stones = AgentSession.objects.filter(session_id__in=[own, about])
    assert {(row.actor_id, row.customer_id, row.erased_at is not None) for row in stones} == {("", "", True)}
    assert ALICE_ID not in str(list(CustomerTombstone.objects.values()) + list(ErasureReceipt.objects.values()))


def test_a_second_run_gives_the_same_receipt_and_removes_nothing_more() -> None:
    a_life()
    _, first = erase()
    code, second = erase()
    assert code == 0
    assert second == first
    words = AuditLog.objects.filter(event_type="erasure").order_by("id").values_list("decision", flat=True)
    assert list(words) == ["requested", "completed"]
    assert not AuditLog.objects.filter(event_type="erasure", object_id__contains=ALICE_ID).exists()


def test_a_customer_with_nothing_is_erased_all_the_same() -> None:
    code, receipt = erase()
    assert (code, receipt["state"], receipt["removed"]) == (0, "done", {})
    refused("CUSTOMER_ERASED", make_session)


def test_a_dry_run_counts_and_touches_nothing() -> None:
    own, _ = a_life()
    code, found = erase(ALICE_ID, "--dry-run")
    assert code == 0
    assert found["removes"]["memory.sessions"] == {
        "sessions": 2, "messages": 2, "bytes": 2 * len(SECRET), "dead_letters": 1, "queued": 2,
    }  # fmt: skip
    assert found["removes"]["memory.profiles"] == {"l1": 1, "l2": 1, "l3": 1, "versions": 3}
    assert found["removes"]["redis.keys"]["keys"] >= 1
    say(own)
    assert not CustomerTombstone.objects.exists()


def test_afterwards_every_door_is_shut() -> None:
    own, about = a_life()
    owner = find_owner("default", own)
    assert owner is not None
    erase()

    def doors() -> None:
        for session_id, caller in ((own, ALICE), (about, WEI)):
            refused("CUSTOMER_ERASED", say, session_id, caller=caller)
            refused("CUSTOMER_ERASED", say, session_id, caller=caller, durability="sync")
            refused("CUSTOMER_ERASED", selectors.read_messages, caller=caller, session_id=session_id)
            refused("CUSTOMER_ERASED", selectors.get_session, caller=caller, session_id=session_id)
            refused("CUSTOMER_ERASED", selectors.get_context, caller=caller, session_id=session_id)
            refused("CUSTOMER_ERASED", services.change_context, caller=caller, session_id=session_id, intent="x")
            refused("CUSTOMER_ERASED", locks.acquire, caller=caller, session_id=session_id)

    doors()
    # A process that remembers whose the session was, with the mark in Redis and when that has ended.
    from memory.sessions import owners

    owners._cache[(owners.limits.prefix, "default", own)] = owner
    refused("CUSTOMER_ERASED", say, own)
    let_expire(own)
    refused("CUSTOMER_ERASED", say, own)
    refused("CUSTOMER_ERASED", selectors.read_messages, caller=ALICE, session_id=own)
    refused("CUSTOMER_ERASED", locks.acquire, caller=ALICE, session_id=own)
    forget_owners()

    # The same ids again, a new session, whoever opens it.
    for session_id, caller in ((own, ALICE), (about, WEI), (own, WEI), (None, ALICE), (None, WEI)):
        refused("CUSTOMER_ERASED", make_session, caller, ALICE_ID, session_id)
    refused("CUSTOMER_ERASED", make_session, ALICE, None)
    refused("CUSTOMER_ERASED", make_session, BOB, ALICE_ID)
    refused("CUSTOMER_ERASED", profiles.write_l1, caller=ALICE, customer_id=ALICE_ID, payload={})
    risk = Caller("default", "risk", "officer")
    refused("CUSTOMER_ERASED", profiles.write_l3, caller=risk, customer_id=ALICE_ID, payload={})
    refused("CUSTOMER_ERASED", make_profiles)
    drain(seconds=0.2)
    assert left_of(SECRET, ALICE_ID) == []


def test_over_http_it_is_410(client: Any) -> None:
    key = issue_key(agent="customer").key
    head = {"Authorization": f"Bearer {key}", "X-Actor-Id": ALICE_ID}
    own = make_session()
    say(own)
    erase()
    path = f"/api/v1/sessions/{own}/messages"
    body = {"messages": [{"role": "user", "content": SECRET}]}
    answer = client.post(path, body, content_type="application/json", headers=head)
    assert (answer.status_code, answer.json()["code"]) == (410, "CUSTOMER_ERASED")
    answer = client.put(f"/api/v1/profiles/l1/{ALICE_ID}", {}, content_type="application/json", headers=head)
    assert (answer.status_code, answer.json()["code"]) == (410, "CUSTOMER_ERASED")
    answer = client.post("/api/v1/sessions", {}, content_type="application/json", headers=head)
    assert (answer.status_code, answer.json()["code"]) == (410, "CUSTOMER_ERASED")


def test_what_the_core_knows_makes_no_profile_again() -> None:
    CoreCustomer.objects.create(customer_id=ALICE_ID, name="王小明", kind="natural", investor_type="ordinary")
    profile_reads.read_l1(caller=ALICE, customer_id=ALICE_ID)
    assert CustomerProfileL1.objects.count() == 1
    _, receipt = erase()
    assert receipt["kept"]["core_customer"]["rows"] == 1
    refused("CUSTOMER_ERASED", profile_reads.read_l1, caller=ALICE, customer_id=ALICE_ID)
    assert CustomerProfileL1.objects.count() == 0
    assert found_in_redis("王小明") == []


def test_forks_go_along_and_forks_of_forks() -> None:
    own = make_session(BOB, None)
    say(own, caller=BOB, durability="sync")
    row = AgentSession.objects.get(session_id=own)
    # Sessions that share Alice's messages, though they do not name her.
    hers = make_session()
    say(hers, durability="sync")
    origin = AgentSession.objects.get(session_id=hers)
    fork = make_session(BOB, None)
    AgentSession.objects.filter(session_id=fork).update(lineage=[[origin.pk, 1]])
    second = make_session(BOB, None)
    fork_pk = AgentSession.objects.get(session_id=fork).pk
    AgentSession.objects.filter(session_id=second).update(lineage=[[fork_pk, 2]])
    _, receipt = erase()
    assert receipt["removed"]["memory.sessions"]["sessions"] == 3
    assert AgentMessage.objects.filter(session_row=row).count() == 1
    assert AgentSession.objects.filter(erased_at=None).count() == 1


def test_reconcile_reports_no_loss() -> None:
    a_life()
    erase()
    report = reconcile(rows=select(), whole=True, pause=0)
    assert report.clean
    assert report.sessions == 0


def test_ids_that_differ_in_case_are_other_customers() -> None:
    upper = Caller("default", "customer", ALICE_ID.upper())
    theirs = make_session(upper, ALICE_ID.upper())
    say(theirs, "theirs", caller=upper, durability="sync")
    make_profiles(ALICE_ID.upper(), text="theirs")
    a_life()
    erase()
    assert [m.content for m in selectors.read_messages(caller=upper, session_id=theirs).messages] == ["theirs"]
    assert CustomerProfileL1.objects.count() == 1
    say(theirs, "more", caller=upper)


def test_another_secret_key_still_knows_who_was_erased(settings: Any) -> None:
    erase()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    refused("CUSTOMER_ERASED", make_session)
    _, again = erase()
    assert ErasureReceipt.objects.count() == 1
    assert again["state"] == "done"


def test_what_redis_forgot_is_removed_once_more(settings: Any) -> None:
    own, _ = a_life()
    erase()
    # A crash took Redis back by a second: the window is there again, and a cached profile.
    client = base_redis.state()
    row = AgentSession.objects.get(session_id=own)
    from memory.profiles.keys import L1

    client.rpush(MSGS("default", agent=row.agent, session_id=own), SECRET)
    client.set(L1("default", customer_id=ALICE_ID), SECRET)
    assert finish_open() == 0
    ErasureReceipt.objects.update(again_at="2020-01-01T00:00:00Z")
    assert finish_open() == 1
    assert left_of(SECRET, ALICE_ID) == []
    assert finish_open() == 0


@pytest.mark.parametrize("arguments", [["bad id"], [ALICE_ID, "--tenant", "bad:tenant"]])
def test_wrong_arguments_are_2(arguments: list[str]) -> None:
    assert erase(*arguments)[0] == 2


def test_opening_costs_one_question_more() -> None:
    make_session()
    with CaptureQueriesContext(connection) as queries:
        make_session()
    asked = [query["sql"] for query in queries if "customer_tombstone" in query["sql"]]
    assert len(asked) == 1
    session_id = make_session()
    with CaptureQueriesContext(connection) as queries:
        make_session(session_id=session_id)  # there already: nothing to ask
        say(session_id)
    assert not [query for query in queries if "customer_tombstone" in query["sql"]]
    # A later version of a profile asks nothing either.
    profiles.write_l1(caller=ALICE, customer_id=ALICE_ID, payload={})
    with CaptureQueriesContext(connection) as queries:
        profiles.write_l1(caller=ALICE, customer_id=ALICE_ID, payload={})
    assert not [query for query in queries if "customer_tombstone" in query["sql"]]


def test_damaged_keys_are_in_nobodys_way() -> None:
    own, about = a_life()
    client = base_redis.state()
    for kind, session_id, agent in ((CTX, own, "customer"), (MSGS, own, "customer"), (CTX, about, "advisor")):
        name = kind("default", agent=agent, session_id=session_id)
        client.delete(name)
        client.set(name, SECRET)
    client.delete(PENDING())
    client.set(PENDING(), "no stream")
    code, counted = command("tenants")
    assert (code, counted["default"]["sessions"]) == (0, 2)
    code, receipt = erase()
    assert (code, receipt["state"]) == (0, "done")
    assert left_of(SECRET, ALICE_ID) == []
    refused("CUSTOMER_ERASED", selectors.read_messages, caller=WEI, session_id=about)


def test_the_receipt_tells_of_audit_rows_from_before_there_were_pseudonyms() -> None:
    """They name the customer, and nobody can change them."""
    alike = {"tenant": "default", "event_type": "authz", "decision": "forbidden", "actor_type": "agent"}
    AuditLog.objects.bulk_create(
        AuditLog(**{**alike, "actor_id": "wei", **row})
        for row in (
            {"actor_type": "customer", "actor_id": ALICE_ID},
            {"object_type": "profile_l1", "object_id": ALICE_ID},
            {"input_summary": {"customer_id": ALICE_ID}},
            {"object_id": f"{ALICE_ID}0"},
            {"object_id": ALICE_ID, "tenant": "east"},
        )
    )
    tamper("DELETE FROM audit_seal")  # as it was before there were seals
    begin(connection, apps.get_model("guard", "AuditSeal"))
    assert "audit_log_in_clear" not in erase(BOB_ID)[1]["kept"]
    code, receipt = erase()
    assert (code, receipt["kept"]["audit_log_in_clear"]["rows"]) == (0, 3)
    assert "take no change" in receipt["kept"]["audit_log_in_clear"]["ground"]
    seal_waiting(seconds=30)
    assert erase()[1]["kept"]["audit_log_in_clear"]["rows"] == 3, "told again, also once they are sealed"
