"""What Redis, the stream and MySQL hold of sessions, side by side. In this order: what Redis showed of a session was
then in the stream or in MySQL, and an entry leaves the stream only after its commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from django.conf import settings
from django.db.models import Count, Max, Min, Q

from config.base import redis as base_redis
from config.base.redis import Script
from memory.sessions.judging import Lease, Span
from memory.sessions.keys import EPOCH, PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter, SessionNumbering
from memory.sessions.numbering import fate_of_lease
from memory.sessions.owners import Owner, owner_of_row

_census = Script.beside(__file__, "census")
_look = Script.beside(__file__, "look")

Kind = SessionNumbering.Kind
_PAGE = 5000
_SESSIONS_A_QUERY = 50


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    stream_id: str
    entry_id: str
    seq: int
    digest: str


@dataclass
class Stream:
    """by_ident: entries of each session. unreadable: places of entries that the drain will bury."""

    by_ident: dict[str, list[QueuedEntry]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(len(entries) for entries in self.by_ident.values()) + len(self.unreadable)


@dataclass
class Hot:
    """A session's state in Redis. live: in use, made by this very server process. receipts: entry id -> seq, digest."""

    live: bool = False
    there: bool = False
    deleted: bool = False
    seq: int = 0
    ceiling: int = 0
    origin: str = ""
    window: list[tuple[str, int]] = field(default_factory=list)
    receipts: dict[str, tuple[int, str]] = field(default_factory=dict)


@dataclass
class Seen:
    """One session from all sides. known: entry id -> number in MySQL, of the newest (those that Redis names)."""

    row: AgentSession
    owner: Owner
    hot: Hot
    queued: list[QueuedEntry]
    stored: list[Span]
    messages: int
    known: dict[str, int]
    leases: list[Lease]
    explained: list[tuple[Span, str]]
    buried: set[str]

    @property
    def highest_stored(self) -> int:
        return self.stored[-1][1] if self.stored else 0


def server_of(client: Any) -> tuple[str, str]:
    """Epoch ('' where Redis has none, as after it was emptied) and run id of the server. 2 round trips."""
    with base_redis.translated():
        return str(client.get(EPOCH()) or ""), str(cast(dict[str, Any], client.info("server"))["run_id"])


def read_stream() -> Stream:
    """Everything that waits for the drain, without the messages themselves. Errors: RedisUnavailable."""
    client = base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")
    stream = Stream()
    start = "-"
    while start:
        start, flat = _census(client, [PENDING()], [start, _PAGE])
        for i in range(0, len(flat), 5):
            stream_id, ident, digest, entry_id, seq = flat[i : i + 5]
            if ident.count(" ") == 3 and entry_id and seq and int(seq) < 2**63:
                stream.by_ident[ident].append(QueuedEntry(stream_id, entry_id, int(seq), digest))
            else:
                stream.unreadable.append(stream_id)
    return stream


def look_at_redis(client: Any, owner: Owner, run_id: str) -> Hot:
    """One round trip. Errors: RedisUnavailable."""
    ctx, window, ids = _look(client, owner.keys)
    server, seq, ceiling, origin, deleted, actor = ctx
    hot = Hot(
        live=bool(actor) and server == run_id and not deleted,
        there=bool(actor),
        deleted=bool(deleted),
        seq=int(seq or 0),
        ceiling=int(ceiling or 0),
        origin=origin,
    )
    hot.window = [(window[i], int(window[i + 1])) for i in range(0, len(window), 2) if window[i] and window[i + 1]]
    for i in range(0, len(ids), 2):
        number, _, rest = ids[i + 1].partition(":")
        if number.isdigit():
            hot.receipts[ids[i]] = (int(number), rest.rpartition(":")[2])
    return hot


def _stored(pks: Sequence[int]) -> dict[int, tuple[list[Span], int]]:
    """Spans of numbers that MySQL has, and how many messages: an index scan; number by number only where one lacks."""
    found: dict[int, tuple[list[Span], int]] = {}
    ranges = (
        AgentMessage.objects.filter(session_row_id__in=pks)
        .order_by()
        .values_list("session_row_id")
        .annotate(Count("seq"), Min("seq"), Max("seq"))
    )
    for pk, count, low, high in ranges:
        if high - low + 1 == count:
            found[pk] = ([(low, high)], count)
            continue
        spans: list[Span] = []
        numbers = AgentMessage.objects.filter(session_row_id=pk).order_by("seq").values_list("seq", flat=True)
        total = 0
        for seq in numbers.iterator(chunk_size=5000):
            total += 1
            if spans and spans[-1][1] + 1 == seq:
                spans[-1] = (spans[-1][0], seq)
            else:
                spans.append((seq, seq))
        found[pk] = (spans, total)
    return found


