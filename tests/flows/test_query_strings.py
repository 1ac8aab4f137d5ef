"""A name in the query string that a route does not take is refused, and so is one that comes twice: everywhere, before
anything is done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from config.api import api
from guard.access.services import Caller, issue_key
from memory.core.models import CoreAssignment
from memory.profiles.drafts.content import Content
from memory.profiles.drafts.services import create_draft
from memory.sessions.models import AgentMessage
from tests.memory.sessions.helpers import append, make_session

pytestmark = pytest.mark.django_db(transaction=True)

HELLO = {"role": "user", "content": "hello"}
ALICE = ("customer", "alice")
WEI = ("advisor", "wei")
LIN = ("advisor", "lin")
ANA = ("analyst", "ana")
RISK = ("risk", "r")

# route -> who may call it, and a body that it takes
GOOD: dict[str, tuple[tuple[str, str], Any]] = {
    "GET /alerts": (RISK, None),
    "POST /alerts/{alert_id}/profile": (RISK, {}),
    "POST /trades/{trade_id}/evaluate": (RISK, None),
    "POST /tokens": (ALICE, None),
    "POST /tokens/refresh": (ALICE, {"refresh_token": "x"}),
    "POST /tokens/revoke": (ALICE, {}),
    "POST /admissions": (ALICE, {}),
    "POST /admissions/{admission_id}/settle": (ALICE, {"actual": "1"}),
    "POST /admissions/{admission_id}/release": (ALICE, {}),
    "POST /admissions/{admission_id}/renew": (ALICE, {}),
    "POST /inputs/inspect": (ALICE, {"text": "x"}),
    "POST /sessions": (ALICE, {}),
    "GET /sessions/{session_id}": (ALICE, None),
    "DELETE /sessions/{session_id}": (ALICE, None),
    "POST /sessions/{session_id}/messages": (ALICE, {"messages": [HELLO]}),
    "GET /sessions/{session_id}/messages": (ALICE, None),
    "POST /sessions/{session_id}/fork": (ALICE, {}),
    "POST /sessions/{session_id}/navigate": (ALICE, {"entry_id": "e1"}),
    "POST /sessions/{session_id}/compact": (ALICE, {}),
    "GET /sessions/{session_id}/tree": (ALICE, None),
    "GET /sessions/{session_id}/context": (ALICE, None),
    "PATCH /sessions/{session_id}/context": (ALICE, {"intent": "x"}),
    "GET /profiles/l1/{customer_id}": (ALICE, None),
    "GET /profiles/l1/{customer_id}/versions": (ALICE, None),
    "GET /profiles/l2/{customer_id}/{advisor_id}/versions": (WEI, None),
    "GET /profiles/l3/{customer_id}/versions": (RISK, None),
    "PUT /profiles/l1/{customer_id}": (ALICE, {}),
    "GET /profiles/l2/{customer_id}/{advisor_id}": (WEI, None),
    "PUT /profiles/l2/{customer_id}/{advisor_id}": (WEI, {}),
    "GET /profiles/l3/{customer_id}": (RISK, None),
    "PUT /profiles/l3/{customer_id}": (RISK, {}),
    "GET /snapshots/{advisor_id}/{customer_id}": (WEI, None),
    "POST /answers/lookup": (ALICE, {"question": "q", "model": "m", "knowledge_version": "1"}),
    "PUT /answers": (
        ALICE,
        {"question": "q", "model": "m", "knowledge_version": "1", "answer": "a", "made_from": "public"},
    ),
    "POST /drafts": (WEI, {"customer_id": "alice", "kind": "message", "channel": "app", "body": "x"}),
    "GET /drafts": (WEI, None),
    "GET /drafts/{draft_id}": (WEI, None),
    "PUT /drafts/{draft_id}": (WEI, {"kind": "message", "channel": "app", "body": "x"}),
    "POST /drafts/{draft_id}/submit": (WEI, None),
    "POST /drafts/{draft_id}/approve": (LIN, {"content_hash": "x"}),
    "POST /drafts/{draft_id}/reject": (LIN, {"reason": "x"}),
    "POST /drafts/{draft_id}/send": (WEI, {"content_hash": "x"}),
    "POST /analytics/queries": (ANA, {"sql": "SELECT 1"}),
    "POST /analytics/queries/check": (ANA, {"sql": "SELECT 1"}),
    "GET /analytics/queries": (ANA, None),
    "POST /audit/observations": (WEI, {"trade_id": "t-1"}),
}


@pytest.fixture
def ids(settings: Any) -> dict[str, str]:
    settings.DRAFT_PEER_REVIEW = True
    session_id = make_session(Caller("default", *ALICE))
    for advisor_id in ("wei", "lin"):
        CoreAssignment.objects.create(tenant="default", customer_id="alice", advisor_id=advisor_id)
    draft = create_draft(
        caller=Caller("default", *WEI), customer_id="alice", content=Content("message", "app", "hello")
    )
    return {
        "session_id": session_id,
        "customer_id": "alice",
        "advisor_id": "wei",
        "admission_id": "a-1",
        "alert_id": "al-1",
        "trade_id": "t-1",
        "draft_id": draft.draft_id,
    }


def ask(route: str, ids: dict[str, str], query: str, **headers: str) -> Any:
    method, path = route.split(" ")
    (agent, actor), body = GOOD[route]
    sent = {"Authorization": f"Bearer {issue_key(agent=agent, actor_id=actor).key}", "X-Actor-Id": actor, **headers}
    data = b"" if body is None else json.dumps(body).encode()
    address = f"/api/v1{path.format(**ids)}?{query}"
    return Client().generic(method, address, data, content_type="application/json", headers=sent)


def refused(answer: Any) -> str:
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "INVALID_REQUEST"), problem
    return str(problem["detail"])


def test_every_route_refuses_what_it_does_not_take(ids: dict[str, str]) -> None:
    known = {
        f"{method} {path}"
        for _prefix, router in api._routers
        for path, view in router.path_operations.items()
        for operation in view.operations
        for method in operation.methods
    }
    assert known == set(GOOD)  # a new route has a line here
    for route in GOOD:
        assert "query.foo: no such parameter; this route takes: " in refused(ask(route, ids, "foo=1")), route
        assert "query.foo" in refused(ask(route, ids, "foo")), route  # a name alone


def test_a_misspelled_name_is_told_with_the_right_ones(ids: dict[str, str]) -> None:
    page = "GET /sessions/{session_id}/messages"
    told = refused(ask(page, ids, "limit=1&befor_seq=5"))
    assert told == "query.befor_seq: no such parameter; this route takes: before_seq, limit, view"
    assert refused(ask(page, ids, "Limit=1")).startswith("query.Limit: ")
    assert refused(ask(page, ids, "limit%00=1")).startswith("query.limit\x00: ")
    assert len(refused(ask(page, ids, "x" * 5000 + "=1"))) < 140
    assert "this route takes: none" in refused(ask("GET /sessions/{session_id}", ids, "limit=1"))
    for good in ("", "&", "limit=1", "limit=1&before_seq=5&view=full"):
        assert ask(page, ids, good).status_code == 200, good
    assert ask("GET /sessions/{session_id}/tree", ids, "limit=5&after_seq=0").status_code == 200


def test_a_name_that_comes_twice_is_refused(ids: dict[str, str]) -> None:
    page = "GET /sessions/{session_id}/messages"
    assert refused(ask(page, ids, "limit=1&limit=2")) == "query.limit: is given 2 times; give it once"
    assert refused(ask(page, ids, "limit=1&limit=1")) == "query.limit: is given 2 times; give it once"
    answer = ask(page, ids, "limit=1&limit=2&foo=1")
    assert [error["field"] for error in answer.json()["errors"]] == ["query.limit", "query.foo"]


def test_nothing_is_done_and_no_key_is_taken(ids: dict[str, str]) -> None:
    put = "POST /sessions/{session_id}/messages"
    once = {"Idempotency-Key": "k-1"}
    refused(ask(put, ids, "durability=sync", **once))
    assert not AgentMessage.objects.exists()
    answer = ask(put, ids, "", **once)
    assert (answer.status_code, answer.json()["receipts"][0]["seq"]) == (200, 1)
    refused(ask("DELETE /sessions/{session_id}", ids, "force=1"))
    assert append(ids["session_id"], "still there", caller=Caller("default", *ALICE))[0].seq == 2


def test_who_may_not_call_is_told_that_first(ids: dict[str, str]) -> None:
    page = "GET /sessions/{session_id}/messages"
    assert ask(page, ids, "foo=1", Authorization="Bearer xh_nobody").status_code == 401
    assert ask(page, ids, "foo=1", **{"X-Actor-Id": "bob"}).status_code == 403
