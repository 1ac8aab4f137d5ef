"""A profile as JSON: what the cache holds of it, and what each reader is given.

The cached documents are read by other teams' programs: flat, no derived fields (they would be wrong a day later),
and of l3 nothing that is risk's alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from config.base.clock import business_date, rfc3339
from config.base.fields import canonical_json
from guard.access.masking import mask
from memory.profiles import derived
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Profile
from memory.profiles.schemas import L3_INTERNAL, L1Core, L1Own, L2Own, L3Internal, L3Shared
from memory.profiles.shaping import shaped

Document = dict[str, Any]

# Every field of a layer, not known.
_L1_FIELDS: Document = dict.fromkeys((*L1Core.model_fields, *L1Own.model_fields))
_L2_FIELDS: Document = dict.fromkeys(L2Own.model_fields)
_L3_FIELDS: Document = dict.fromkeys(L3Shared.model_fields)


def _head(profile: Profile) -> Document:
    return {
        "customer_id": profile.customer_id,
        "version": profile.version,
        "updated_at": rfc3339(profile.updated_at),
    }


def cached_document(profile: Profile) -> Document:
    """What the cache holds of a profile of whichever layer."""
    if isinstance(profile, CustomerProfileL1):
        return l1_document(profile)
    if isinstance(profile, CustomerProfileL2):
        return l2_document(profile)
    assert isinstance(profile, CustomerProfileL3)
    return l3_document(profile)


def whole_document(profile: Profile) -> Document:
    """The same before anything was left out of it for being none of the schema's: what a version's hash is of, so that
    a schema to come does not make old versions look tampered with."""
    columns = [profile.payload]
    if isinstance(profile, CustomerProfileL1):
        columns = [profile.core, profile.payload]
    fields: Document = {}
    for column in columns:
        fields |= column if isinstance(column, dict) else {"": column}
    if isinstance(profile, CustomerProfileL3):
        fields = {name: _shown(value) for name, value in fields.items() if name not in L3_INTERNAL}
    beside = _beside_l2(profile) if isinstance(profile, CustomerProfileL2) else {}
    return {**fields, **_head(profile), **beside}


def _shown(value: Any) -> Any:
    """A list without the entries that are risk's alone."""
    if not isinstance(value, list) or not any(isinstance(entry, dict) for entry in value):
        return value
    return [entry for entry in value if isinstance(entry, dict) and entry.get("visibility") in ("public", "advisor")]


def l1_document(profile: CustomerProfileL1) -> Document:
    """What `profile:l1:*` holds."""
    return {**shaped(L1Core, profile.core), **shaped(L1Own, profile.payload), **_head(profile)}


def l2_document(profile: CustomerProfileL2) -> Document:
    """What `profile:l2:*` holds."""
    return {**shaped(L2Own, profile.payload), **_head(profile), **_beside_l2(profile)}


def _beside_l2(profile: CustomerProfileL2) -> Document:
    snapshot = profile.asset_snapshot
    return {
        "advisor_id": profile.advisor_id,
        "asset_snapshot": snapshot if isinstance(snapshot, dict) else None,
        "snapshot_at": rfc3339(profile.snapshot_at) if profile.snapshot_at else None,
        "core_as_of": rfc3339(profile.core_as_of) if profile.core_as_of else None,
    }


def l3_document(profile: CustomerProfileL3) -> Document:
    """What `profile:l3:*` holds: what the schema knows, and no flag or restriction that is risk's alone.

    version, updated_at: of the last version that changed something in here; `customer_*`: in the customer's part. That
    risk wrote what they may not see would tip off (docs/decisions/0023-versions-of-parts.md).
    """
    shared, head = _advisors_part(profile), _head(profile)
    version, at = _mark(profile, "advisor")
    customer_version, customer_at = _mark(profile, "customer")
    return {
        **shared,
        **head,
        "version": version,
        "updated_at": at,
        "customer_version": customer_version,
        "customer_as_of": customer_at,
    }


def _advisors_part(profile: CustomerProfileL3) -> Document:
    shared = shaped(L3Shared, profile.payload)
    for name in ("flags", "restrictions"):
        if name in shared:
            shared[name] = [entry for entry in shared[name] if entry.get("visibility") in ("public", "advisor")]
    return shared


def _customers_part(advisors: Document) -> list[Document]:
    """What the customer's part can show of l3, on whatever day."""
    names = ("code", "value", "text", "since", "until")
    return [
        {name: entry.get(name) for name in names}
        for entry in advisors.get("restrictions", ())
        if entry["visibility"] == "public"
    ]


def _mark(profile: CustomerProfileL3, part: str) -> tuple[int, str]:
    """Of a row from before there were marks: its own."""
    mark = profile.shown.get(part) if isinstance(profile.shown, dict) else None
    return (mark["version"], mark["at"]) if mark else (profile.version, rfc3339(profile.updated_at))


