"""The calls of the hot path: one script each, and what must be done first when a session is not open in Redis."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from django.db import DatabaseError
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.clock import to_micros
from config.base.errors import DomainError
from config.base.redis import RUN_ID, RedisUnavailable, Script
from config.base.trace import current_trace_id
from memory.sessions.context import MAX_SLOTS, Context, read_context
from memory.sessions.entries import (
    COMMITTED,
    GIVEN_BACK,
    MADE,
    QUEUED,
    Message,
    Prepared,
    conflict,
    read_items,
    receipt_value,
)
from memory.sessions.folding import with_summary
from memory.sessions.gone import deleted
from memory.sessions.healing import broken_fields, heal_and_tell, healed
from memory.sessions.limits import limits
from memory.sessions.models import MessageDeadLetter
from memory.sessions.owners import NOT_YOURS, Owner
from memory.sessions.paths import on_path
from memory.sessions.reopen import ensure_attached, lease, reopen, take_out_of_use, undrained

logger = logging.getLogger(__name__)

_append = Script.beside(__file__, "append")
_context = Script.beside(__file__, "context")
_window = Script.beside(__file__, "window")

# Reopening and leasing make the next try work; more than a few tries mean that something undoes them each time.
ATTEMPTS = 12
_VERSION = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
# What append.lua is told of an entry whose receipt says that it is queued.
LOST, STILL = "3", "4"


def _common(owner: Owner) -> list[Any]:
    """The first four arguments of every script that includes admit.lua."""
    return [RUN_ID, owner.actor_id, limits.ttl, limits.max_age_us]


@healed
def append_in_redis(owner: Owner, prepared: Sequence[Prepared], read_last: int) -> tuple[list[Any], list[bytes]]:
    """The append script's answer (see there), after whatever it needs first, and the newest `read_last` window items.

    Errors: RedisUnavailable, also when the session cannot be got into Redis: MySQL is always right; BACKLOG_FULL.
    """
    client = base_redis.state()
    keys = (*owner.keys, owner.pending)
    ensure_attached()
    args = [
        RUN_ID, owner.actor_id, limits.ttl, limits.max_age_us, limits.windows[owner.agent], owner.ident,
        current_trace_id(), "0", limits.backlog_refuse, owner.born_us,
    ]  # fmt: skip
    for one in prepared:
        args += (one.entry_id, one.origin, one.digest, one.body, one.head)
    reading = ("LRANGE", owner.keys[1], -read_last, -1) if read_last else ()
    for attempt in range(ATTEMPTS):
        reply, items = _append.and_then(client, keys, args, reading) if reading else (_append(client, keys, args), [])
        code = reply[0]
        if code == "OK":
            if reading and (not items or isinstance(items, ResponseError)):
                # Deleted, expired or spoilt between the script and the reading: what the script did is done.
                items = window_in_redis(owner, read_last)[2]
            return reply, items
        if code == "MISS":
            reopen(owner)
            args[7] = "0"
        elif code == "LEASE":
            # Where others use up each new range before it is our turn, the next one is larger.
            room = len(prepared) << attempt
            lease(owner, ceiling=int(reply[1]), origin=reply[2], needed=len(prepared), room=room)
        elif code == "CHECK":
            _tell_ids(owner, prepared)
            args[7] = "1"
        elif code == "LATE":
            # Lua counts from 1.
            for place, found in _look_for(owner, {str(args[i - 1]): i - 1 for i in reply[1:]}):
                args[place + 1] = found
        elif code == "CONFLICT":
            raise conflict(reply[1])
        elif code == "FULL":
            raise DomainError("BACKLOG_FULL", f"{reply[1]} messages wait for the database", retry_after=5)
        else:
            raise refused(code, owner)
    raise RedisUnavailable("the session does not stay open in Redis")


def _look_for(owner: Owner, places: dict[str, int]) -> list[tuple[int, str]]:
    """What became of entries that were queued long ago: for each of these places in append.lua's arguments (by entry
    id) what the script is to be told of it. Those that MySQL has are marked so in `ids` and asked about no more.

    An entry that neither the stream nor MySQL nor a dead letter has was lost with the queue, and here it is again: it
    is queued under its number. MySQL away: they count as queued, as their receipts say.
    """
    waiting = {entry.entry_id for entry in undrained(owner, shared=True)} & set(places)
    late = sorted(set(places) - waiting)
    try:
        rows = on_path(owner, late)
        letters = MessageDeadLetter.objects.filter(tenant=owner.tenant, session_id=owner.session_id)
        buried = set(letters.filter(entry_id__in=late).values_list("entry_id", flat=True))
    except DatabaseError:
        return [(place, STILL) for place in places.values()]
    fields = {
        entry_id: receipt_value(row.seq, to_micros(row.created_at), COMMITTED, row.digest)
        for entry_id, row in rows.items()
    }
    _keep_receipts(owner, fields)
    lost = set(late) - set(rows) - buried
    if lost:
        logger.error("session %s: %s entries were lost with the queue and are queued again", owner.pk, len(lost))
    return [(place, LOST if entry_id in lost else STILL) for entry_id, place in places.items()]


def refused(code: str, owner: Owner) -> DomainError:
    """The error for a script's refusal."""
    if code == "DELETED":
        return deleted(owner.pk)
    if code == "OWNER":
        return DomainError("NOT_OWNER", NOT_YOURS)
    raise RuntimeError(f"unexpected answer {code!r} for session {owner.pk}")


