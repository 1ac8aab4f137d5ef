"""HTTP routes of the sessions. Who may is decided from the path, before the body is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from config.base.clock import rfc3339
from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, Policy, caller_of
from guard.access.matrix import Action, Resource
from guard.access.services import Caller, authorize
from memory.sessions import branching, selectors, services, treeview
from memory.sessions.context import UNSET, Context
from memory.sessions.entries import Message, NewMessage
from memory.sessions.owners import Owner, admit
from memory.sessions.schemas import (
    AppendIn,
    CompactIn,
    CompactOut,
    ContextIn,
    ContextOut,
    ForkIn,
    ForkOut,
    MessagesOut,
    NavigateIn,
    NavigateOut,
    OpenIn,
    ReadIn,
    ReceiptsOut,
    SessionOut,
    TreeIn,
    TreeOut,
)

router = Router(tags=["sessions"])


def _own(action: Action) -> Policy:
    def policy(caller: Caller, path: Mapping[str, Any]) -> None:
        admit(caller, path["session_id"], action)

    return policy


def _may_open(caller: Caller, path: Mapping[str, Any]) -> None:
    authorize(caller, Resource.SESSION, "write", owner_id=caller.actor_id)


def _json(value: Any, status: int = 200) -> HttpResponse:
    """Written here, not by the response schemas: payloads may be nested deeper than pydantic follows."""
    return HttpResponse(canonical_json(value).encode(), status=status, content_type="application/json")


def _session_out(facts: selectors.SessionFacts | Owner) -> dict[str, Any]:
    return {
        "session_id": facts.session_id,
        "agent": facts.agent,
        "actor_id": facts.actor_id,
        "customer_id": facts.customer_id or None,
        "created_at": rfc3339(facts.created_at),
    }


def _session(facts: selectors.SessionFacts | Owner, status: int = 200) -> HttpResponse:
    return _json(_session_out(facts), status)


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
    _unconditional(request)
    services.delete_session(caller=caller_of(request), session_id=session_id)
    return HttpResponse(status=204)


@router.post("/sessions/{session_id}/messages", auth=AgentAuth(_own("write")), response=ReceiptsOut)
def append_messages(request: HttpRequest, session_id: str, body: AppendIn) -> HttpResponse:
    """Appends a batch, all or none. `committed` is in MySQL; `queued` is there within 5 s."""
    _unconditional(request)
    appended = services.append_messages(
        caller=caller_of(request),
        session_id=session_id,
        messages=[NewMessage(m.role, m.content, m.entry_id, m.payload) for m in body.messages],
        durability=body.durability,
    )
    return _json({"receipts": [{"entry_id": r.entry_id, "seq": r.seq, "state": r.state} for r in appended.receipts]})


def message_out(message: Message) -> dict[str, Any]:
    """`entry_type` only where it is not `message`."""
    out = {
        "entry_id": message.entry_id,
        "seq": message.seq,
        "role": message.role,
        "content": message.content,
        "payload": message.payload,
        "created_at": rfc3339(message.created_at),
    }
    return out if message.entry_type == "message" else {**out, "entry_type": message.entry_type}


@router.get("/sessions/{session_id}/messages", auth=AgentAuth(_own("read")), response=MessagesOut)
def read_messages(request: HttpRequest, session_id: str, query: Query[ReadIn]) -> HttpResponse:
    """A page of the active path, oldest first. `next` is the `before_seq` of the page before it.

    Without `limit`: the window. A condensed conversation begins with its compaction entry; `view=full` shows what that
    stands for."""
    page = selectors.read_messages(
        caller=caller_of(request),
        session_id=session_id,
        limit=query.limit,
        before_seq=query.before_seq,
        view=query.view,
    )
    return _json({"messages": [message_out(m) for m in page.messages], "next": page.next, "source": page.source})


@router.post("/sessions/{session_id}/fork", auth=AgentAuth(_own("write")), response={201: ForkOut, 200: ForkOut})
def fork(request: HttpRequest, session_id: str, body: ForkIn) -> HttpResponse:
    """A new session that goes on from an entry of this one, sharing all before it: 201, or 200 for a repeat."""
    _unconditional(request)
    forked = branching.fork(
        caller=caller_of(request), session_id=session_id, entry_id=body.entry_id, new_session_id=body.session_id
    )
    return _json(
        {
            **_session_out(forked.owner),
            "forked_from": {"session_id": session_id, "entry_id": forked.entry_id, "seq": forked.seq},
        },
        201 if forked.created else 200,
    )


@router.post("/sessions/{session_id}/navigate", auth=AgentAuth(_own("write")), response=NavigateOut)
def navigate(request: HttpRequest, session_id: str, body: NavigateIn) -> HttpResponse:
    """Moves the head to an entry: reads end there, and the next message follows it. Nothing is deleted."""
    _unconditional(request)
    moved = branching.navigate(
        caller=caller_of(request),
        session_id=session_id,
        entry_id=body.entry_id,
        summary=body.summary,
        summarised=body.summarise,
    )
    return _json(
        {
            "head": {"entry_id": moved.entry_id, "seq": moved.seq},
            "branch_summary": None if moved.summary is None else message_out(moved.summary),
        }
    )


@router.post("/sessions/{session_id}/compact", auth=AgentAuth(_own("write")), response=CompactOut)
def compact(request: HttpRequest, session_id: str, body: CompactIn) -> HttpResponse:
    """Puts a compaction entry in place of all but the last messages; `compacted` 0 where there was nothing to do."""
    _unconditional(request)
    done = branching.compact(
        caller=caller_of(request),
        session_id=session_id,
        keep=body.keep,
        summary=body.summary,
        entry_id=body.entry_id,
    )
    return _json(
        {
            "compacted": done.covered,
            "first_kept_entry_id": done.first_kept_entry_id or None,
            "entry": None if done.entry is None else message_out(done.entry),
        }
    )


@router.get("/sessions/{session_id}/tree", auth=AgentAuth(_own("read")), response=TreeOut)
def read_tree(request: HttpRequest, session_id: str, query: Query[TreeIn]) -> HttpResponse:
    """All entries of the session's tree without their content, by number; `active`: the entry leads to the head."""
    tree = treeview.read_tree(
        caller=caller_of(request), session_id=session_id, limit=query.limit, after_seq=query.after_seq
    )
    return _json(
        {
            "head": None if tree.head is None else {"entry_id": tree.head[0], "seq": tree.head[1]},
            "items": [
                {
                    "entry_id": node.entry_id,
                    "parent_entry_id": node.parent_entry_id or None,
                    "session_id": node.session_id,
                    "seq": node.seq,
                    "entry_type": node.entry_type,
                    "role": node.role,
                    "size": node.size,
                    "created_at": rfc3339(node.created_at),
                    "active": node.active,
                }
                for node in tree.items
            ],
            "next": tree.next,
        }
    )


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
        name: getattr(body, name)
        for name in ("intent", "step", "last_tool_result", "summary")
        if name in body.model_fields_set
    }
    return _context(
        services.change_context(
            caller=caller_of(request),
            session_id=session_id,
            expected=_if_match(request.headers.get("If-Match")),
            intent=given.get("intent", UNSET),
            step=given.get("step", UNSET),
            last_tool_result=given.get("last_tool_result", UNSET),
            summary=given.get("summary", UNSET),
            slots=body.slots,
        )
    )


_TAG = re.compile(r'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"|([\w.-]+)', re.ASCII)


def _if_match(header: str | None) -> list[str] | None:
    """The versions that the header names, one of which must be current; None where any will do (absent, or `*`).

    A weak tag (`W/"..."`) counts like a strong one: what compresses answers on the way weakens tags, and a version
    names one state exactly. A version without quotation marks is taken too. Errors: INVALID_REQUEST for anything else:
    a condition that is not understood must not be dropped.
    """
    if header is None or header.strip() == "*":
        return None
    versions = []
    for part in header.split(","):
        found = _TAG.fullmatch(part.strip())
        if found is None or not (found[1] or found[2]):
            raise DomainError("INVALID_REQUEST", 'If-Match is no list of versions; send one as in ETag, such as "1-2"')
        versions.append(found[1] or found[2])
    return versions


def _unconditional(request: HttpRequest) -> None:
    """Only the context has versions: elsewhere a condition would be dropped, and the caller believe in it."""
    if "If-Match" in request.headers:
        raise DomainError(
            "INVALID_REQUEST", "If-Match stands for the context's version; only PATCH .../context takes it"
        )
