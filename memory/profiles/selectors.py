"""Reads of profiles: from the cache where it holds them, else from MySQL, which answers alone when Redis is away.

Costs. A hit is 1 round trip and no SQL (an advisor's assignment is 1 SQL before it). A miss is 2 round trips and
1 SQL for each layer read; an l1 whose core fields are due for a look costs the sync's queries on top (4 and no new
version, when nothing has changed). Risk's read
of l3 is 1 SQL and no round trip: what is risk's alone is in MySQL only.

Inside a transaction MySQL answers and nothing is filled: the caller may read its own uncommitted write, which a
rollback would take back but not out of the cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.db import DatabaseError, transaction

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.models import Agent
from guard.access.services import Caller
from memory.profiles import cache, documents, policies
from memory.profiles.core_sync import is_due, sync_l1_from_core
from memory.profiles.documents import Document
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Layer

logger = logging.getLogger(__name__)

Loader = Callable[[], Document | None]


def read_l1(*, caller: Caller, customer_id: str, at: datetime | None = None) -> Document:
    """The customer's l1 with `is_elderly` and `assessment_status` as of now.

    at: the instant for which derived fields are computed (default: now).
    Errors: INVALID_ID (422); AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403); PROFILE_NOT_FOUND (404).
    """
    policies.may_l1(caller, "read", customer_id=customer_id)
    [document] = _through([_l1(caller.tenant, customer_id)])
    view = documents.l1_view(_there(document, f"no l1 profile of customer {customer_id!r}"), at or now())
    return documents.masked(view) if caller.agent == Agent.ANALYST else view


def read_l2(*, caller: Caller, customer_id: str, advisor_id: str) -> Document:
    """The advisor's l2 of the customer. Errors: as `read_l1`."""
    policies.may_l2(caller, "read", customer_id=customer_id, advisor_id=advisor_id)
    [document] = _through([_l2(caller.tenant, customer_id, advisor_id)])
    missing = f"no l2 profile of customer {customer_id!r} by advisor {advisor_id!r}"
    return documents.l2_view(_there(document, missing))


def read_l3(*, caller: Caller, customer_id: str, at: datetime | None = None) -> Document:
    """The customer's l3 as this reader may see it: the customer's part, the advisor's, or risk's whole.

    An analyst, where the setting ANALYST_READS_PROFILES lets one read, gets the advisor's part masked.

    at: as in `read_l1`. Errors: as `read_l1`.
    """
    policies.may_l3(caller, "read", customer_id=customer_id)
    missing = f"no l3 profile of customer {customer_id!r}"
    if caller.agent == Agent.RISK:
        row = CustomerProfileL3.objects.filter(tenant=caller.tenant, customer_id=customer_id).first()
        if row is None:
            raise DomainError("PROFILE_NOT_FOUND", missing)
        return documents.l3_risk_view(row)
    if caller.agent == Agent.CUSTOMER:
        l3, l1 = _through([_l3(caller.tenant, customer_id), _l1(caller.tenant, customer_id)])
        return documents.l3_customer_view(_there(l3, missing), l1, at or now())
    [l3] = _through([_l3(caller.tenant, customer_id)])
    view = documents.l3_advisor_view(_there(l3, missing))
    return documents.masked(view) if caller.agent == Agent.ANALYST else view


def _there(document: Document | None, missing: str) -> Document:
    if document is None:
        raise DomainError("PROFILE_NOT_FOUND", missing)
    return document


# --- read-through -----------------------------------------------------------------------------------------------


def _through(wanted: Sequence[tuple[cache.Slot, Loader]]) -> list[Document | None]:
    """1. Ask the cache for all at once; 2. load what it lacks; 3. fill that under the generations of step 1."""
    if transaction.get_connection().in_atomic_block:
        return [load() for _slot, load in wanted]
    found = cache.read([slot for slot, _load in wanted])
    answer: list[Document | None] = []
    fresh: list[tuple[cache.Slot, str, dict[str, Any]]] = []
    for (slot, load), hit in zip(wanted, found, strict=True):
        document = hit.document
        if document is None:
            document = load()
            if document is not None:
                fresh.append((slot, hit.generation, document))
        answer.append(document)
    cache.fill(fresh)
    return answer


def _l1(tenant: str, customer_id: str) -> tuple[cache.Slot, Loader]:
    def load() -> Document | None:
        row = _l1_row(tenant, customer_id)
        if is_due(row):
            # After the write the row is read again: the copy that is cached is one that was committed. (This
            # reader's own generation went with the write.)
            row = _synced(tenant, customer_id) or row
        return documents.l1_document(row) if row else None

    return cache.Slot(tenant, Layer.L1.value, customer_id), load


def _l1_row(tenant: str, customer_id: str) -> CustomerProfileL1 | None:
    return CustomerProfileL1.objects.filter(tenant=tenant, customer_id=customer_id).first()


def _synced(tenant: str, customer_id: str) -> CustomerProfileL1 | None:
    try:
        written = sync_l1_from_core(tenant=tenant, customer_id=customer_id)
    except DatabaseError as error:
        # The core may be another server, and away: what we have is shown, and the next miss asks again.
        logger.warning("l1 is shown without the core, which did not answer (%s)", type(error).__name__)
        return None
    return _l1_row(tenant, customer_id) if written else None


def _l2(tenant: str, customer_id: str, advisor_id: str) -> tuple[cache.Slot, Loader]:
    def load() -> Document | None:
        row = CustomerProfileL2.objects.filter(tenant=tenant, customer_id=customer_id, advisor_id=advisor_id).first()
        return documents.l2_document(row) if row else None

    return cache.Slot(tenant, Layer.L2.value, customer_id, advisor_id), load


def _l3(tenant: str, customer_id: str) -> tuple[cache.Slot, Loader]:
    def load() -> Document | None:
        row = CustomerProfileL3.objects.filter(tenant=tenant, customer_id=customer_id).first()
        return documents.l3_document(row) if row else None

    return cache.Slot(tenant, Layer.L3.value, customer_id), load
