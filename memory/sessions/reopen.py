"""Bringing a session's state into Redis, numbering ranges, and catching up after an outage.

What is true of a session is what MySQL has plus what the stream still holds. Redis's window, ids and numbering are
made from these two whenever Redis has nothing, or may have less than MySQL (`detached_at`), or has been restarted
(it may have lost its newest writes).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime

from django.conf import settings
from django.db import transaction
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.clock import now, to_micros
from config.base.db import refuse_inside_transaction, retry_conflicts
from config.base.errors import DomainError
from config.base.redis import RUN_ID, RedisUnavailable, Script
from memory.sessions.entries import COMMITTED, QUEUED, Entry, may_be_made, read_entry, receipt_value, window_item
from memory.sessions.gone import deleted, refuse_gone
from memory.sessions.healing import healed, is_damage
from memory.sessions.keys import EPOCH
from memory.sessions.limits import limits
from memory.sessions.models import AgentMessage, AgentSession
from memory.sessions.numbering import given, new_epoch, note_given_up
from memory.sessions.outage import outage
from memory.sessions.owners import Owner, owner_of_row
from memory.sessions.paths import head_behind, lowest, not_in_mysql, shared_ids, tree_of, window_of
from memory.sessions.tree import Path, within

logger = logging.getLogger(__name__)

_observe = Script.beside(__file__, "observe")
_open = Script.beside(__file__, "open")
_lease = Script.beside(__file__, "lease")
_detach = Script.beside(__file__, "detach")
_close = Script.beside(__file__, "close")
_mine = Script.beside(__file__, "mine")

# Entry ids that a reopened session knows without asking MySQL; the hash stays in its compact encoding (512 fields).
IDS_REFILL = 400
_SCAN_ENTRIES = 2000
_SCAN_BYTES = 16 * 1024 * 1024


def undrained(owner: Owner, *, shared: bool = False) -> Iterator[Entry]:
    """What of this session the stream still holds. Reads the whole stream, which holds only what is not yet in MySQL:
    normally the traffic of a second. Unreadable entries are left to the drain.

    shared: also what it shares with the sessions that it was forked from. A fork may begin before all of that is in
    MySQL: where Redis was away, or where a message was committed ahead of ones that were queued before it.
    Whoever also reads MySQL must read this first: an entry leaves the stream only after its commit.
    """
    client = base_redis.state()
    start = "-"
    up_to = dict(owner.lineage) if shared else {}
    while start:
        try:
            start, flat = _mine(client, [owner.pending], [owner.ident, start, _SCAN_ENTRIES, _SCAN_BYTES, *up_to])
        except ResponseError as error:
            if not is_damage(error):
                raise
            # No state of the session is to blame, and none that is made again would help.
            raise RedisUnavailable("the queue in Redis is no stream; see manage.py reconcile") from error
        for stream_id, ident, digest, trace_id, body, parent in zip(*[iter(flat)] * 6, strict=True):
            try:
                entry = read_entry(stream_id, {"k": ident, "g": digest, "x": trace_id, "m": body, "p": parent})
            except (ValueError, KeyError, TypeError, RecursionError, DomainError):
                continue
            if entry.session_pk == owner.pk or entry.seq <= up_to.get(entry.session_pk, 0):
                yield entry


def locked(owner: Owner) -> AgentSession:
    """The session's row, locked until the transaction ends. Errors: SESSION_NOT_FOUND, SESSION_DELETED,
    CUSTOMER_ERASED."""
    return refuse_gone(AgentSession.objects.select_for_update().filter(pk=owner.pk).first())


_Receipt = tuple[str, int, datetime, str, str]  # entry id, number, time, state, digest
# The row, the last number before the range, the window, receipts, the first number, whether these are all receipts,
# how many turns the session's path has, whether it was open before, what the next message follows (see `head_behind`).
_Made = tuple[AgentSession, int, list[Entry], list[_Receipt], int | None, bool, int, bool, str]


def _lowest(
    path: Path, newest: Sequence[Entry], whole: bool, receipts: Sequence[_Receipt], queued: Sequence[Entry]
) -> int:
    """The number of the first entry that leads to the head; no query where a short session has all of it at hand."""
    numbers = [entry.seq for entry in newest]
    if not path.branched and whole:
        return min([*numbers, *(seq for _, seq, *_ in receipts)])
    numbers += [entry.seq for entry in queued if within(path.full, entry.session_pk, entry.seq)]
    found = lowest(path)
    return min(numbers if found is None else [*numbers, found])


def range_after(row: AgentSession, origin: str, last: int, seen_seq: int) -> int:
    """Chooses the numbers that Redis goes on with; gives back the last one used before them. Changes `row`.

    seen_seq: the last number that Redis's state of the session names, 0 where there is none.

    The same Redis goes on in its range, without a gap. Where the queue alone was lost, the numbers of its messages are
    still known from the session's state or from what this process answered: they are not given twice, and
    `reconcile` finds them empty. Any other Redis may have lost queued messages, so it starts above every number that
    was ever leased.
    """
    if row.lease_epoch == origin and row.lease_to:
        answered = (seen_seq, given.highest(row.pk))
        last = max([last, *(seq for seq in answered if row.lease_from <= seq <= row.lease_to)])
        if row.lease_from - 1 <= last < row.lease_to:
            return last
    note_given_up(row, origin, seen_seq, given.highest(row.pk))
    start = row.seq_ceiling
    row.lease_from, row.lease_to = start + 1, start + settings.SESSION_SEQ_LEASE
    row.seq_ceiling = row.lease_to
    row.lease_epoch = origin
    return start


def observe(owner: Owner) -> tuple[str, str, str, str, str]:
    """What Redis has of a session: epoch, run id, gen, last number, state (observe.lua). Errors: RedisUnavailable."""
    arguments = [
        RUN_ID, new_epoch(), settings.SESSION_MAX_AGE_SECONDS * 1_000_000, min(60, settings.SESSION_TTL_SECONDS),
    ]  # fmt: skip
    found: tuple[str, str, str, str, str] = tuple(_observe(base_redis.state(), [owner.keys[0], EPOCH()], arguments))
    return found


@healed
def reopen(owner: Owner) -> bool:
    """Makes Redis's state of a session from MySQL and the stream, unless somebody else has meanwhile.

    Steps: 1. see what Redis has; 2. lock the row, so that no append past Redis takes numbers meanwhile; 3. read the
    stream, then MySQL (in this order: an entry is in one of them); 4. take a range, commit; 5. write it to Redis if
    it is still as it was seen in 1. Returns whether a clean context was opened by this call.
    Cost: 3 Redis round trips, 6 queries (more where a former range is given up, or the path has branches).
    Errors: SESSION_NOT_FOUND, SESSION_DELETED, RedisUnavailable.
    """
    refuse_inside_transaction("what opens a session in Redis")
    client = base_redis.state()
    ctx, msgs, ids = owner.keys
    epoch, run_id, gen, seen_seq, state = observe(owner)
    if state == "live":
        return False
    if state == "deleted":
        raise deleted(owner.pk)

    origin = f"{epoch}.{run_id}"[:64]

    def work() -> _Made:
        with transaction.atomic(durable=True):
            row = locked(owner)
            waiting = list(undrained(owner, shared=True))
            queued = [entry for entry in waiting if entry.session_pk == owner.pk]
            shared = not_in_mysql([entry for entry in waiting if entry.session_pk != owner.pk])
            tree = tree_of(owner)
            path = tree.head()
            mine = AgentMessage.objects.filter(session_row_id=owner.pk)
            stored = list(
                mine.order_by("-seq").values_list("entry_id", "seq", "created_at", "digest")[: IDS_REFILL + 1]
            )
            # Of what a fork shares the ids are known too: a repeat of one is a repeat.
            theirs = shared_ids(owner, tree, IDS_REFILL + 1 - len(stored)) if len(stored) <= IDS_REFILL else []
            whole = len(stored) + len(theirs) <= IDS_REFILL
            in_mysql = {entry_id for entry_id, *_ in stored}
            queued = [entry for entry in queued if entry.entry_id not in in_mysql]
            if len(stored) > IDS_REFILL and queued:
                older = set(
                    mine.filter(entry_id__in=[entry.entry_id for entry in queued]).values_list("entry_id", flat=True)
                )
                queued = [entry for entry in queued if entry.entry_id not in older]
            receipts = [(entry_id, seq, at, COMMITTED, digest) for entry_id, seq, at, digest in (*theirs, *stored)]
            receipts += [(e.entry_id, e.seq, e.created_at, QUEUED, e.digest) for e in shared]
            receipts += [(e.entry_id, e.seq, e.created_at, QUEUED, e.digest) for e in queued]
            last = max([row.lease_from - 1, tree.last_turn, *(seq for _, seq, *_ in receipts)])
            newest = window_of(path, limits.windows[owner.agent], [*shared, *queued])
            start = range_after(row, origin, last, int(seen_seq or 0))
            again = row.opened_at is not None
            row.opened_at = now()
            row.save(update_fields=["seq_ceiling", "lease_from", "lease_to", "lease_epoch", "opened_at"])
            first = None if not newest else _lowest(path, newest, whole, receipts, [*shared, *queued])
            return row, start, newest, receipts, first, whole, tree.turn_count, again, head_behind(path, newest)

    row, last, newest, receipts, first, whole, turn, again, head = retry_conflicts(work)
    items = [window_item(entry, owner.born_us) for entry in newest]
    pairs: list[str] = []
    for entry_id, seq, at, receipt_state, digest in receipts:
        if not may_be_made(entry_id):
            pairs += [entry_id, receipt_value(seq, to_micros(at), receipt_state, digest)]
    answer = _open(
        client,
        [ctx, msgs, ids, EPOCH()],
        [
            RUN_ID, run_id, epoch, gen, seen_seq, secrets.token_hex(4),
            "1" if state == "behind" else "2" if again else "0",
            settings.SESSION_TTL_SECONDS, owner.actor_id, owner.tenant, last, row.lease_to,
            "" if first is None else first, "1" if whole else "0", turn, head, len(items), *items, *pairs,
        ],
    )  # fmt: skip
    if answer == "DELETED":
        raise deleted(owner.pk)
    if answer == "OK" and row.detached_at is not None:
        # What was detached is in what was just written; a later append past Redis has set another time.
        clear_mark(row.pk, row.detached_at)
    return bool(answer == "OK" and state != "behind")


def lease(owner: Owner, *, ceiling: int, origin: str, needed: int, room: int = 0) -> None:
    """Leases the next range of numbers to Redis, when its present one ends at `ceiling`.

    needed: numbers that the batch at hand takes. room: how many there must be, after others have taken theirs.
    origin: the Redis that asks, as `lease_epoch` names it: a range leased to another is never handed on.
    The raise is committed before Redis hears of it. A range that somebody raised for this Redis already is handed on
    as it is. Where nobody numbered past Redis meanwhile, the range simply grows.
    Cost: 1 round trip, 2 queries, once in SESSION_SEQ_LEASE messages.
    """

    def work() -> AgentSession:
        with transaction.atomic(durable=True):
            row = locked(owner)
            more = max(settings.SESSION_SEQ_LEASE, needed, room)
            if row.lease_epoch != origin or row.lease_to != row.seq_ceiling:
                # The batch did not fit: Redis has used all but fewer numbers than it needs.
                note_given_up(row, origin, ceiling - needed + 1, given.highest(row.pk))
                row.lease_from, row.lease_to = row.seq_ceiling + 1, row.seq_ceiling + more
            elif row.lease_to < ceiling + max(needed, room):
                row.lease_to += more
            else:
                return row
            row.lease_epoch = origin
            row.seq_ceiling = row.lease_to
            row.save(update_fields=["seq_ceiling", "lease_from", "lease_to", "lease_epoch"])
            return row

    row = retry_conflicts(work)
    _lease(base_redis.state(), [owner.keys[0]], [RUN_ID, row.lease_from, row.lease_to])


# --- after an outage --------------------------------------------------------------------------------------------


class _Suspicion:
    """Per process: whether Redis was away and sessions may have gone on in MySQL since."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raised = 1  # a new process knows nothing of what happened before it
        self._cleared = 0

    def raise_(self) -> None:
        with self._lock:
            self._raised += 1

    @property
    def level(self) -> int:
        return 0 if self._raised == self._cleared else self._raised

    def clear(self, level: int) -> None:
        with self._lock:
            if self._raised == level:
                self._cleared = level


