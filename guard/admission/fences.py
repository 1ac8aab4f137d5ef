"""Fencing numbers of sessions, and the one way of a fenced write.

Redis gives the numbers (admit.lua), in blocks that the table `fence` has leased to it before: they only grow, also when
Redis was emptied or has lost its newest writes. Whoever writes for a run does it within `fenced`: the session's row is
raised to the writer's number in the same transaction, and a number lower than the row's writes nothing.
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
            first = max(row.ceiling, row.seen, floor) + 1
            row.ceiling = first + LEASED_AT_ONCE - 1
            row.save(update_fields=["ceiling"])
            return first, row.ceiling

    return retry_conflicts(work, also=(IntegrityError,))


class _Stale(Exception):
    pass


@contextmanager
def fenced(*, caller: Caller, session_id: str, fence: int) -> Iterator[None]:
    """A transaction in which the holder of `fence` writes: nothing is written when a higher number has written before,
    or when MySQL has never leased this one.

    It is the outermost one: a refusal's audit row is written after it has ended. Cost: 1 query.
    Errors: STALE_FENCE (409), before the block runs.
    """
    try:
        with transaction.atomic(durable=True):
            rows = Fence.objects.filter(tenant=caller.tenant, session_id=session_id)
            # The row stays locked until the commit: of two holders the lower cannot slip in behind.
            if not rows.filter(seen__lte=fence, ceiling__gte=fence).update(seen=fence):
                raise _Stale
            yield
    except _Stale:
        raise _refused(caller, session_id, fence) from None


def _refused(caller: Caller, session_id: str, fence: int) -> DomainError:
    seen = Fence.objects.filter(tenant=caller.tenant, session_id=session_id).values_list("seen", flat=True).first()
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
        input_summary={"fence": fence, "seen": seen},
    )
    return DomainError("STALE_FENCE", f"fence {fence} of session {session_id!r} is not the newest; stop", fence=fence)


def fenced_update(queryset: QuerySet[Any], *, caller: Caller, session_id: str, fence: int, **values: Any) -> int:
    """`queryset.update(**values)` by the holder of `fence`, as `fenced`. Returns how many rows were met."""
    with fenced(caller=caller, session_id=session_id, fence=fence):
        return queryset.update(**values)
