"""Compares Redis, the stream and MySQL, session by session, says what is missing and why, and mends what can be.

What is found once may be traffic under way; only what a second look finds again is reported.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions import ghosts, repair
from memory.sessions.dead_letters import visible_tenants
from memory.sessions.drain import backlog, drain
from memory.sessions.findings import (
    BRANCH_BROKEN,
    CEILING_LOW,
    DAMAGED,
    DEAD_LETTER,
    DELETED_OPEN,
    DETACHED,
    DUPLICATE,
    FAULTS,
    GAP,
    LOSSES,
    LOST_MESSAGE,
    LOST_NUMBERS,
    NO_GROUP,
    POSSIBLE_LOSS,
    QUEUE_DAMAGED,
    STALE_STATE,
    UNKNOWN_SESSION,
    UNREADABLE,
    Finding,
    by_weight,
)  # fmt: skip
from memory.sessions.healing import is_number
from memory.sessions.judging import Numbers, Span, judge, merged, within, without
from memory.sessions.keys import GROUP, PENDING
from memory.sessions.looking import (
    Kind,
    Seen,
    Stream,
    look,
    look_at_redis,
    queue_fault,
    read_stream,
    reader,
    server_of,
)
from memory.sessions.models import AgentSession, MessageDeadLetter
from memory.sessions.numbering import remember_given
from memory.sessions.reopen import reattach

BATCH = 1000
# `reattach` runs each second: a mark that stands so long means that nobody runs it.
DETACHED_PATIENCE = timedelta(seconds=60)
# A drain makes its group with its first batch: an older queue without one means that none has come.
UNDRAINED_PATIENCE = 10.0  # seconds
WAY_OUT = "retry or drop them in the admin under Dead letters"


@dataclass
class Report:
    """queued: entries of these sessions that wait for the drain, which is no fault. dead_letters: those that wait for
    somebody to decide."""

    sessions: int = 0
    messages: int = 0
    queued: int = 0
    dead_letters: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any(finding.open for finding in self.findings)

    def open_counts(self) -> dict[str, int]:
        return dict(Counter(finding.kind for finding in self.findings if finding.open))

    def counts(self) -> dict[str, int]:
        """Findings of each kind, in the order of the weightiest of each."""
        return dict(Counter(finding.kind for finding in by_weight(self.findings)))


def select(
    *, tenant: str | None = None, session_id: str | None = None, since: datetime | None = None
) -> QuerySet[AgentSession]:
    """Sessions to look at. since: those that may have been in use from then on (opened in Redis, or made, since then
    less the longest that a session stays open)."""
    rows = AgentSession.objects.filter(erased_at=None).order_by("pk")  # of an erased one no message is to be found
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    if since is not None:
        opened = since - timedelta(seconds=settings.SESSION_MAX_AGE_SECONDS)
        rows = rows.filter(Q(opened_at__gte=opened) | Q(created_at__gte=since) | Q(detached_at__isnull=False))
    return rows


def examine(seen: Seen) -> list[Finding]:
    """What stands out of one session, at one look. The caller looks twice."""
    row, hot = seen.row, seen.hot

    def found(kind: str, span: Span = (0, 0), entry_id: str = "", *, why: str) -> Finding:
        return Finding(kind, row.tenant, row.session_id, row.agent, *span, entry_id, why)

    findings: list[Finding] = []
    in_stream = {entry.entry_id for entry in seen.queued}
    queued_numbers = [entry.seq for entry in seen.queued]
    # Of a deleted session whose messages are all gone nothing is wanted any more: they were erased.
    ceiling = 0 if row.deleted_at is not None and not seen.stored else row.seq_ceiling
    verdict = judge(Numbers(seen.stored, queued_numbers, seen.leases, seen.explained, seen.floor + 1, ceiling))

    # Entries that Redis has receipts for: each must be in the stream, in MySQL or among the dead letters.
    accepted = merged(span for span, why in seen.explained if why == Kind.ACCEPTED)
    named = {entry_id: seq for entry_id, (seq, _) in hot.receipts.items()} | dict(hot.window)
    for entry_id, seq in sorted(named.items(), key=lambda item: item[1]):
        if seq <= seen.floor:
            continue  # shared with what it was forked from
        if entry_id in in_stream or entry_id in seen.known or entry_id in seen.buried or within(accepted, seq, seq):
            continue
        findings.append(found(LOST_MESSAGE, (seq, seq), entry_id=entry_id, why="Redis names it; nobody has it"))
    named_lost = merged((finding.first, finding.first) for finding in findings)
    for span in verdict.lost:
        for part in without([span], named_lost):
            findings.append(found(LOST_NUMBERS, part, why="given to messages that are nowhere"))
    for span, why in verdict.explained:
        if why == Kind.EMPTIED:
            why = "Redis was emptied; what was queued in it is gone, and nobody can tell which of these were"
            findings.append(found(POSSIBLE_LOSS, span, why=why))
        else:
            findings.append(found(GAP, span, why=why))

    met: set[str] = set()
    for entry in seen.queued:
        if entry.entry_id in met or entry.entry_id in seen.known:
            findings.append(
                found(DUPLICATE, (entry.seq, entry.seq), entry_id=entry.entry_id, why="the drain will drop it")
            )
        met.add(entry.entry_id)

    highest = max([seen.highest_stored, *queued_numbers], default=0)
    ceiling = max(highest, hot.seq, hot.ceiling if hot.live else 0)
    if ceiling > row.seq_ceiling:
        findings.append(found(CEILING_LOW, (row.seq_ceiling, ceiling), why="numbers above the ceiling are in use"))
    if row.deleted_at is not None:
        if hot.there and not hot.deleted:
            findings.append(found(DELETED_OPEN, why="deleted, and Redis still holds its state"))
    elif row.detached_at is not None:
        if now() - row.detached_at > DETACHED_PATIENCE:
            findings.append(found(DETACHED, why="nobody has told Redis for a minute; is beat running?"))
    elif hot.live and not hot.faults:
        if not hot.window and within([*seen.stored, *((n, n) for n in queued_numbers)], 1, hot.seq):
            findings.append(found(STALE_STATE, why="the window is empty, the session is not"))
        elif hot.seq < highest and _still_behind(seen, highest):
            findings.append(found(STALE_STATE, (hot.seq, highest), why="Redis numbers below what is stored"))
    for why in hot.faults:
        if not hot.deleted:
            findings.append(found(DAMAGED, why=why))
    for why in seen.astray if row.deleted_at is None else ():
        findings.append(found(BRANCH_BROKEN, why=why))
    if seen.waiting:
        findings.append(found(DEAD_LETTER, why=_told(seen.waiting)))
    return findings


def _told(waiting: dict[str, int]) -> str:
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(waiting.items()))
    return f"{sum(waiting.values())} wait ({reasons}): {WAY_OUT}"


def _still_behind(seen: Seen, highest: int) -> bool:
    """Traffic between the looks at Redis and at MySQL is not staleness: look at Redis once more."""
    hot = look_at_redis(reader(), seen.owner, server_of(base_redis.state())[1])
    return hot.live and hot.seq < highest


def _both(first: Sequence[Finding], second: Sequence[Finding]) -> list[Finding]:
    """What the second look found and the first had found too; notes as the second look has them."""
    entries = {finding.entry_id for finding in first if finding.kind == LOST_MESSAGE}
    spans = merged((finding.first, finding.last) for finding in first if finding.kind in LOSSES)
    kinds = {finding.kind for finding in first}
    kept: list[Finding] = []
    for finding in second:
        if finding.kind in (LOST_NUMBERS, POSSIBLE_LOSS):
            for low, high in within(spans, finding.first, finding.last):
                kept.append(Finding(**{**vars(finding), "first": low, "last": high}))
        elif finding.kind == LOST_MESSAGE:
            if finding.entry_id in entries:
                kept.append(finding)
        elif finding.kind not in FAULTS or finding.kind in kinds:
            kept.append(finding)
    return kept


def strangers(stream: Stream) -> list[Finding]:
    """Entries of the stream that no session will have: the drain moves them to the dead letters."""
    findings = [Finding(UNREADABLE, "", "", why=f"entry {stream_id} of the stream") for stream_id in stream.unreadable]
    idents = list(stream.by_ident)
    for start in range(0, len(idents), BATCH):
        part = idents[start : start + BATCH]
        pks = [int(ident.split(" ")[0]) for ident in part if is_number(ident.split(" ")[0])]
        names = dict(AgentSession.objects.filter(pk__in=pks).values_list("pk", "session_id"))
        for ident in part:
            pk, tenant, agent, session_id = ident.split(" ")
            if not is_number(pk) or names.get(int(pk)) != session_id:
                numbers = [entry.seq for entry in stream.by_ident[ident]]
                findings.append(
                    Finding(
                        UNKNOWN_SESSION, tenant, session_id, agent, min(numbers), max(numbers),
                        why=f"{len(numbers)} entries of the stream; no such session",
                    )
                )  # fmt: skip
    return findings


def homeless(tenant: str | None) -> tuple[list[Finding], int]:
    """Dead letters that wait and belong to no session, by session, and how many there are. 1 query."""
    letters = MessageDeadLetter.objects.filter(settled="")
    if tenant is not None:
        letters = letters.filter(tenant__in=visible_tenants(tenant))
    mine = AgentSession.objects.filter(tenant=OuterRef("tenant"), session_id=OuterRef("session_id"))
    letters = letters.exclude(Exists(mine)).order_by()
    waiting: dict[tuple[str, str], dict[str, int]] = {}
    total = 0
    for of, session_id, reason, count in letters.values_list("tenant", "session_id", "reason").annotate(Count("pk")):
        waiting.setdefault((of, session_id), {})[reason] = count
        total += count
    return [Finding(DEAD_LETTER, *names, why=_told(reasons)) for names, reasons in sorted(waiting.items())], total


def queue_itself(stream: Stream, *, fix: bool) -> list[Finding]:
    """What is wrong with the key that the queue is. With `fix`, and where it is no stream, it is removed first."""
    fault = queue_fault(stream)
    if fault:
        removed = fix and repair.unblock_queue()
        return [Finding(QUEUE_DAMAGED, "", "", why=fault, repaired="removed" if removed else "")]
    if not stream.grouped and stream.age > UNDRAINED_PATIENCE:
        why = (
            f"the group {GROUP} of {PENDING()} is missing, and entries wait for {stream.age:.0f} s: is the worker of "
            "the queue persist running? `manage.py drain_messages` makes the group and drains"
        )
        return [Finding(NO_GROUP, "", "", why=why, repaired="drained" if fix else "")]
    return []


def _batches(rows: QuerySet[AgentSession]) -> Iterator[list[AgentSession]]:
    last = 0
    while batch := list(rows.filter(pk__gt=last)[:BATCH]):
        yield batch
        last = batch[-1].pk


def reconcile(
    *,
    rows: QuerySet[AgentSession],
    whole: bool,
    tenant: str | None = None,
    fix: bool = False,
    accept_by: str = "",
    progress: Callable[[int], Any] = lambda count: None,
    pause: float = 0.3,
) -> Report:
    """Looks at every session of `rows`, twice where something stands out, and with `fix` mends it.

    Steps: 1. the queue itself; 2. with fix: tell Redis what it missed, and drain; 3. what belongs to no session
    (`whole`: all sessions are looked at; `tenant`: all of one): entries of the stream, dead letters, keys; 4. batch by
    batch: look, look again at what stood out, mend, and write down which numbers are seen to have been given, so that
    they are missed when they go.
    accept_by: who takes note of the losses that remain; later runs then tell them as explained.
    Harmless beside all else that runs. pause: seconds between the looks.
    Errors: RedisUnavailable, DatabaseError (what was mended so far stays mended).
    """
    report = Report()
    report.findings += queue_itself(read_stream(), fix=fix)
    if fix:
        reattach()
        drain_away()
    if whole:
        odd = strangers(read_stream())
        if odd:
            time.sleep(pause)
            again = {
                (finding.kind, finding.tenant, finding.session_id, finding.why) for finding in strangers(read_stream())
            }
            report.findings += [f for f in odd if (f.kind, f.tenant, f.session_id, f.why) in again]
    for batch in _batches(rows):
        first: dict[int, list[Finding]] = {}
        used: list[tuple[AgentSession, int]] = []
        for seen in look(batch):
            report.sessions += 1
            report.messages += seen.messages
            report.queued += len(seen.queued)
            report.dead_letters += sum(seen.waiting.values())
            findings = examine(seen)
            if any(finding.open for finding in findings):
                first[seen.row.pk] = findings
            else:
                report.findings += findings
                used.append((seen.row, seen.highest_given))
        if first:
            time.sleep(pause)
            for seen in look([row for row in batch if row.pk in first]):
                findings = _both(first[seen.row.pk], examine(seen))
                if fix:
                    repair.mend(seen, findings)
                if accept_by:
                    repair.accept(seen, findings, accept_by)
                report.findings += findings
                used.append((seen.row, seen.highest_given))
        remember_given(used)
        progress(len(batch))
    if whole or tenant is not None:
        letters, count = homeless(None if whole else tenant)
        report.findings += letters
        report.dead_letters += count
    if whole:
        report.findings += ghosts.find(fix=fix, pause=pause)
    report.findings = by_weight(report.findings)
    return report


def drain_away(seconds: float = 30.0) -> None:
    """Everything that is queued now goes to MySQL, also what dead drains held."""
    until = time.monotonic() + seconds
    left = backlog()
    while left and time.monotonic() < until:
        drained = drain(seconds=max(0.1, until - time.monotonic()))
        left = min(left - drained.total, backlog())
        if left > 0 and not drained.total:
            time.sleep(0.2)  # held by a drain that works or has died: handed out again when it is idle
