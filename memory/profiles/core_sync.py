"""The core system's part of l1: name, birth date, assessment. Nothing else writes these fields.

An import marks the l1 rows of the customers it changes (`forget_core_fields`, in its own transaction); the next read
misses the cache, finds the mark and brings the row up to date. A customer without l1 gets one at the first read.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, models, transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from guard.audit.models import ActorType
from memory.core.selectors import assessments, customer
from memory.profiles import cache, derived
from memory.profiles.models import CustomerProfileL1, Layer
from memory.profiles.recording import record_changes
from memory.profiles.schemas import L1Core
from memory.profiles.services import locked, save_version

SYNC = "core-sync"

# How old the last look at the core may be at a cache miss. Our own imports mark what they change; an external core
# tells nobody, so it is asked again as often as the cache runs out.
FRESH = timedelta(days=1)
FRESH_EXTERNAL = timedelta(minutes=10)


def core_fields(*, tenant: str, customer_id: str) -> dict[str, Any] | None:
    """What the core says of the customer now, as l1 keeps it; None where it knows nothing. Two queries."""
    facts = customer(tenant=tenant, customer_id=customer_id)
    assessed = [row for row in assessments(tenant=tenant, customer_id=customer_id) if row.assessed_at <= now()]
    if facts is None and not assessed:
        return None
    known: dict[str, Any] = {}
    if facts is not None:
        known = {
            "name": facts.name or None,
            "birth_date": facts.birth_date,
            "investor_type": facts.investor_type or None,
        }
    if assessed:
        newest = assessed[0]
        known |= {
            "c_level": f"C{newest.c_level}",
            "is_lowest": newest.is_lowest,
            "assessed_at": newest.assessed_at,
            "valid_until": derived.valid_until(newest.assessed_at),
        }
    return L1Core(**known).stored()


def is_due(row: CustomerProfileL1 | None) -> bool:
    """Whether the core should be asked before this row is shown. (What the core did not know is asked as rarely.)"""
    if row is None or row.core_synced_at is None:
        return True
    return now() - row.core_synced_at > (FRESH_EXTERNAL if settings.CORE_IS_EXTERNAL else FRESH)


def was_asked(row: CustomerProfileL1 | None) -> bool:
    """Whether the core has ever answered for this customer: before that nobody knows what it says, nor that it says
    nothing, and no status of an assessment may be made of it."""
    return row is not None and (row.core_synced_at is not None or bool(row.core))


def sync_l1_from_core(*, tenant: str, customer_id: str) -> bool:
    """Brings one l1 up to the core's present state; answers whether that was a new version.

    Nothing is audited and no version is made when the core says what l1 has already. Idempotent; may run beside
    writers of the customer's own fields, which it does not touch. Of a customer whom the core does not know no row is
    made; where there is one, it is noted that the core was asked, and fields that an external core once gave
    go, as a new version.
    Errors: CORE_UNAVAILABLE (503): nothing has changed then.
    """

    def attempt() -> tuple[bool, bool]:
        with transaction.atomic():
            row, created = locked(CustomerProfileL1, tenant, {"customer_id": customer_id})
            # Read under the row's lock: an import that changes these facts marks the row in its own transaction, so
            # either its facts are seen here or its mark comes after this.
            fields = core_fields(tenant=tenant, customer_id=customer_id)
            if fields is None and created:
                return False, False
            if fields is None:
                # Another system's core that knows the customer no longer takes back what it once gave: an assessment
                # that nobody vouches for must not be shown as valid. From ours nothing is ever deleted.
                fields = {} if settings.CORE_IS_EXTERNAL else row.core or {}
            if not created and (row.core or {}) == fields:
                # No new version: only the note of when the core was asked.
                same = CustomerProfileL1.objects.filter(pk=row.pk)
                models.QuerySet.update(same, core_synced_at=now())
                return False, False
            row.core = fields
            row.core_synced_at = now()
            save_version(row, created, event_by=SYNC, actor_type=ActorType.SYSTEM, agent="", changed=["core"])
            return True, created

    changed, created = retry_conflicts(attempt, also=(IntegrityError,))
    if created:
        # An import that committed meanwhile found no row to mark: look once more, now that there is one.
        retry_conflicts(attempt)
    return changed


def sync_l1s_from_core(*, tenant: str, customer_ids: Iterable[str]) -> int:
    """`sync_l1_from_core` for many; answers how many new versions. A transaction each."""
    return sum(sync_l1_from_core(tenant=tenant, customer_id=customer_id) for customer_id in customer_ids)


def forget_core_fields(tenant: str, customer_ids: Iterable[str]) -> None:
    """Marks these customers' l1 as due for a sync and drops what is cached of it; in the caller's transaction.

    The fields stay until the next read replaces them, and the version with them: nothing is new yet. Of a customer
    without l1 the cache may hold just that: it goes too, for the next read finds the customer in the core.
    """
    customers = sorted(set(customer_ids))
    rows = CustomerProfileL1.objects.filter(tenant=tenant, customer_id__in=customers)
    with transaction.atomic():
        models.QuerySet.update(rows, core_synced_at=None)
        record_changes([cache.Slot(tenant, Layer.L1.value, customer_id) for customer_id in customers])
