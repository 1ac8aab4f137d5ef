"""From the stream into MySQL: group `persist`, batches by count, size and age, acknowledged after the commit.

While MySQL stores one batch, Redis makes the next one ready: its call is sent before the INSERT and read after the
commit, and takes along the acknowledgement of the batch before. So up to two batches are held at a time.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from django.conf import settings
from django.db import DatabaseError

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.ids import ID_PATTERN
from config.base.redis import Script
from memory.sessions.entries import Entry, read_entry, read_parts, stream_ident
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
# A batch is read by its count alone only so long after the stream was measured, s: newer entries were not.
MEASURED_SECONDS = 0.25
# How often a drain that lingers looks again, s: the age of a batch at most. More often would be more commits.
LOOK_SECONDS = 0.2

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


_FIELDS = ["k", "g", "x", "m", "p"]
_FAULTS = (ValueError, KeyError, TypeError, RecursionError, OverflowError, DomainError)


@dataclass
class _Hand:
    """What was taken: messages, and what is none (id, fields, fault). more: the stream may hold more than that.
    by_count: the next batch may be read by a command of its own (take.lua says when). asked: when, s."""

    more: bool
    by_count: bool
    asked: float
    ids: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    unreadable: list[tuple[str, dict[str, str], str]] = field(default_factory=list)

    def add(self, stream_id: str, parts: Sequence[str]) -> None:
        """An entry's fields k, g, x, m and p."""
        self.ids.append(stream_id)
        try:
            self.entries.append(read_parts(stream_id, *parts))
        except _FAULTS as error:
            self.unreadable.append((stream_id, dict(zip(_FIELDS, parts, strict=True)), type(error).__name__))

    def add_fields(self, stream_id: str, flat: Sequence[str]) -> None:
        """An entry of whatever fields."""
        self.ids.append(stream_id)
        fields = dict(zip(flat[::2], flat[1::2], strict=False))
        try:
            self.entries.append(read_entry(stream_id, fields))
        except _FAULTS as error:
            self.unreadable.append((stream_id, fields, type(error).__name__))


class _Queue:
    """The stream, as one drain sees it."""

    def __init__(self, entries: int = BATCH_ENTRIES, size: int = BATCH_BYTES, idle_ms: int = IDLE_MS) -> None:
        # What is not UTF-8 is poison like any other, and must not stop the reading of the rest.
        self._client = base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")
        self._keys = [PENDING()]
        self._most = entries
        self._limits = [GROUP, CONSUMER, entries, size, idle_ms]
        self._read_new = ("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", entries, "STREAMS", *self._keys, ">")

    def take(self, settled: Sequence[str] = ()) -> _Hand:
        """Lets go of what is settled and takes the next batch. 1 round trip. Errors: RedisUnavailable."""
        asked = time.monotonic()
        return self._read(asked, _take(self._client, self._keys, [*self._limits, 0, 0, *settled]))

    @contextmanager
    def next(self, hand: _Hand, settled: Sequence[str]) -> Iterator[Callable[[], _Hand]]:
        """The same, on its way while the block does something with what is in hand; gives what waits for it."""
        asked = time.monotonic()
        held = set(hand.ids)
        by_count = hand.by_count and asked - hand.asked < MEASURED_SECONDS
        args = [*self._limits, int(by_count), len(held), *settled]
        with _take.ahead(self._client, self._keys, args, self._read_new if by_count else ()) as underway:
            yield lambda: self._read(asked, *underway.answer(), held=held)

    def settle(self, ids: Sequence[str]) -> None:
        """1 round trip. Errors: RedisUnavailable."""
        _settle(self._client, self._keys, [GROUP, len(ids), *ids])

    def _read(self, asked: float, answer: Any, new: Any = None, held: Collection[str] = ()) -> _Hand:
        """new: what the command answered. held: what this drain has in hand; a slow database may make it seem a dead
        drain's, and it comes a second time."""
        more, flat, others, by_count = answer
        hand = _Hand(more == "1", by_count == "1", asked)
        for stream_id, *parts in zip(*[iter(flat)] * 6, strict=True):
            if stream_id not in held:
                hand.add(stream_id, parts)
        for stream_id, fields in zip(others[::2], others[1::2], strict=True):
            if stream_id not in held:
                hand.add_fields(stream_id, fields)
        # An error: the group is gone, and a full server has not let the script make it; the script has read without.
        if isinstance(new, list):
            ((_, entries),) = new
            for stream_id, fields in entries:
                if stream_id in held:  # of a group that was made anew
                    continue
                if fields[::2] == _FIELDS:
                    hand.add(stream_id, fields[1::2])
                else:
                    hand.add_fields(stream_id, fields)
            hand.more = hand.more or len(entries) >= self._most
        return hand


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


