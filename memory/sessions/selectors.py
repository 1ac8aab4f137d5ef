"""Reads of the sessions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter

import msgspec

from config.base.clock import to_micros
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from guard.access.services import Caller
from memory.sessions.context import Context
from memory.sessions.entries import Entry, Message
from memory.sessions.gone import refuse_gone
from memory.sessions.hot import read_window, run_context
from memory.sessions.limits import limits
from memory.sessions.links import TOOL, link_of, orphans
from memory.sessions.models import AgentMessage, AgentSession
from memory.sessions.owners import Owner, admit
from memory.sessions.paths import WINDOW_MOST, along, items_of, not_in_mysql, pinned, tree_of
from memory.sessions.reopen import undrained
from memory.sessions.tree import END, Span, count_between, within

logger = logging.getLogger(__name__)

WINDOW = "window"
DATABASE = "database"
ACTIVE = "active"
FULL = "full"
COMPACTION = AgentMessage.EntryType.COMPACTION.value
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
    customer_id: str | None
    created_at: datetime


def get_session(*, caller: Caller, session_id: str) -> SessionFacts:
    """One session. Cost: no Redis, 1 query. Errors: those of `admit`; SESSION_DELETED (410)."""
    owner = admit(caller, session_id, "read")
    _refuse_deleted(owner)
    return SessionFacts(owner.session_id, owner.agent, owner.actor_id, owner.customer_id or None, owner.created_at)


def get_context(*, caller: Caller, session_id: str) -> Context:
    """The context. Cost, warm: 1 round trip, 0 queries. Errors: those of `admit`; SESSION_DELETED;
    RedisUnavailable: an outage is not shown as an empty context."""
    return run_context(admit(caller, session_id, "read"), (), [], [])


def read_messages(
    *, caller: Caller, session_id: str, limit: int | None = None, before_seq: int | None = None, view: str = ACTIVE
) -> Page:
    """A page of a conversation's active path, oldest first: the newest messages, or those before a number.

    limit: at most so many; None: the window as it is, which holds more than its size where a tool call has many
    results. A page never begins with results whose call it leaves out, unless nothing else would be on it.
    view: `active` shows what an agent should see: where the conversation was condensed, the compaction entry first, in
    place of what it covers; `full` shows everything that led to the head, compaction entries where they were made.
    From the window where it reaches (no before_seq, limit within it): 1 round trip, 0 queries (2 queries more for
    messages that the window holds cut short). Else from MySQL with what the stream still holds: 1 round trip and
    3 queries, more only where the path has branches or numbers are missing in the page. Redis away: MySQL alone.
    Errors: those of `admit`; SESSION_DELETED; INVALID_REQUEST for a limit outside 1..200; RedisUnavailable when
    Redis is away and MySQL has nothing of a session that Redis may have messages of: not shown as empty.
    """
    if limit is not None and not 1 <= limit <= MAX_LIMIT:
        raise DomainError("INVALID_REQUEST", f"limit {limit} is outside 1..{MAX_LIMIT}")
    if before_seq is not None and not 1 <= before_seq <= END:
        raise DomainError("INVALID_REQUEST", f"before_seq {before_seq} is outside 1..{END}")
    if view not in (ACTIVE, FULL):
        raise DomainError("INVALID_REQUEST", f"view {view[:40]!r} does not exist; use {ACTIVE} or {FULL}")
    owner = admit(caller, session_id, "read")
    size = limits.windows[owner.agent]
    count = size if limit is None else limit
    try:
        within_window = before_seq is None and count <= size and view == ACTIVE
        # All of it: what is before a page tells whether it would begin within a tool call's results.
        reach = WINDOW_MOST if within_window else 1
        first, last, messages = read_window(owner, reach)
        if within_window:
            if limit is not None:
                messages = begun_whole(messages, limit)
            if any(message.cut for message in messages):
                messages = with_whole(owner, messages)
            older = messages and messages[0].entry_type != COMPACTION and first is not None and messages[0].seq > first
            return Page(messages, messages[0].seq if older else None, WINDOW)
        top = last if before_seq is None else min(last, before_seq - 1)
        return _page(owner, count, before_seq, view, first, top)
    except RedisUnavailable:
        row = _refuse_deleted(owner)
        page = page_from_mysql(owner, limit=count, before=before_seq, view=view)
        if not page.messages and before_seq is None and row.lease_to:
            raise
        return page


def begun_whole(messages: list[Message], limit: int) -> list[Message]:
    """The newest `limit` of a window, less results at their beginning whose call is not among them."""
    page = messages[-limit:]
    if len(messages) > limit:
        del page[: orphans([(m.role, m.link) for m in messages[:-limit]], [(m.role, m.link) for m in page])]
    return page


def _refuse_deleted(owner: Owner) -> AgentSession:
    return refuse_gone(AgentSession.objects.filter(pk=owner.pk).first())


def _message_of(row: AgentMessage | Entry) -> Message:
    return Message(
        row.entry_id, row.seq, row.role, row.content, row.payload, to_micros(row.created_at), 0, row.entry_type,
        link_of(row.role, row.payload),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Stored:
    """Entries of a page, oldest first; whether there are older ones, and the number of the last of those; and what
    stands before them all."""

    owner: Owner
    messages: list[Message]
    more: bool
    before: int
    pin: Message | None
    spans: tuple[Span, ...]

    def page(self, limit: int) -> Page:
        if self.more:
            messages = self.messages[self._orphans() :]
            return Page(messages, messages[0].seq, DATABASE)
        if self.pin is not None and len(self.messages) < limit:
            return Page([self.pin, *self.messages], None, DATABASE)
        return Page(self.messages, self.messages[0].seq if self.pin is not None else None, DATABASE)

    def _orphans(self) -> int:
        """Results at the page's beginning whose call is before it. Cost: 2 queries where it begins with results; where
        numbers before it are missing that may be queued, 1 round trip and 2 queries more."""
        first = self.messages[0]
        if first.role != TOOL:
            return 0
        older = self._before(first.seq)
        queued: list[Entry] = []
        if not older or count_between(self.spans, older[-1][0], first.seq - 1) > len(older):
            # What is queued may be the call, or stand between a result and the call that it would seem to answer. The
            # stream first, then MySQL again: an entry is in one of them.
            queued = [e for e in self.queued() if e.seq < first.seq and within(self.spans, e.session_pk, e.seq)]
        if queued:
            older = self._before(first.seq)
            queued = not_in_mysql(queued)
        keys = sorted([*older, *((entry.seq, entry.role, None) for entry in queued)], key=itemgetter(0))
        # With the page's own role: its results are what links are looked for.
        before = items_of([*keys, (0, TOOL, None)], queued)[:-1]
        return orphans(before, [(message.role, message.link) for message in self.messages])

    def _before(self, seq: int) -> list[tuple[int, str, int | None]]:
        """Number, role and row of what MySQL has before a number, as far back as a call can be; newest first."""
        older = along(self.spans, "seq", "role", "pk", limit=WINDOW_MOST, before=seq)
        return [(number, role, pk) for number, role, pk in older]

    def queued(self) -> list[Entry]:
        """What the stream holds of the path; nothing where Redis is away."""
        try:
            return list(undrained(self.owner, shared=True))
        except RedisUnavailable:
            return []


def page_from_mysql(owner: Owner, *, limit: int, before: int | None, view: str = ACTIVE) -> Page:
    """What MySQL has of a page. Cost: 3 queries, more only where the path has branches."""
    return _stored_page(owner, limit, before, view).page(limit)


def _stored_page(owner: Owner, limit: int, before: int | None, view: str) -> _Stored:
    path = tree_of(owner).head()
    spans = path.view if view == ACTIVE else path.full
    found = along(spans, "pk", "seq", "role", "size", limit=limit + 1, before=before)
    total, count = 0, 0
    for *_, size in found[:limit]:
        total += size
        if count and total > PAGE_BYTES:
            break
        count += 1
    rows = AgentMessage.objects.filter(pk__in=[pk for pk, *_ in found[:count]]).order_by("seq")
    more = count < len(found)
    # Asked for only where it may be shown: at the beginning of what is shown.
    pin = None if more or view != ACTIVE else pinned(path)
    last_before = found[count][1] if more else 0
    messages = [_message_of(row) for row in rows]
    return _Stored(owner, messages, more, last_before, None if pin is None else _message_of(pin), spans)


def _page(owner: Owner, limit: int, before: int | None, view: str, first: int | None, top: int) -> Page:
    """A page of MySQL's, completed from the stream where numbers are missing that may still be on their way."""
    stored = _stored_page(owner, limit, before, view)
    low = stored.before if stored.more else first
    if low is None or count_between(stored.spans, low, top) == len(stored.messages) + stored.more:
        return stored.page(limit)
    # Missing: queued, or never used (an outage). The stream first, then MySQL again: an entry is in one of them.
    queued = [entry for entry in undrained(owner, shared=True) if before is None or entry.seq < before]
    stored = _stored_page(owner, limit, before, view)
    extra = _missing(stored, queued)
    # Asked once more: during an outage the same entry may have come another way, and have its place on another page.
    fresh = not_in_mysql(extra)
    if len(fresh) < len(extra):
        # Or it was committed since the page was read, as whoever moves the head does with all that is queued.
        stored = _stored_page(owner, limit, before, view)
        fresh = _missing(stored, fresh)
    extra = sorted(fresh, key=lambda entry: entry.seq)
    # Some may lie between the page's first entry in MySQL and the one before it: those are of the page before.
    floor = stored.messages[0].seq if stored.more else 0
    merged = sorted([*stored.messages, *(_message_of(entry) for entry in extra if entry.seq >= floor)], key=_number)
    if len(merged) > limit:
        stored = replace(stored, more=True)
    return replace(stored, messages=merged[-limit:]).page(limit)


