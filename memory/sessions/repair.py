"""Mending what `reconcile` found. Each repair is harmless beside traffic, and harmless to repeat."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from django.db import DatabaseError, transaction

from config.base import redis as base_redis
from config.base.clock import from_micros, now
from config.base.db import retry_conflicts
from config.base.fields import canonical_json
from memory.sessions.entries import Entry, content_digest
from memory.sessions.findings import CEILING_LOW, DELETED_OPEN, DETACHED, LOST_MESSAGE, STALE_STATE, Finding, losses
from memory.sessions.looking import Seen
from memory.sessions.models import AgentSession, SessionNumbering
from memory.sessions.owners import Owner
from memory.sessions.persist import persist
from memory.sessions.reopen import clear_mark, close_in_redis, suspicion, take_out_of_use

logger = logging.getLogger(__name__)


def mend(seen: Seen, findings: Sequence[Finding]) -> None:
    """Mends one session's faults and says so in the findings (`repaired`).

    Steps: 1. a ceiling goes above every number in use, before anything is numbered again; 2. messages that stand
    whole in the window go into MySQL under the number that their receipts name; 3. outdated state in Redis is taken
    out of use, and is made again from MySQL and the stream. What has no text anywhere stays a loss.
    """
    by_kind: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.open:
            by_kind.setdefault(finding.kind, []).append(finding)
    for finding in by_kind.get(CEILING_LOW, []):
        raise_ceiling(seen.owner, finding.last)
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


def raise_ceiling(owner: Owner, used: int) -> None:
    """The session numbers above `used` from now on; Redis's state is made again."""

    def work() -> None:
        with transaction.atomic(durable=True):
            row = AgentSession.objects.select_for_update().get(pk=owner.pk)
            if row.seq_ceiling < used:
                row.seq_ceiling = used
                row.detached_at = now()
                row.save(update_fields=["seq_ceiling", "detached_at"])

    retry_conflicts(work)
    suspicion.raise_()
    take_out_of_use(owner)


def put_back(owner: Owner, wanted: set[str]) -> set[str]:
    """Messages that stand whole in the window, into MySQL; returns the entry ids that are there now."""
    with base_redis.translated():
        items: list[str] = base_redis.state().lrange(owner.keys[1], 0, -1)  # type: ignore[assignment]
    entries: list[Entry] = []
    for item in items:
        found = json.loads(item)
        if found["entry_id"] in wanted and "cut" not in found:
            entries.append(_entry(owner, found))
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


def _entry(owner: Owner, found: dict[str, object]) -> Entry:
    content, payload = str(found["content"]), found.get("payload")
    text = None if payload is None else canonical_json(payload)
    encoded = content.encode()
    return Entry(
        session_pk=owner.pk,
        tenant=owner.tenant,
        agent=owner.agent,
        session_id=owner.session_id,
        entry_id=str(found["entry_id"]),
        seq=int(str(found["seq"])),
        role=str(found["role"]),
        content=content,
        payload=payload,
        size=len(encoded) + (len(text.encode()) if text else 0),
        digest=content_digest(str(found["role"]), encoded, text),
        trace_id="",
        created_at=from_micros(int(str(found["at"]))),
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
