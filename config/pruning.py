"""Removes what is over: of each table what its room has registered (config/base/retention.py), a batch at a time.

One batch:
1. Find due rows by primary key, without a lock.
2. In one transaction: lock the tenants' gates, which placing a legal hold locks too, and leave out what is held; leave
   out what is needed all the same; lock the rest by primary key (what another has locked is left to the next run) and
   ask whether it is still due; remove it; put it on the audit record; commit.
Nothing is remembered between batches: what is gone is gone, so a killed run is gone on with by the next, and two at
once take nothing from each other.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError, transaction

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.removal import delete_by_key
from config.base.retention import Person, Retention, Rows
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.erasure.models import LegalHold
from memory.erasure.running import gate, with_gate

logger = logging.getLogger(__name__)

BATCH = 500  # rows of one transaction
WINDOW = 5000  # rows of a table that one look takes in
TURN_SECONDS = 5.0  # of one table, until the next has its turn


@dataclass
class Pruned:
    """What became of a table. removed: rows of its own; also: rows of other tables that went with them.

    held: rows that a legal hold keeps. spared: rows that are over and needed all the same. done: nothing is left that
    could go. error: the kind of error that ended it.
    """

    name: str
    days: int | None
    removed: int = 0
    also: Counter[str] = field(default_factory=Counter)
    held: int = 0
    spared: int = 0
    batches: int = 0
    done: bool = False
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "also": dict(self.also)}


@dataclass(frozen=True)
class _Run:
    rule: Retention
    rows: Rows
    cutoff: datetime
    tenant: str | None
    batch: int
    dry_run: bool
    result: Pruned


def prune(
    rules: Sequence[Retention],
    *,
    tenant: str | None = None,
    batch: int = BATCH,
    seconds: float | None = None,
    dry_run: bool = False,
    at: datetime | None = None,
    progress: Callable[[Pruned, int], None] | None = None,
) -> list[Pruned]:
    """Removes what is over now under these rules; the tables take turns, so that a long one keeps none waiting.

    tenant: only that one's rows; tables without a tenant are left out. batch: rows of one transaction. seconds: no
    batch begins later than that. dry_run: counts, and removes nothing. at: judged as of then. progress: called after
    each batch with the rows that went in it. A table that fails is told of in its result and in the log; the others
    go on.
    """
    at = at or now()
    results = [Pruned(rule.name, rule.period) for rule in rules]
    waiting: list[tuple[Pruned, Iterator[int]]] = []
    for rule, result in zip(rules, results, strict=True):
        if rule.rows is not None and (tenant is None or rule.rows.has_tenant):
            run = _Run(rule, rule.rows, rule.cutoff(at), tenant, batch, dry_run, result)
            waiting.append((result, _batches(run)))
        elif rule.sweep is not None and tenant is None and not dry_run:
            waiting.append((result, _sweeps(rule, batch)))
        else:
            result.done = True
    until = None if seconds is None else time.monotonic() + seconds
    while waiting:
        waiting = [pair for pair in waiting if _turn(*pair, until=until, progress=progress)]
        if until is not None and time.monotonic() >= until:
            break
    return results


def _turn(
    result: Pruned, work: Iterator[int], *, until: float | None, progress: Callable[[Pruned, int], None] | None
) -> bool:
    """Whether there is more to do."""
    turn_ends = time.monotonic() + TURN_SECONDS
    try:
        while until is None or time.monotonic() < until:
            many = next(work, None)
            if many is None:
                result.done = True
                return False
            result.removed += many
            result.batches += 1
            if progress is not None:
                progress(result, many)
            if time.monotonic() >= turn_ends:
                return True
    except (DatabaseError, DomainError) as error:
        result.error = error.code if isinstance(error, DomainError) else type(error).__name__
        logger.error("prune: %s goes no further: %s", result.name, result.error)
        return False
    return True


def _sweeps(rule: Retention, batch: int) -> Iterator[int]:
    """Removals of a room's own."""
    if rule.sweep is not None:
        while many := retry_conflicts(partial(rule.sweep, limit=batch)):
            yield many


def _batches(run: _Run) -> Iterator[int]:
    """Rows that went, batch by batch."""
    while True:
        went = 0
        found = run.rows.find(run.cutoff, run.tenant, run.batch) if run.rows.find else _walk(run)
        for keys in found:
            for many in _steps(run, keys):
                went += many
                yield many
        if not (run.rows.again and went) or run.dry_run:
            return
        run.result.held = run.result.spared = 0  # counted anew by the next walk


