"""Mending what `reconcile` found. Each repair is harmless beside traffic, and harmless to repeat."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import DatabaseError, transaction

from config.base import redis as base_redis
from config.base.clock import from_micros, now
from config.base.db import retry_conflicts
from config.base.fields import canonical_json
from config.base.redis import Script
from memory.sessions.entries import Entry, Message, content_digest
from memory.sessions.findings import (
    CEILING_LOW,
    DAMAGED,
    DELETED_OPEN,
    DETACHED,
    LOST_MESSAGE,
    STALE_STATE,
    Finding,
    losses,
)  # fmt: skip
from memory.sessions.healing import heal, read_item
from memory.sessions.keys import PENDING
from memory.sessions.looking import Seen, reader
from memory.sessions.models import AgentSession, SessionNumbering
from memory.sessions.owners import Owner
from memory.sessions.persist import persist
from memory.sessions.reopen import clear_mark, close_in_redis, suspicion, take_out_of_use

logger = logging.getLogger(__name__)

_unblock = Script.beside(__file__, "unblock")


def mend(seen: Seen, findings: Sequence[Finding]) -> None:
    """Mends one session's faults and says so in the findings (`repaired`).

    Steps: 1. a ceiling goes above every number in use, before anything is numbered again; 2. messages that stand
    whole in the window go into MySQL under the number that their receipts name; 3. outdated or damaged state in Redis
    is taken out of use, and is made again from MySQL and the stream. What has no text anywhere stays a loss, and what
    is for people to decide (dead letters, turns of a path) stays open.
    """
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.open:
            by_kind.setdefault(finding.kind, []).append(finding)
    for finding in by_kind.get(CEILING_LOW, []):
        raise_ceiling(seen.owner, finding.last, given=max(seen.highest_stored, seen.hot.seq))
        finding.repaired = "raised"
    lost = by_kind.get(LOST_MESSAGE, [])
    if lost and seen.row.deleted_at is None:
        back = put_back(seen.owner, {finding.entry_id for finding in lost})
        for finding in lost:
            if finding.entry_id in back:
                finding.repaired = "put back from the window"
    for finding in by_kind.get(DELETED_OPEN, []):
        close_in_redis(seen.owner)
        finding.repaired = "dropped"
    for finding in by_kind.get(STALE_STATE, []):
        take_out_of_use(seen.owner)
        finding.repaired = "taken out of use"
    for finding in by_kind.get(DETACHED, []):
        take_out_of_use(seen.owner)
        clear_mark(seen.row.pk, seen.row.detached_at)
        finding.repaired = "reattached"
    damaged = by_kind.get(DAMAGED, [])
    if damaged:
        named = [seq for _, seq in seen.hot.window] + [seq for seq, _ in seen.hot.receipts.values()]
        # Only numbers of the range in use: others are above it because they went past Redis.
        known = max([seen.highest_given, *(seq for seq in named if seq <= seen.row.lease_to)])
        heal(seen.owner, known=known, broken=seen.hot.broken)
        if seen.row.deleted_at is not None:
            close_in_redis(seen.owner)
        logger.error("session %s: its state in Redis was damaged and is made again", seen.row.pk)
    for finding in damaged:
        finding.repaired = "to be made again"


def unblock_queue() -> bool:
    """Removes the key of the queue where it is no stream. 1 round trip. Errors: RedisUnavailable."""
    kind = _unblock(base_redis.state(), [PENDING()])
    if kind:
        logger.error("the queue was a %s: removed", kind)
    return bool(kind)


def raise_ceiling(owner: Owner, used: int, *, given: int) -> None:
    """The session numbers above `used` from now on; Redis's state is made again.

    given: the highest number that is known to have been given; what lies between the two never was.
    """

    def work() -> None:
        with transaction.atomic(durable=True):
            row = AgentSession.objects.select_for_update().get(pk=owner.pk)
            if row.seq_ceiling < used:
                SessionNumbering.objects.update_or_create(
                    session_row_id=owner.pk,
                    kind=SessionNumbering.Kind.OUTAGE,
                    first=row.seq_ceiling + 1,
                    defaults={"last": used, "used_to": given, "note": "ceiling_raised"},
                )
                row.seq_ceiling = used
                row.detached_at = now()
                row.save(update_fields=["seq_ceiling", "detached_at"])

    retry_conflicts(work)
    suspicion.raise_()
    take_out_of_use(owner)


def put_back(owner: Owner, wanted: set[str]) -> set[str]:
    """Messages that stand whole in the window, into MySQL; returns the entry ids that are there now."""
    with base_redis.translated():
        client = reader()
        items = client.lrange(owner.keys[1], 0, -1) if client.type(owner.keys[1]) == "list" else []
    entries: list[Entry] = []
    before = ""
    for found in map(read_item, items):
        if found is not None and found.entry_id in wanted and not found.cut:
            entries.append(_entry(owner, found, before))
        before = found.entry_id if found is not None else ""
    if not entries:
        return set()
    try:
        outcome = persist(entries)
    except DatabaseError as error:
        logger.error("nothing put back of session %s: %s", owner.session_id, type(error).__name__)
        raise
    back = {entry.entry_id for entry in (*outcome.stored, *outcome.known)}
    logger.warning("session %s: %s messages put back from the window", owner.session_id, len(back))
    return back


def _entry(owner: Owner, found: Message, parent: str) -> Entry:
    text = None if found.payload is None else canonical_json(found.payload)
    encoded = found.content.encode()
    return Entry(
        session_pk=owner.pk,
        tenant=owner.tenant,
        agent=owner.agent,
        session_id=owner.session_id,
        entry_id=found.entry_id,
        seq=found.seq,
        role=found.role,
        content=found.content,
        payload=found.payload,
        size=len(encoded) + (len(text.encode()) if text else 0),
        digest=content_digest(found.role, encoded, text),
        trace_id="",
        created_at=from_micros(owner.born_us + found.at_us),
        parent=parent,
        entry_type=found.entry_type,
    )


def accept(seen: Seen, findings: Sequence[Finding], who: str) -> None:
    """Writes down that somebody knows of these losses: from now on they are explained gaps."""
    for finding in losses(findings):
        SessionNumbering.objects.update_or_create(
            session_row_id=seen.row.pk,
            kind=SessionNumbering.Kind.ACCEPTED,
            first=finding.first,
            defaults={"last": finding.last, "note": f"{finding.kind}: taken note of by {who}"[:200], "at": now()},
        )
        finding.repaired = "taken note of"
