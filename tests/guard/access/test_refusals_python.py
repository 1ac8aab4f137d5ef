"""Every service that takes a Caller or a person asks the same questions as HTTP and the console do."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from config.base.clock import now
from config.base.errors import DomainError
from guard.access import principals, unmasking
from guard.access.services import Caller, issue_key
from guard.admission import blocks, limits
from guard.audit.models import AuditLog
from memory.core.models import CoreAssignment
from memory.erasure import holds
from memory.profiles import selectors as profile_selectors
from memory.profiles import services as profile_services
from memory.sessions import branching, dead_letters, locks, selectors, services, treeview
from memory.sessions.models import MessageDeadLetter
from risk.alerts import notes, officers, requests, reviewing, snoozing, stopping
from tests.memory.sessions.helpers import make_message, make_session
from tests.risk.console.make import make_alert, make_auditor, make_manager, make_operator

pytestmark = pytest.mark.django_db(transaction=True)
BOB = Caller("default", "customer", "bob")
WEI = Caller("default", "advisor", "wei")
ANALYST = Caller("default", "analyst", "x")

SESSION_CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    services.delete_session: {},
    services.append_messages: {"messages": [make_message()]},
    services.change_context: {"intent": "x"},
    selectors.get_session: {},
    selectors.get_context: {},
    selectors.read_messages: {},
    branching.fork: {},
    branching.navigate: {"entry_id": "e"},
    branching.compact: {},
    treeview.read_tree: {},
    locks.acquire: {},
}
ALICE = {"customer_id": "alice"}
L2 = {**ALICE, "advisor_id": "lin"}
PROFILE_CALLS: dict[Callable[..., Any], list[tuple[Caller, str, dict[str, Any]]]] = {
    profile_selectors.read_l1: [(BOB, "NOT_OWNER", ALICE), (WEI, "NOT_ASSIGNED", ALICE)],
    profile_selectors.read_l2: [(BOB, "AUTH_403_SCOPE", L2), (WEI, "NOT_OWNER", L2)],
    profile_selectors.read_l3: [(BOB, "NOT_OWNER", ALICE), (WEI, "NOT_ASSIGNED", ALICE)],
    profile_selectors.versions_l1: [(BOB, "NOT_OWNER", ALICE), (WEI, "NOT_ASSIGNED", ALICE)],
    profile_selectors.versions_l2: [(BOB, "AUTH_403_SCOPE", L2), (WEI, "NOT_OWNER", L2)],
    profile_selectors.versions_l3: [(BOB, "NOT_OWNER", ALICE), (WEI, "NOT_ASSIGNED", ALICE)],
    profile_services.write_l1: [
        (BOB, "NOT_OWNER", {**ALICE, "payload": {}}),
        (WEI, "AUTH_403_SCOPE", {**ALICE, "payload": {}}),
    ],
    profile_services.write_l2: [
        (WEI, "NOT_OWNER", {**L2, "payload": {}}),
        (ANALYST, "AUTH_403_SCOPE", {**L2, "payload": {}}),
    ],
    profile_services.write_l3: [(WEI, "AUTH_403_SCOPE", {**ALICE, "payload": {}})],
}
OPENS_ITS_OWN = {services.open_session}
WORKS_THROUGH_ANOTHER = {locks.hold}  # acquires when it is entered

PUT = {"version": 0, "evidence_hash": "0" * 64, "to_status": "closed", "code": "K01", "text": "long enough to do"}
ROOMS = (officers, reviewing, snoozing, notes, requests, stopping)
STAFF_CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    officers.claim: {},
    officers.release: {},
    officers.assign: {"to": User()},
    officers.dispose: PUT,
    officers.reopen: {"version": 0, "text": "long enough to do"},
    notes.add_note: {"text": "x"},
    reviewing.escalate: PUT,
    reviewing.approve: {"version": 0, "evidence_hash": "0" * 64},
    reviewing.give_back: {"version": 0, "text": "long enough to do"},
    snoozing.snooze: {"version": 0, "until": now(), "text": "long enough to do"},
    snoozing.wake: {"version": 0},
    requests.ask: {"recipient_kind": "other", "recipient": "desk", "question": "what was said?", "due_at": now()},
    requests.answer: {"request_id": "q-1", "text": "x"},
    requests.withdraw: {"request_id": "q-1", "text": "long enough to do"},
    stopping.stop: {"whom": "customer", "seconds": 60, "text": "long enough to do"},
    stopping.go_on: {"whom": "customer", "text": "long enough to do"},
}


def public(module: Any, argument: str) -> set[Callable[..., Any]]:
    """The module's own functions that take such an argument."""
    found = inspect.getmembers(module, inspect.isfunction)
    return {
        function
        for name, function in found
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and argument in inspect.signature(function).parameters
        and inspect.signature(function).parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY
    }


