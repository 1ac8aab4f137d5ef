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
from django.db.models import Q, QuerySet

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions import repair
from memory.sessions.drain import backlog, drain
from memory.sessions.findings import (
    CEILING_LOW,
    DELETED_OPEN,
    DETACHED,
    DUPLICATE,
    FAULTS,
    GAP,
    LOSSES,
    LOST_MESSAGE,
    LOST_NUMBERS,
    POSSIBLE_LOSS,
    STALE_STATE,
    UNKNOWN_SESSION,
    UNREADABLE,
    Finding,
)  # fmt: skip
from memory.sessions.judging import Numbers, Span, judge, merged, within, without
from memory.sessions.looking import Kind, Seen, Stream, look, look_at_redis, read_stream, server_of
from memory.sessions.models import AgentSession
from memory.sessions.reopen import reattach

BATCH = 1000
# `reattach` runs each second: a mark that stands so long means that nobody runs it.
DETACHED_PATIENCE = timedelta(seconds=60)


@dataclass
class Report:
    """queued: entries of these sessions that wait for the drain, which is no fault."""

    sessions: int = 0
    messages: int = 0
    queued: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any(finding.open for finding in self.findings)

    def counts(self) -> dict[str, int]:
        return dict(Counter(finding.kind for finding in self.findings))


def select(
    *, tenant: str | None = None, session_id: str | None = None, since: datetime | None = None
) -> QuerySet[AgentSession]:
    """Sessions to look at. since: those that may have been in use from then on (opened in Redis, or made, since then
    less the longest that a session stays open)."""
    rows = AgentSession.objects.order_by("pk")
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
    verdict = judge(Numbers(seen.stored, queued_numbers, seen.leases, seen.explained))

    # Entries that Redis has receipts for: each must be in the stream, in MySQL or among the dead letters.
    accepted = merged(span for span, why in seen.explained if why == Kind.ACCEPTED)
    named = {entry_id: seq for entry_id, (seq, _) in hot.receipts.items()} | dict(hot.window)
    for entry_id, seq in sorted(named.items(), key=lambda item: item[1]):
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
    elif hot.live:
        if not hot.window and within([*seen.stored, *((n, n) for n in queued_numbers)], 1, hot.seq):
            findings.append(found(STALE_STATE, why="the window is empty, the session is not"))
        elif hot.seq < highest and _still_behind(seen, highest):
            findings.append(found(STALE_STATE, (hot.seq, highest), why="Redis numbers below what is stored"))
    return findings


def _still_behind(seen: Seen, highest: int) -> bool:
    """Traffic between the looks at Redis and at MySQL is not staleness: look at Redis once more."""
    client = base_redis.state()
    hot = look_at_redis(client, seen.owner, server_of(client)[1])
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
        pks = [int(ident.split(" ")[0]) for ident in part if ident.split(" ")[0].isdigit()]
        names = dict(AgentSession.objects.filter(pk__in=pks).values_list("pk", "session_id"))
        for ident in part:
            pk, tenant, agent, session_id = ident.split(" ")
            if not pk.isdigit() or names.get(int(pk)) != session_id:
                numbers = [entry.seq for entry in stream.by_ident[ident]]
                findings.append(
                    Finding(
                        UNKNOWN_SESSION, tenant, session_id, agent, min(numbers), max(numbers),
                        why=f"{len(numbers)} entries of the stream; no such session",
                    )
                )  # fmt: skip
    return findings


def _batches(rows: QuerySet[AgentSession]) -> Iterator[list[AgentSession]]:
    last = 0
    while batch := list(rows.filter(pk__gt=last)[:BATCH]):
        yield batch
        last = batch[-1].pk


def reconcile(
    *,
    rows: QuerySet[AgentSession],
    whole: bool,
    fix: bool = False,
    accept_by: str = "",
    progress: Callable[[int], Any] = lambda count: None,
    pause: float = 0.3,
) -> Report:
    """Looks at every session of `rows`, twice where something stands out, and with `fix` mends it.

    Steps: 1. with fix: tell Redis what it missed, and drain; 2. entries that belong to no session (`whole`: all
    sessions are looked at); 3. batch by batch: look, look again at what stood out, mend, and look at what was mended.
    accept_by: who takes note of the losses that remain; later runs then tell them as explained.
    Harmless beside all else that runs. pause: seconds between the looks.
    Errors: RedisUnavailable, DatabaseError (what was mended so far stays mended).
    """
    report = Report()
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
        for seen in look(batch):
            report.sessions += 1
            report.messages += seen.messages
            report.queued += len(seen.queued)
            findings = examine(seen)
            if any(finding.open for finding in findings):
                first[seen.row.pk] = findings
            else:
                report.findings += findings
        if first:
            time.sleep(pause)
            for seen in look([row for row in batch if row.pk in first]):
                findings = _both(first[seen.row.pk], examine(seen))
                if fix:
                    repair.mend(seen, findings)
                if accept_by:
                    repair.accept(seen, findings, accept_by)
                report.findings += findings
        progress(len(batch))
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