def _tell_ids(owner: Owner, prepared: Sequence[Prepared]) -> None:
    """Puts receipts from the stream and MySQL into `ids`, so that the append finds them there like any other.

    The stream is read for ids that were once made: those have never been in `ids`. It is read first, for an entry
    leaves it only after its commit. The time to live is given at once: the hash may not have been there.
    """
    fields: dict[str, str] = {}
    made = {one.entry_id for one in prepared if one.origin == GIVEN_BACK}
    if made:
        for entry in undrained(owner, shared=True):
            if entry.entry_id in made:
                at_us = to_micros(entry.created_at)
                fields[entry.entry_id] = receipt_value(entry.seq, at_us, QUEUED, entry.digest)
    asked = [one.entry_id for one in prepared if one.origin != MADE]
    for entry_id, row in on_path(owner, asked).items():
        fields[entry_id] = receipt_value(row.seq, to_micros(row.created_at), COMMITTED, row.digest)
    _keep_receipts(owner, fields)


def _keep_receipts(owner: Owner, fields: dict[str, str]) -> None:
    if not fields:
        return
    with base_redis.translated():
        pipe = base_redis.state().pipeline(transaction=True)
        pipe.hset(owner.keys[2], mapping=fields)
        pipe.expire(owner.keys[2], limits.ttl)
        pipe.execute()


@healed
def run_context(owner: Owner, expected: Sequence[str], sets: Sequence[str], removed: Sequence[str]) -> Context:
    """One call of context.lua, after reopening where that is needed; with nothing to set it reads.

    expected: versions of which one must be current; none for any."""
    ensure_attached()
    # What cannot be a version is never current, and is not sent.
    asked = ",".join(version for version in expected if _VERSION.fullmatch(version)) or ("-" if expected else "")
    args = [
        *_common(owner), asked, MAX_SLOTS, len(sets) // 2, *sets, *removed,
    ]  # fmt: skip
    mended = False
    for _ in range(ATTEMPTS):
        reply = _context(base_redis.state(), owner.keys, args)
        code = reply[0]
        if code == "OK":
            try:
                return read_context(owner.session_id, with_summary(owner, *reply[1:]))
            except (ValueError, KeyError, OverflowError, RecursionError):
                # Somebody has written there by hand.
                if mended:
                    raise RedisUnavailable("the session's context cannot be read; see manage.py reconcile") from None
            heal_and_tell(owner, broken=broken_fields(dict(zip(reply[1][::2], reply[1][1::2], strict=True))))
            # What was to be changed has been changed: now it is only read.
            args, mended = [*_common(owner), "", MAX_SLOTS, 0], True
        elif code == "MISS":
            reopen(owner)
        elif code == "VERSION":
            raise DomainError(
                "VERSION_CONFLICT", f"the context is at version {reply[1]}, not the one named", version=reply[1]
            )
        elif code == "FULL":
            raise DomainError("INVALID_REQUEST", f"slots: more than {MAX_SLOTS} slots; remove some first")
        else:
            raise refused(code, owner)
    raise RedisUnavailable("the session does not stay open in Redis")


@healed
def window_in_redis(owner: Owner, count: int) -> tuple[int | None, int, list[bytes]]:
    """Number of the session's first message (None: it has none), its last number, its newest `count` items.

    Cost, warm: 1 round trip, 0 queries. Errors: RedisUnavailable, SESSION_DELETED.
    """
    ensure_attached()
    args = _common(owner)
    reading = ("LRANGE", owner.keys[1], -count, -1)
    empty = 0
    for _ in range(ATTEMPTS):
        reply, items = _window.and_then(base_redis.state(), owner.keys, args, reading)
        if isinstance(items, ResponseError):
            raise items  # to `healed`
        if reply[0] == "OK":
            if items or not reply[1]:
                return (int(reply[1]) if reply[1] else None), int(reply[2]), items
            # Deleted, expired or reopened between the script and the reading; or the list alone is gone.
            empty += 1
            if empty > 1:
                take_out_of_use(owner)
        elif reply[0] == "MISS":
            reopen(owner)
        else:
            raise refused(reply[0], owner)
    raise RedisUnavailable("the session does not stay open in Redis")


def read_window(owner: Owner, count: int) -> tuple[int | None, int, list[Message]]:
    """`window_in_redis` with the items read. An item that is no message has the window made again."""
    for attempt in range(2):
        first, last, items = window_in_redis(owner, count)
        try:
            return first, last, read_items(items, owner.born_us)
        except msgspec.DecodeError:
            if not attempt:
                logger.error("session %s: its window holds what is no message and is made again", owner.pk)
                take_out_of_use(owner)
    raise RedisUnavailable("the session's window cannot be read; see manage.py reconcile")
