"""From when a version is what readers are given: nobody is given one, or told of one, before that is written down.

A version's writer says so after its commit and its `DEL`. In between, or where the writer died or Redis did not take
the `DEL`, whoever reads the row from MySQL, or asks about the past, meets a version that nobody has settled. It deletes
the key, so that no other reader finds the version before it any more, and then settles it, before anything is handed
out. The first one to say so counts, whoever it is. So what a reader is given between two instants is the version of one
of them, or of an instant in between.

With Redis away the `DEL` fails and the version is settled all the same: who reads MySQL is given it now.
"""

from __future__ import annotations

from typing import Any

from django.db import models, transaction
from django.db.models import Exists, OuterRef, Value

from config.base.clock import now
from memory.profiles import cache, recording
from memory.profiles.cache import Slot
from memory.profiles.models import Layer, Profile, ProfileVersion


def with_unsettled(rows: models.QuerySet[Any]) -> models.QuerySet[Any]:
    """The rows with `unsettled`: whether nobody has said yet from when their version is what readers are given.

    One look into an index for each row, in the same statement."""
    layer = rows.model.layer
    mine = ProfileVersion.objects.filter(
        tenant=OuterRef("tenant"),
        layer=layer.value,
        customer_id=OuterRef("customer_id"),
        advisor_id=OuterRef("advisor_id") if layer == Layer.L2 else Value(""),
        version=OuterRef("version"),
        visible_at=None,
    )
    return rows.annotate(unsettled=Exists(mine))


def settle_served(slot: Slot, row: Profile | None) -> bool:
    """Before this row (of `with_unsettled`), or that there is none, is handed out. False where that could not be
    written down: then it must not be kept for others.

    Cost: nothing for a settled row; 1 SQL for none; 2 SQL and 1 round trip for what is to be settled. Inside a
    transaction nothing is done: what it reads may be its own, and not committed.
    """
    if transaction.get_connection().in_atomic_block:
        return True
    if row is not None:
        return not getattr(row, "unsettled", False) or settle_up_to(slot, row.version)
    last = _versions(slot).order_by("-version").only("version", "deleted", "visible_at").first()
    if last is None or not last.deleted or last.visible_at is not None:
        return True
    return settle_up_to(slot, last.version)


def settle_up_to(slot: Slot, version: int) -> bool:
    """Settles what is not, of this version and those before it. 2 SQL, 1 round trip."""
    rows = list(
        _versions(slot).filter(visible_at=None, version__lte=version).order_by("pk").values_list("pk", flat=True)
    )
    cache.drop_at_once([slot])
    return recording.settle_quietly(rows, now())


def _versions(slot: Slot) -> models.QuerySet[ProfileVersion]:
    tenant, layer, customer_id, advisor_id = slot
    rows: models.QuerySet[ProfileVersion] = ProfileVersion.objects.filter(
        tenant=tenant, layer=layer, customer_id=customer_id, advisor_id=advisor_id
    )
    return rows