suspicion = _Suspicion()
base_redis.on_outage(suspicion.raise_)


def ensure_attached() -> None:
    """Before Redis's state of any session is used: catch up if this process saw Redis away. Free otherwise.

    Errors: RedisUnavailable, and the database's own when it cannot tell what Redis missed (closed).
    """
    level = suspicion.level
    if level:
        base_redis.breaker.check()
        reattach()
        suspicion.clear(level)


def clear_mark(pk: int, seen: datetime | None) -> int:
    """Takes the mark off if it is still the one that was seen; returns how many (0 or 1)."""
    # By the index on detached_at this meets the row from the other side than an append past Redis does.
    return retry_conflicts(lambda: AgentSession.objects.filter(pk=pk, detached_at=seen).update(detached_at=None))


def close_in_redis(owner: Owner) -> None:
    """A deleted session's keys. Errors: RedisUnavailable."""
    _close(base_redis.state(), owner.keys, [settings.SESSION_TTL_SECONDS])


def take_out_of_use(owner: Owner) -> None:
    """Redis's state of a session is made again before its next use; its context stays. Errors: RedisUnavailable."""
    _detach(base_redis.state(), owner.keys, [secrets.token_hex(4)])


def reattach(*, batch: int = 1000) -> int:
    """Takes Redis's outdated state of sessions out of use: those that went on in MySQL while it was away.

    Harmless at any time and from many processes: state that is taken out is made again from MySQL and the stream.
    Returns how many. Errors: RedisUnavailable (the rest stays marked).
    """
    done = 0
    while True:
        rows = list(AgentSession.objects.filter(detached_at__isnull=False).order_by("pk")[:batch])
        for row in rows:
            owner = owner_of_row(row)
            if row.deleted_at is not None:
                close_in_redis(owner)
            else:
                take_out_of_use(owner)
            # Conditional: an append past Redis that came meanwhile has set another time, and stays marked.
            done += clear_mark(row.pk, row.detached_at)
        if len(rows) < batch:
            break
    if outage.open:
        with base_redis.translated():
            base_redis.state().ping()  # nothing may have been to do, and then Redis was not asked
        outage.end()
    return done
