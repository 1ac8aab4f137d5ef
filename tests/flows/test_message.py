"""The story of a message, as an agent sees it: through HTTP, from opening a session to MySQL and back."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client

from guard.access.services import issue_key
from guard.audit.models import AuditLog
from memory.sessions.drain import backlog, drain
from memory.sessions.models import AgentMessage, AgentSession

pytestmark = pytest.mark.django_db(transaction=True)


class Agent:
    """An agent service with a key, acting for one person."""

    def __init__(self, agent: str = "customer", actor: str = "alice", tenant: str = "default") -> None:
        self.headers = {
            "Authorization": f"Bearer {issue_key(agent=agent, tenant=tenant).key}",
            "X-Actor-Id": actor,
        }
        self.client = Client()

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Any:
        data = raw if raw is not None else (b"" if body is None else json.dumps(body).encode())
        return self.client.generic(
            method, f"/api/v1{path}", data, content_type="application/json", headers={**self.headers, **headers}
        )

    def open(self, **body: Any) -> str:
        response = self.call("POST", "/sessions", body)
        assert response.status_code == 201, response.content
        return str(response.json()["session_id"])


def problem(response: Any) -> tuple[int, str]:
    assert response["Content-Type"] == "application/problem+json", response.content
    body = response.json()
    assert body["status"] == response.status_code
    assert body["detail"]
    assert body["trace_id"]
    return response.status_code, body["code"]


def test_the_story_of_a_message() -> None:
    alice = Agent()

    # She opens a session; the same call again (an answer got lost) is the same session.
    name = f"chat-{uuid.uuid4().hex}"
    opened = alice.call("POST", "/sessions", {"session_id": name, "customer_id": "cust-1"})
    assert opened.status_code == 201
    assert opened.json().items() >= {
        "session_id": name, "agent": "customer", "actor_id": "alice", "customer_id": "cust-1"
    }.items()  # fmt: skip
    assert alice.call("POST", "/sessions", {"session_id": name, "customer_id": "cust-1"}).json() == opened.json()
    assert alice.call("GET", f"/sessions/{name}").json() == opened.json()

    # A turn is appended: queued, numbered, in order.
    turn = {
        "messages": [
            {"role": "user", "content": "我想买基金 👍\r\n", "entry_id": "e1"},
            {"role": "assistant", "content": "好的", "payload": {"n": 12345678901234567890, "empty": []}},
        ]
    }
    answer = alice.call("POST", f"/sessions/{name}/messages", turn)
    assert answer.status_code == 200
    receipts = answer.json()["receipts"]
    assert [(r["seq"], r["state"]) for r in receipts] == [(1, "queued"), (2, "queued")]
    assert receipts[0]["entry_id"] == "e1"
    assert alice.call("POST", f"/sessions/{name}/messages", {"messages": turn["messages"][:1]}).json() == {
        "receipts": receipts[:1]
    }

    # It is read at once, byte for byte, from the window.
    page = alice.call("GET", f"/sessions/{name}/messages").json()
    assert (page["source"], page["next"]) == ("window", None)
    assert [(m["seq"], m["role"], m["content"], m["payload"]) for m in page["messages"]] == [
        (1, "user", "我想买基金 👍\r\n", None),
        (2, "assistant", "好的", {"n": 12345678901234567890, "empty": []}),
    ]
    assert len(page["messages"][0]["created_at"]) == len("2026-11-30T08:00:00.000000Z")

    # A second later it is in MySQL.
    assert AgentMessage.objects.count() == 0
    drain()
    rows = AgentMessage.objects.order_by("seq")
    assert [(row.seq, row.content, row.session_id) for row in rows] == [
        (1, "我想买基金 👍\r\n", name),
        (2, "好的", name),
    ]
    assert alice.call("GET", f"/sessions/{name}/messages?limit=100").json() == {**page, "source": "database"}

    # What must be in MySQL when it is answered is asked for.
    sure = alice.call(
        "POST", f"/sessions/{name}/messages", {"messages": [{"role": "tool", "content": "ok"}], "durability": "sync"}
    )
    assert sure.json()["receipts"][0]["state"] == "committed"
    assert AgentMessage.objects.count() == 3

    # The context goes beside it, with a version.
    seen = alice.call("GET", f"/sessions/{name}/context")
    changed = alice.call(
        "PATCH", f"/sessions/{name}/context", {"intent": "buy", "slots": {"金额": "100"}}, **{"If-Match": seen["ETag"]}
    )
    assert (changed.status_code, changed.json()["slots"]) == (200, {"金额": "100"})
    stale = alice.call("PATCH", f"/sessions/{name}/context", {"step": 1}, **{"If-Match": seen["ETag"]})
    assert problem(stale) == (409, "VERSION_CONFLICT")
    assert f'"{stale.json()["version"]}"' == changed["ETag"]
    assert (
        alice.call("PATCH", f"/sessions/{name}/context", {"step": 1}, **{"If-Match": changed["ETag"]}).status_code
        == 200
    )

    # When it is over it is over.
    assert alice.call("DELETE", f"/sessions/{name}").status_code == 204
    for method, path in (("GET", ""), ("GET", "/messages"), ("GET", "/context")):
        assert problem(alice.call(method, f"/sessions/{name}{path}")) == (410, "SESSION_DELETED")
    assert problem(alice.call("POST", f"/sessions/{name}/messages", turn)) == (410, "SESSION_DELETED")
    assert problem(alice.call("POST", "/sessions", {"session_id": name, "customer_id": "cust-1"})) == (
        410, "SESSION_DELETED",
    )  # fmt: skip


def test_someone_elses_session_is_refused_and_written_down() -> None:
    name = Agent().open()
    strangers = {
        "another actor": Agent(actor="bob"),
        "another agent": Agent("advisor", "alice"),
    }
    for stranger in strangers.values():
        for method, path, body in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/messages", None),
            ("POST", "/messages", {"messages": [{"role": "user", "content": "x"}]}),
            ("GET", "/context", None),
            ("PATCH", "/context", {"intent": "x"}),
        ):
            before = AuditLog.objects.filter(event_type="authz").count()
            assert problem(stranger.call(method, f"/sessions/{name}{path}", body)) == (403, "NOT_OWNER")
            rows = AuditLog.objects.filter(event_type="authz")
            assert rows.count() == before + 1
            last = rows.order_by("-id")[0]
            assert (last.decision, last.input_summary["code"], last.object_id) == ("forbidden", "NOT_OWNER", name)
        assert problem(stranger.call("POST", "/sessions", {"session_id": name})) == (403, "NOT_OWNER")
    # Refused from the path alone: the body is not even parsed.
    assert problem(Agent(actor="bob").call("POST", f"/sessions/{name}/messages", raw=b"{not json")) == (
        403,
        "NOT_OWNER",
    )
    # In another tenant the session does not exist at all.
    assert problem(Agent(tenant="other").call("GET", f"/sessions/{name}")) == (404, "SESSION_NOT_FOUND")
    assert Agent(tenant="other").open(session_id=name) == name
    assert backlog() == 0


def one(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x", **fields}]}


def nested(depth: int) -> bytes:
    return b'{"messages": [{"role": "user", "content": "x", "payload": ' + b"[" * depth + b"]" * depth + b"}]}"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "INVALID_JSON"),
        (b"", 422, "INVALID_REQUEST"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 422, "INVALID_REQUEST"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', 400, "INVALID_JSON"),
        (b'{"messages": [{"role": "user", "content": "x", "payload": NaN}]}', 422, "INVALID_REQUEST"),
        (b'{"messages": [{"role": "user", "content": "x", "payload": 1e999}]}', 422, "INVALID_REQUEST"),
        (nested(100_000), 422, "INVALID_REQUEST"),
        (nested(700), 422, "INVALID_REQUEST"),
        ({"messages": []}, 422, "EMPTY_BATCH"),
        ({}, 422, "INVALID_REQUEST"),
        ([], 422, "INVALID_REQUEST"),
        (one(role="robot"), 422, "INVALID_REQUEST"),
        (one(role=7), 422, "INVALID_REQUEST"),
        (one(content=None), 422, "INVALID_REQUEST"),
        (one(unknown=1), 422, "INVALID_REQUEST"),
        ({**one(), "durability": "maybe"}, 422, "INVALID_REQUEST"),
        (one(entry_id="a:b"), 422, "INVALID_ID"),
        (one(entry_id="*"), 422, "INVALID_ID"),
        (one(entry_id="e" * 300), 422, "INVALID_ID"),
        (one(content="x" * (8 * 1024 * 1024 + 1)), 413, "MESSAGE_TOO_LARGE"),
        ({"messages": [{"role": "user", "content": "x"}] * 201}, 422, "BATCH_TOO_LARGE"),
    ],
)  # fmt: skip
def test_bad_bodies_are_refused_whole(body: Any, status: int, code: str) -> None:
    alice = Agent()
    name = alice.open()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = alice.call("POST", f"/sessions/{name}/messages", raw=raw)
    assert problem(response) == (status, code)
    assert backlog() == 0
    assert alice.call("GET", f"/sessions/{name}/messages").json()["messages"] == []


def test_bad_names_and_pages() -> None:
    alice = Agent()
    for name in ("a:b" + "c" * 20, "*" * 20, "x" * 300, "short", "1" * 20):
        assert problem(alice.call("POST", "/sessions", {"session_id": name})) == (422, "INVALID_ID")
        assert problem(alice.call("GET", f"/sessions/{name}/messages")) == (422, "INVALID_ID")
        assert problem(alice.call("POST", f"/sessions/{name}/messages", one())) == (422, "INVALID_ID")
    assert problem(alice.call("POST", "/sessions", {"customer_id": "a:b"})) == (422, "INVALID_ID")
    assert problem(alice.call("POST", "/sessions", {"owner": "x"})) == (422, "INVALID_REQUEST")
    assert AgentSession.objects.count() == 0
    assert problem(alice.call("POST", f"/sessions/{'n' * 20}/messages", one())) == (404, "SESSION_NOT_FOUND")
    session = alice.open()
    for query in ("limit=0", "limit=201", "limit=x", "before_seq=0", "before_seq=-1", "before_seq=" + "9" * 30):
        assert problem(alice.call("GET", f"/sessions/{session}/messages?{query}")) == (422, "INVALID_REQUEST")
    bad: list[dict[str, Any]] = [{"intent": 5}, {"step": True}, {"slots": []}, {"summary": 5}, {"slots": {"": 1}}]
    for body in bad:
        assert problem(alice.call("PATCH", f"/sessions/{session}/context", body)) == (422, "INVALID_REQUEST")


def test_a_body_over_the_limit_is_refused_before_it_is_read(settings: Any) -> None:
    alice = Agent()
    name = alice.open()
    settings.MAX_BODY_BYTES = 1000
    body = one(content="x" * 2000)
    assert problem(alice.call("POST", f"/sessions/{name}/messages", body)) == (413, "BODY_TOO_LARGE")
    assert backlog() == 0