def _missing(stored: _Stored, queued: Sequence[Entry]) -> list[Entry]:
    """What is queued of a page's path and not among what MySQL had of it."""
    there = {message.seq for message in stored.messages}
    return [
        entry
        for entry in queued
        if entry.seq > stored.before and entry.seq not in there and within(stored.spans, entry.session_pk, entry.seq)
    ]


def _number(message: Message) -> int:
    return message.seq


def with_whole(owner: Owner, messages: Sequence[Message]) -> list[Message]:
    """The same messages, whole where the window had only their heads. Cost: 1 query, more only for what a fork shares
    and for what is not in MySQL yet."""
    floor = owner.lineage[0][1] if owner.lineage else 0
    cut = [message for message in messages if message.cut]
    own = [message.entry_id for message in cut if message.seq > floor]
    # The stream first: an entry leaves it only after its commit. Most large messages are in MySQL long since.
    stored = _stored(owner, own)
    whole: dict[tuple[str, bool], Message] = {}
    if len(stored) < len(own):
        wanted = set(own)
        whole = {(entry.entry_id, True): _message_of(entry) for entry in undrained(owner) if entry.entry_id in wanted}
        stored = _stored(owner, own)
    whole.update({(entry_id, True): message for entry_id, message in stored.items()})
    if len(own) < len(cut):
        shared = {(m.entry_id, m.seq) for m in cut if m.seq <= floor}
        found_shared = _shared(owner, shared)
        if len(found_shared) < len(shared):
            waiting = undrained(owner, shared=True)
            whole.update({(e.entry_id, False): _message_of(e) for e in waiting if (e.entry_id, e.seq) in shared})
            found_shared = _shared(owner, shared)
        whole.update(found_shared)
    answer = []
    for message in messages:
        if message.cut:
            found = whole.get((message.entry_id, message.seq > floor))
            if found is None:
                # A head is never passed off as the message; what became of it stands in the dead letters.
                logger.error("large message %s of session %s is nowhere whole", message.entry_id, owner.session_id)
                continue
            # Number and time stay the window's: during an outage the same message may also have come another way.
            message = msgspec.structs.replace(message, content=found.content, payload=found.payload, cut=0)
        answer.append(message)
    return answer


def _stored(owner: Owner, entry_ids: Sequence[str]) -> dict[str, Message]:
    if not entry_ids:
        return {}
    rows = AgentMessage.objects.filter(session_row_id=owner.pk, entry_id__in=entry_ids)
    return {row.entry_id: _message_of(row) for row in rows}


def _shared(owner: Owner, wanted: set[tuple[str, int]]) -> dict[tuple[str, bool], Message]:
    """Whole messages that a fork shares, by entry id and False."""
    pks = [pk for pk, _ in owner.lineage]
    rows = AgentMessage.objects.filter(session_row_id__in=pks, entry_id__in=[entry_id for entry_id, _ in wanted])
    return {(row.entry_id, False): _message_of(row) for row in rows if (row.entry_id, row.seq) in wanted}
