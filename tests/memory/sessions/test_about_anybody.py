"""A session may say of whichever customer it is: that is a note of the actor's, and opens no door to that customer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from config.base.errors import DomainError
from guard.access.services import Caller, issue_key
from guard.audit.models import AuditLog
from memory.profiles.answers import services as answers
from memory.profiles.drafts import services as drafts
from tests.memory.drafts.helpers import WORDS
from tests.memory.profiles.helpers import make_assignment
from tests.risk.console.make import make_alert

pytestmark = pytest.mark.django_db(transaction=True)
BOB = "cust-bob"
ASKERS = [("customer", "cust-eve"), ("advisor", "adv-eve"), ("analyst", "ana-eve")]


class Service:
    def __init__(self, agent: str, actor: str) -> None:
        self.headers = {"Authorization": f"Bearer {issue_key(agent=agent).key}", "X-Actor-Id": actor}

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        return Client().generic(
            method, f"/api/v1{path}", b"" if body is None else json.dumps(body).encode(),
            content_type="application/json", headers=self.headers,
        )  # fmt: skip


def everything_about_bob(service: Service, actor: str) -> dict[str, tuple[int, str]]:
    """What the API answers to whoever asks for something of Bob's."""
    profiles = (f"l1/{BOB}", f"l2/{BOB}/{actor}", f"l3/{BOB}")
    asked = [
        *(("GET", f"/profiles/{place}") for place in (*profiles, f"l2/{BOB}/adv-wei")),
        *(("GET", f"/profiles/{place}/versions") for place in profiles),
        ("GET", f"/snapshots/{actor}/{BOB}"), ("GET", f"/snapshots/adv-wei/{BOB}"),
        ("GET", f"/drafts?customer_id={BOB}"),
        *(("PUT", f"/profiles/{place}") for place in profiles),
    ]  # fmt: skip
    found = {}
    for method, path in asked:
        answer = service(method, path, {} if method == "PUT" else None)
        body = answer.json()
        found[f"{method} {path}"] = (answer.status_code, body.get("code", json.dumps(body)))
    written = service("POST", "/drafts", {"customer_id": BOB, "kind": "message", "channel": "email", "body": "x"})
    found["POST /drafts"] = (written.status_code, written.json().get("code", ""))
    return found


@pytest.mark.parametrize(("agent", "actor"), ASKERS)
def test_a_session_about_a_customer_opens_nothing_of_theirs(agent: str, actor: str) -> None:
    make_assignment("adv-wei", BOB)
    make_alert(BOB)
    service, caller = Service(agent, actor), Caller("default", agent, actor)
    before = everything_about_bob(service, actor)
    assert not [path for path, (status, _code) in before.items() if status == 200 and "/drafts" not in path]
    opened = service("POST", "/sessions", {"customer_id": BOB})
    assert opened.status_code == 201
    assert opened.json()["customer_id"] == BOB
    session = opened.json()["session_id"]
    said = {"messages": [{"role": "user", "content": "of Bob"}]}
    assert service("POST", f"/sessions/{session}/messages", said).status_code == 200
    assert service("GET", f"/sessions/{session}/messages").status_code == 200
    assert everything_about_bob(service, actor) == before
    with pytest.raises(DomainError) as refused:
        answers.get(caller=caller, question="q", model="m", knowledge_version="1", customer_id=BOB)
    assert refused.value.status == 403
    with pytest.raises(DomainError) as refused:
        drafts.create_draft(caller=caller, customer_id=BOB, content=WORDS)
    assert refused.value.status == 403


@pytest.mark.parametrize(("agent", "actor"), ASKERS)
def test_nor_is_it_the_customers_own(agent: str, actor: str) -> None:
    """Whom it speaks of reads nothing in it, and neither does that customer's advisor: it is the actor's."""
    make_assignment("adv-wei", BOB)
    session = Service(agent, actor)("POST", "/sessions", {"customer_id": BOB}).json()["session_id"]
    for other in (Service("customer", BOB), Service("advisor", "adv-wei"), Service("risk", "r")):
        for method, path in (("GET", ""), ("GET", "/messages"), ("GET", "/context"), ("DELETE", "")):
            answer = other(method, f"/sessions/{session}{path}")
            assert (answer.status_code, answer.json()["code"]) == (403, "NOT_OWNER")
    assert AuditLog.objects.filter(event_type="authz", code="NOT_OWNER").count() == 12


def test_an_admission_for_it_is_the_actors_and_changes_nothing() -> None:
    service = Service("advisor", "adv-eve")
    session = service("POST", "/sessions", {"customer_id": BOB}).json()["session_id"]
    admitted = service("POST", "/admissions", {"action": "run", "run_id": "run-1", "session_id": session})
    assert admitted.status_code == 201
    assert service("GET", f"/profiles/l1/{BOB}").json()["code"] == "NOT_ASSIGNED"
