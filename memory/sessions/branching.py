"""Changes of a conversation's path: move its head, condense what lies behind, go on from an entry in a new session.

All three are rare; `restructuring.py` says how they are made.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from config.base.clock import to_micros
from config.base.db import refuse_inside_transaction
from config.base.errors import DomainError
from config.base.ids import check_id, check_session_id, new_id
from config.base.redis import RedisUnavailable, Script
from config.base.trace import current_trace_id
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize, refuse
from memory.erasure.tombstones import customer_erased
from memory.sessions.entries import (
    Entry,
    Message,
    made_entry_id,
)
from memory.sessions.folding import REACH, head_message
from memory.sessions.limits import limits
from memory.sessions.models import AgentMessage, AgentSession, SessionBranch
from memory.sessions.outage import outage
from memory.sessions.owners import NOT_YOURS, Owner, admit, remember
from memory.sessions.paths import WINDOW_MOST, along, entry_of_row, head_of, on_path, pinned, upward, whole_window
from memory.sessions.reopen import reopen
from memory.sessions.restructuring import Standing, restructure
from memory.sessions.summaries import summarise
from memory.sessions.tree import END, Path, Tree, count_between, less, within

logger = logging.getLogger(__name__)

_hold = Script.beside(__file__, "hold")

Kind = SessionBranch.Kind
EntryType = AgentMessage.EntryType
T = TypeVar("T")

# Forks of forks: so many sessions share at most.
MAX_LINEAGE = 64
SUMMARY_MOST_CHARS = 20_000


# --- navigate -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """head: the entry that the next message follows. summary: the branch summary that was written, if one was."""

    entry_id: str
    seq: int
    summary: Message | None = None


def _find(owner: Owner, tree: Tree, entry_id: str) -> AgentMessage:
    """An entry of the session's tree: its own, or one that it shares. Errors: ENTRY_NOT_FOUND (404)."""
    row = AgentMessage.objects.filter(session_row_id=owner.pk, entry_id=entry_id).first()
    if row is not None:
        return row
    if owner.lineage:
        shared = tree.at(*owner.lineage[0]).full
        for row in AgentMessage.objects.filter(session_row_id__in=[pk for pk, _ in owner.lineage], entry_id=entry_id):
            if within(shared, row.session_row_id, row.seq):
                return row
    raise DomainError("ENTRY_NOT_FOUND", f"no entry {entry_id!r} in the session's tree")


def _checked_summary(summary: str | None) -> None:
    if summary is None:
        return
    if not isinstance(summary, str) or not summary.strip() or len(summary) > SUMMARY_MOST_CHARS:
        raise DomainError("INVALID_REQUEST", f"summary must be text of 1 to {SUMMARY_MOST_CHARS} characters")
    try:
        summary.encode()
    except UnicodeEncodeError:
        raise DomainError("INVALID_REQUEST", "summary holds half of a surrogate pair, which is no text") from None


def navigate(
    *, caller: Caller, session_id: str, entry_id: str, summary: str | None = None, summarised: bool = False
) -> Moved:
    """Moves the head to an entry: what is read ends there, and the next message follows it. Nothing is deleted.

    entry_id: of this session, on any branch, or one that it shares with what it was forked from.
    summary: written after that entry as a `branch_summary`, for what the branch that is left has come to;
    summarised: the summariser makes one. Where the head is already there, nothing happens.
    Cost: see `restructure`. Errors: those of `admit`; ENTRY_NOT_FOUND (404), INVALID_REQUEST (422), SESSION_DELETED.
    """
    refuse_inside_transaction("navigate")
    owner = admit(caller, session_id, "write")
    check_id("entry_id", entry_id)
    _checked_summary(summary)
    made_id = made_entry_id()

    def change(standing: Standing) -> Moved:
        target = _find(owner, standing.tree, entry_id)
        head_id, head_pk, head_seq = head_of(standing.path)
        if (target.session_row_id, target.seq) == (head_pk, head_seq):
            # Where Redis is away entries may be queued that follow it: then it is not the head, or will not be.
            if not summary and standing.whole:
                return Moved(entry_id, target.seq)
        elif head_id and _repeats(owner, head_pk, head_seq, entry_id, summary, summarised):
            found = AgentMessage.objects.get(session_row_id=head_pk, seq=head_seq)
            if not standing.whole:
                _turn(standing, found)
            return Moved(found.entry_id, found.seq, _message(entry_of_row(found)))
        path = standing.tree.at(target.session_row_id, target.seq)
        text = summary or ""
        if summarised and not text:
            text = summarise("", _abandoned(standing.path, path))
        _turn(standing, target, made_id if text else "")
        if not text:
            return Moved(entry_id, target.seq)
        entry = standing.write(
            owner, EntryType.BRANCH_SUMMARY.value, text, {"left_entry_id": head_id}, entry_id, made_id
        )
        return Moved(entry.entry_id, entry.seq, _message(entry))

    return restructure(owner, change)


