"""The sealer: takes the rows that no seal holds yet, in order of id, and adds a link to the chain.

Nothing here is on the way of a writer: `record()` stays one INSERT, and the sealer reads without locks.

Ids are given out before transactions commit, so that a row may come late, below ids that are sealed already. A seal
therefore also lists the ids that were missing (`opened`); they are looked at again, each second while they are young,
and a row found there goes into a later seal. An id that is still unused after AUDIT_GAP_SECONDS belonged to a
transaction that was abandoned: it is given up (`closed`), and a row that appears there later is tampering.

Two sealers at once are harmless: the chain's number is the primary key, and whoever is second has made nothing.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, connection, transaction

from config.base.clock import now
from guard.audit import sealkeys
from guard.audit.canonical import Row, leaf_of, row_holds, seal_bytes, seal_holds
from guard.audit.models import ActorType, AuditLog, AuditSeal, Decision, EventType
from guard.audit.ranges import Ranges, missing_between, ranges_of, without
from guard.audit.reading import PAGE, head, is_sound, rows_after, rows_in, seal_fields, stream_seals
from guard.audit.services import observe

logger = logging.getLogger(__name__)

# Missing ids are looked at again after a quarter of their age, between these (seconds).
SOONEST, LATEST = 1.0, 30.0
_LOOK_AT_ONCE = 2000  # ranges of missing ids that one seal looks at


@dataclass
class Gap:
    """Ids that a seal found missing. due: when they are looked at again."""

    ranges: Ranges
    number: int
    opened_at: datetime
    due: datetime

    def look_again(self, at: datetime) -> None:
        age = (at - self.opened_at).total_seconds()
        self.due = at + timedelta(seconds=max(SOONEST, min(LATEST, age / 4)))


@dataclass
class Chain:
    """The chain as far as this process knows it: its head, and what is still open."""

    number: int = 0
    mac: str = ""
    head_id: int = 0
    total: int = 0
    adopted: int = 0
    gaps: dict[int, Gap] = field(default_factory=dict)  # by the seal that opened them

    def follow(self, seal: dict[str, Any]) -> None:
        """Goes on to the next seal. One that was made shapeless tells nothing: verify_audit names it."""
        if not is_sound(seal):
            return
        for number, gap in list(self.gaps.items()):
            gap.ranges = without(without(gap.ranges, seal["members"]), seal["closed"])
            if not gap.ranges:
                del self.gaps[number]
        if seal["opened"]:
            self.gaps[seal["number"]] = Gap(seal["opened"], seal["number"], seal["at"], seal["at"])
        self.number, self.mac = seal["number"], seal["mac"]
        self.head_id, self.total = seal["head_id"], seal["total"]
        self.adopted = self.adopted or seal["adopted"]


_known: Chain | None = None
_known_lock = threading.Lock()


def forget_chain() -> None:
    """Drops what this process knows of the chain (a database was put back, a test emptied it)."""
    global _known
    with _known_lock:
        _known = None


def _chain() -> Chain:
    """The chain as it stands: what this process knows and the seals since; from the beginning of what is open where
    it knows nothing, or where what it knows is not there any more. 1 query in a quiet second."""
    newest = head()
    if newest is None:
        return Chain()
    known = _known
    if known is not None and known.number == newest.number and known.mac == newest.mac:
        return known
    goes_on = known is not None and 0 < known.number < newest.number
    if known is not None and goes_on and AuditSeal.objects.filter(number=known.number, mac=known.mac).exists():
        for seal in stream_seals(after=known.number, up_to=newest.number):
            known.follow(seal)
        return known
    first = AuditSeal.objects.filter(number=1).values_list("adopted", flat=True).first()
    chain = Chain(adopted=first or 0)
    for seal in stream_seals(after=(newest.oldest_open or newest.number) - 1, up_to=newest.number):
        chain.follow(seal)
    # Going on in any case keeps what comes now evident; verify_audit names what was done before.
    try:
        if not seal_holds(seal_fields(newest), sealkeys.ring()):
            logger.error("audit seal %s does not hold: run manage.py verify_audit", newest.number)
    except sealkeys.UnknownKey as unknown:
        logger.error("audit seal %s cannot be checked: %s", newest.number, unknown)
    return chain


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
    which ids are missing among them; 4. which missing ids are given up; 5. the seal, whose INSERT is the claim.
    """
    global _known
    at = now()
    chain = _chain()
    _known = chain
    due, looked = _due(chain, at)
    late = rows_in(due, limit=PAGE) if due else []
    fresh = rows_after(chain.head_id, limit=PAGE)
    behind = len(fresh) == PAGE or len(late) == PAGE
    closed = _given_up(looked, late, at) if len(late) < PAGE else []
    if len(late) < PAGE:
        for gap in looked:
            gap.look_again(at)
    if not late and not fresh and not closed:
        return Sealed()
    fields = _fields(chain, late + fresh, fresh, closed, at)
    seal = AuditSeal(**fields, mac=sealkeys.sign(sealkeys.SEAL, seal_bytes(fields))[1])
    try:
        with transaction.atomic(durable=True):
            seal.save(force_insert=True)
    except IntegrityError:
        return Sealed(lost=True)  # another sealer made this number; the next pass goes on after it
    chain.follow(seal_fields(seal))
    _tell_unsound(late + fresh, chain)
    return Sealed(seals=1, rows=seal.count, behind=behind)


