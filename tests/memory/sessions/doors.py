"""The three ways to the sessions, called alike: HTTP, `Sessions`, `AsyncSessions`. What they answer is brought into the
shape that HTTP gives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from django.test import Client

from config.base.clock import rfc3339
from config.base.errors import DomainError
from guard.access.services import issue_key
from memory.sessions import AsyncSessions, Sessions
from memory.sessions.api import message_out

Answer = Any  # JSON


class HttpDoor:
    """A real key, the test client, and what it answers."""

    name = "http"

    def __init__(self, agent: str = "customer", actor: str = "alice", tenant: str = "default") -> None:
        self._headers = {"Authorization": f"Bearer {issue_key(agent=agent, tenant=tenant).key}", "X-Actor-Id": actor}
        self._client = Client(raise_request_exception=False)

    def send(self, method: str, path: str, body: Any = None, raw: bytes | None = None, **headers: str) -> Any:
        # As a client would that escapes everything: a lone surrogate goes as \ud800, infinity as Infinity.
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        return self._client.generic(
            method, f"/api/v1{path}", data, content_type="application/json", headers={**self._headers, **headers}
        )

    def _answer(self, response: Any) -> Answer:
        if response.status_code >= 400:
            problem = response.json()
            assert response["Content-Type"] == "application/problem+json"
            raise Refused(response.status_code, problem["code"], problem.get("version"))
        return json.loads(response.content) if response.content else None

    def call(self, verb: str, session_id: Any = None, *args: Any, **given: Any) -> Answer:
        at = f"/sessions/{quote(str(session_id), safe='')}"
        if verb == "open":
            response = self.send("POST", "/sessions", {"session_id": session_id, **given})
            return {**self._answer(response), "created": response.status_code == 201}
        if verb in ("get", "delete"):
            return self._answer(self.send(verb.upper(), at))
        if verb == "append":
            return self._answer(self.send("POST", f"{at}/messages", {"messages": args[0], **given}))
        if verb in ("read", "tree"):
            place = "messages" if verb == "read" else "tree"
            asked = urlencode({name: value for name, value in given.items() if value is not None})
            return self._answer(self.send("GET", f"{at}/{place}?{asked}"))
        if verb == "context":
            return self._answer(self.send("GET", f"{at}/context"))
        if verb == "change_context":
            expected = given.pop("expected", None)
            headers = {} if expected is None else {"If-Match": f'"{expected}"'}
            return self._answer(self.send("PATCH", f"{at}/context", given, **headers))
        if verb == "fork":
            body = {"session_id" if name == "new_session_id" else name: value for name, value in given.items()}
            response = self.send("POST", f"{at}/fork", body)
            return {**self._answer(response), "created": response.status_code == 201}
        if verb == "navigate":
            return self._answer(self.send("POST", f"{at}/navigate", {"entry_id": args[0], **given}))
        assert verb == "compact"
        return self._answer(self.send("POST", f"{at}/compact", given))


@dataclass
class Refused(Exception):
    """What a door said."""

    status: int
    code: str
    version: str | None = None


def _session(facts: Any) -> Answer:
    names = ("session_id", "agent", "actor_id", "customer_id")
    return {**{name: getattr(facts, name) for name in names}, "created_at": rfc3339(facts.created_at)}


def as_http(verb: str, result: Any) -> Answer:
    """What the Python doors answer, as HTTP words it."""
    if verb == "open":
        return {**_session(result), "created": result.created}
    if verb == "get":
        return _session(result)
    if verb == "append":
        return {"receipts": [{"entry_id": r.entry_id, "seq": r.seq, "state": r.state} for r in result.receipts]}
    if verb == "read":
        return {"messages": [message_out(m) for m in result.messages], "next": result.next, "source": result.source}
    if verb in ("context", "change_context"):
        names = ("session_id", "version", "intent", "slots", "step", "summary", "last_tool_result", "reopened")
        times = {name: rfc3339(getattr(result, name)) for name in ("opened_at", "updated_at")}
        return {**{name: getattr(result, name) for name in names}, **times}
    if verb == "fork":
        shared = {"session_id": result.forked_from, "entry_id": result.entry_id, "seq": result.seq}
        return {**_session(result), "forked_from": shared, "created": result.created}
    if verb == "navigate":
        summary = None if result.summary is None else message_out(result.summary)
        return {"head": {"entry_id": result.entry_id, "seq": result.seq}, "branch_summary": summary}
    if verb == "compact":
        entry = None if result.entry is None else message_out(result.entry)
        return {"compacted": result.covered, "first_kept_entry_id": result.first_kept_entry_id, "entry": entry}
    if verb == "tree":
        names = ("entry_id", "parent_entry_id", "session_id", "seq", "entry_type", "role", "size", "active")
        items = [
            {**{name: getattr(node, name) for name in names}, "created_at": rfc3339(node.created_at)}
            for node in result.items
        ]
        head = None if result.head is None else {"entry_id": result.head[0], "seq": result.head[1]}
        return {"head": head, "items": items, "next": result.next}
    assert result is None
    return None


@dataclass
class PythonDoor:
    """`Sessions`, called as it is."""

    agent: str = "customer"
    actor: str = "alice"
    tenant: str = "default"
    name: str = "sync"
    _sessions: Any = field(init=False)

    def __post_init__(self) -> None:
        self._sessions = Sessions.for_agent(agent=self.agent, actor_id=self.actor, tenant=self.tenant)

    def call(self, verb: str, session_id: Any = None, *args: Any, **given: Any) -> Answer:
        try:
            return as_http(verb, getattr(self._sessions, verb)(session_id, *args, **given))
        except DomainError as error:
            raise Refused(error.status, error.code, error.extra.get("version")) from error


@dataclass
class AsyncDoor(PythonDoor):
    """`AsyncSessions`, each call in an event loop of its own."""

    name: str = "async"

    def __post_init__(self) -> None:
        self._sessions = AsyncSessions.for_agent(agent=self.agent, actor_id=self.actor, tenant=self.tenant)

    def call(self, verb: str, session_id: Any = None, *args: Any, **given: Any) -> Answer:
        async def awaited(work: Awaitable[Any]) -> Any:
            return await work

        try:
            return as_http(verb, asyncio.run(awaited(getattr(self._sessions, verb)(session_id, *args, **given))))
        except DomainError as error:
            raise Refused(error.status, error.code, error.extra.get("version")) from error


def make_doors(**who: str) -> list[Any]:
    """The three for one person."""
    return [HttpDoor(**who), PythonDoor(**who), AsyncDoor(**who)]