def _turn(standing: Standing, target: AgentMessage, written: str = "") -> None:
    """written: the id of the branch summary that comes with it."""
    SessionBranch.objects.create(
        session_row=standing.row, kind=Kind.NAVIGATE, at_seq=standing.last, target_pk=target.session_row_id,
        target_seq=target.seq, target_entry_id=target.entry_id, entry_id=written, trace_id=current_trace_id(),
    )  # fmt: skip


def _repeats(owner: Owner, pk: int, seq: int, entry_id: str, summary: str | None, summarised: bool) -> bool:
    """Whether the head is the branch summary that the same call has written before (its answer was lost)."""
    if pk != owner.pk or not (summary or summarised):
        return False
    head = AgentMessage.objects.filter(session_row_id=pk, seq=seq).first()
    return (
        head is not None
        and head.entry_type == EntryType.BRANCH_SUMMARY
        and head.parent_entry_id == entry_id
        and (summary is None or head.content == summary)
    )


def _abandoned(old: Path, new: Path) -> list[Message]:
    """What the old path shows and the new one does not lead through; the newest REACH of it."""
    spans = less(old.view, new.full)
    oldest = along(spans, "seq", limit=REACH)
    above = oldest[-1][0] - 1 if len(oldest) == REACH else 0
    return [head_message(row) for row in upward(spans, above=above)]


def _message(entry: Entry) -> Message:
    return Message(
        entry.entry_id, entry.seq, entry.role, entry.content, entry.payload, to_micros(entry.created_at), 0,
        entry.entry_type,
    )  # fmt: skip


# --- compact ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compacted:
    """covered: how many messages the compaction entry stands for; 0: there was nothing to condense, and no entry."""

    covered: int
    entry: Message | None = None
    first_kept_entry_id: str | None = None


def compact(
    *, caller: Caller, session_id: str, keep: int | None = None, summary: str | None = None, entry_id: str | None = None
) -> Compacted:
    """Condenses a conversation: a `compaction` entry stands in place of all that is shown but the last messages.

    keep: how many messages stay, the window's size if not given; more where the first of them would be the results of
    a tool call that goes. summary: the entry's text; if not given the summariser makes it, of the former compaction
    too. entry_id: the entry's id; a repeat answers the entry that the first call made, one with another wish is 409.
    Nothing is deleted: `view=full` shows everything, and `navigate` leads back to it.
    Cost: see `restructure`. Errors: those of `admit`; INVALID_REQUEST, INVALID_ID (422), ENTRY_CONFLICT (409),
    SESSION_DELETED; RedisUnavailable where Redis is away and some of what it would cover may still be queued.
    """
    refuse_inside_transaction("compact")
    owner = admit(caller, session_id, "write")
    asked = keep
    keep = limits.windows[owner.agent] if keep is None else keep
    if not 0 <= keep <= WINDOW_MOST:
        raise DomainError("INVALID_REQUEST", f"keep {keep} is outside 0..{WINDOW_MOST}")
    _checked_summary(summary)
    if entry_id is not None:
        check_id("entry_id", entry_id)
    made_id = entry_id or made_entry_id()

    def change(standing: Standing) -> Compacted:
        if entry_id is not None:
            there = on_path(owner, [entry_id]).get(entry_id)
            if there is not None:
                return _made_before(owner, there, asked, summary)
        path = standing.path
        kept = whole_window(path, keep) if keep else []
        first = None
        if kept:
            row = AgentMessage.objects.only("seq", "session_row_id", "entry_id").get(pk=kept[-1][2] or 0)
            first = (row.seq, row.session_row_id, row.entry_id)
        below = first[0] if first else END
        left = [head_message(row) for row in _shown_before(path, below)]
        covered = _count(path, below)
        # It stands for what MySQL has: nothing that is queued may lie among it, or after it, and be hidden unread.
        sure = covered and first is not None and count_between(path.view, 0, below - 1) == covered
        if not (standing.whole or sure):
            raise RedisUnavailable("what is to be condensed may be queued in Redis, which is away")
        if not covered:
            return Compacted(0)
        pin = pinned(path)
        text = summary or summarise(pin.content if pin else "", left) or "…"
        parent = head_of(path)[0]
        payload = {"covered": covered, "first_kept_entry_id": first[2] if first else "", "keep": keep}
        entry = standing.write(owner, EntryType.COMPACTION.value, text, payload, parent, made_id)
        SessionBranch.objects.create(
            session_row=standing.row, kind=Kind.COMPACT, at_seq=entry.seq,
            target_pk=first[1] if first else owner.pk, target_seq=first[0] if first else entry.seq,
            target_entry_id=first[2] if first else "", entry_id=made_id, covered=covered, trace_id=current_trace_id(),
        )  # fmt: skip
        return Compacted(covered, _message(entry), first[2] if first else None)

    return restructure(owner, change)


