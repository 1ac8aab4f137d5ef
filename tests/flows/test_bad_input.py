"""What an agent can get wrong with the sessions, over HTTP: the status, the code, a sentence that helps, and nothing
written anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from config.base import redis as base_redis
from config.base.clock import now
from guard.access.models import AgentPrincipal
from guard.access.services import forget_principals, issue_key, revoke_key
from guard.audit.models import AuditLog
from memory.sessions.models import AgentMessage, AgentSession

pytestmark = pytest.mark.django_db(transaction=True)

ALICES = "session-of-alice-0001"
BOBS = "session-of-bob-000001"
NOBODYS = "session-of-nobody-001"
HELLO = {"role": "user", "content": "hello"}


@dataclass
class Cast:
    customer: str
    advisor: str
    expired: str
    revoked: str


def request(method: str, path: str, body: Any = None, *, key: str, actor: str | None = "alice", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
    sent = {"Authorization": f"Bearer {key}", **headers} | ({"X-Actor-Id": actor} if actor is not None else {})
    return Client(raise_request_exception=False).generic(
        method, f"/api/v1{path}", data=data, content_type="application/json", headers=sent
    )


@pytest.fixture
def cast(own_redis_prefix: str) -> Cast:
    expired = issue_key(agent="customer", expires_in=timedelta(hours=1))
    AgentPrincipal.objects.filter(pk=expired.principal.pk).update(expires_at=now() - timedelta(seconds=1))
    revoked = issue_key(agent="customer")
    revoke_key(principal_id=revoked.principal.principal_id, revoked_by="ops")
    people = Cast(issue_key(agent="customer").key, issue_key(agent="advisor").key, expired.key, revoked.key)
    for session_id, actor in ((ALICES, "alice"), (BOBS, "bob")):
        opened = request("POST", "/sessions", {"session_id": session_id}, key=people.customer, actor=actor)
        assert opened.status_code == 201, opened.content
        sent = request(
            "POST", f"/sessions/{session_id}/messages", {"messages": [HELLO], "durability": "sync"},
            key=people.customer, actor=actor,
        )  # fmt: skip
        assert sent.status_code == 200, sent.content
    forget_principals()
    return people


def state_of_everything(prefix: str) -> tuple[Any, ...]:
    """All that a request could have written, in MySQL and in Redis (times of reads aside)."""
    client = base_redis.state()
    redis_state: dict[str, Any] = {}
    for name in client.scan_iter(f"{prefix}:*"):
        kind = client.type(name)
        if kind == "hash":
            redis_state[name] = client.hgetall(name)
        elif kind == "list":
            redis_state[name] = client.lrange(name, 0, -1)
        elif kind == "stream":
            redis_state[name] = client.xrange(name)
        else:
            redis_state[name] = client.get(name)
    return (
        list(AgentSession.objects.order_by("pk").values()),
        list(AgentMessage.objects.order_by("pk").values()),
        redis_state,
    )


def append(session_id: str, body: Any) -> Callable[[Cast], Any]:
    return lambda cast: request("POST", f"/sessions/{session_id}/messages", body, key=cast.customer)


def messages(*batch: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(batch), **more}


def call(method: str, path: str, body: Any = None, **headers: str) -> Callable[[Cast], Any]:
    return lambda cast: request(method, path, body, key=cast.customer, **headers)


def by(key: Callable[[Cast], str], actor: str | None = "alice") -> Callable[[Cast], Any]:
    """A good append to Alice's session, with another key or actor."""
    return lambda cast: request("POST", f"/sessions/{ALICES}/messages", messages(HELLO), key=key(cast), actor=actor)


def said(**fields: Any) -> Callable[[Cast], Any]:
    """An append of one message to Alice's session, with these fields changed."""
    return append(ALICES, messages({**HELLO, **fields}))


BAD_IDS = {
    "colon": "session:with:colons",
    "star": "session*************",
    "300": "s" * 300,
    "65": "s" * 65,
    "short": "short",
    "digits": "1234567890123456",
    "space": "session%20with%20spaces",
    "chinese": "%E4%BC%9A%E8%AF%9D" * 6,
    "newline": "session-of-alice-0001%0A",
    "nul": "session-of-alice-%00001",
}

INVALID = "INVALID_REQUEST"
DEEP = b'{"messages": [{"role": "user", "content": "x", "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"