def refused(expected: str, function: Callable[..., Any], **call: Any) -> AuditLog:
    before = AuditLog.objects.count()
    with pytest.raises(DomainError) as refusal:
        function(**call)
    assert refusal.value.code == expected, function
    assert AuditLog.objects.count() == before + 1, function
    row: AuditLog = AuditLog.objects.order_by("-id")[0]
    return row


def test_every_service_with_a_caller_is_in_these_tables() -> None:
    rooms = (services, selectors, branching, treeview, locks, profile_services, profile_selectors)
    found = {function for room in rooms for function in public(room, "caller")}
    assert found == set(SESSION_CALLS) | set(PROFILE_CALLS) | OPENS_ITS_OWN | WORKS_THROUGH_ANOTHER
    acts = {function for room in ROOMS for function in public(room, "officer")}
    assert acts == set(STAFF_CALLS)


@pytest.mark.parametrize("function", SESSION_CALLS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("caller", [BOB, WEI, Caller("default", "risk", "alice")], ids=lambda caller: caller.agent)
def test_a_session_is_its_owners(function: Callable[..., Any], caller: Caller) -> None:
    session_id = make_session(Caller("default", "customer", "alice"))
    row = refused("NOT_OWNER", function, caller=caller, session_id=session_id, **SESSION_CALLS[function])
    assert (row.event_type, row.decision, row.code, row.object_id) == ("authz", "forbidden", "NOT_OWNER", session_id)


@pytest.mark.parametrize("function", PROFILE_CALLS, ids=lambda function: function.__name__)
def test_profiles_ask_the_matrix(function: Callable[..., Any]) -> None:
    CoreAssignment.objects.create(tenant="default", customer_id="alice", advisor_id="lin")
    for caller, code, call in PROFILE_CALLS[function]:
        row = refused(code, function, caller=caller, **call)
        assert (row.event_type, row.decision, row.code, row.agent) == ("authz", "forbidden", code, caller.agent)


def test_an_agent_that_does_not_exist_opens_nothing() -> None:
    refused("AUTH_403_SCOPE", services.open_session, caller=Caller("default", "robot", "x"))


@pytest.mark.parametrize("function", STAFF_CALLS, ids=lambda function: function.__name__)
def test_only_officers_act_on_alerts(function: Callable[..., Any]) -> None:
    alert = make_alert()
    for person in (make_manager(), make_auditor(), make_operator()):
        row = refused("FORBIDDEN", function, alert_id=alert.pk, officer=person, **STAFF_CALLS[function])
        assert (row.event_type, row.decision, row.actor_id) == ("authz", "forbidden", person.username)
    alert.refresh_from_db()
    assert alert.status == "pending"


def test_what_operators_do_is_theirs_also_in_python() -> None:
    manager = make_manager()
    key = issue_key(agent="risk").principal.principal_id
    hold = holds.place_hold(customer_id="alice", by="legal", reason="a case")
    letter = MessageDeadLetter.objects.create(tenant="default", stream_id="1-1", raw="{}", reason="refused")
    hour = timedelta(hours=1)
    calls: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (principals.issue_key, {"agent": "risk", "issued_by": manager}),
        (principals.rotate_key, {"principal_id": key, "overlap": hour, "rotated_by": manager}),
        (principals.revoke_key, {"principal_id": key, "revoked_by": manager}),
        (holds.place_hold, {"customer_id": "alice", "by": manager, "reason": "x"}),
        (holds.release_hold, {"hold_id": hold.pk, "by": manager}),
        (dead_letters.retry_letter, {"letter_id": letter.pk, "by": manager}),
        (dead_letters.drop_letter, {"letter_id": letter.pk, "by": manager}),
        (limits.set_limit, {"tenant": "default", "kind": "rate", "value": 1, "by": manager}),
        (limits.retire_limit, {"tenant": "default", "limit_id": 1, "by": manager}),
        (blocks.block_actor, {"tenant": "default", "actor_id": "alice", "code": "X", "by": manager}),
        (blocks.lift_block, {"tenant": "default", "actor_id": "alice", "by": manager}),
        (blocks.pause_agent, {"tenant": "default", "agent": "risk", "reason": "x", "by": manager}),
        (blocks.lift_pause, {"tenant": "default", "agent": "risk", "by": manager}),
    ]
    for room in (principals, holds, dead_letters, limits, blocks):
        people = {one for name in ("by", "issued_by", "rotated_by", "revoked_by") for one in public(room, name)}
        assert people <= {function for function, _call in calls}, room
    for function, call in calls:
        row = refused("FORBIDDEN", function, **call)
        assert (row.event_type, row.decision, row.code, row.actor_id) == ("authz", "forbidden", "FORBIDDEN", "meng")


def test_unmasking_is_the_roles_that_need_it() -> None:
    alert = make_alert()
    for person in (make_manager(), make_auditor(), make_operator()):
        row = refused(
            "FORBIDDEN", unmasking.unmask, staff=person, kind="risk_alert", object_id=alert.pk, reason="I wonder"
        )
        assert (row.event_type, row.decision, row.code) == ("unmask", "refused", "FORBIDDEN")