def _known(hots: dict[int, Hot], queued: dict[int, list[QueuedEntry]]) -> dict[int, dict[str, int]]:
    """Numbers in MySQL of the entries that Redis names: everything from the lowest number that Redis names upward."""
    floors: dict[int, int] = {}
    for pk, hot in hots.items():
        named = [seq for _, seq in hot.window] + [seq for seq, _ in hot.receipts.values()]
        named += [entry.seq for entry in queued[pk]]
        if named:
            floors[pk] = min(named)
    known: dict[int, dict[str, int]] = defaultdict(dict)
    pks = list(floors)
    for start in range(0, len(pks), _SESSIONS_A_QUERY):
        wanted = Q()
        for pk in pks[start : start + _SESSIONS_A_QUERY]:
            wanted |= Q(session_row_id=pk, seq__gte=floors[pk])
        rows = AgentMessage.objects.filter(wanted).order_by().values_list("session_row_id", "entry_id", "seq")
        for pk, entry_id, seq in rows.iterator(chunk_size=5000):
            known[pk][entry_id] = seq
    return known


def look(rows: Sequence[AgentSession]) -> list[Seen]:
    """The sessions, seen from all sides. The rows are read again late: ranges only grow.

    Cost: 1 round trip a session, the stream once, about 5 queries. Errors: RedisUnavailable, DatabaseError.
    """
    client = base_redis.state()
    epoch, run_id = server_of(client)
    owners = {row.pk: owner_of_row(row) for row in rows}
    hots = {pk: look_at_redis(client, owner, run_id) for pk, owner in owners.items()}
    stream = read_stream()
    pks = list(owners)
    stored = _stored(pks)
    queued = {pk: stream.by_ident.get(owner.ident, []) for pk, owner in owners.items()}
    known = _known(hots, queued)
    # Before the notes: a range that is given up meanwhile is then seen twice, and not missed.
    fresh = AgentSession.objects.in_bulk(pks)
    notes: dict[int, list[SessionNumbering]] = defaultdict(list)
    for note in SessionNumbering.objects.filter(session_row_id__in=pks).order_by("first"):
        notes[note.session_row_id].append(note)
    letters: dict[tuple[str, str], list[MessageDeadLetter]] = defaultdict(list)
    sessions = {row.session_id for row in rows}
    tenants = {row.tenant for row in rows}
    for letter in MessageDeadLetter.objects.filter(tenant__in=tenants, session_id__in=sessions).defer("raw"):
        letters[letter.tenant, letter.session_id].append(letter)
    seen: list[Seen] = []
    for pk, owner in owners.items():
        row = fresh.get(pk)
        if row is None:
            continue  # erased meanwhile
        hot = hots[pk]
        spans, count = stored.get(pk, ([], 0))
        mine = letters[owner.tenant, owner.session_id]
        explained = [((n.first, n.last), n.kind) for n in notes[pk] if n.kind in (Kind.REPEAT, Kind.ACCEPTED)]
        explained += [((one.seq, one.seq), "dead_letter") for one in mine if one.seq is not None]
        leases = [
            Lease(n.first, n.last, n.used_to, n.kind) for n in notes[pk] if n.kind not in (Kind.REPEAT, Kind.ACCEPTED)
        ]
        if row.lease_to:
            fate = fate_of_lease(row, epoch, run_id)
            used = hot.seq if row.lease_from <= hot.seq <= row.lease_to else 0
            leases.append(Lease(row.lease_from, row.lease_to, used, "" if fate == Kind.OUTAGE else fate))
        seen.append(
            Seen(
                row=row,
                owner=owner,
                hot=hot,
                queued=queued[pk],
                stored=spans,
                messages=count,
                known=known.get(pk, {}),
                leases=leases,
                explained=explained,
                buried={one.entry_id for one in mine},
            )
        )
    return seen
