"""The sessions in process: `Sessions` for one agent acting for one person, with the semantics of the HTTP API.

The same things are refused, with the same codes: every call asks first whether the caller may, then checks what was
given by the schemas of the HTTP routes (strictly: "5" is no number here), then does the work. What is refused is a
DomainError with `code` and `status`; an outage of Redis or of the database is one too (503).

Times are `datetime` in UTC. Each call is traced under the trace id that is set (`config.base.trace.traced`), or one of
its own. Calls block: in asynchronous code use `AsyncSessions`, which is this in a few threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import pydantic
from django.db import connections

from config.base.errors import DomainError, invalid_request
from config.base.ids import check_id
from config.base.outages import OUTAGES, outage, outages_told
from config.base.trace import trace_kept_or_new
from guard.access.matrix import Action, Resource
from guard.access.models import Agent
from guard.access.services import Caller, authorize
from memory.sessions import branching, selectors, services, treeview
from memory.sessions.branching import Compacted, Moved
from memory.sessions.context import UNSET, Context, Unset
from memory.sessions.entries import Message, NewMessage
from memory.sessions.keys import LOCK_SECONDS
from memory.sessions.locks import Hold, SessionLock, check_times
from memory.sessions.owners import Owner, admit
from memory.sessions.schemas import (
    AppendIn,
    CompactIn,
    ContextIn,
    ForkIn,
    NavigateIn,
    OpenIn,
    ReadIn,
    TreeIn,
)
from memory.sessions.selectors import ACTIVE, MAX_LIMIT, Page, SessionFacts
from memory.sessions.services import Appended
from memory.sessions.treeview import TreePage

S = TypeVar("S", bound=pydantic.BaseModel)


@dataclass(frozen=True, slots=True)
class OpenedSession(SessionFacts):
    """created: False when the same session was there already."""

    created: bool


@dataclass(frozen=True, slots=True)
class ForkedSession(SessionFacts):
    """forked_from, entry_id, seq: the session that it shares messages with, and the last of them. created: False for a
    repeat."""

    forked_from: str
    entry_id: str
    seq: int
    created: bool


def checked(schema: type[S], given: Mapping[str, Any]) -> S:
    """What was given, as the HTTP route would take it. Errors: INVALID_REQUEST."""
    try:
        return schema.model_validate(dict(given), strict=True)
    except pydantic.ValidationError as error:
        raise invalid_request(error.errors(include_url=False, include_context=False, include_input=False)) from None


def _messages(given: Any, durability: Any) -> list[NewMessage]:
    """A batch as `NewMessage`s. The schema looks at what is not plainly right: twenty lines of pydantic for each good
    message would cost more than the rest of the call."""
    if isinstance(given, list | tuple) and durability in ("async", "sync") and all(map(_is_plain, given)):
        return list(given)
    listed = [_as_object(one) for one in given] if isinstance(given, list | tuple) else given
    body = checked(AppendIn, {"messages": listed, "durability": durability})
    return [NewMessage(m.role, m.content, m.entry_id, m.payload) for m in body.messages]


def _is_plain(one: Any) -> bool:
    return (
        isinstance(one, NewMessage)
        and isinstance(one.role, str)
        and isinstance(one.content, str)
        and (one.entry_id is None or isinstance(one.entry_id, str))
    )


def _as_object(one: Any) -> Any:
    if isinstance(one, NewMessage):
        return {"role": one.role, "content": one.content, "entry_id": one.entry_id, "payload": one.payload}
    return dict(one) if isinstance(one, Mapping) else one


def _facts(owner: Owner) -> dict[str, Any]:
    return {
        "session_id": owner.session_id,
        "agent": owner.agent,
        "actor_id": owner.actor_id,
        "customer_id": owner.customer_id or None,
        "created_at": owner.created_at,
    }


@contextmanager
def _call() -> Iterator[None]:
    """One call: traced, outages told. No request begins or ends here, so what Django does with connections then is done
    now: before it is used for the first time in this call, a connection is asked whether it still stands, and one that
    has failed is closed, so that the next call gets another."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.health_check_done = False  # type: ignore[attr-defined]
    with trace_kept_or_new():
        try:
            yield
        except OUTAGES as error:
            for connection in connections.all(initialized_only=True):
                if connection.errors_occurred and not connection.in_atomic_block:
                    connection.close_if_unusable_or_obsolete()
            raise outage(error) from error


