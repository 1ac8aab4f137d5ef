"""Writes of the sessions: open, append, change the context, delete.

Each write states what it costs when the session is warm: open in Redis and known to this process. Tests hold it.
When Redis is away: appends and deletions go to MySQL, opening too; the context, which lives in Redis, is refused.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from django.db import DatabaseError, IntegrityError, InterfaceError, transaction
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.clock import from_micros, now
from config.base.db import is_hanging, refuse_inside_transaction, retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id, check_session_id, new_id
from config.base.redis import RedisUnavailable, Script
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize, refuse
from memory.erasure.tombstones import customer_erased
from memory.sessions.context import MAX_FIELD_BYTES, UNSET, Context, slot_field
from memory.sessions.direct import append_past_redis, entry_of
from memory.sessions.entries import (
    COMMITTED,
    QUEUED,
    STATE_NAME,
    Entry,
    Message,
    NewMessage,
    Prepared,
    Receipt,
    json_text,
    prepare,
    read_items,
    receipt_value,
)
from memory.sessions.hanging import database
from memory.sessions.healing import is_damage
from memory.sessions.hot import append_in_redis, read_window, run_context
from memory.sessions.keys import GROUP
from memory.sessions.limits import limits
from memory.sessions.models import AgentSession
from memory.sessions.numbering import given
from memory.sessions.outage import outage
from memory.sessions.owners import NOT_YOURS, Owner, admit, remember
from memory.sessions.paths import WINDOW_MOST
from memory.sessions.persist import persist
from memory.sessions.reopen import clear_mark, close_in_redis, ensure_attached, reopen, suspicion, undrained
from memory.sessions.selectors import begun_whole, page_from_mysql, with_whole

logger = logging.getLogger(__name__)

_settle = Script.beside(__file__, "settle")


# --- open and delete ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    owner: Owner
    created: bool


def open_session(*, caller: Caller, session_id: str | None = None, customer_id: str | None = None) -> Opened:
    """Opens a session of the caller's actor. The same id, owner and customer again answers the same session.

    session_id: made by us (UUIDv7) when not given. Cost: 3 queries and those of `reopen`, and 3 round trips; one of
    the three asks, for a new session only, whether its customer was erased.
    Errors: INVALID_ID (422), AUTH_403_SCOPE and NOT_OWNER (403), SESSION_CONFLICT (409), SESSION_DELETED and
    CUSTOMER_ERASED (410).
    """
    refuse_inside_transaction("open_session")
    if session_id is not None:
        check_session_id(session_id)
    if customer_id is not None:
        check_id("customer_id", customer_id)
    authorize(caller, Resource.SESSION, "write", object_id=session_id or "", owner_id=caller.actor_id)
    wanted = {"agent": caller.agent, "actor_id": caller.actor_id, "customer_id": customer_id or ""}

    def work() -> tuple[AgentSession, bool]:
        with transaction.atomic(durable=True):
            return AgentSession.objects.get_or_create(
                tenant=caller.tenant, session_id=session_id or new_id(), defaults=wanted
            )

    row, created = retry_conflicts(work, also=(IntegrityError,))
    if not created:
        if row.erased_at is not None:
            raise customer_erased()
        if (row.agent, row.actor_id) != (caller.agent, caller.actor_id):
            # Opening somebody else's session is what reading it is: refused the same way, and on record.
            raise refuse(caller, "NOT_OWNER", Resource.SESSION.value, row.session_id, NOT_YOURS)
        if row.customer_id != wanted["customer_id"]:
            raise DomainError("SESSION_CONFLICT", f"session {row.session_id!r} exists with another customer")
        if row.deleted_at is not None:
            raise DomainError("SESSION_DELETED")
    owner = remember(row)
    if created:
        try:
            ensure_attached()
            reopen(owner)
        except RedisUnavailable:
            outage.note("sessions opened")  # the first use in Redis will open them there
    return Opened(owner, created)


def delete_session(*, caller: Caller, session_id: str) -> None:
    """Ends a session: from now on it answers 410, and no write revives it. Its messages stay in MySQL until they are
    erased or pruned; what is queued of it is still drained. Deleting twice is harmless.

    Cost: 1 round trip, 3 queries. Errors: those of `admit`.
    """
    refuse_inside_transaction("delete_session")
    owner = admit(caller, session_id, "write")
    at = now()

    def work() -> int:
        with transaction.atomic(durable=True):
            # detached_at: should Redis not hear of it now, reattach tells it.
            rows = AgentSession.objects.select_for_update().filter(pk=owner.pk)
            if not rows.exists():
                raise DomainError("SESSION_NOT_FOUND")
            return rows.filter(deleted_at=None).update(deleted_at=at, detached_at=at)

    if not retry_conflicts(work):
        return
    try:
        close_in_redis(owner)
    except RedisUnavailable:
        suspicion.raise_()
    else:
        clear_mark(owner.pk, at)


# --- append -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Appended:
    """receipts: in the order of the batch. messages: the newest ones after it, when asked for, oldest first."""

    receipts: list[Receipt]
    messages: list[Message] | None = None


def append_messages(
    *,
    caller: Caller,
    session_id: str,
    messages: Sequence[NewMessage],
    durability: str = "async",
    read_last: int = 0,
) -> Appended:
    """Appends a batch: all of it or nothing, adjacent, numbered in order.

    Entries that the session has already (same entry id, same content) keep their first receipt; the new ones of the
    same batch are numbered next to each other. An id given twice in one batch with one content is one entry.
    A repeat whose receipt has said `queued` for over 10 s is looked for, in the stream and in MySQL (2 round trips and
    2 queries more, once): what was lost with the queue is queued again under its number. A repeat that comes sooner is
    answered from its receipt alone, at no cost, and would say `queued` of an entry that was lost in these seconds.
    durability: `async` is queued (in MySQL within 5 s); `sync` is in MySQL when this returns. Should MySQL fail after
    Redis took a sync batch, its receipts say `queued`: it is in the stream and will be drained.
    Where more than SESSION_BACKLOG_SYNC entries wait for the drain, async commits too: whoever writes pays, and the
    queue stops growing; from SESSION_BACKLOG_REFUSE on nothing new is taken. The script counts: no round trip more.
    read_last: also answer with so many of the newest messages (at most the window), in the same round trip.
    Cost, warm: async 1 round trip, 0 queries; sync 2 round trips, 2 queries.
    Redis away: committed in MySQL, above every number leased. An append whose answer was lost is sent there too, with
    the same entry ids: whichever way comes second finds the entry and drops out, and the receipt says MySQL's number.
    Not inside a transaction of the caller's (RuntimeError, as for every write of this room): what is queued stays
    where that is rolled back, and numbers are leased before they are used.
    Errors: see `prepare` and `admit`; ENTRY_CONFLICT (409), SESSION_DELETED (410), BACKLOG_FULL (503,
    `retry_after` s; a repeat of what is there is still answered).
    """
    refuse_inside_transaction("append_messages")
    if durability not in ("async", "sync"):
        raise DomainError("INVALID_REQUEST", f"durability {str(durability)[:40]!r} does not exist; use async or sync")
    owner = admit(caller, session_id, "write")
    prepared = prepare(messages)
    size = limits.windows[owner.agent]
    read_last = min(read_last, size)
    # All of it: what is before tells whether what is read would begin within a tool call's results.
    reach = WINDOW_MOST if read_last else 0
    try:
        reply, items = append_in_redis(owner, prepared, reach)
    except RedisUnavailable:
        receipts = append_past_redis(owner, prepared)
        return Appended(receipts, page_from_mysql(owner, limit=read_last, before=None).messages if read_last else None)
    receipts = _receipts(prepared, reply)
    given.note(owner.pk, receipts[-1].seq)
    if durability == "sync" or reply[4] > limits.backlog_sync:
        receipts = _commit(owner, prepared, reply, receipts)
    newest = None
    if read_last:
        try:
            newest = read_items(items, owner.born_us)
        except msgspec.DecodeError:
            newest = read_window(owner, reach)[2]
        if read_last < size:
            newest = begun_whole(newest, read_last)
        if any(message.cut for message in newest):
            newest = with_whole(owner, newest)
    return Appended(receipts, newest)


def _receipts(prepared: Sequence[Prepared], reply: Sequence[Any]) -> list[Receipt]:
    flat = reply[3]
    return [
        Receipt(one.entry_id, int(seq), STATE_NAME[place[1]] if place[0] == "=" else QUEUED)
        for one, seq, place in zip(prepared, flat[::3], flat[2::3], strict=True)
    ]


def _commit(owner: Owner, prepared: Sequence[Prepared], reply: Sequence[Any], receipts: list[Receipt]) -> list[Receipt]:
    """Puts what is only queued of a batch into MySQL now, and takes it out of the stream.

    Where the database fails it stays queued; where it hangs, the next ones stay queued without waiting (hanging.py).
    """
    entries: dict[str, Entry] = {}
    stream_ids: dict[str, str] = {}
    parent = reply[5]
    for n, one in enumerate(prepared):
        seq, at, place = reply[3][3 * n : 3 * n + 3]
        if place[0] == "=" or one.entry_id in entries:
            continue
        entries[one.entry_id] = entry_of(owner, one, int(seq), from_micros(int(at)), place, parent)
        stream_ids[one.entry_id] = place
        parent = one.entry_id
    for n, one in enumerate(prepared):
        if reply[3][3 * n + 2] == "=q" and one.entry_id not in entries:
            # The queue cannot be read now: these stay queued.
            with contextlib.suppress(RedisUnavailable):
                entries |= _queued_before(owner, prepared, reply)
            break
    if not entries or not database.may_try():
        return receipts
    try:
        outcome = persist(list(entries.values()))
    except (DatabaseError, InterfaceError) as error:
        if is_hanging(error):
            database.trip()
        logger.warning("sync append stays queued: %s", type(error).__name__)
        return receipts
    database.reset()
    if outcome.erased:
        raise customer_erased()
    numbers = {entry_id: seq for (_, entry_id), seq in outcome.numbers.items()}
    done = [entry for entry in entries.values() if entry.entry_id in numbers]
    marks: list[str] = []
    for entry in done:
        at = reply[3][3 * [one.entry_id for one in prepared].index(entry.entry_id) + 1]
        marks += [entry.entry_id, receipt_value(numbers[entry.entry_id], int(at), COMMITTED, entry.digest)]
    settled = [stream_ids[entry.entry_id] for entry in done if entry.entry_id in stream_ids]
    # Redis away now: committed all the same; the drain will find these entries in MySQL and drop them. So it is where
    # somebody has put something else in the queue's place since the script.
    try:
        _settle(base_redis.state(), [owner.pending, owner.keys[2]], [GROUP, len(settled), *settled, *marks])
    except RedisUnavailable:
        pass
    except ResponseError as error:
        if not is_damage(error):
            raise
    return [
        Receipt(one.entry_id, numbers[one.entry_id], COMMITTED) if one.entry_id in numbers else receipt
        for one, receipt in zip(prepared, receipts, strict=True)
    ]


def _queued_before(owner: Owner, prepared: Sequence[Prepared], reply: Sequence[Any]) -> dict[str, Entry]:
    """Entries of a batch that an earlier call queued, as the stream has them. One that is no longer there is in MySQL
    by now; or it was lost with the queue, and is put under its number again: that one was given to nobody else. What a
    fork shares is found in the stream or left to its own session."""
    waiting = {
        one.entry_id: (one, reply[3][3 * n], reply[3][3 * n + 1])
        for n, one in enumerate(prepared)
        if reply[3][3 * n + 2] == "=q"
    }
    floor = owner.lineage[0][1] if owner.lineage else 0
    found = {entry.entry_id: entry for entry in undrained(owner, shared=True) if entry.entry_id in waiting}
    for entry_id, (one, seq, at) in waiting.items():
        if entry_id not in found and int(seq) > floor:
            found[entry_id] = entry_of(owner, one, int(seq), from_micros(int(at)))
    return found


# --- context ------------------------------------------------------------------------------------------------------


def change_context(
    *,
    caller: Caller,
    session_id: str,
    expected: str | Sequence[str] | None = None,
    intent: Any = UNSET,
    step: Any = UNSET,
    last_tool_result: Any = UNSET,
    summary: Any = UNSET,
    slots: Mapping[str, Any] | None = None,
) -> Context:
    """Sets what is given and leaves the rest; None removes. Slots are merged name by name.

    summary: somebody's own, at most SESSION_SUMMARY_CHARS characters, in place of the one that is made of what leaves
    the window; what leaves later is added. None: it is made anew, by whoever reads the context next.
    expected: the version that must still be current, or several of which one must be.
    Cost, warm: 1 round trip, 0 queries.
    Errors: VERSION_CONFLICT (409, with `version`), INVALID_REQUEST (422), those of `admit`; RedisUnavailable (503):
    the context lives in Redis and is not pretended to be kept while it is away.
    """
    refuse_inside_transaction("change_context")
    owner = admit(caller, session_id, "write")
    wanted = () if expected is None else (expected,) if isinstance(expected, str) else tuple(expected)
    if expected is not None and not all(isinstance(version, str) and version for version in wanted or ("",)):
        # Nothing to compare with must never mean "whatever is there".
        raise DomainError("INVALID_REQUEST", "expected names no version")
    if not (summary is UNSET or summary is None or isinstance(summary, str)):
        raise DomainError("INVALID_REQUEST", f"summary is {type(summary).__name__}, not text")
    if isinstance(summary, str) and len(summary) > limits.summary_chars:
        # What is longer would be cut when the next message leaves the window, and nobody be told.
        raise DomainError(
            "INVALID_REQUEST", f"summary is {len(summary)} characters; the limit is {limits.summary_chars}"
        )
    sets: list[str] = []
    removed: list[str] = []
    given = {"intent": intent, "step": step, "last_tool_result": last_tool_result, "summary": summary}
    fields = {name: value for name, value in given.items() if value is not UNSET}
    for name, value in (slots or {}).items():
        fields[slot_field(name)] = value
    for field, value in fields.items():
        if value is None:
            removed.append(field)
            continue
        text, size = json_text(value, field)
        if size > MAX_FIELD_BYTES:
            raise DomainError("INVALID_REQUEST", f"{field} is {size} bytes; the limit is {MAX_FIELD_BYTES}")
        sets += [field, text]
    return run_context(owner, wanted, sets, removed)
