"""Every route of the API refuses who may not, with a code and an audit row, before it looks at the body."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from config.api import api
from guard.access.services import Caller, issue_key
from guard.audit.models import AuditLog
from memory.core.models import CoreAssignment
from memory.profiles.drafts.content import Content
from memory.profiles.drafts.services import create_draft
from tests.memory.sessions.helpers import make_session

pytestmark = pytest.mark.django_db(transaction=True)
SCOPE, OWNER, ASSIGNED = "AUTH_403_SCOPE", "NOT_OWNER", "NOT_ASSIGNED"

# Anybody with a key may ask these: they speak of the caller alone, or of what the caller itself has brought.
OWN_AFFAIRS = {
    "POST /tokens",
    "POST /tokens/refresh",  # without a key: the refresh token is what is asked for
    "POST /tokens/revoke",
    "POST /admissions",
    "POST /admissions/{admission_id}/settle",
    "POST /admissions/{admission_id}/release",
    "POST /admissions/{admission_id}/renew",
    "POST /answers/lookup",  # which customer, if any, stands in the body: then the service decides
    "PUT /answers",
}

_ANOTHERS = [("customer", "bob", OWNER), ("advisor", "alice", OWNER), ("risk", "alice", OWNER), ("analyst", "x", OWNER)]
_L1_READ = [
    ("customer", "bob", OWNER),
    ("advisor", "wei", ASSIGNED),
    ("advisor", "gone", ASSIGNED),
    ("analyst", "x", SCOPE),
]
_L1_WRITE = [("customer", "bob", OWNER), ("advisor", "lin", SCOPE), ("analyst", "x", SCOPE), ("risk", "r", SCOPE)]
_L2 = [("customer", "alice", SCOPE), ("advisor", "wei", OWNER), ("analyst", "x", SCOPE)]
_L3_WRITE = [("customer", "alice", SCOPE), ("advisor", "lin", SCOPE), ("analyst", "x", SCOPE)]
# lin's draft for alice; wei is another advisor, and nobody but people reviews.
_NO_DRAFTS = [("customer", "alice", SCOPE), ("analyst", "x", SCOPE), ("risk", "r", SCOPE)]
_DRAFT = [*_NO_DRAFTS, ("advisor", "wei", OWNER)]
_NO_REVIEWS = [*_NO_DRAFTS, ("advisor", "wei", SCOPE)]
_NO_SQL = [("customer", "alice", SCOPE), ("advisor", "lin", SCOPE), ("risk", "r", SCOPE)]
_NO_ALERTS = [("customer", "alice", SCOPE), ("advisor", "lin", SCOPE), ("analyst", "x", SCOPE)]

# route -> who is refused there, and how: (agent, actor, code). alice's session; customer alice, whom advisor lin has.
REFUSED: dict[str, list[tuple[str, str, str]]] = {
    **{
        f"{method} /sessions/{{session_id}}{verb}": _ANOTHERS
        for method, verb in (
            ("GET", ""), ("DELETE", ""), ("POST", "/messages"), ("GET", "/messages"), ("POST", "/fork"),
            ("POST", "/navigate"), ("POST", "/compact"), ("GET", "/tree"), ("GET", "/context"), ("PATCH", "/context"),
        )
    },
    "GET /profiles/l1/{customer_id}": _L1_READ,
    "PUT /profiles/l1/{customer_id}": _L1_WRITE,
    "GET /profiles/l2/{customer_id}/{advisor_id}": _L2,
    "PUT /profiles/l2/{customer_id}/{advisor_id}": [*_L2, ("risk", "r", SCOPE)],
    "GET /profiles/l3/{customer_id}": _L1_READ,
    "PUT /profiles/l3/{customer_id}": _L3_WRITE,
    "GET /profiles/l1/{customer_id}/versions": _L1_READ,
    "GET /profiles/l2/{customer_id}/{advisor_id}/versions": _L2,
    "GET /profiles/l3/{customer_id}/versions": _L1_READ,
    "GET /snapshots/{advisor_id}/{customer_id}": [*_L2, ("risk", "r", SCOPE)],
    "POST /drafts": _NO_DRAFTS,
    "GET /drafts": _NO_DRAFTS,
    "GET /drafts/{draft_id}": _DRAFT,
    "PUT /drafts/{draft_id}": _DRAFT,
    "POST /drafts/{draft_id}/submit": _DRAFT,
    "POST /drafts/{draft_id}/send": _DRAFT,
    "POST /drafts/{draft_id}/approve": _NO_REVIEWS,
    "POST /drafts/{draft_id}/reject": _NO_REVIEWS,
    "POST /analytics/queries": _NO_SQL,
    "POST /analytics/queries/check": _NO_SQL,
    "GET /analytics/queries": _NO_SQL,
    "GET /alerts": _NO_ALERTS,
    "POST /alerts/{alert_id}/profile": _NO_ALERTS,
    "POST /trades/{trade_id}/evaluate": _NO_ALERTS,
    "POST /audit/observations": [("customer", "alice", SCOPE), ("analyst", "x", SCOPE), ("risk", "r", SCOPE)],
}  # fmt: skip

# Lists of one's own: in another tenant they are of somebody else, and empty.
OWN_LISTS = {"GET /drafts", "GET /analytics/queries", "GET /alerts"}
# Only an agent that does not exist is refused here: each of the four opens sessions of its own
# and has texts looked at.
NOBODY_REFUSED = {"POST /sessions", "POST /inputs/inspect"}


def routes() -> Iterator[str]:
    for _prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                for method in operation.methods:
                    yield f"{method} {path}"


def test_every_route_is_in_the_table() -> None:
    """A new route has to say here whom it refuses."""
    assert set(routes()) == set(REFUSED) | OWN_AFFAIRS | NOBODY_REFUSED


@pytest.fixture
def ids() -> dict[str, str]:
    session_id = make_session(Caller("default", "customer", "alice"))
    CoreAssignment.objects.create(tenant="default", customer_id="alice", advisor_id="lin")
    content = Content(kind="message", channel="app", body="A word to you.")
    draft = create_draft(caller=Caller("default", "advisor", "lin"), customer_id="alice", content=content)
    named = {"alert_id": "a-1", "trade_id": "t-1"}
    return {"session_id": session_id, "customer_id": "alice", "advisor_id": "lin", "draft_id": draft.pk, **named}


@pytest.mark.parametrize("route", sorted(REFUSED))
def test_each_refuses_with_its_code_and_a_row_before_the_body_is_parsed(route: str, ids: dict[str, str]) -> None:
    method, path = route.split(" ")
    address = "/api/v1" + path.format(**ids)
    keys = {agent: issue_key(agent=agent).key for agent in {agent for agent, _actor, _code in REFUSED[route]}}
    for agent, actor, code in REFUSED[route]:
        before = AuditLog.objects.filter(event_type="authz").count()
        answer = Client().generic(
            method, address, b"{ no json", content_type="application/json",
            headers={"Authorization": f"Bearer {keys[agent]}", "X-Actor-Id": actor},
        )  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (403, code), (agent, actor)
        rows = AuditLog.objects.filter(event_type="authz").order_by("-id")
        assert rows.count() == before + 1, (agent, actor)
        row = rows[0]
        assert (row.decision, row.code, row.agent, row.input_summary["code"]) == ("forbidden", code, agent, code)
        assert row.trace_id == answer["X-Trace-Id"]


def test_the_body_of_a_refused_request_is_not_even_read(ids: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from django.http import HttpRequest

    def read(self: HttpRequest) -> bytes:
        raise AssertionError("the body was read")

    monkeypatch.setattr(HttpRequest, "body", property(read))
    key = issue_key(agent="customer").key
    answer = Client().post(
        f"/api/v1/sessions/{ids['session_id']}/messages", json.dumps({"messages": []}), content_type="application/json",
        headers={"Authorization": f"Bearer {key}", "X-Actor-Id": "bob"},
    )  # fmt: skip
    assert answer.status_code == 403


def ask(route: str, ids: dict[str, str], bearer: str = "", **headers: str) -> Any:
    method, path = route.split(" ")
    address = "/api/v1" + path.format(**{"admission_id": "a-1", **ids})
    if bearer:
        headers["Authorization"] = f"Bearer {bearer}"
    return Client().generic(method, address, b"{ no json", content_type="application/json", headers=headers)


def test_no_route_answers_without_a_key_but_the_one_that_takes_a_refresh_token(ids: dict[str, str]) -> None:
    for route in routes():
        answer = ask(route, ids, **{"X-Actor-Id": "alice"})
        expected = (400, "INVALID_JSON") if route == "POST /tokens/refresh" else (401, "UNAUTHENTICATED")
        assert (answer.status_code, answer.json()["code"]) == expected, route


def test_another_tenants_key_finds_nothing_here(ids: dict[str, str]) -> None:
    """The same actor's name in another tenant is somebody else."""
    keys = {agent: issue_key(agent=agent, tenant="east").key for agent in ("customer", "advisor", "risk")}
    for route in routes():
        if not route.startswith("GET") or route in OWN_LISTS:
            continue
        for agent, actor in (("customer", "alice"), ("advisor", "lin"), ("risk", "r")):
            answer = ask(route, ids, keys[agent], **{"X-Actor-Id": actor})
            if (route, agent) == ("GET /profiles/l3/{customer_id}", "customer"):
                # As for whoever has no profile of risk's: that there is none is told to nobody.
                assert (answer.status_code, answer.json()["version"]) == (200, 0)
                continue
            if (route, agent) == ("GET /profiles/l3/{customer_id}/versions", "customer"):
                assert (answer.status_code, answer.json()["items"]) == (200, [])
                continue
            assert answer.status_code in (403, 404), (route, agent)


def test_lists_of_ones_own_are_empty_in_another_tenant(ids: dict[str, str]) -> None:
    for route, agent, actor in (
        ("GET /drafts", "advisor", "lin"),
        ("GET /analytics/queries", "analyst", "x"),
        ("GET /alerts", "risk", "r"),
    ):
        answer = ask(route, ids, issue_key(agent=agent, tenant="east").key, **{"X-Actor-Id": actor})
        assert (answer.status_code, answer.json()["items"]) == (200, []), route
