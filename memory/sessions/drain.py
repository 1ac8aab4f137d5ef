"""From the stream into MySQL: group `persist`, batches by count and size, acknowledged after the commit."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from typing import cast

from django.conf import settings
from django.db import DatabaseError

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.ids import ID_PATTERN
from config.base.redis import Script
from memory.sessions.entries import Entry, read_entry, stream_ident
from memory.sessions.keys import GROUP, PENDING
from memory.sessions.models import MessageDeadLetter
from memory.sessions.persist import bury, persist

logger = logging.getLogger(__name__)

_take = Script.beside(__file__, "take")
_settle = Script.beside(__file__, "settle")

BATCH_ENTRIES = 500
BATCH_BYTES = 8 * 1024 * 1024
# One name for all drains: who is idle too long counts as dead whatever its name, and dead names do not pile up.
CONSUMER = "drain"
# A drain that died is relieved after so long; one that is merely slow is relieved too, which is harmless.
IDLE_MS = 2000

Reason = MessageDeadLetter.Reason


@dataclass
class Drained:
    """What one run did. stored: new in MySQL. known: were there already. dead: moved to the dead letters. erased: given
    up, for their sessions were erased."""

    stored: int = 0
    known: int = 0
    dead: int = 0
    batches: int = 0
    erased: int = 0

    @property
    def total(self) -> int:
        return self.stored + self.known + self.dead + self.erased


def _read(taken: list[tuple[str, list[str]]]) -> tuple[list[Entry], list[tuple[str, dict[str, str], str]]]:
    entries: list[Entry] = []
    unreadable: list[tuple[str, dict[str, str], str]] = []
    for stream_id, flat in taken:
        fields = dict(zip(flat[::2], flat[1::2], strict=False))
        try:
            entries.append(read_entry(stream_id, fields))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError, DomainError) as error:
            unreadable.append((stream_id, fields, type(error).__name__))
    return entries, unreadable


def _raw(entry: Entry) -> str:
    ident = stream_ident(entry.session_pk, entry.tenant, entry.agent, entry.session_id)
    return json.dumps(
        {
            "ident": ident,
            "trace_id": entry.trace_id,
            "digest": entry.digest,
            "parent": entry.parent,
            "message": entry.raw,
        }
    )


def _whose(fields: dict[str, str]) -> tuple[str, str]:
    """Tenant and session of an entry that cannot be read, where it names them: so that the right people see it."""
    parts = fields.get("k", "").split(" ")
    if len(parts) == 4 and ID_PATTERN.match(parts[1]) and ID_PATTERN.match(parts[3]):
        return parts[1], parts[3]
    return "", ""


def drain_batch(*, entries: int = BATCH_ENTRIES, size: int = BATCH_BYTES, idle_ms: int = IDLE_MS) -> Drained:
    """Takes one batch to MySQL; `total` is 0 when there is nothing to take.

    Steps: 1. take entries: those of dead drains first, then new ones; 2. write them, each once (persist); 3. bury
    what cannot be a message, so that it holds up nobody; 4. acknowledge and remove from the stream.
    Dying before 4 is harmless: the entries are taken again and found in MySQL.
    Errors: RedisUnavailable; DatabaseError when MySQL is away (the entries stay and are taken again).
    """
    # What is not UTF-8 is poison like any other, and must not stop the reading of the rest.
    client = base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")
    pending = PENDING()
    flat = _take(client, [pending], [GROUP, CONSUMER, entries, size, idle_ms])
    taken = list(zip(flat[::2], flat[1::2], strict=True))
    if not taken:
        return Drained()
    readable, unreadable = _read(taken)
    outcome = persist(readable)
    for entry, reason in outcome.dead:
        bury(
            stream_id=entry.stream_id,
            reason=reason,
            raw=_raw(entry),
            tenant=entry.tenant,
            session_id=entry.session_id,
            entry_id=entry.entry_id,
            seq=entry.seq,
        )
    for stream_id, fields, detail in unreadable:
        tenant, session_id = _whose(fields)
        bury(
            stream_id=stream_id,
            reason=Reason.UNREADABLE,
            raw=json.dumps(fields),
            detail=detail,
            tenant=tenant,
            session_id=session_id,
        )
    stream_ids = [stream_id for stream_id, _ in taken]
    _settle(client, [pending], [GROUP, len(stream_ids), *stream_ids])
    return Drained(len(outcome.stored), len(outcome.known), len(outcome.dead) + len(unreadable), 1, len(outcome.erased))


def drain(*, seconds: float = 4.0) -> Drained:
    """Batches until the stream is empty or the time is up. Several at once are harmless.

    Errors: RedisUnavailable; a failing database ends the run (the entries are taken again when they are idle).
    """
    total = Drained()
    until = time.monotonic() + seconds
    while True:
        try:
            batch = drain_batch()
        except DatabaseError as error:
            logger.error("drain stops: the database answers %s", type(error).__name__)
            return total
        total.stored += batch.stored
        total.known += batch.known
        total.dead += batch.dead
        total.batches += batch.batches
        total.erased += batch.erased
        if not batch.batches or time.monotonic() >= until:
            return total


def backlog() -> int:
    """How many messages are not in MySQL yet. 1 round trip. Errors: RedisUnavailable."""
    with base_redis.translated():
        return int(cast(int, base_redis.state().xlen(PENDING())))
