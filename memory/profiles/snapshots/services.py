"""Loads of snapshots: the core is read, the authoritative copy goes to `customer_profile_l2`, both in one act.

Order. A load is as old as the instant at which it began to read the core, by the database's clock; under the lock of
the l2 row, a load that is older than the copy there gives way to it. So whichever of two loads is slower, the copy and
what is cached of it are the newer one's. An import deletes value and lease before and after its commit
(`forget_snapshots`): a load that read the core before it can keep nothing in the cache.

Versions. Equal figures are not written again, or the history of l2 would fill with equal versions each 15 minutes: the
copy that stands is confirmed (`snapshot_confirmed_at`, no version), answered and cached. Past CONFIRMED_SECONDS it is
written once more, so that its age says no more than a day too much (docs/decisions/0017-snapshots.md).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import IntegrityError, connection, models, transaction

from config.base.clock import business_date, now, rfc3339
from config.base.db import retry_conflicts
from guard.audit.models import ActorType
from memory.core import selectors as core
from memory.core.models import CoreAssignment
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.services import locked, save_version
from memory.profiles.snapshots import keys
from memory.profiles.snapshots.limits import concentration_limits
from memory.profiles.snapshots.summary import Rows, change_day, summarise

logger = logging.getLogger(__name__)

AUTHOR = "advisor-snapshot"
CONFIRMED_SECONDS = 86_400
# Longer than an import's transaction takes.
HOLD_SECONDS = 20
_AT_ONCE = 500

Document = dict[str, Any]


def place_of(tenant: str, advisor_id: str, customer_id: str) -> leased.Place:
    """Errors: INVALID_ID (422)."""
    ids = {"advisor_id": advisor_id, "customer_id": customer_id}
    return leased.Place(keys.SNAPSHOT(tenant, **ids), keys.SNAPSHOT_LEASE(tenant, **ids))


def load_snapshot(*, tenant: str, advisor_id: str, customer_id: str) -> Document:
    """Reads the core, keeps the authoritative copy, gives the document that now stands.

    Five queries of the core, however many positions; of the main database: its clock, the rule's limits, when the
    core was imported, and the transaction of the copy (2 where nothing changed, else as a profile's write).
    Errors: CORE_UNAVAILABLE (503); CUSTOMER_ERASED (410).
    """
    began = database_now()
    rows, imported_at = read_core(tenant=tenant, customer_id=customer_id, at=began), core.core_as_of(tenant=tenant)
    figures = {
        "advisor_id": advisor_id,
        "customer_id": customer_id,
        **summarise(rows, limits=concentration_limits(tenant=tenant)),
    }
    return _keep_copy(tenant, advisor_id, customer_id, figures, began, imported_at)


def read_core(*, tenant: str, customer_id: str, at: datetime) -> Rows:
    """Five queries: positions, those of 30 days earlier, their products, assessments, the customer."""
    positions = core.positions_as_of(tenant=tenant, customer_id=customer_id, day=business_date(at))
    day = change_day(positions[0].as_of if positions else business_date(at))
    before = core.positions_as_of(tenant=tenant, customer_id=customer_id, day=day)
    products = core.products(tenant=tenant, product_ids=[row.product_id for row in positions], at=at)
    assessed = [row for row in core.assessments(tenant=tenant, customer_id=customer_id) if row.assessed_at <= at]
    customer = core.customer(tenant=tenant, customer_id=customer_id, at=at)
    return Rows(positions, before, products, assessed[0] if assessed else None, customer)


def _keep_copy(
    tenant: str, advisor_id: str, customer_id: str, figures: Document, began: datetime, imported_at: datetime | None
) -> Document:
    ids = {"customer_id": customer_id, "advisor_id": advisor_id}

    def attempt() -> Document:
        with transaction.atomic():
            row, created = locked(CustomerProfileL2, tenant, ids)
            standing: Document | None = row.asset_snapshot
            if standing is not None and row.snapshot_at is not None:
                if max(row.snapshot_at, row.snapshot_confirmed_at or row.snapshot_at) > began:
                    return standing
                same = {**standing, "snapshot_at": None} == {**figures, "snapshot_at": None}
                if same and began - row.snapshot_at < timedelta(seconds=CONFIRMED_SECONDS):
                    # Or a slower load, older than this one, would take itself for newer than the copy, and figures
                    # that came and went meanwhile would stand.
                    confirmed = CustomerProfileL2.objects.filter(pk=row.pk)
                    models.QuerySet.update(confirmed, snapshot_confirmed_at=began)
                    return standing
            row.asset_snapshot = {**figures, "snapshot_at": rfc3339(began)}
            row.snapshot_at, row.core_as_of = began, imported_at
            save_version(
                row, created, event_by=AUTHOR, actor_type=ActorType.SYSTEM, agent="", changed=["asset_snapshot"]
            )
            return row.asset_snapshot

    # Two first writers of an l2: one inserts, the other meets the unique key and starts over on the row.
    return retry_conflicts(attempt, also=(IntegrityError,))


def database_now() -> datetime:
    """The main database's clock: one for all hosts, so that loads of different hosts have an order. 1 query on MySQL;
    SQLite has one host, and that one's clock."""
    if connection.vendor != "mysql":
        return now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT UTC_TIMESTAMP(6)")
        moment: datetime = cursor.fetchone()[0]
    return moment.replace(tzinfo=UTC)


def forget_snapshots(tenant: str, customer_ids: Iterable[str]) -> None:
    """In the transaction that changes these customers' facts: their cached snapshots go, and until the commit nobody
    keeps one (a rollback, or a process killed at any point, ends that after HOLD_SECONDS).

    Whose snapshots there may be: of every advisor who ever had the customer, and of those with a copy in l2. Two
    queries for each 500 customers, two round trips for all.
    """
    places: list[leased.Place] = []
    customers = sorted(set(customer_ids))
    for start in range(0, len(customers), _AT_ONCE):
        pairs: Mapping[str, set[str]] = defaultdict(set)
        for model in (CoreAssignment, CustomerProfileL2):
            rows = model.objects.filter(tenant=tenant, customer_id__in=customers[start : start + _AT_ONCE])
            for customer_id, advisor_id in rows.order_by().values_list("customer_id", "advisor_id").distinct():
                pairs[customer_id].add(advisor_id)
        places += [
            place_of(tenant, advisor, customer) for customer, advisors in pairs.items() for advisor in sorted(advisors)
        ]
    if places:
        leased.hold_quietly(places, seconds=HOLD_SECONDS)
        transaction.on_commit(lambda: leased.drop_quietly(places))