def _made_before(owner: Owner, there: AgentMessage, keep: int | None, summary: str | None) -> Compacted:
    """The answer to a repeat. Errors: ENTRY_CONFLICT where it is none: another entry, or another wish."""
    row = AgentMessage.objects.get(pk=there.pk)
    turn = SessionBranch.objects.filter(session_row_id=owner.pk, kind=Kind.COMPACT, entry_id=row.entry_id).first()
    if turn is None:
        raise DomainError("ENTRY_CONFLICT", f"entry {row.entry_id!r} exists in this session and is no compaction")
    if (keep is not None and keep != (row.payload or {}).get("keep")) or summary not in (None, row.content):
        raise DomainError("ENTRY_CONFLICT", f"compaction {row.entry_id!r} was made with another keep or summary")
    return Compacted(turn.covered, _message(entry_of_row(row)), turn.target_entry_id or None)


def _shown_before(path: Path, below: int) -> Sequence[AgentMessage]:
    oldest = along(path.view, "seq", limit=REACH, before=below)
    above = oldest[-1][0] - 1 if len(oldest) == REACH else 0
    return list(upward(path.view, above=above, below=below))


def _count(path: Path, below: int) -> int:
    total = 0
    for pk, first, last in path.view:
        total += AgentMessage.objects.filter(session_row_id=pk, seq__gte=first, seq__lte=min(last, below - 1)).count()
    return total


# --- fork ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forked:
    """owner: the new session. entry_id, seq: the last entry that it shares. created: False for a repeat."""

    owner: Owner
    entry_id: str
    seq: int
    created: bool
    created_at: datetime


def fork(*, caller: Caller, session_id: str, entry_id: str | None = None, new_session_id: str | None = None) -> Forked:
    """Opens a new session, of the same agent, actor and customer, that goes on from an entry of this one.

    It shares everything up to that entry; nothing is copied, and neither session sees what the other goes on to say.
    Its numbers go on from that entry's. entry_id: the head if not given. new_session_id: made by us if not given; a
    repeat with the same id and entry answers the same session.
    Cost: see `restructure`, and 2 queries and 3 round trips for the new session. Errors: those of `admit`;
    ENTRY_NOT_FOUND (404), EMPTY_SESSION (409: nothing to go on from), SESSION_CONFLICT (409: the id is another
    session's), FORK_TOO_DEEP (409), INVALID_ID (422), SESSION_DELETED (410).
    """
    refuse_inside_transaction("fork")
    owner = admit(caller, session_id, "write")
    if entry_id is not None:
        check_id("entry_id", entry_id)
    if new_session_id is not None:
        check_session_id(new_session_id)
        if new_session_id == session_id:
            raise DomainError("SESSION_CONFLICT", "a session cannot be forked into itself")
    authorize(caller, Resource.SESSION, "write", object_id=new_session_id or "", owner_id=caller.actor_id)
    made_id = new_session_id or new_id()

    def change(standing: Standing) -> tuple[AgentSession, str, int, bool]:
        if entry_id is None:
            head_id, pk, seq = head_of(standing.path)
            if not head_id:
                raise DomainError("EMPTY_SESSION", "the session has no entry to go on from")
        else:
            target = _find(owner, standing.tree, entry_id)
            head_id, pk, seq = target.entry_id, target.session_row_id, target.seq
        chain = [(owner.pk, END), *owner.lineage]
        place = [of for of, _ in chain].index(pk)
        lineage = [[pk, seq], *([of, up_to] for of, up_to in chain[place + 1 :])]
        if len(lineage) > MAX_LINEAGE:
            raise DomainError("FORK_TOO_DEEP", f"forks of forks share at most {MAX_LINEAGE} sessions")
        there = AgentSession.objects.filter(tenant=owner.tenant, session_id=made_id).first()
        if there is not None:
            return _same_fork(caller, there, lineage, head_id, exact=entry_id is not None), head_id, seq, False
        row = AgentSession.objects.create(
            tenant=owner.tenant, session_id=made_id, agent=owner.agent, actor_id=owner.actor_id,
            customer_id=owner.customer_id, lineage=lineage, forked_from=head_id, seq_ceiling=seq, lease_from=seq + 1,
        )  # fmt: skip
        return row, head_id, seq, True

    row, head_id, seq, created = restructure(owner, change, moves=False)
    if not created:
        head_id, seq = row.forked_from, row.lineage[0][1]
    made = remember(row)
    if created:
        try:
            reopen(made)
        except RedisUnavailable:
            outage.note("sessions forked")  # the first use in Redis will open them there
    return Forked(made, head_id, seq, created, row.created_at)


def _same_fork(
    caller: Caller, row: AgentSession, lineage: list[list[int]], head_id: str, *, exact: bool
) -> AgentSession:
    """The session of a repeated call. Where no entry was named, the head may have moved since."""
    if row.erased_at is not None:
        raise customer_erased()
    if (row.agent, row.actor_id) != (caller.agent, caller.actor_id):
        raise refuse(caller, "NOT_OWNER", Resource.SESSION.value, row.session_id, NOT_YOURS)
    if row.deleted_at is not None:
        raise DomainError("SESSION_DELETED")
    same = row.lineage == lineage and row.forked_from == head_id
    if not same and (exact or not row.lineage or row.lineage[0][0] != lineage[0][0]):
        raise DomainError("SESSION_CONFLICT", f"session {row.session_id!r} exists and is not this fork")
    return row