# name: (what is sent, status, code); a 403 leaves one row in audit_log, nothing else leaves any
CASES: dict[str, tuple[Callable[[Cast], Any], int, str]] = {
    # whose
    "unknown session": (append(NOBODYS, messages(HELLO)), 404, "SESSION_NOT_FOUND"),
    "someone else's session": (append(BOBS, messages(HELLO)), 403, "NOT_OWNER"),
    "another agent's session": (
        lambda cast: request("GET", f"/sessions/{ALICES}/messages", key=cast.advisor), 403, "NOT_OWNER"),
    "reading someone else's": (call("GET", f"/sessions/{BOBS}/messages"), 403, "NOT_OWNER"),
    "someone else's context": (call("PATCH", f"/sessions/{BOBS}/context", {"intent": "x"}), 403, "NOT_OWNER"),
    "deleting someone else's": (call("DELETE", f"/sessions/{BOBS}"), 403, "NOT_OWNER"),
    "a session id that is taken": (call("POST", "/sessions", {"session_id": BOBS}), 403, "NOT_OWNER"),
    "someone else's, with no JSON": (append(BOBS, b"{"), 403, "NOT_OWNER"),
    "her own in another case": (append(ALICES.upper(), messages(HELLO)), 404, "SESSION_NOT_FOUND"),
    # bodies
    "no JSON": (append(ALICES, b"{"), 400, "INVALID_JSON"),
    "not UTF-8": (append(ALICES, b'{"messages": [{"role": "user", "content": "\xff"}]}'), 400, "INVALID_JSON"),
    "NaN": (append(ALICES, b'{"messages": [{"role": "user", "content": "x", "payload": NaN}]}'), 422, INVALID),
    "half a surrogate": (
        append(ALICES, b'{"messages": [{"role": "user", "content": "\\ud83d"}]}'), 422, INVALID),
    "nested past the end": (append(ALICES, DEEP), 422, INVALID),
    "no body": (append(ALICES, b""), 422, INVALID),
    "a list": (append(ALICES, [HELLO]), 422, INVALID),
    "null": (append(ALICES, b"null"), 422, INVALID),
    "a body over the limit": (append(ALICES, b" " * (32 * 1024 * 1024 + 1)), 413, "BODY_TOO_LARGE"),
    "a body far over the limit": (append(ALICES, b" " * (48 * 1024 * 1024 + 1)), 413, "BODY_TOO_LARGE"),
    # batches
    "an empty batch": (append(ALICES, messages()), 422, "EMPTY_BATCH"),
    "no batch": (append(ALICES, {}), 422, INVALID),
    "201 messages": (append(ALICES, messages(*[HELLO] * 201)), 422, "BATCH_TOO_LARGE"),
    "a role that does not exist": (said(role="robot"), 422, INVALID),
    "a role in capitals": (said(role="User"), 422, INVALID),
    "a good message and a bad one": (append(ALICES, messages(HELLO, {**HELLO, "role": "robot"})), 422, INVALID),
    "no content": (append(ALICES, messages({"role": "user"})), 422, INVALID),
    "content that is a number": (said(content=5), 422, INVALID),
    "content that is null": (said(content=None), 422, INVALID),
    "a field that does not exist": (said(rol="x"), 422, INVALID),
    "a durability that does not exist": (append(ALICES, messages(HELLO, durability="maybe")), 422, INVALID),
    "an entry id with a colon": (said(entry_id="a:b"), 422, "INVALID_ID"),
    "an entry id with a star": (said(entry_id="a*"), 422, "INVALID_ID"),
    "an entry id of 300 characters": (said(entry_id="e" * 300), 422, "INVALID_ID"),
    "one entry id for two contents": (
        append(ALICES, messages({**HELLO, "entry_id": "e1"}, {"role": "user", "content": "x", "entry_id": "e1"})),
        409, "ENTRY_CONFLICT"),
    "a message over 8 MiB": (said(content="字" * (8 * 1024 * 1024 // 3 + 1)), 413, "MESSAGE_TOO_LARGE"),
    # opening
    "a customer id with a colon": (call("POST", "/sessions", {"customer_id": "a:b"}), 422, "INVALID_ID"),
    "a session id that is a number": (call("POST", "/sessions", {"session_id": 5}), 422, INVALID),
    "an unknown field at opening": (call("POST", "/sessions", {"agent": "risk"}), 422, INVALID),
    # reading
    "limit 0": (call("GET", f"/sessions/{ALICES}/messages?limit=0"), 422, INVALID),
    "limit 100000": (call("GET", f"/sessions/{ALICES}/messages?limit=100000"), 422, INVALID),
    "limit ten": (call("GET", f"/sessions/{ALICES}/messages?limit=ten"), 422, INVALID),
    "before_seq -1": (call("GET", f"/sessions/{ALICES}/messages?before_seq=-1"), 422, INVALID),
    # context
    "a stale version": (
        call("PATCH", f"/sessions/{ALICES}/context", {"intent": "x"}, **{"If-Match": '"1-1"'}),
        409, "VERSION_CONFLICT"),
    "an If-Match that is no version": (
        call("PATCH", f"/sessions/{ALICES}/context", {"intent": "x"}, **{"If-Match": "now"}),
        409, "VERSION_CONFLICT"),
    "an unknown context field": (call("PATCH", f"/sessions/{ALICES}/context", {"seq": 5}), 422, INVALID),
    # keys and actors
    "an expired key": (by(lambda cast: cast.expired), 401, "KEY_EXPIRED"),
    "a revoked key": (by(lambda cast: cast.revoked), 401, "KEY_REVOKED"),
    "an unknown key": (by(lambda cast: "xh_" + "a" * 43), 401, "UNAUTHENTICATED"),
    "no actor": (by(lambda cast: cast.customer, actor=None), 422, INVALID),
    "an actor with a star": (by(lambda cast: cast.customer, actor="al*ce"), 422, "INVALID_ID"),
    "an actor of 300 characters": (by(lambda cast: cast.customer, actor="a" * 300), 422, "INVALID_ID"),
    # routes
    "a route that does not exist": (call("GET", "/session"), 404, "NOT_FOUND"),
    "a method that does not exist": (call("PUT", f"/sessions/{ALICES}/messages", {}), 405, "METHOD_NOT_ALLOWED"),
}  # fmt: skip
for _name, _bad in BAD_IDS.items():
    CASES[f"appending to an id: {_name}"] = (append(_bad, messages(HELLO)), 422, "INVALID_ID")
    CASES[f"opening with an id: {_name}"] = (call("POST", "/sessions", {"session_id": _bad}), 422, "INVALID_ID")
    CASES[f"reading an id: {_name}"] = (call("GET", f"/sessions/{_bad}/context"), 422, "INVALID_ID")


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_by_code_and_writes_nothing(name: str, cast: Cast, own_redis_prefix: str) -> None:
    send, status, code = CASES[name]
    before, audited = state_of_everything(own_redis_prefix), AuditLog.objects.count()
    response = send(cast)
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert response["Content-Type"] == "application/problem+json"
    assert body["status"] == status
    assert body["trace_id"] == response["X-Trace-Id"]
    assert len(body["detail"]) > 15
    assert body["detail"] == body["detail"].strip()
    assert state_of_everything(own_redis_prefix) == before
    assert AuditLog.objects.count() - audited == (1 if status == 403 else 0)


def test_a_deleted_session_is_gone_for_every_verb(cast: Cast) -> None:
    assert request("DELETE", f"/sessions/{ALICES}", key=cast.customer).status_code == 204
    for method, path, body in (
        ("POST", f"/sessions/{ALICES}/messages", messages(HELLO)),
        ("GET", f"/sessions/{ALICES}/messages", None),
        ("GET", f"/sessions/{ALICES}", None),
        ("GET", f"/sessions/{ALICES}/context", None),
        ("PATCH", f"/sessions/{ALICES}/context", {"intent": "x"}),
        ("POST", "/sessions", {"session_id": ALICES}),
    ):
        response = request(method, path, body, key=cast.customer)
        assert (response.status_code, response.json()["code"]) == (410, "SESSION_DELETED"), (method, path)


def test_the_same_content_again_is_the_first_receipt_and_other_content_a_conflict(cast: Cast) -> None:
    path = f"/sessions/{ALICES}/messages"
    first = request("POST", path, messages({**HELLO, "entry_id": "e-1"}), key=cast.customer).json()
    again = request("POST", path, messages({**HELLO, "entry_id": "e-1"}), key=cast.customer).json()
    assert [r["seq"] for r in again["receipts"]] == [r["seq"] for r in first["receipts"]]
    other = request("POST", path, messages({"role": "user", "content": "x", "entry_id": "e-1"}), key=cast.customer)
    assert (other.status_code, other.json()["code"]) == (409, "ENTRY_CONFLICT")
    role = request("POST", path, messages({**HELLO, "role": "tool", "entry_id": "e-1"}), key=cast.customer)
    assert (role.status_code, role.json()["code"]) == (409, "ENTRY_CONFLICT")