class Sessions:
    """The sessions of one agent acting for one person."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    @classmethod
    def for_agent(cls, agent: str, actor_id: str, *, tenant: str = "default") -> Sessions:
        """agent: customer, advisor, analyst or risk. actor_id: the person it acts for (X-Actor-Id over HTTP).

        Errors: INVALID_REQUEST, INVALID_ID (422).
        """
        if not isinstance(agent, str) or agent not in Agent.values:
            known = ", ".join(Agent.values)
            raise DomainError("INVALID_REQUEST", f"agent {str(agent)[:40]!r} does not exist; use {known}")
        return cls(Caller(check_id("tenant", tenant), agent, check_id("actor_id", actor_id)))

    @contextmanager
    def _admitted(self, session_id: str, action: Action) -> Iterator[None]:
        with _call():
            admit(self.caller, session_id, action)
            yield

    def open(self, session_id: str | None = None, *, customer_id: str | None = None) -> OpenedSession:
        """Opens a session, or answers the one that is there. See `services.open_session` for costs and errors."""
        with _call():
            authorize(self.caller, Resource.SESSION, "write", owner_id=self.caller.actor_id)
            body = checked(OpenIn, {"session_id": session_id, "customer_id": customer_id})
            opened = services.open_session(caller=self.caller, session_id=body.session_id, customer_id=body.customer_id)
            return OpenedSession(**_facts(opened.owner), created=opened.created)

    def get(self, session_id: str) -> SessionFacts:
        """Whose it is, and since when. See `selectors.get_session`."""
        with self._admitted(session_id, "read"):
            return selectors.get_session(caller=self.caller, session_id=session_id)

    def delete(self, session_id: str) -> None:
        """Ends the session for good. See `services.delete_session`."""
        with self._admitted(session_id, "write"):
            services.delete_session(caller=self.caller, session_id=session_id)

    def append(
        self,
        session_id: str,
        messages: Sequence[NewMessage | Mapping[str, Any]],
        *,
        durability: str = "async",
        read_last: int = 0,
    ) -> Appended:
        """Appends a batch, all or none, and answers a receipt for each message, in order.

        messages: a list or tuple; an object as over HTTP does too. read_last: also answer with so many of the newest
        messages (0 to 200), in the same round trip. Not inside a transaction (RuntimeError). See
        `services.append_messages`.
        """
        with self._admitted(session_id, "write"):
            batch = _messages(messages, durability)
            if isinstance(read_last, bool) or not isinstance(read_last, int) or not 0 <= read_last <= MAX_LIMIT:
                raise DomainError("INVALID_REQUEST", f"read_last is no whole number of messages from 0 to {MAX_LIMIT}")
            return services.append_messages(
                caller=self.caller, session_id=session_id, messages=batch, durability=durability, read_last=read_last
            )

    def read(
        self, session_id: str, *, limit: int | None = None, before_seq: int | None = None, view: str = ACTIVE
    ) -> Page:
        """A page of the conversation, oldest first; the window as it is where nothing is asked for. See
        `selectors.read_messages`."""
        with self._admitted(session_id, "read"):
            query = checked(ReadIn, {"limit": limit, "before_seq": before_seq, "view": view})
            return selectors.read_messages(
                caller=self.caller,
                session_id=session_id,
                limit=query.limit,
                before_seq=query.before_seq,
                view=query.view,
            )

    def pages(self, session_id: str, *, limit: int = MAX_LIMIT, view: str = ACTIVE) -> Iterator[Page]:
        """The whole conversation, newest page first, each oldest first. What is appended meanwhile moves nothing."""
        before_seq: int | None = None
        while True:
            page = self.read(session_id, limit=limit, before_seq=before_seq, view=view)
            yield page
            before_seq = page.next
            if before_seq is None:
                return

    def messages(self, session_id: str, *, view: str = ACTIVE) -> Iterator[Message]:
        """Every message of the conversation, the newest first, read page by page."""
        for page in self.pages(session_id, view=view):
            yield from reversed(page.messages)

    def context(self, session_id: str) -> Context:
        """The context and its version. See `selectors.get_context`."""
        with self._admitted(session_id, "read"):
            return selectors.get_context(caller=self.caller, session_id=session_id)

    def change_context(
        self,
        session_id: str,
        *,
        expected: str | None = None,
        intent: str | Unset | None = UNSET,
        step: int | str | Unset | None = UNSET,
        last_tool_result: Any = UNSET,
        summary: str | Unset | None = UNSET,
        slots: Mapping[str, Any] | None = None,
    ) -> Context:
        """Sets what is given and leaves the rest; None removes; slots are merged name by name. expected: the version
        that must still be current (If-Match over HTTP). See `services.change_context`."""
        with self._admitted(session_id, "write"):
            named = {"intent": intent, "step": step, "last_tool_result": last_tool_result, "summary": summary}
            given = {name: value for name, value in named.items() if value is not UNSET}
            listed = dict(slots) if isinstance(slots, Mapping) else slots
            checked(ContextIn, {**given, "slots": listed})
            if expected is not None and not isinstance(expected, str):
                raise DomainError("INVALID_REQUEST", f"expected is {type(expected).__name__}, not a version")
            return services.change_context(
                caller=self.caller, session_id=session_id, expected=expected, slots=listed, **given
            )

    def fork(self, session_id: str, *, entry_id: str | None = None, new_session_id: str | None = None) -> ForkedSession:
        """A new session that goes on from an entry of this one (the head if none is named). See `branching.fork`."""
        with self._admitted(session_id, "write"):
            body = checked(ForkIn, {"entry_id": entry_id, "session_id": new_session_id})
            forked = branching.fork(
                caller=self.caller, session_id=session_id, entry_id=body.entry_id, new_session_id=body.session_id
            )
            return ForkedSession(
                **_facts(forked.owner),
                forked_from=session_id,
                entry_id=forked.entry_id,
                seq=forked.seq,
                created=forked.created,
            )

    def navigate(self, session_id: str, entry_id: str, *, summary: str | None = None, summarise: bool = False) -> Moved:
        """Moves the head to an entry. See `branching.navigate`."""
        with self._admitted(session_id, "write"):
            body = checked(NavigateIn, {"entry_id": entry_id, "summary": summary, "summarise": summarise})
            return branching.navigate(
                caller=self.caller,
                session_id=session_id,
                entry_id=body.entry_id,
                summary=body.summary,
                summarised=body.summarise,
            )

    def compact(
        self, session_id: str, *, keep: int | None = None, summary: str | None = None, entry_id: str | None = None
    ) -> Compacted:
        """Puts a compaction entry in place of all but the last messages. See `branching.compact`."""
        with self._admitted(session_id, "write"):
            body = checked(CompactIn, {"keep": keep, "summary": summary, "entry_id": entry_id})
            return branching.compact(
                caller=self.caller,
                session_id=session_id,
                keep=body.keep,
                summary=body.summary,
                entry_id=body.entry_id,
            )

    def tree(self, session_id: str, *, limit: int = 100, after_seq: int = 0) -> TreePage:
        """Every entry on every branch, without content. See `treeview.read_tree`."""
        with self._admitted(session_id, "read"):
            query = checked(TreeIn, {"limit": limit, "after_seq": after_seq})
            return treeview.read_tree(
                caller=self.caller, session_id=session_id, limit=query.limit, after_seq=query.after_seq
            )

    def lock(
        self,
        session_id: str,
        *,
        ttl: float = LOCK_SECONDS,
        wait: float = 0.0,
        on_lost: Callable[[], None] | None = None,
    ) -> DoorLock:
        """One holder at a time: `with sessions.lock(session_id, wait=5) as lock:`; see `locks.acquire` and `Hold`."""
        check_times(ttl, wait)
        return DoorLock(caller=self.caller, session_id=session_id, ttl=ttl, wait=wait, on_lost=on_lost)


class DoorLock(Hold):
    """`Hold`, which tells outages as the other calls do. `with` for Sessions, `async with` for AsyncSessions."""

    def __enter__(self) -> SessionLock:
        with _call():
            return super().__enter__()

    async def __aenter__(self) -> SessionLock:
        with outages_told():
            return await super().__aenter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _call():
            super().__exit__(kind, error, trace)
