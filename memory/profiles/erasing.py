"""What of the profiles an erasure removes, and how: `memory.erasure` calls it.

Rows go through the ORM, so that the room's own invalidation runs: an outbox row in the transaction, DEL after the
commit, the sweeper where Redis was away. An outbox row names the customer, so it goes too as soon as the cached copies
surely have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Count, QuerySet

from config.base.redis import RedisUnavailable
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.profiles import cache, recording
from memory.profiles.models import (
    CustomerProfileL1,
    CustomerProfileL2,
    CustomerProfileL3,
    Profile,
    ProfileChange,
    ProfileVersion,
)
from memory.profiles.sweeping import sweep

NAME = "memory.profiles"
LAYERS: tuple[type[Profile], ...] = (CustomerProfileL1, CustomerProfileL2, CustomerProfileL3)
ROWS_A_STEP = 200


def _of(model: Any, subject: Subject) -> QuerySet[Any]:
    rows: QuerySet[Any] = model.objects.filter(tenant=subject.tenant).order_by()
    return rows if subject.whole_tenant else rows.filter(customer_id=subject.customer_id)


def _remove(model: type[Profile], job: Erasing, step: Step) -> list[Profile]:
    """The next rows, by a locking read: who is writing one at this moment is waited for. Gives back what went."""
    rows: list[Profile] = list(_of(model, job.subject).select_for_update()[:ROWS_A_STEP])
    if rows:
        with recording.gathered_deletions(versions=False):
            _of(model, job.subject).filter(pk__in=[row.pk for row in rows]).delete()
        step.count(model.layer.value, len(rows))
        # What names the outbox rows later, when nobody knows the customer's id any more.
        changes = _of(ProfileChange, job.subject).values_list("pk", flat=True)
        step.remains["changes"] = sorted({*step.remains.get("changes", []), *changes})
    return rows


def _remove_versions(job: Erasing, step: Step) -> int:
    pks = list(_of(ProfileVersion, job.subject).select_for_update().values_list("pk", flat=True)[:ROWS_A_STEP])
    if not pks:
        return 0
    step.count("versions", len(pks))
    return ProfileVersion.objects.filter(pk__in=pks).erase()


def erase(job: Erasing) -> None:
    """Steps: 1. the rows of each layer; 2. all their versions: who was writing a row has committed by then, and without
    rows nobody writes any; 3. the cached copies, and whatever a cache may hold of a customer without a row; 4. the
    outbox rows. With Redis away 4 is the sweeper's, and open until it has come by."""
    gone: list[Any] = []
    for model in LAYERS:
        while rows := job.step(lambda step, model=model: _remove(model, job, step)):  # type: ignore[misc]
            gone += rows
    while job.step(lambda step: _remove_versions(job, step)):
        pass
    if not job.subject.whole_tenant:
        gone += [cache.Slot(job.subject.tenant, layer, job.subject.customer_id) for layer in ("l1", "l3")]
    gone += list(_of(ProfileChange, job.subject))
    try:
        _drop(gone)
    except RedisUnavailable:
        return

    def forget(step: Step) -> None:
        changes = _of(ProfileChange, job.subject)
        pks = list(changes.select_for_update().values_list("pk", flat=True))
        ProfileChange.objects.filter(pk__in=pks).delete()
        step.remains.clear()

    job.step(forget)


def _drop(profiles: Sequence[Any], at_once: int = 500) -> None:
    for start in range(0, len(profiles), at_once):
        cache.drop(profiles[start : start + at_once])


def finish(left: Mapping[str, Any]) -> dict[str, Any] | None:
    """Open until the sweeper is done with the outbox rows; helps it on."""
    sweep()
    pks = list(ProfileChange.objects.filter(pk__in=left.get("changes", [])).values_list("pk", flat=True))
    return {"changes": pks} if pks else None


def count(subject: Subject) -> Counts:
    layers = {model.layer.value: _of(model, subject).count() for model in LAYERS}
    return {**layers, "versions": _of(ProfileVersion, subject).count()}


def tenants() -> dict[str, Counts]:
    """4 queries."""
    table: dict[str, Counts] = {}
    counted = [(f"profiles_{model.layer.value}", model) for model in LAYERS]
    for name, model in (*counted, ("profile_versions", ProfileVersion)):
        rows: Any = model.objects.order_by().values_list("tenant").annotate(Count("pk"))  # type: ignore[attr-defined]
        for tenant, how_many in rows:
            table.setdefault(tenant, {})[name] = how_many
    return table


PART = Part(NAME, count=count, erase=erase, finish=finish, tenants=tenants)