def shown_version(profile: CustomerProfileL3, *, to_customer: bool) -> int:
    """The version that this one is to the reader: the last one that changed something in the reader's part."""
    return _mark(profile, "customer" if to_customer else "advisor")[0]


def shown_marks(profile: Profile) -> Document | None:
    """`shown` as it has to be after this write; None where it stands already, or the layer has none."""
    if not isinstance(profile, CustomerProfileL3):
        return None
    advisors = _advisors_part(profile)
    standing = profile.shown if isinstance(profile.shown, dict) else {}
    marks: Document = {}
    for part, content in (("advisor", {**advisors, "schema_version": 1}), ("customer", _customers_part(advisors))):
        digest = hashlib.sha256(canonical_json(content).encode("utf-8", "surrogatepass")).hexdigest()
        mark = standing.get(part)
        same = mark is not None and mark["hash"] == digest
        marks[part] = mark if same else {"version": profile.version, "at": rfc3339(profile.updated_at), "hash": digest}
    return None if marks == standing else marks


def l1_view(document: Document, moment: datetime) -> Document:
    """What a reader of l1 is given: every field, null where it is not known, and what follows from the day."""
    today = business_date(moment)
    return {
        **_L1_FIELDS,
        **document,
        "is_elderly": derived.is_elderly(document, today),
        "assessment_status": derived.assessment_status(document, today),
    }


def l2_view(document: Document) -> Document:
    """What a reader of l2 is given."""
    return {**_L2_FIELDS, **document}


# What the cached document has for the customer's part alone.
_CUSTOMERS = ("customer_version", "customer_as_of")


def l3_advisor_view(document: Document) -> Document:
    """What an advisor is given of l3: entries of visibility public and advisor."""
    return {**_L3_FIELDS, **{name: value for name, value in document.items() if name not in _CUSTOMERS}}


# What an analyst is shown of each field: True for all of it, names for those parts of its entries. Enumerations,
# numbers, days, instants and truth values of ours alone: whatever somebody may have typed could name a person.
_FOR_ANALYSTS: dict[str, bool | tuple[str, ...]] = {
    **dict.fromkeys(("version", "updated_at", "schema_version", "is_elderly", "assessment_status"), True),
    **dict.fromkeys(("investor_type", "c_level", "is_lowest", "assessed_at", "valid_until"), True),
    **dict.fromkeys(("experience_years", "complex_experience", "horizon_months", "max_drawdown_pct"), True),
    "goals": ("amount", "date", "priority"),
    "liquidity_needs": ("amount", "by"),
    "do_not_contact": ("until",),
    "consents": ("granted_at", "withdrawn_at"),
    **dict.fromkeys(("risk_score", "risk_level"), True),
    "flags": ("since", "until", "visibility"),
    "restrictions": ("code", "value", "since", "until", "visibility"),
}


def masked(view: Document) -> Document:
    """A view for an analyst: nothing in it names the customer or an officer, or was typed by anybody. Every name stays,
    with null for what is not shown; ids and names are masked."""
    shown = {name: _for_analysts(name, value) for name, value in view.items()}
    shown["customer_id"] = mask(view["customer_id"])
    if view.get("name"):
        shown["name"] = mask(view["name"])
    return shown


def _for_analysts(name: str, value: Any) -> Any:
    parts = _FOR_ANALYSTS.get(name, False)
    if isinstance(parts, bool) or value is None:
        return value if parts else None
    if isinstance(value, list):
        return [{part: inner if part in parts else None for part, inner in entry.items()} for entry in value]
    return {part: inner if part in parts else None for part, inner in value.items()}


def l3_risk_view(profile: CustomerProfileL3) -> Document:
    """What risk is given of l3, from MySQL: all fields that there are, as they stand there, malformed ones too."""
    stored: Document = {}
    for column in (profile.payload, profile.internal):
        stored |= column if isinstance(column, dict) else {}
    fields = {**_L3_FIELDS, **dict.fromkeys(L3Internal.model_fields)}
    return {**{name: stored.get(name) for name in fields}, **_head(profile)}


def l3_customer_view(document: Document, l1: Mapping[str, Any] | None, moment: datetime) -> Document:
    """The customer's part of l3. Never a score, a level, a flag, a reason, or an alert.

    version, as_of: of the last version of l3 that changed something in this part. l1: its document, or None where the
    customer has none.
    """
    l1 = l1 or {}
    status = derived.assessment_status(l1, business_date(moment))
    public = [
        entry
        for entry in document.get("restrictions", ())
        if entry["visibility"] == "public" and derived.is_active(entry, moment)
    ]
    return {
        "customer_id": document["customer_id"],
        "version": document["customer_version"],
        "assessment_status": status,
        "assessment_valid_until": l1.get("valid_until"),
        "max_product_risk_level": derived.max_product_risk_level(l1, status, public),
        "restrictions": [
            {"code": entry["code"], "text": entry.get("text"), "until": entry.get("until")} for entry in public
        ],
        "required_steps": derived.required_steps(status, public),
        "as_of": document["customer_as_of"],
    }
