"""How a conversation's path is changed: in MySQL, under the lock of the session's row.

Redis's state is taken out of use first, so that nobody numbers meanwhile; what is queued of the session is committed
along with the change; and the state is made again from the new path. With Redis away the change is made all the same,
above every number that was leased.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.db import IntegrityError, transaction

from config.base import redis as base_redis
from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable, Script
from config.base.trace import current_trace_id
from memory.sessions.direct import next_numbers
from memory.sessions.entries import Entry, content_digest, payload_text
from memory.sessions.gone import Strays, by_session, refuse_strays
from memory.sessions.healing import healed
from memory.sessions.models import AgentMessage, AgentSession
from memory.sessions.numbering import given
from memory.sessions.outage import outage
from memory.sessions.owners import Owner
from memory.sessions.paths import tree_of
from memory.sessions.persist import existing, insert_entries
from memory.sessions.reopen import ensure_attached, locked, observe, range_after, reopen, suspicion, undrained
from memory.sessions.tree import Path, Tree

logger = logging.getLogger(__name__)

_hold = Script.beside(__file__, "hold")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a change starts from; the row is locked. last: the highest number that any entry may have.

    whole: nothing is queued. False where Redis is away: entries that are not in MySQL yet may follow its head, or lie
    between those that are.
    """

    row: AgentSession
    tree: Tree
    path: Path
    last: int
    number: Callable[[], int]
    whole: bool = True

    def write(self, owner: Owner, entry_type: str, content: str, payload: Any, parent: str, entry_id: str) -> Entry:
        """An entry of ours under the next number, as a system message."""
        text = payload_text(payload, entry_type)
        entry = Entry(
            owner.pk, owner.tenant, owner.agent, owner.session_id, entry_id, self.number(), "system", content, payload,
            len(content.encode()) + len(text.encode()), content_digest("system", content.encode(), text),
            current_trace_id(), now(), parent=parent, entry_type=entry_type,
        )  # fmt: skip
        insert_entries([entry])
        return entry


def restructure(owner: Owner, change: Callable[[Standing], T], *, moves: bool = True) -> T:
    """Runs a change of the session's path in one transaction, and makes Redis's state anew.

    Steps: 1. lock the row; 2. take Redis's state out of use, so that nobody numbers; 3. commit what the stream holds;
    4. the change; 5. commit; 6. reopen. Dying before 5 changes nothing, after it the next use reopens.
    moves: False for a change that leaves this session's path as it is (2 and 6 are left out then).
    Cost: 3 round trips and about 10 queries, and those of `reopen`. Errors: SESSION_NOT_FOUND, SESSION_DELETED;
    RedisUnavailable where Redis is away and an entry is not in MySQL, for it may still be queued.
    """
    try:
        ensure_attached()
        result = retry_conflicts(lambda: _changed(owner, change, moves), also=(IntegrityError, Strays))
    except RedisUnavailable:
        result = retry_conflicts(lambda: _changed_past_redis(owner, change, moves), also=(IntegrityError,))
        if moves:
            suspicion.raise_()
        return result
    if not moves:
        return result
    try:
        reopen(owner)
    except RedisUnavailable:
        outage.note("paths changed")  # the next use in Redis makes its state anew
    return result


def _commit_queued(owner: Owner) -> None:
    """What the stream holds of the session, and of what it shares, goes to MySQL now, in the caller's transaction; the
    drain then finds it there. What clashes is left to the drain, which buries it.

    Errors: IntegrityError: the drain brings one at this moment; Strays: a session that it shares is being erased.
    """
    queued: dict[int, dict[str, Entry]] = {}
    for entry in undrained(owner, shared=True):
        queued.setdefault(entry.session_pk, {})[entry.entry_id] = entry
    fresh: list[Entry] = []
    for pk, mine in queued.items():
        for entry_id in existing(pk, list(mine)):
            del mine[entry_id]
        numbers = [entry.seq for entry in mine.values()]
        met = set(AgentMessage.objects.filter(session_row_id=pk, seq__in=numbers).values_list("seq", flat=True))
        for entry in mine.values():
            if entry.seq not in met:
                met.add(entry.seq)
                fresh.append(entry)
    shared = [entry for entry in fresh if entry.session_pk != owner.pk]
    if shared:
        shared, _, _ = by_session(shared)
        fresh = [*shared, *(entry for entry in fresh if entry.session_pk == owner.pk)]
    if fresh:
        insert_entries(fresh)
    if shared:
        refuse_strays(shared)


@healed
def _changed(owner: Owner, change: Callable[[Standing], T], moves: bool) -> T:
    given_last = 0
    with transaction.atomic(durable=True):
        row = locked(owner)
        seen: Any = ""
        if moves:
            arguments = [secrets.token_hex(4), settings.SESSION_TTL_SECONDS]
            seen = _hold(base_redis.state(), owner.keys, arguments)
            if seen is None:
                raise DomainError("SESSION_DELETED")
            # After that: a Redis that was restarted before it may have lost the newest numbers, and has another name.
            epoch, run_id, *_ = observe(owner)
        _commit_queued(owner)
        tree = tree_of(owner)
        if not moves:
            return change(Standing(row, tree, tree.head(), 0, _no_number))
        highest = AgentMessage.objects.filter(session_row_id=owner.pk).order_by("-seq").values_list("seq", flat=True)
        last = max(row.lease_from - 1, tree.last_turn, highest.first() or 0)
        last = range_after(row, f"{epoch}.{run_id}"[:64], last, int(seen or 0))
        given_last = last

        def number() -> int:
            nonlocal given_last
            # Redis goes on above it: the range holds at least one number more, and `reopen` finds this one used.
            given_last += 1
            return given_last

        result = change(Standing(row, tree, tree.head(), last, number))
        row.save(update_fields=["seq_ceiling", "lease_from", "lease_to", "lease_epoch"])
    # Committed: what is rolled back has given no number.
    given.note(owner.pk, given_last)
    return result


def _no_number() -> int:
    raise RuntimeError("this change writes no entry of the session")


def _changed_past_redis(owner: Owner, change: Callable[[Standing], T], moves: bool) -> T:
    """What Redis still queues is not seen here: it belongs to the path that the change leaves behind."""
    with transaction.atomic(durable=True):
        row = locked(owner)
        tree = tree_of(owner)
        ceiling = row.seq_ceiling
        if moves:
            next_numbers(row, 0)
        number = (lambda: next_numbers(row, 1)) if moves else _no_number
        try:
            return change(Standing(row, tree, tree.head(), ceiling, number, whole=not row.lease_to))
        except DomainError as error:
            if error.code in ("ENTRY_NOT_FOUND", "EMPTY_SESSION") and row.lease_to:
                raise RedisUnavailable("the entry may be queued in Redis, which is away") from error
            raise
