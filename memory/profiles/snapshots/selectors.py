"""Reads of snapshots: the cached one, else a new load, else (the core is away) the last copy, marked stale.

Costs. A hit is 1 round trip, and 1 SQL for the advisor's assignment; no query of positions. A miss is 2 round trips
and what `load_snapshot` says. One reader loads a key, the others wait for it (up to WAIT_SECONDS).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from config.base.clock import business_date, now
from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.services import Caller
from memory.core.window import CoreUnavailable
from memory.profiles import derived, leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.shaping import kept_json
from memory.profiles.snapshots import grace, keys, policies
from memory.profiles.snapshots.services import load_snapshot, place_of
from memory.profiles.snapshots.summary import SCHEMA_VERSION, Rows, summarise

logger = logging.getLogger(__name__)

WAIT_SECONDS = 5.0

Document = dict[str, Any]

# The shape of every snapshot, and its names with those of whom and when.
_EMPTY: Mapping[str, Any] = summarise(Rows([], [], {}, None, None), limits=None)
_NAMES = {*_EMPTY, "advisor_id", "customer_id", "snapshot_at"}


def read_snapshot(*, caller: Caller, advisor_id: str, customer_id: str, at: datetime | None = None) -> Document:
    """The snapshot of one customer for the advisor who has the customer.

    at: the instant for which the assessment and the age are judged (default: now).
    Errors: INVALID_ID (422); AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403); CUSTOMER_ERASED (410);
    CORE_UNAVAILABLE (503) where the core is away and there is no copy.
    """
    policies.may_snapshot(caller, "read", advisor_id=advisor_id, customer_id=customer_id)
    try:
        document = _through(caller.tenant, advisor_id, customer_id)
    except CoreUnavailable:
        return _last_copy(caller.tenant, advisor_id, customer_id, at or now())
    return view(document, at or now(), stale=False)


def _through(tenant: str, advisor_id: str, customer_id: str) -> Document:
    ids = {"tenant": tenant, "advisor_id": advisor_id, "customer_id": customer_id}
    place = place_of(**ids)

    def load() -> str:
        text = canonical_json(load_snapshot(**ids))
        grace.note_had(**ids)  # the caller has been admitted
        return text

    text = leased.through(
        place,
        load,
        seconds=keys.SNAPSHOT_SECONDS, lease_seconds=keys.LEASE_SECONDS, patience=WAIT_SECONDS,
    )  # fmt: skip
    document = _read(text, ids)
    if document is None:
        logger.warning("a snapshot's key holds something else: deleted")
        leased.drop_quietly([place])
        document = load_snapshot(**ids)
    return document


def _read(text: str | None, ids: Mapping[str, str]) -> Document | None:
    """None for what is no snapshot of this pair: other teams' programs write to this server too."""
    try:
        document = kept_json(text or "")
    except (ValueError, RecursionError):
        return None
    if not is_whole(document):
        return None
    theirs = document.get("advisor_id"), document.get("customer_id")
    return document if theirs == (ids["advisor_id"], ids["customer_id"]) else None


def is_whole(document: Any) -> bool:
    """Whether this is a snapshot as `summarise` makes it: every field of it, of its type, and fit to be shown."""
    if not isinstance(document, dict) or set(document) != _NAMES or document["schema_version"] != SCHEMA_VERSION:
        return False
    if any(type(document[name]) is not type(value) for name, value in _EMPTY.items() if isinstance(value, dict | list)):
        return False
    try:
        view(document, now(), stale=False)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return False
    return True


def _last_copy(tenant: str, advisor_id: str, customer_id: str, moment: datetime) -> Document:
    """1 SQL. Errors: CORE_UNAVAILABLE."""
    rows = CustomerProfileL2.objects.filter(tenant=tenant, advisor_id=advisor_id, customer_id=customer_id)
    copy = rows.values_list("asset_snapshot", flat=True).first()
    if copy is None or not is_whole(copy):
        raise DomainError("CORE_UNAVAILABLE", "the core system does not answer, and there is no earlier snapshot")
    return view(copy, moment, stale=True)


def view(document: Document, moment: datetime, *, stale: bool) -> Document:
    """What a reader is given: the document, whether its assessment still counts that day, and how old it is.

    age_seconds: since `snapshot_at`; of a stale copy it is at most a day more than since the figures were confirmed.
    """
    status = derived.assessment_status(document["assessment"], business_date(moment))
    exempt = document["assessment"].get("investor_type") == "professional"
    codes = [f"assessment_{status}"] if status in ("missing", "expired") and not exempt else []
    over = document["suitability_flags"]
    if over["count"]:
        codes.append("product_above_tolerance")
    age = (moment - datetime.fromisoformat(document["snapshot_at"])).total_seconds()
    return {
        **document,
        "assessment": {**document["assessment"], "status": status},
        "suitability_flags": {"codes": codes, **over},
        "stale": stale,
        "age_seconds": max(0, int(age)),
    }


@dataclass(frozen=True)
class CustomerSnapshot:
    """advisor_id: for whom it was made. document: as `read_snapshot` gives it."""

    advisor_id: str
    snapshot_at: datetime
    document: Document


def snapshot_of_customer(*, tenant: str, customer_id: str, at: datetime | None = None) -> CustomerSnapshot | None:
    """The newest copy that any advisor has of this customer, for pages of people who may see it; None where there is
    none. One query of the main database: neither the core nor Redis is asked. Never marked stale; its age is there."""
    rows = CustomerProfileL2.objects.filter(tenant=tenant, customer_id=customer_id, snapshot_at__isnull=False)
    row = rows.exclude(asset_snapshot=None).order_by("-snapshot_at").first()
    if row is None or not is_whole(row.asset_snapshot):
        return None
    return CustomerSnapshot(row.advisor_id, row.snapshot_at, view(row.asset_snapshot, at or now(), stale=False))
