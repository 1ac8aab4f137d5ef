"""The calls of the hot path: one script each, and what must be done first when a session is not open in Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from config.base import redis as base_redis
from config.base.clock import to_micros
from config.base.errors import DomainError
from config.base.redis import RUN_ID, RedisUnavailable, Script
from config.base.trace import current_trace_id
from memory.sessions.context import MAX_SLOTS, Context, read_context
from memory.sessions.entries import COMMITTED, GIVEN_BACK, MADE, QUEUED, Prepared, conflict, receipt_value
from memory.sessions.folding import with_summary
from memory.sessions.gone import deleted
from memory.sessions.limits import limits
from memory.sessions.owners import Owner
from memory.sessions.persist import existing
from memory.sessions.reopen import ensure_attached, lease, reopen, take_out_of_use, undrained

_append = Script.beside(__file__, "append")
_context = Script.beside(__file__, "context")
_window = Script.beside(__file__, "window")

# Reopening and leasing make the next try work; more than a few tries mean that something undoes them each time.
ATTEMPTS = 12


def _common(owner: Owner) -> list[Any]:
    """The first four arguments of every script that includes admit.lua."""
    return [RUN_ID, owner.actor_id, limits.ttl, limits.max_age_us]


def append_in_redis(owner: Owner, prepared: Sequence[Prepared], read_last: int) -> tuple[list[Any], list[bytes]]:
    """The append script's answer (see there), after whatever it needs first, and the newest `read_last` window items.

    Errors: RedisUnavailable, also when the session cannot be got into Redis: MySQL is always right; BACKLOG_FULL.
    """
    client = base_redis.state()
    keys = (*owner.keys, owner.pending)
    ensure_attached()
    args = [
        RUN_ID, owner.actor_id, limits.ttl, limits.max_age_us, limits.windows[owner.agent], owner.ident,
        current_trace_id(), "0", limits.backlog_refuse,
    ]  # fmt: skip
    for one in prepared:
        args += (one.entry_id, one.origin, one.digest, one.body, one.head)
    reading = ("LRANGE", owner.keys[1], -read_last, -1) if read_last else ()
    for attempt in range(ATTEMPTS):
        reply, items = _append.and_then(client, keys, args, reading) if reading else (_append(client, keys, args), [])
        code = reply[0]
        if code == "OK":
            if reading and not items:
                # Deleted or expired between the script and the reading.
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
        elif code == "CONFLICT":
            raise conflict(reply[1])
        elif code == "FULL":
            raise DomainError("BACKLOG_FULL", f"{reply[1]} messages wait for the database", retry_after=5)
        else:
            raise refused(code, owner)
    raise RedisUnavailable("the session does not stay open in Redis")


def refused(code: str, owner: Owner) -> DomainError:
    """The error for a script's refusal."""
    if code == "DELETED":
        return deleted(owner.pk)
    if code == "OWNER":
        return DomainError("NOT_OWNER", "the session belongs to another actor")
    raise RuntimeError(f"unexpected answer {code!r} for session {owner.pk}")


def _tell_ids(owner: Owner, prepared: Sequence[Prepared]) -> None:
    """Puts receipts from the stream and MySQL into `ids`, so that the append finds them there like any other.

    The stream is read for ids that were once made: those have never been in `ids`. It is read first, for an entry
    leaves it only after its commit. The time to live is given at once: the hash may not have been there.
    """
    fields: dict[str, str] = {}
    made = {one.entry_id for one in prepared if one.origin == GIVEN_BACK}
    if made:
        for entry in undrained(owner):
            if entry.entry_id in made:
                at_us = to_micros(entry.created_at)
                fields[entry.entry_id] = receipt_value(entry.seq, at_us, QUEUED, entry.digest)
    asked = [one.entry_id for one in prepared if one.origin != MADE]
    for entry_id, row in existing(owner.pk, asked).items():
        fields[entry_id] = receipt_value(row.seq, to_micros(row.created_at), COMMITTED, row.digest)
    if not fields:
        return
    with base_redis.translated():
        pipe = base_redis.state().pipeline(transaction=True)
        pipe.hset(owner.keys[2], mapping=fields)
        pipe.expire(owner.keys[2], limits.ttl)
        pipe.execute()


def run_context(owner: Owner, expected: str, sets: Sequence[str], removed: Sequence[str]) -> Context:
    """One call of context.lua, after reopening where that is needed; with nothing to set it reads."""
    ensure_attached()
    args = [
        *_common(owner), expected, MAX_SLOTS, len(sets) // 2, *sets, *removed,
    ]  # fmt: skip
    reopened = False
    for _ in range(ATTEMPTS):
        reply = _context(base_redis.state(), owner.keys, args)
        code = reply[0]
        if code == "OK":
            return read_context(owner.session_id, with_summary(owner, *reply[1:]), reopened)
        if code == "MISS":
            reopened = reopen(owner) or reopened
        elif code == "VERSION":
            raise DomainError(
                "VERSION_CONFLICT", f"the context is at version {reply[1]}, not {expected}", version=reply[1]
            )
        elif code == "FULL":
            raise DomainError("INVALID_REQUEST", f"slots: more than {MAX_SLOTS} slots; remove some first")
        else:
            raise refused(code, owner)
    raise RedisUnavailable("the session does not stay open in Redis")


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
