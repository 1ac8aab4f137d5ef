"""A profile as JSON: what the cache holds of it, and what each reader is given.

The cached documents are read by other teams' programs: flat, no derived fields (they would be wrong a day later),
and of l3 nothing that is risk's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from config.base.clock import business_date, rfc3339
from guard.access.masking import mask
from memory.profiles import derived
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Profile
from memory.profiles.schemas import L3_INTERNAL, L1Core, L1Own, L2Own, L3Internal, L3Shared

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


def l1_document(profile: CustomerProfileL1) -> Document:
    """What `profile:l1:*` holds."""
    return {**profile.core, **profile.payload, **_head(profile)}


def l2_document(profile: CustomerProfileL2) -> Document:
    """What `profile:l2:*` holds."""
    return {
        **profile.payload,
        **_head(profile),
        "advisor_id": profile.advisor_id,
        "asset_snapshot": profile.asset_snapshot,
        "snapshot_at": rfc3339(profile.snapshot_at) if profile.snapshot_at else None,
        "core_as_of": rfc3339(profile.core_as_of) if profile.core_as_of else None,
    }


def l3_document(profile: CustomerProfileL3) -> Document:
    """What `profile:l3:*` holds: no internal field, and no flag or restriction that is risk's alone."""
    shared = {name: value for name, value in profile.payload.items() if name not in L3_INTERNAL}
    for name in ("flags", "restrictions"):
        if name in shared:
            shared[name] = [entry for entry in shared[name] if entry.get("visibility") in ("public", "advisor")]
    return {**shared, **_head(profile)}


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


def l3_advisor_view(document: Document) -> Document:
    """What an advisor is given of l3: entries of visibility public and advisor."""
    return {**_L3_FIELDS, **document}


# What points at a person or is sentences of theirs, beside the name and the ids, which are masked.
_PERSONAL = ("birth_date", "id_no_masked", "phone_masked", "assessment_id", "reviewed_by", "preferences")


def masked(view: Document) -> Document:
    """A view for an analyst: nothing in it names the customer, an officer, or says anything in free text."""
    shown = {**view, "customer_id": mask(view["customer_id"])}
    if shown.get("name"):
        shown["name"] = mask(shown["name"])
    for name in _PERSONAL:
        if name in shown:
            shown[name] = None
    if shown.get("consents"):
        shown["consents"] = [{**entry, "purpose": None} for entry in shown["consents"]]
    if shown.get("restrictions"):
        shown["restrictions"] = [{**entry, "text": None} for entry in shown["restrictions"]]
    return shown


def l3_risk_view(profile: CustomerProfileL3) -> Document:
    """What risk is given of l3: all of it, from MySQL."""
    return {
        **_L3_FIELDS,
        **dict.fromkeys(L3Internal.model_fields),
        **profile.payload,
        **profile.internal,
        **_head(profile),
    }


def l3_customer_view(document: Document, l1: Mapping[str, Any] | None, moment: datetime) -> Document:
    """The customer's part of l3. Never a score, a level, a flag, a reason, or an alert.

    as_of: the instant of this version of l3. l1: its document, or None where the customer has none.
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
        "version": document["version"],
        "assessment_status": status,
        "assessment_valid_until": l1.get("valid_until"),
        "max_product_risk_level": derived.max_product_risk_level(l1, status, public),
        "restrictions": [
            {"code": entry["code"], "text": entry.get("text"), "until": entry.get("until")} for entry in public
        ],
        "required_steps": derived.required_steps(status, public),
        "as_of": document["updated_at"],
    }
