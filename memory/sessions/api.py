"""HTTP routes of the sessions. Who may is decided from the path, before the body is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field, StrictInt, StrictStr

from config.base.clock import rfc3339
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, Policy, caller_of
from guard.access.matrix import Action, Resource
from guard.access.services import Caller, authorize
from memory.sessions import selectors, services
from memory.sessions.context import UNSET, Context
from memory.sessions.entries import Message, NewMessage
from memory.sessions.owners import Owner, admit

router = Router(tags=["sessions"])


def _own(action: Action) -> Policy:
    def policy(caller: Caller, path: Mapping[str, Any]) -> None:
        admit(caller, path["session_id"], action)

    return policy


def _may_open(caller: Caller, path: Mapping[str, Any]) -> None:
    authorize(caller, Resource.SESSION, "write", owner_id=caller.actor_id)


class Strict(Schema):
    model_config = ConfigDict(extra="forbid")


class OpenIn(Strict):
    session_id: StrictStr | None = None
    customer_id: StrictStr | None = None


class MessageIn(Strict):
    role: StrictStr
    content: StrictStr
    entry_id: StrictStr | None = None
    payload: Any = None


class AppendIn(Strict):
    messages: list[MessageIn]
    durability: Literal["async", "sync"] = "async"


class ContextIn(Strict):
    """What is absent stays; null removes. Slots are merged name by name."""

    intent: Annotated[StrictStr, Field(max_length=1000)] | None = None
    step: StrictInt | Annotated[StrictStr, Field(max_length=1000)] | None = None
    last_tool_result: Any = None
    slots: dict[str, Any] | None = None


class SessionOut(Schema):
    session_id: str
    agent: str
    actor_id: str
    customer_id: str | None
    created_at: str


class ReceiptOut(Schema):
    entry_id: str
    seq: int
    state: Literal["queued", "committed"]


class ReceiptsOut(Schema):
    receipts: list[ReceiptOut]


class MessageOut(Schema):
    entry_id: str
    seq: int
    role: str
    content: str
    payload: Any
    created_at: str


class MessagesOut(Schema):
    messages: list[MessageOut]
    next: int | None
    source: Literal["window", "database"]


class ContextOut(Schema):
    session_id: str
    version: str
    intent: str | None
    slots: dict[str, Any]
    step: int | str | None
    summary: Any
    last_tool_result: Any
    opened_at: str
    updated_at: str
    reopened: bool


class ReadIn(Strict):
    limit: int = Field(20, ge=1, le=selectors.MAX_LIMIT)
    before_seq: int | None = Field(None, ge=1, le=2**63 - 1)


def _json(value: Any, status: int = 200) -> HttpResponse:
    """Written here, not by the response schemas: payloads may be nested deeper than pydantic follows."""
    return HttpResponse(canonical_json(value).encode(), status=status, content_type="application/json")


def _session(facts: selectors.SessionFacts | Owner, status: int = 200) -> HttpResponse:
    return _json(
        {
            "session_id": facts.session_id,
            "agent": facts.agent,
            "actor_id": facts.actor_id,
            "customer_id": facts.customer_id or None,
            "created_at": rfc3339(facts.created_at),
        },
        status,
    )


@router.post("/sessions", auth=AgentAuth(_may_open), response={201: SessionOut, 200: SessionOut})
def open_session(request: HttpRequest, body: OpenIn) -> HttpResponse:
    """Opens a session: 201, or 200 when the same one exists already."""
    opened = services.open_session(caller=caller_of(request), session_id=body.session_id, customer_id=body.customer_id)
    return _session(opened.owner, 201 if opened.created else 200)


@router.get("/sessions/{session_id}", auth=AgentAuth(_own("read")), response=SessionOut)
def get_session(request: HttpRequest, session_id: str) -> HttpResponse:
    return _session(selectors.get_session(caller=caller_of(request), session_id=session_id))


@router.delete("/sessions/{session_id}", auth=AgentAuth(_own("write")), response={204: None})
def delete_session(request: HttpRequest, session_id: str) -> HttpResponse:
    """Ends the session for good; every later use answers 410."""
    services.delete_session(caller=caller_of(request), session_id=session_id)
    return HttpResponse(status=204)


@router.post("/sessions/{session_id}/messages", auth=AgentAuth(_own("write")), response=ReceiptsOut)
def append_messages(request: HttpRequest, session_id: str, body: AppendIn) -> HttpResponse:
    """Appends a batch, all or none. `committed` is in MySQL; `queued` is there within 5 s."""
    appended = services.append_messages(
        caller=caller_of(request),
        session_id=session_id,
        messages=[NewMessage(m.role, m.content, m.entry_id, m.payload) for m in body.messages],
        durability=body.durability,
    )
    return _json({"receipts": [{"entry_id": r.entry_id, "seq": r.seq, "state": r.state} for r in appended.receipts]})


def message_out(message: Message) -> dict[str, Any]:
    return {
        "entry_id": message.entry_id,
        "seq": message.seq,
        "role": message.role,
        "content": message.content,
        "payload": message.payload,
        "created_at": rfc3339(message.created_at),
    }


@router.get("/sessions/{session_id}/messages", auth=AgentAuth(_own("read")), response=MessagesOut)
def read_messages(request: HttpRequest, session_id: str, query: Query[ReadIn]) -> HttpResponse:
    """A page, oldest first. `next` is the `before_seq` of the page before it."""
    page = selectors.read_messages(
        caller=caller_of(request), session_id=session_id, limit=query.limit, before_seq=query.before_seq
    )
    return _json({"messages": [message_out(m) for m in page.messages], "next": page.next, "source": page.source})


def _context(context: Context) -> HttpResponse:
    response = _json(
        {
            "session_id": context.session_id,
            "version": context.version,
            "intent": context.intent,
            "slots": context.slots,
            "step": context.step,
            "summary": context.summary,
            "last_tool_result": context.last_tool_result,
            "opened_at": rfc3339(context.opened_at),
            "updated_at": rfc3339(context.updated_at),
            "reopened": context.reopened,
        }
    )
    response["ETag"] = f'"{context.version}"'
    return response


@router.get("/sessions/{session_id}/context", auth=AgentAuth(_own("read")), response=ContextOut)
def get_context(request: HttpRequest, session_id: str) -> HttpResponse:
    """The context and its version (`ETag`)."""
    return _context(selectors.get_context(caller=caller_of(request), session_id=session_id))


@router.patch("/sessions/{session_id}/context", auth=AgentAuth(_own("write")), response=ContextOut)
def change_context(request: HttpRequest, session_id: str, body: ContextIn) -> HttpResponse:
    """Changes what is given. With `If-Match` only if that version is still current, else 409 and the current one."""
    given = {
        name: getattr(body, name) for name in ("intent", "step", "last_tool_result") if name in body.model_fields_set
    }
    return _context(
        services.change_context(
            caller=caller_of(request),
            session_id=session_id,
            expected=_if_match(request.headers.get("If-Match")),
            intent=given.get("intent", UNSET),
            step=given.get("step", UNSET),
            last_tool_result=given.get("last_tool_result", UNSET),
            slots=body.slots,
        )
    )


def _if_match(header: str | None) -> str | None:
    """The version that the header names; None where any will do (absent, or `*`)."""
    version = (header or "").strip().removeprefix("W/").strip('"')
    return None if version in ("", "*") else version
