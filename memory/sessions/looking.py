"""What Redis, the stream and MySQL hold of sessions, side by side. In this order: what Redis showed of a session was
then in the stream or in MySQL, and an entry leaves the stream only after its commit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from django.conf import settings
from django.db.models import Count, Max, Min, Q

from config.base import redis as base_redis
from config.base.redis import Script
from memory.sessions.healing import NUMBERS, broken_fields, faults_of, is_number, keys_of, read_item
from memory.sessions.judging import Lease, Span
from memory.sessions.keys import EPOCH, GROUP, PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter, SessionBranch, SessionNumbering
from memory.sessions.numbering import fate_of_lease
from memory.sessions.owners import Owner, owner_of_row

_census = Script.beside(__file__, "census")
_look = Script.beside(__file__, "look")

Kind = SessionNumbering.Kind
_PAGE = 5000
_SESSIONS_A_QUERY = 50
# Why a range was left where a dead letter's message took the number above it.
RETRIED = "dead_letter_retried"


@dataclass(frozen=True, slots=True)
class QueuedEntry:
    stream_id: str
    entry_id: str
    seq: int
    digest: str


@dataclass
class Stream:
    """by_ident: entries of each session. unreadable: places of entries that the drain will bury. kind: the key's type,
    `none` where it is not there. grouped: the drain's group is there. age: of the oldest entry, s."""

    by_ident: dict[str, list[QueuedEntry]] = field(default_factory=lambda: defaultdict(list))
    unreadable: list[str] = field(default_factory=list)
    kind: str = "none"
    grouped: bool = False
    age: float = 0.0

    @property
    def total(self) -> int:
        return sum(len(entries) for entries in self.by_ident.values()) + len(self.unreadable)