def _walk(run: _Run) -> Iterator[list[Any]]:
    """Keys of due rows in the order of the primary key. Per window 1 query for its end and 1 for each batch in it."""
    rows = run.rows
    everything = rows.model._default_manager.order_by("pk")
    due = rows.due(run.cutoff).order_by("pk")
    if run.tenant is not None:
        due = due.filter(tenant=run.tenant)
    after: Any = None
    while True:
        ahead = everything if after is None else everything.filter(pk__gt=after)
        end = next(iter(ahead.values_list("pk", flat=True)[WINDOW - 1 : WINDOW]), None)
        window: dict[str, Any] = {} if end is None else {"pk__lte": end}
        any_due = False
        while True:
            beyond = window if after is None else {**window, "pk__gt": after}
            keys = list(due.filter(**beyond).values_list("pk", flat=True)[: run.batch])
            if keys:
                any_due = True
                yield keys
                after = keys[-1]
            if len(keys) < run.batch:
                break
        if end is None:
            return
        if rows.grows_with and not any_due:
            older = {f"{rows.grows_with}__lt": run.cutoff}
            if not ahead.filter(**window, **older).exists():
                return
        after = end


@dataclass(frozen=True)
class _Step:
    """What one transaction did. left: keys to go on with."""

    went: int = 0
    left: Sequence[Any] = ()
    held: int = 0
    spared: int = 0
    also: Mapping[str, int] = field(default_factory=dict)


def _steps(run: _Run, keys: Sequence[Any]) -> Iterator[int]:
    """Transactions until none of these rows can go any more."""
    left, first = keys, True
    while left:
        work = partial(_step, run, left)
        step = with_gate(work) if run.rows.people else retry_conflicts(work)
        if first:
            run.result.held += step.held
            run.result.spared += step.spared
        run.result.also.update(step.also)
        left, first = step.left, False
        yield step.went


def _step(run: _Run, keys: Sequence[Any]) -> _Step:
    """One transaction; the docstring of this file says its order."""
    rows = run.rows
    with transaction.atomic(durable=True):
        people = rows.people(keys) if rows.people else {}
        held = _held(rows, keys, people)
        free = [key for key in keys if key not in held]
        spared = set(rows.spare(free, run.cutoff)) if rows.spare and free else set()
        free = [key for key in free if key not in spared]
        nothing = _Step(held=len(held), spared=len(spared))
        if run.dry_run or not free:
            return replace(nothing, went=len(free))
        due = rows.due(run.cutoff).filter(pk__in=free).order_by("pk")
        locked = list(due.select_for_update(skip_locked=not rows.wait).values_list("pk", flat=True))
        if not locked:
            return nothing
        also: Mapping[str, int] = {}
        left: list[Any] = []
        if rows.remove is None:
            delete_by_key(rows.model, locked)
        else:
            also = rows.remove(locked, run.cutoff)
            left = list(due.filter(pk__in=locked).values_list("pk", flat=True))
        gone = [key for key in locked if key not in set(left)]
        _tell(run, people, gone)
        return replace(nothing, went=len(gone), left=left, also=also)


def _held(rows: Rows, keys: Sequence[Any], people: Mapping[Any, Collection[Person]]) -> Collection[Any]:
    """Keys that a legal hold stands against. A hold that is being placed waits for the caller's transaction."""
    if not rows.people:
        return ()
    tenants = sorted({tenant for persons in people.values() for tenant, _ in persons})
    for tenant in tenants:
        gate(tenant)
    in_force = LegalHold.objects.filter(tenant__in=tenants, released_at=None)
    holds: set[Person] = set(in_force.values_list("tenant", "customer_id"))
    if not holds:
        return ()
    if rows.held is not None:
        return set(rows.held(keys, holds))
    return {key for key, persons in people.items() if holds.intersection(persons)}


def _tell(run: _Run, people: Mapping[Any, Collection[Person]], gone: Sequence[Any]) -> None:
    """Puts the end of what may be somebody's on the audit record, one row a tenant."""
    tenants = Counter(tenant for key in gone for tenant in {tenant for tenant, _ in people.get(key, ())})
    for tenant, many in sorted(tenants.items()):
        record(
            tenant=tenant,
            event_type=EventType.ERASURE,
            decision=Decision.COMPLETED,
            actor_type=ActorType.SYSTEM,
            actor_id="prune",
            object_type="retention",
            object_id=run.rule.name,
            input_summary={"rows": many, "before": rfc3339(run.cutoff), "days": run.rule.period},
        )
