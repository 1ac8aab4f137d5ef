"""Appends past Redis, into MySQL, while Redis is away.

They number above everything that was ever leased, under the lock of the session's row, and mark the session so that
Redis's state of it is rebuilt before it is used again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.trace import current_trace_id
from memory.sessions.entries import COMMITTED, Entry, Prepared, Receipt, conflict
from memory.sessions.models import AgentSession
from memory.sessions.outage import outage
from memory.sessions.owners import Owner
from memory.sessions.paths import head_of, on_path, tree_of
from memory.sessions.persist import insert_entries
from memory.sessions.reopen import locked, suspicion


def append_past_redis(owner: Owner, prepared: Sequence[Prepared]) -> list[Receipt]:
    """Commits a batch in MySQL, all or nothing. Entries that MySQL has keep their numbers.

    What it follows is the last entry that MySQL has of the path: what Redis still queues is not known here.
    Cost: no Redis, 6 queries. Errors: ENTRY_CONFLICT, SESSION_DELETED, SESSION_NOT_FOUND.
    """

    def work() -> list[Receipt]:
        with transaction.atomic(durable=True):
            row = locked(owner)
            # Ids that we made are asked too: Redis may have done an append whose answer never came.
            have = on_path(owner, [one.entry_id for one in prepared])
            numbers: dict[str, int] = {}
            fresh: list[Entry] = []
            at = now()
            parent = head_of(tree_of(owner).head())[0]
            for one in prepared:
                found = have.get(one.entry_id)
                if found is not None:
                    if found.digest != one.digest:
                        raise conflict(one.entry_id)
                    numbers[one.entry_id] = found.seq
                elif one.entry_id not in numbers:
                    numbers[one.entry_id] = row.seq_ceiling + len(fresh) + 1
                    fresh.append(entry_of(owner, one, numbers[one.entry_id], at, parent=parent))
                    parent = one.entry_id
            if fresh:
                insert_entries(fresh)
                next_numbers(row, len(fresh))
            return [Receipt(one.entry_id, numbers[one.entry_id], COMMITTED) for one in prepared]

    # IntegrityError: the drain brought one of these entries at this moment; the next look finds it.
    receipts = retry_conflicts(work, also=(IntegrityError,))
    outage.note("appends committed")
    suspicion.raise_()
    return receipts


def next_numbers(row: AgentSession, count: int) -> int:
    """Takes numbers above everything leased, and marks the session: MySQL knows more of it than Redis.

    The row is locked by the caller, and saved here. Returns the first of them.
    """
    first, at = row.seq_ceiling + 1, now()
    row.seq_ceiling += count
    # Never the same time twice: clearing the mark is conditional on it.
    row.detached_at = max(at, row.detached_at + timedelta(microseconds=1)) if row.detached_at else at
    row.save(update_fields=["seq_ceiling", "detached_at"])
    return first


def entry_of(
    owner: Owner, one: Prepared, seq: int, created_at: datetime, stream_id: str = "", parent: str = ""
) -> Entry:
    """A checked message with its number, and the entry that it follows."""
    return Entry(
        session_pk=owner.pk,
        tenant=owner.tenant,
        agent=owner.agent,
        session_id=owner.session_id,
        entry_id=one.entry_id,
        seq=seq,
        role=one.role,
        content=one.content,
        payload=None if one.payload is None else json.loads(one.payload),
        size=one.size,
        digest=one.digest,
        trace_id=current_trace_id(),
        created_at=created_at,
        stream_id=stream_id,
        parent=parent,
    )