def _due(chain: Chain, at: datetime) -> tuple[Ranges, list[Gap]]:
    """Missing ids to look at now, ascending, oldest gaps first where there are many; and the gaps they are of."""
    ranges: Ranges = []
    looked: list[Gap] = []
    for gap in sorted(chain.gaps.values(), key=lambda gap: gap.due):
        if gap.due > at or len(ranges) + len(gap.ranges) > max(_LOOK_AT_ONCE, len(gap.ranges)):
            break
        ranges += gap.ranges
        looked.append(gap)
    return sorted(ranges), looked


def _given_up(looked: list[Gap], late: list[Row], at: datetime) -> Ranges:
    patience = timedelta(seconds=settings.AUDIT_GAP_SECONDS)
    old = sorted(pair for gap in looked if at - gap.opened_at >= patience for pair in gap.ranges)
    return without(old, ranges_of(row.id for row in late))


def _fields(chain: Chain, rows: list[Row], fresh: list[Row], closed: Ranges, at: datetime) -> dict[str, Any]:
    members = ranges_of(row.id for row in rows)
    opened = missing_between(chain.head_id, [row.id for row in fresh])
    still = [number for number, gap in sorted(chain.gaps.items()) if without(without(gap.ranges, members), closed)]
    number = chain.number + 1
    digest, leaves = hashlib.sha256(), []
    for row in rows:
        digest.update(row.whole + b"\n")
        leaves.append(leaf_of(row))
    return {
        "number": number,
        "at": at,
        "from_id": chain.head_id,
        "head_id": fresh[-1].id if fresh else chain.head_id,
        "members": members,
        "count": len(rows),
        "total": chain.total + len(rows),
        "opened": opened,
        "closed": closed,
        "oldest_open": still[0] if still else number if opened else 0,
        "adopted": _older_than_seals() if number == 1 else 0,
        "digest": digest.hexdigest(),
        "leaves": base64.b64encode(b"".join(leaves)).decode(),
        "previous_mac": chain.mac,
        "key_id": next(iter(sealkeys.ring())),
    }


def _older_than_seals() -> int:
    """The last id of the rows that were there before rows had macs. Asked once, when the chain begins."""
    return AuditLog.objects.filter(mac="").order_by("-id").values_list("id", flat=True).first() or 0


def _tell_unsound(rows: list[Row], chain: Chain) -> None:
    """A row whose own mac is wrong was changed, or written by a stranger, before it was sealed: told at once, in one
    row for all of a seal. Where even that cannot be written, the log has it, and verify_audit finds it again."""
    keys = sealkeys.ring()
    unsound = [row.id for row in rows if not _is_own(row, chain.adopted, keys)]
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


def _is_own(row: Row, adopted: int, keys: sealkeys.Ring) -> bool:
    if row.id <= adopted and not row.mac:
        return True
    try:
        return row_holds(row, keys)
    except sealkeys.UnknownKey:
        return False


# --- how far behind ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Backlog:
    """rows: not sealed yet, about (by ids). age: seconds of the oldest of them. sealed: rows in the chain."""

    rows: int
    age: float
    sealed: int
    seals: int


def backlog() -> Backlog:
    """2 queries by primary keys. Late rows below the head are not counted: they are looked for within seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT number, head_id, total FROM audit_seal ORDER BY number DESC LIMIT 1")
        number, head_id, total = cursor.fetchone() or (0, 0, 0)
    oldest = AuditLog.objects.filter(pk__gt=head_id).order_by("pk").values_list("pk", "at").first()
    if oldest is None:
        return Backlog(0, 0.0, int(total), int(number))
    newest = AuditLog.objects.order_by("-pk").values_list("pk", flat=True).first() or oldest[0]
    return Backlog(newest - oldest[0] + 1, max(0.0, (now() - oldest[1]).total_seconds()), int(total), int(number))