@dataclass
class Hot:
    """A session's state in Redis. live: in use, made by this very server process. receipts: entry id -> seq, digest.
    faults: what is wrong with its keys; broken: fields of the context that cannot be read."""

    live: bool = False
    there: bool = False
    deleted: bool = False
    seq: int = 0
    ceiling: int = 0
    window: list[tuple[str, int]] = field(default_factory=list)
    receipts: dict[str, tuple[int, str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


@dataclass
class Seen:
    """One session from all sides. known: entry id -> number in MySQL, of the newest (those that Redis names).
    waiting: dead letters that nobody has decided about, by reason. astray: turns whose entries are nowhere."""

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
    waiting: dict[str, int]
    astray: list[str]

    @property
    def floor(self) -> int:
        """The last number that a fork shares with what it was forked from; its own begin above. 0 without one."""
        return self.owner.lineage[0][1] if self.owner.lineage else 0

    @property
    def highest_stored(self) -> int:
        return self.stored[-1][1] if self.stored else 0

    @property
    def highest_given(self) -> int:
        """The highest number of the present range that is known to have been given; 0 where none is."""
        numbers = [self.hot.seq, *(entry.seq for entry in self.queued)]
        numbers += [min(last, self.row.lease_to) for first, last in self.stored if first <= self.row.lease_to]
        return max((seq for seq in numbers if self.row.lease_from <= seq <= self.row.lease_to), default=0)


def server_of(client: Any) -> tuple[str, str]:
    """Epoch ('' where Redis has none, as after it was emptied) and run id of the server. 2 round trips."""
    with base_redis.translated():
        return str(client.get(EPOCH()) or ""), str(cast(dict[str, Any], client.info("server"))["run_id"])


def reader() -> Any:
    """A client that can look at what is not UTF-8."""
    return base_redis.client_for(settings.REDIS_URL, decoding_errors="surrogateescape")


def read_stream(*, only_itself: bool = False) -> Stream:
    """Everything that waits for the drain, without the messages themselves. Errors: RedisUnavailable.

    only_itself: what kind of key it is and how old its oldest entry; none of the others.
    """
    client = reader()
    stream = Stream()
    start = "-"
    oldest, at = 0, 0
    while start:
        start, flat, stream.kind, grouped, at = _census(
            client, [PENDING()], [start, 1 if only_itself else _PAGE, GROUP]
        )
        stream.grouped = bool(grouped)
        oldest = oldest or (int(flat[0].partition("-")[0]) if flat else 0)
        for i in range(0, len(flat), 5):
            stream_id, ident, digest, entry_id, seq = flat[i : i + 5]
            if ident.count(" ") == 3 and entry_id and is_number(seq):
                stream.by_ident[ident].append(QueuedEntry(stream_id, entry_id, int(seq), digest))
            else:
                stream.unreadable.append(stream_id)
        if only_itself:
            break
    stream.age = max(0.0, (int(at) - oldest) / 1000) if oldest else 0.0
    return stream


def queue_fault(stream: Stream) -> str:
    """What is wrong with the key of the queue itself, and the way out; '' where nothing is."""
    if stream.kind in ("stream", "none"):
        return ""
    return (
        f"{PENDING()} is a {stream.kind}, not a stream: nothing can be queued or drained. "
        "`manage.py reconcile --fix` removes it and puts back what windows still hold"
    )


def look_at_redis(client: Any, owner: Owner, run_id: str) -> Hot:
    """One round trip, whatever the keys hold. client: see `reader`. Errors: RedisUnavailable."""
    types, flat, items, pairs, lock_left, fence = _look(client, keys_of(owner))
    ctx = dict(zip(flat[::2], flat[1::2], strict=True))
    receipts = dict(zip(pairs[::2], pairs[1::2], strict=True))
    faults = faults_of(owner, types, ctx, items, receipts, lock_left, fence)
    sound = all(is_number(ctx.get(name)) for name in NUMBERS) and ctx.get("actor") == owner.actor_id
    hot = Hot(
        live=sound and ctx.get("server") == run_id and "deleted" not in ctx,
        there="actor" in ctx,
        deleted="deleted" in ctx,
        seq=int(ctx["seq"]) if is_number(ctx.get("seq")) else 0,
        ceiling=int(ctx["ceiling"]) if is_number(ctx.get("ceiling")) else 0,
        faults=faults,
        broken=broken_fields(ctx) if faults else [],
    )
    hot.window = [(found.entry_id, found.seq) for found in map(read_item, items) if found is not None]
    for entry_id, receipt in receipts.items():
        number, _, rest = receipt.partition(":")
        if is_number(number):
            hot.receipts[entry_id] = (int(number), rest.rpartition(":")[2])
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


def _known(
    hots: dict[int, Hot], queued: dict[int, list[QueuedEntry]], own: dict[int, int]
) -> dict[int, dict[str, int]]:
    """Numbers in MySQL of the entries that Redis names: everything from the lowest number that Redis names upward.
    own: the number above which entries are the session's own."""
    floors: dict[int, int] = {}
    for pk, hot in hots.items():
        named = [seq for _, seq in hot.window] + [seq for seq, _ in hot.receipts.values()]
        named += [entry.seq for entry in queued[pk]]
        named = [seq for seq in named if seq > own[pk]]
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


def _astray(rows: Sequence[AgentSession], owners: dict[int, Owner], stream: Stream) -> dict[int, list[str]]:
    """Turns of the sessions' paths (`SessionBranch`) that name entries which neither MySQL nor the stream has.

    1 query, and 1 more for each 50 sessions that entries are named of.
    """
    turns = list(SessionBranch.objects.filter(session_row_id__in=list(owners)))
    numbers: dict[int, set[int]] = defaultdict(set)
    names: dict[int, set[str]] = defaultdict(set)
    for turn in turns:
        if turn.target_seq:
            numbers[turn.target_pk].add(turn.target_seq)
        if turn.entry_id:
            names[turn.session_row_id].add(turn.entry_id)
    there: set[tuple[int, int | str]] = set()
    owned = ((ident.partition(" ")[0], entries) for ident, entries in stream.by_ident.items())
    queued = {int(key): entries for key, entries in owned if is_number(key)}
    pks = sorted({*numbers, *names})
    for pk in pks:
        for entry in queued.get(pk, ()):
            there |= {(pk, entry.seq), (pk, entry.entry_id)}
    for start in range(0, len(pks), _SESSIONS_A_QUERY):
        wanted = Q()
        for pk in pks[start : start + _SESSIONS_A_QUERY]:
            wanted |= Q(session_row_id=pk, seq__in=numbers[pk]) | Q(session_row_id=pk, entry_id__in=names[pk])
        for pk, seq, entry_id in AgentMessage.objects.filter(wanted).values_list("session_row_id", "seq", "entry_id"):
            there |= {(pk, seq), (pk, entry_id)}
    astray: dict[int, list[str]] = defaultdict(list)
    for turn in turns:
        pk = turn.session_row_id
        family = {pk, *(of for of, _ in owners[pk].lineage)}
        what = f"{turn.kind} after {turn.at_seq}"
        if turn.target_pk not in family:
            astray[pk].append(f"{what}: its target is of a session that this one was not forked from")
        elif turn.target_seq and (turn.target_pk, turn.target_seq) not in there:
            astray[pk].append(f"{what}: its target, number {turn.target_seq}, is nowhere")
        if turn.entry_id and (pk, turn.entry_id) not in there:
            astray[pk].append(f"{what}: the entry written with it is nowhere")
    return astray


def _name_retries(leases: dict[int, list[Lease]], letters: dict[int, list[MessageDeadLetter]]) -> None:
    """Says of ranges that Redis left for a dead letter why: the number above them is a retried letter's message.

    No query where no letter was retried, else 1.
    """
    wanted = Q()
    for pk, mine in letters.items():
        retried = {one.entry_id for one in mine if one.settled == MessageDeadLetter.Settled.RETRIED}
        if retried:
            wanted |= Q(session_row_id=pk, entry_id__in=retried)
    if not wanted:
        return
    numbers = set(AgentMessage.objects.filter(wanted).values_list("session_row_id", "seq"))
    for pk, ranges in leases.items():
        leases[pk] = [
            replace(lease, kind=RETRIED)
            if lease.kind in ("", Kind.OUTAGE) and (pk, lease.last + 1) in numbers
            else lease
            for lease in ranges
        ]


def look(rows: Sequence[AgentSession]) -> list[Seen]:
    """The sessions, seen from all sides. The rows are read again late: ranges only grow.

    Cost: 1 round trip a session, the stream once, about 6 queries. Errors: RedisUnavailable, DatabaseError.
    """
    client = reader()
    epoch, run_id = server_of(base_redis.state())
    owners = {row.pk: owner_of_row(row) for row in rows}
    hots = {pk: look_at_redis(client, owner, run_id) for pk, owner in owners.items()}
    stream = read_stream()
    pks = list(owners)
    stored = _stored(pks)
    queued = {pk: stream.by_ident.get(owner.ident, []) for pk, owner in owners.items()}
    own = {pk: owner.lineage[0][1] if owner.lineage else 0 for pk, owner in owners.items()}
    known = _known(hots, queued, own)
    astray = _astray(rows, owners, stream)
    # Before the notes: a range that is given up meanwhile is then seen twice, and not missed.
    fresh = AgentSession.objects.in_bulk(pks)
    notes: dict[int, list[SessionNumbering]] = defaultdict(list)
    for note in SessionNumbering.objects.filter(session_row_id__in=pks).order_by("first"):
        notes[note.session_row_id].append(note)
    by_name = {(row.tenant, row.session_id): row.pk for row in rows}
    letters: dict[int, list[MessageDeadLetter]] = defaultdict(list)
    for letter in MessageDeadLetter.objects.filter(
        tenant__in={row.tenant for row in rows}, session_id__in={row.session_id for row in rows}
    ).defer("raw"):
        if (letter.tenant, letter.session_id) in by_name:
            letters[by_name[letter.tenant, letter.session_id]].append(letter)
    leases: dict[int, list[Lease]] = {}
    for pk, row in fresh.items():
        leases[pk] = [
            Lease(n.first, n.last, n.used_to, n.note if n.note and n.kind == Kind.OUTAGE else n.kind)
            for n in notes[pk]
            if n.kind not in (Kind.REPEAT, Kind.ACCEPTED)
        ]
        if row.lease_to >= row.lease_from:
            fate = fate_of_lease(row, epoch, run_id)
            used = hots[pk].seq if row.lease_from <= hots[pk].seq <= row.lease_to else 0
            leases[pk].append(Lease(row.lease_from, row.lease_to, used, "" if fate == Kind.OUTAGE else fate))
    _name_retries(leases, letters)
    seen: list[Seen] = []
    for pk, owner in owners.items():
        if pk not in fresh:
            continue  # erased meanwhile
        spans, count = stored.get(pk, ([], 0))
        mine = letters[pk]
        explained = [((n.first, n.last), n.kind) for n in notes[pk] if n.kind in (Kind.REPEAT, Kind.ACCEPTED)]
        explained += [((one.seq, one.seq), "dead_letter") for one in mine if one.seq is not None]
        seen.append(
            Seen(
                row=fresh[pk],
                owner=owner,
                hot=hots[pk],
                queued=queued[pk],
                stored=spans,
                messages=count,
                known=known.get(pk, {}),
                leases=leases[pk],
                explained=explained,
                buried={one.entry_id for one in mine},
                waiting=dict(Counter(one.reason for one in mine if not one.settled)),
                astray=astray[pk],
            )
        )
    return seen
