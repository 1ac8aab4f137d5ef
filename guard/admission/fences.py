"""Fencing numbers of sessions, and the one way of a fenced write.

Redis gives the numbers (admit.lua), in blocks that the table `fence` has leased to it before: they only grow, also when
Redis was emptied or has lost its newest writes. The one that a run was admitted with is in the session's row before the
run is told (`note_issued`). Whoever writes for a run does it within `fenced`: any other number writes nothing, from the
moment that a later run was admitted, whatever has become of Redis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.redis import RUN_ID, Script
from guard.access.services import Caller
from guard.admission import keys, wires
from guard.admission.models import Fence
from guard.audit.models import Decision, EventType
from guard.audit.services import record

_fence = Script.beside(__file__, "fence")

LEASED_AT_ONCE = 100

FloorOf = Callable[[str, str], int]
_floor_of: FloorOf | None = None


def register_fence_floor(resolver: FloorOf) -> None:
    """Told at ready() by the room that keeps runs: (tenant, session_id) -> highest number among them. Numbers start
    above it, also where the table `fence` has lost its row."""
    global _floor_of
    _floor_of = resolver


def lease(tenant: str, session_id: str, asked_by: str, mark: str) -> None:
    """Leases the next numbers and gives them to Redis. Cost: 1 round trip, 2 queries (3 with a resolver).

    asked_by: run id of the server that asked; mark: the one that it gave. Of those that ask at once, the first brings
    numbers and the others lease some that nobody uses.
    """
    first, last = _lease_from_database(tenant, session_id)
    names = {"session_id": session_id}
    _fence(
        wires.client(),
        [keys.FENCE(tenant, **names), keys.FENCE_LEASED(tenant, **names)],
        [RUN_ID, asked_by, mark, first, last, keys.FENCE_SECONDS],
    )


def _lease_from_database(tenant: str, session_id: str) -> tuple[int, int]:
    floor = _floor_of(tenant, session_id) if _floor_of is not None else 0

    def work() -> tuple[int, int]:
        with transaction.atomic(durable=True):
            rows = Fence.objects.select_for_update().order_by()
            row = rows.filter(tenant=tenant, session_id=session_id).first()
            if row is None:
                row = Fence.objects.create(tenant=tenant, session_id=session_id)
            first = max(row.ceiling, row.issued, row.seen, floor) + 1
            row.ceiling = first + LEASED_AT_ONCE - 1
            row.save(update_fields=["ceiling"])
            return first, row.ceiling

    return retry_conflicts(work, also=(IntegrityError,))


def note_issued(tenant: str, session_id: str, fence: int) -> bool:
    """This number is the session's newest from here on. False where a higher one is: another run was admitted.

    Waits for a write of the holder before that is under way. Cost: 1 query (3 where the table has lost the row).
    Errors: the database's."""

    rows = Fence.objects.filter(tenant=tenant, session_id=session_id)

    def work() -> bool:
        with transaction.atomic(durable=True):
            row = rows.select_for_update().order_by().first()
            if row is None:  # a table put back from before its lease: Redis goes on
                Fence.objects.create(tenant=tenant, session_id=session_id, ceiling=fence, issued=fence)
                return True
            if row.ceiling < fence:
                row.ceiling = row.issued = fence
                row.save(update_fields=["ceiling", "issued"])
                return True
            return False

    # Nearly always one statement, which is its own transaction.
    if retry_conflicts(lambda: rows.filter(issued__lt=fence, seen__lte=fence, ceiling__gte=fence).update(issued=fence)):
        return True
    return retry_conflicts(work, also=(IntegrityError,))


class _Stale(Exception):
    pass


@contextmanager
def fenced(*, caller: Caller, session_id: str, fence: int) -> Iterator[None]:
    """A transaction in which the holder of `fence` writes: nothing is written unless this is the newest number that a
    run of the session was admitted with.

    It is the outermost one: a refusal's audit row is written after it has ended. Cost: 1 query.
    Errors: INVALID_REQUEST; STALE_FENCE (409), before the block runs.
    """
    if isinstance(fence, bool) or not isinstance(fence, int) or not 0 < fence < 2**53:
        raise DomainError("INVALID_REQUEST", "fence must be the whole number that the run's admission gave")
    try:
        with transaction.atomic(durable=True):
            rows = Fence.objects.filter(tenant=caller.tenant, session_id=session_id)
            # The row stays locked until the commit: of two holders the lower cannot slip in behind.
            if not rows.filter(issued=fence, seen__lte=fence).update(seen=fence):
                raise _Stale
            yield
    except _Stale:
        raise _refused(caller, session_id, fence) from None


def _refused(caller: Caller, session_id: str, fence: int) -> DomainError:
    rows = Fence.objects.filter(tenant=caller.tenant, session_id=session_id).order_by()
    newest = rows.values_list("issued", flat=True).first()
    record(
        tenant=caller.tenant,
        event_type=EventType.FENCE,
        decision=Decision.STALE_REJECTED,
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        agent=caller.agent,
        object_type="session",
        object_id=session_id,
        code="STALE_FENCE",
        input_summary={"fence": fence, "newest": newest},
    )
    return DomainError("STALE_FENCE", f"fence {fence} of session {session_id!r} is not the newest; stop", fence=fence)


def fenced_update(queryset: QuerySet[Any], *, caller: Caller, session_id: str, fence: int, **values: Any) -> int:
    """`queryset.update(**values)` by the holder of `fence`, as `fenced`. Returns how many rows were met."""
    with fenced(caller=caller, session_id=session_id, fence=fence):
        return queryset.update(**values)
