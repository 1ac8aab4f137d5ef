"""Reads of the sessions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.conf import settings

from config.base.clock import to_micros
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from guard.access.services import Caller
from memory.sessions.context import Context
from memory.sessions.entries import Entry, Message, read_items
from memory.sessions.hot import run_context, window_in_redis
from memory.sessions.models import AgentMessage, AgentSession
from memory.sessions.owners import Owner, admit
from memory.sessions.reopen import undrained

logger = logging.getLogger(__name__)

WINDOW = "window"
DATABASE = "database"
MAX_LIMIT = 200
# A page ends early rather than hold more text than this; `next` leads on.
PAGE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Page:
    """messages: oldest first. next: `before_seq` for the page before it, None where there is none."""

    messages: list[Message]
    next: int | None
    source: str


@dataclass(frozen=True, slots=True)
class SessionFacts:
    session_id: str
    agent: str
    actor_id: str
    customer_id: str
    created_at: datetime


def get_session(*, caller: Caller, session_id: str) -> SessionFacts:
    """One session. Cost: no Redis, 1 query. Errors: those of `admit`; SESSION_DELETED (410)."""
    owner = admit(caller, session_id, "read")
    _refuse_deleted(owner)
    return SessionFacts(owner.session_id, owner.agent, owner.actor_id, owner.customer_id, owner.created_at)


def get_context(*, caller: Caller, session_id: str) -> Context:
    """The context. Cost, warm: 1 round trip, 0 queries. Errors: those of `admit`; SESSION_DELETED;
    RedisUnavailable: an outage is not shown as an empty context."""
    return run_context(admit(caller, session_id, "read"), "", [], [])


def read_messages(*, caller: Caller, session_id: str, limit: int = 20, before_seq: int | None = None) -> Page:
    """A page of a conversation, oldest first: the newest messages, or those before a number.

    From the window where it reaches (no before_seq, limit within it): 1 round trip, 0 queries (2 queries more for
    messages that the window holds cut short). Else from MySQL with what the stream still holds: 1 round trip and
    2 queries, more only where numbers are missing in the page. Redis away: MySQL alone.
    Errors: those of `admit`; SESSION_DELETED; INVALID_REQUEST for a limit outside 1..200; RedisUnavailable when
    Redis is away and MySQL has nothing of a session that Redis may have messages of: not shown as empty.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise DomainError("INVALID_REQUEST", f"limit {limit} is outside 1..{MAX_LIMIT}")
    if before_seq is not None and not 1 <= before_seq <= 2**63 - 1:
        raise DomainError("INVALID_REQUEST", f"before_seq {before_seq} is outside 1..{2**63 - 1}")
    owner = admit(caller, session_id, "read")
    try:
        within = before_seq is None and limit <= settings.SESSION_WINDOW
        first, last, items = window_in_redis(owner, limit if within else 1)
        if within:
            messages, cut = read_items(items)
            if cut:
                messages = with_whole(owner, messages, cut)
            older = messages and first is not None and messages[0].seq > first
            return Page(messages, messages[0].seq if older else None, WINDOW)
        top = last if before_seq is None else min(last, before_seq - 1)
        messages, following = _page(owner, limit, before_seq, first, top)
        return Page(messages, following, DATABASE)
    except RedisUnavailable:
        row = _refuse_deleted(owner)
        messages, following = page_from_mysql(owner, limit=limit, before=before_seq)
        if not messages and before_seq is None and row.lease_to:
            raise
        return Page(messages, following, DATABASE)


def _refuse_deleted(owner: Owner) -> AgentSession:
    row = AgentSession.objects.filter(pk=owner.pk).first()
    if row is None:
        raise DomainError("SESSION_NOT_FOUND")
    if row.deleted_at is not None:
        raise DomainError("SESSION_DELETED")
    return row


def _message_of(row: AgentMessage | Entry) -> Message:
    return Message(row.entry_id, row.seq, row.role, row.content, row.payload, to_micros(row.created_at))


def page_from_mysql(owner: Owner, *, limit: int, before: int | None) -> tuple[list[Message], int | None]:
    """What MySQL has, oldest first, and where the page before it starts. Cost: 2 queries."""
    mine = AgentMessage.objects.filter(session_row_id=owner.pk)
    if before is not None:
        mine = mine.filter(seq__lt=before)
    sizes = list(mine.order_by("-seq").values_list("pk", "seq", "size")[: limit + 1])
    taken: list[int] = []
    total = 0
    for pk, _seq, size in sizes[:limit]:
        total += size
        if taken and total > PAGE_BYTES:
            break
        taken.append(pk)
    rows = AgentMessage.objects.filter(pk__in=taken).order_by("seq")
    messages = [_message_of(row) for row in rows]
    return messages, messages[0].seq if len(taken) < len(sizes) else None


def _page(
    owner: Owner, limit: int, before: int | None, first: int | None, top: int
) -> tuple[list[Message], int | None]:
    """A page of MySQL's, completed from the stream where numbers are missing that may still be on their way."""
    messages, following = page_from_mysql(owner, limit=limit, before=before)
    lowest = messages[0].seq if following is not None else first
    if lowest is None or (top - lowest + 1) == len(messages):
        return messages, following
    # Missing: queued, or never used (an outage). The stream first, then MySQL again: an entry is in one of them.
    queued = [entry for entry in undrained(owner) if before is None or entry.seq < before]
    messages, following = page_from_mysql(owner, limit=limit, before=before)
    have = {message.entry_id for message in messages}
    floor = messages[0].seq if following is not None else 0
    extra = [_message_of(entry) for entry in queued if entry.entry_id not in have and entry.seq > floor]
    merged = sorted([*messages, *extra], key=lambda message: message.seq)
    page = merged[-limit:]
    if len(merged) > limit or following is not None:
        return page, page[0].seq
    return page, None


def with_whole(owner: Owner, messages: Sequence[Message], cut: Sequence[str]) -> list[Message]:
    """The same messages, whole where the window had only their heads."""
    whole: dict[str, Message] = {}
    # The stream first: an entry leaves it only after its commit. Most large messages are in MySQL long since.
    stored = _stored(owner, cut)
    if len(stored) < len(cut):
        wanted = set(cut)
        whole = {entry.entry_id: _message_of(entry) for entry in undrained(owner) if entry.entry_id in wanted}
        stored = _stored(owner, cut)
    whole.update(stored)
    answer = []
    for message in messages:
        if message.entry_id in whole:
            # Number and time stay the window's: during an outage the same message may also have come another way.
            found = whole[message.entry_id]
            message = msgspec.structs.replace(message, content=found.content, payload=found.payload, cut=0)
        elif message.entry_id in cut:
            # A head is never passed off as the message; what became of it stands in the dead letters.
            logger.error("large message %s of session %s is nowhere whole", message.entry_id, owner.session_id)
            continue
        answer.append(message)
    return answer


def _stored(owner: Owner, entry_ids: Sequence[str]) -> dict[str, Message]:
    rows = AgentMessage.objects.filter(session_row_id=owner.pk, entry_id__in=entry_ids)
    return {row.entry_id: _message_of(row) for row in rows}
