"""The core system's part of l1: name, birth date, assessment. Nothing else writes these fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import IntegrityError, transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from guard.audit.models import ActorType
from memory.core.selectors import assessments, customer
from memory.profiles import derived
from memory.profiles.models import CustomerProfileL1
from memory.profiles.schemas import L1Core
from memory.profiles.services import locked, save_version

SYNC = "core-sync"


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


def sync_l1_from_core(*, tenant: str, customer_id: str) -> bool:
    """Brings one l1 up to the core's present state; answers whether that was a new version.

    Nothing changes and nothing is audited when the core says what l1 has already. Idempotent; may run beside
    writers of the customer's own fields, which it does not touch.
    """
    fields = core_fields(tenant=tenant, customer_id=customer_id)
    if fields is None:
        return False

    def attempt() -> bool:
        with transaction.atomic():
            row, created = locked(CustomerProfileL1, tenant, {"customer_id": customer_id})
            if not created and row.core == fields and row.core_synced_at is not None:
                return False
            row.core = fields
            row.core_synced_at = now()
            save_version(row, created, event_by=SYNC, actor_type=ActorType.SYSTEM, agent="", changed=["core"])
            return True

    return retry_conflicts(attempt, also=(IntegrityError,))


def sync_l1s_from_core(*, tenant: str, customer_ids: Iterable[str]) -> int:
    """`sync_l1_from_core` for many (an import's customers); answers how many new versions. A transaction each."""
    return sum(sync_l1_from_core(tenant=tenant, customer_id=customer_id) for customer_id in customer_ids)
