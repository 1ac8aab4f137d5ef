"""The sealer: takes the rows that no seal holds yet, in order of id, and adds a link to the chain.

Nothing here is on the way of a writer: `record()` stays one INSERT, and the sealer reads without locks.

Ids are given out before transactions commit, so that a row may come late, below ids that are sealed already. A seal
therefore also lists the ids that were missing (`opened`); they are looked at again, each second while they are young,
and a row found there goes into a later seal. An id that a sealer has waited for during AUDIT_GAP_SECONDS, and that no
open transaction holds, belonged to one that was abandoned: it is given up (`closed`), and a row that appears there
later is tampering.

Two sealers at once are harmless: the chain's number is the primary key, and whoever is second has made nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from config.base.clock import now
from guard.audit import chain as chain_module
from guard.audit import memory, sealkeys
from guard.audit.canonical import Row, new_seal, row_holds, seal_bytes
from guard.audit.chain import Chain, Gap, find, newest
from guard.audit.models import ActorType, AuditLog, AuditSeal, Decision, EventType
from guard.audit.ranges import Ranges, missing_between, ranges_of, without
from guard.audit.reading import PAGE, being_written, rows_after, rows_in
from guard.audit.services import observe

logger = logging.getLogger(__name__)

_LOOK_AT_ONCE = 2000  # ranges of missing ids that one seal looks at
_WIDEST = 10_000_000  # ids: a gap past this is somebody's doing, and is never given up

_known: Chain | None = None
_known_lock = threading.Lock()


def forget_chain() -> None:
    """Drops what this process knows of the chain: what it remembers on disk stays."""
    global _known
    with _known_lock:
        _known = None


@dataclass
class Sealed:
    """What one pass has done. behind: there is more to seal at once. lost: another sealer was first."""

    seals: int = 0
    rows: int = 0
    behind: bool = False
    lost: bool = False


def seal_waiting(*, seconds: float = 0.3) -> Sealed:
    """Seals what waits, a seal for each 5000 rows, until nothing does or `seconds` are over.

    Cost in a quiet second: 2 queries. In a busy one: 4 and an INSERT a seal; 5000 rows take about 0.2 s.
    Not inside a transaction: rows of one's own that are not committed would be sealed with the rest.
    Errors: DatabaseError; what was sealed before stays.
    """
    done = Sealed()
    until = time.monotonic() + seconds
    with _known_lock:
        while True:
            one = _seal_one()
            done.seals += one.seals
            done.rows += one.rows
            done.behind, done.lost = one.behind, one.lost
            if not one.behind or time.monotonic() >= until:
                return done


def _seal_one() -> Sealed:
    """Steps: 1. where the chain ends; 2. late rows among the ids that were missing and are due; 3. the rows since, and
    which ids are missing among them; 4. which missing ids are given up; 5. the seal, whose INSERT is the claim; 6. its
    head is remembered beside the database.
    """
    global _known
    chain = _known = find(_known, _remembered)
    at = chain_module.elapsed()
    due, looked = _due(chain, at)
    late = rows_in(due, limit=PAGE) if due else []
    fresh = rows_after(chain.head_id, limit=PAGE)
    behind = len(fresh) == PAGE or len(late) == PAGE
    closed = _given_up(looked, late, at) if len(late) < PAGE else []
    if len(late) < PAGE:
        for gap in looked:
            gap.look_again(at)
    was_cut = chain.cut
    if not late and not fresh and not closed and not was_cut:
        return Sealed()
    fields = _fields(chain, late + fresh, fresh, closed)
    seal = AuditSeal(**fields, mac=sealkeys.sign(sealkeys.SEAL, seal_bytes(fields))[1])
    try:
        _commit(seal)
    except IntegrityError:
        return Sealed(lost=True)  # another sealer made this number; the next pass goes on after it
    made = {**fields, "mac": seal.mac}
    chain.follow(made)
    memory.remember(made)
    if was_cut:
        _tell_cut(chain)
    _tell_unsound(late + fresh, chain)
    return Sealed(seals=1, rows=seal.count, behind=behind)


def _remembered() -> list[tuple[int, str]]:
    return [(one.number, one.mac) for one in memory.remembered_anywhere()]


def _commit(seal: AuditSeal) -> None:
    """On disk when it returns, with all that was committed before: what is remembered elsewhere must not outlive it."""
    if connection.vendor != "sqlite":
        with transaction.atomic(durable=True):
            seal.save(force_insert=True)
        return
    if connection.in_atomic_block:
        raise RuntimeError("rows are not sealed within a transaction that is not durable")
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA synchronous=FULL")
        try:
            with transaction.atomic(durable=True):
                seal.save(force_insert=True)
        finally:
            cursor.execute("PRAGMA synchronous=NORMAL")


def _due(chain: Chain, at: float) -> tuple[Ranges, list[Gap]]:
    """Missing ids to look at now, ascending, oldest gaps first where there are many; and the gaps they are of."""
    ranges: Ranges = []
    looked: list[Gap] = []
    for gap in sorted(chain.gaps.values(), key=lambda gap: gap.due):
        if gap.due > at or len(ranges) + len(gap.ranges) > max(_LOOK_AT_ONCE, len(gap.ranges)):
            break
        ranges += gap.ranges
        looked.append(gap)
    return sorted(ranges), looked


def _given_up(looked: list[Gap], late: list[Row], at: float) -> Ranges:
    """Of the ids that this process has looked for long enough, by time that has passed and not by a clock, those that
    no transaction holds. Another process, or this one started anew, begins to wait again."""
    old = sorted(
        pair
        for gap in looked
        if at - gap.seen >= settings.AUDIT_GAP_SECONDS
        for pair in gap.ranges
        if pair[1] - pair[0] < _WIDEST
    )
    left = without(old, ranges_of(row.id for row in late))
    if being_written(left):
        return []
    # Committed between the look and the question: the next look finds it.
    return left if left and not rows_in(left, limit=1) else []


def _fields(chain: Chain, rows: list[Row], fresh: list[Row], closed: Ranges) -> dict[str, Any]:
    members = ranges_of(row.id for row in rows)
    opened = missing_between(chain.head_id, [row.id for row in fresh])
    still = [number for number, gap in sorted(chain.gaps.items()) if without(without(gap.ranges, members), closed)]
    return new_seal(
        number=chain.free,
        at=now(),
        from_id=chain.head_id,
        head_id=fresh[-1].id if fresh else chain.head_id,
        rows=rows,
        total=chain.total + len(rows),
        opened=opened,
        closed=closed,
        oldest_open=still[0] if still else chain.free if opened else 0,
        previous_mac=chain.previous_mac,
    )


def _tell_cut(chain: Chain) -> None:
    """Once for a chain whose head was gone; verify_audit names the hole for good."""
    observe(
        tenant="default",
        event_type=EventType.AUDIT_VERIFY,
        decision=Decision.FAILED,
        actor_type=ActorType.SYSTEM,
        actor_id="guard.audit.seal",
        object_type="audit_log",
        code="CHAIN_CUT",
        input_summary={"code": "CHAIN_CUT", "seal": chain.number},
    )


def _tell_unsound(rows: list[Row], chain: Chain) -> None:
    """A row whose own mac is wrong was changed, or written by a stranger, before it was sealed: told at once, in one
    row for all of a seal. Where even that cannot be written, the log has it, and verify_audit finds it again.

    A row whose key is not here is no such row: another process has a newer key already (a WARNING)."""
    keys = sealkeys.ring()
    unsound: list[int] = []
    unknown: dict[str, int] = {}
    for row in rows:
        if not row.mac and row.id <= chain.base_adopted:
            continue
        try:
            if not row_holds(row, keys):
                unsound.append(row.id)
        except sealkeys.UnknownKey as missing:
            unknown[missing.key_id] = unknown.get(missing.key_id, 0) + 1
    for key_id, many in unknown.items():
        logger.warning(
            "%s audit rows under seal %s have macs of the key %r, which is not here: not checked yet",
            many, chain.number, key_id,
        )  # fmt: skip
    if not unsound:
        return
    logger.error(
        "%s audit rows from id %s on were changed or added past record() before seal %s",
        len(unsound), unsound[0], chain.number,
    )  # fmt: skip
    observe(
        tenant="default",
        event_type=EventType.AUDIT_VERIFY,
        decision=Decision.FAILED,
        actor_type=ActorType.SYSTEM,
        actor_id="guard.audit.seal",
        object_type="audit_log",
        object_id=str(unsound[0]),
        code="ROW_MAC",
        input_summary={"code": "ROW_MAC", "seal": chain.number, "rows": len(unsound)},
    )


# --- how far behind ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backlog:
    """rows: not sealed yet, about (by ids). age: seconds of the oldest of them. sealed: rows in the chain."""

    rows: int
    age: float
    sealed: int
    seals: int


def backlog() -> Backlog:
    """4 queries by primary keys. Late rows below the head are not counted: they are looked for within seconds."""
    head = newest()
    head_id, total, seals = (head["head_id"], head["total"], head["number"]) if head else (0, 0, 0)
    oldest = AuditLog.objects.filter(pk__gt=head_id).order_by("pk").values_list("pk", "at").first()
    if oldest is None:
        return Backlog(0, 0.0, total, seals)
    last = AuditLog.objects.order_by("-pk").values_list("pk", flat=True).first() or oldest[0]
    return Backlog(last - oldest[0] + 1, max(0.0, (now() - oldest[1]).total_seconds()), total, seals)