def _bring(hand: _Hand, total: Drained) -> list[str]:
    """Writes what is in hand, each once (persist), and buries what cannot be a message, so that it holds up nobody.

    Returns the stream ids that may be settled now; the texts are let go of.
    Cost: see `persist`. Errors: DatabaseError.
    """
    outcome = persist(hand.entries)
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
    for stream_id, fields, detail in hand.unreadable:
        tenant, session_id = _whose(fields)
        bury(
            stream_id=stream_id,
            reason=Reason.UNREADABLE,
            raw=json.dumps(fields),
            detail=detail,
            tenant=tenant,
            session_id=session_id,
        )
    total.stored += len(outcome.stored)
    total.known += len(outcome.known)
    total.dead += len(outcome.dead) + len(hand.unreadable)
    total.erased += len(outcome.erased)
    total.batches += 1
    hand.entries.clear()
    hand.unreadable.clear()
    return hand.ids


def drain_batch(*, entries: int = BATCH_ENTRIES, size: int = BATCH_BYTES, idle_ms: int = IDLE_MS) -> Drained:
    """Takes one batch to MySQL; `total` is 0 when there is nothing to take.

    Steps: 1. take entries: those of dead drains first, then new ones; 2. write them, and bury what is no message;
    3. acknowledge and remove from the stream. Dying before 3 is harmless: the entries are taken again and found in
    MySQL. Cost: 2 round trips (1 where there is nothing) and what `persist` costs.
    Errors: RedisUnavailable; DatabaseError when MySQL is away (the entries stay and are taken again).
    """
    queue, total = _Queue(entries, size, idle_ms), Drained()
    hand = queue.take()
    if hand.ids:
        queue.settle(_bring(hand, total))
    return total


def _never() -> bool:
    return False


def drain(
    *, seconds: float = 4.0, linger: float = 0.0, ending: Callable[[], bool] = _never, entries: int = BATCH_ENTRIES
) -> Drained:
    """Batches until the stream is empty or `seconds` are up. Several at once are harmless.

    linger: having emptied the stream, looks again each LOOK_SECONDS, until so many seconds after the start.
    ending: asked after each batch and each look; true ends the run.
    entries: how many make a batch at most.
    Cost: n batches take n + 1 round trips, one more where the last was full, and what `persist` costs each; a look
    that finds nothing takes 1. Errors: RedisUnavailable; a failing database ends the run (the entries are taken again
    when they are idle).
    """
    queue, total, began = _Queue(entries), Drained(), time.monotonic()

    def over() -> bool:
        return ending() or time.monotonic() - began >= seconds

    while True:
        try:
            _empty(queue, total, over)
        except DatabaseError as error:
            logger.error("drain stops: the database answers %s", type(error).__name__)
            return total
        left = linger - (time.monotonic() - began)
        if ending() or left <= 0:
            return total
        time.sleep(min(LOOK_SECONDS, left))


def _empty(queue: _Queue, total: Drained, over: Callable[[], bool]) -> None:
    """Batch after batch, until there is none or it is over.

    Dying anywhere loses nothing: what was taken and is not in MySQL is taken again when it has been idle; so is what
    is there already and was not let go of, and is found there.
    """
    done: list[str] = []  # in MySQL, and in the stream still
    hand = queue.take()
    try:
        while hand.ids:
            last = over()
            if hand.more and not last:
                with queue.next(hand, done) as arrived:
                    done = _bring(hand, total)
                    hand = arrived()
                if hand.ids:
                    continue
            else:
                done = [*done, *_bring(hand, total)]
            if last:
                break
            settled, done = done, []
            hand = queue.take(settled)
    finally:
        if done:
            queue.settle(done)


def backlog() -> int:
    """How many messages are not in MySQL yet. 1 round trip. Errors: RedisUnavailable."""
    with base_redis.translated():
        return int(cast(int, base_redis.state().xlen(PENDING())))
