"""A profile as JSON: what the cache holds of it, and what each reader is given.

The cached documents are read by other teams' programs: flat, no derived fields (they would be wrong a day later),
and of l3 nothing that is risk's alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

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

    version, updated_at: of the last version that changed something in here, counted in this part; `customer_*`: in the
    customer's part, 0 and null where that is not there. That risk wrote what they may not see would tip off
    (docs/decisions/0023-versions-of-parts.md).
    """
    advisors, customers = part_mark(profile, "advisor"), part_mark(profile, "customer")
    return {
        **_advisors_part(profile),
        "customer_id": profile.customer_id,
        "version": advisors.version,
        "updated_at": advisors.at,
        "customer_version": customers.version if customers.there else 0,
        "customer_as_of": customers.at if customers.there else None,
    }


def l3_for_others(profile: CustomerProfileL3 | None) -> Document | None:
    """`l3_document`, or None where others than risk are given the same as if there were no row."""
    if profile is None or not part_mark(profile, "advisor").there:
        return None  # the customer's part is within the advisor's
    return l3_document(profile)


def _advisors_part(profile: CustomerProfileL3) -> Document:
    """Both lists are always in it: whether there is one without entries, or one of hidden entries, is risk's alone."""
    shared = {"schema_version": 1, **shaped(L3Shared, profile.payload)}
    for name in ("flags", "restrictions"):
        shared[name] = [entry for entry in shared.get(name, ()) if entry.get("visibility") in ("public", "advisor")]
    return shared


def _customers_part(advisors: Document) -> list[Document]:
    """What the customer's part can show of l3, on whatever day."""
    names = ("code", "value", "text", "since", "until")
    return [
        {name: entry.get(name) for name in names}
        for entry in advisors["restrictions"]
        if entry["visibility"] == "public"
    ]


PartName = Literal["advisor", "customer"]


class Mark(NamedTuple):
    """Where a part of l3 stands. version: how often it has changed, so that nothing else can be told from it.
    at: since when it is as it is. hash: of the part; "" where it is not there: it has never shown anything, or the
    profile was deleted. row: the version of the row that last changed it."""

    version: int = 0
    at: str | None = None
    hash: str = ""
    row: int = 0

    @property
    def there(self) -> bool:
        return bool(self.hash)


def _parts(profile: CustomerProfileL3) -> dict[PartName, tuple[str, bool]]:
    """Of each part: hash, and whether it shows nothing."""
    advisors = _advisors_part(profile)
    customers = _customers_part(advisors)
    nothing = not any(value not in (None, []) for name, value in advisors.items() if name != "schema_version")
    return {"advisor": (_digest(advisors), nothing), "customer": (_digest(customers), not customers)}


def _digest(content: Any) -> str:
    return hashlib.sha256(canonical_json(content).encode("utf-8", "surrogatepass")).hexdigest()


def marks_of(stored: Any) -> dict[str, Mark]:
    """Of a `shown` column. One from before parts had a count of their own gives none."""
    found = stored if isinstance(stored, dict) else {}
    return {name: Mark(**mark) for name, mark in found.items() if isinstance(mark, dict) and "row" in mark}


def part_mark(profile: CustomerProfileL3, part: PartName) -> Mark:
    """Of a row from before there were marks: its own version, where the part shows something."""
    mark = marks_of(profile.shown).get(part)
    if mark is not None:
        return mark
    digest, nothing = _parts(profile)[part]
    return Mark() if nothing else Mark(profile.version, rfc3339(profile.updated_at), digest, profile.version)


def shown_marks(profile: Profile) -> Document | None:
    """`shown` as it has to be after this write; None where it stands already, or the layer has none.

    A part that shows nothing and was not there is not there now either: whatever risk has written for itself."""
    if not isinstance(profile, CustomerProfileL3):
        return None
    standing = marks_of(profile.shown)
    marks: Document = {}
    for part, (digest, nothing) in _parts(profile).items():
        # (A row from before goes on from its own number.)
        mark = standing.get(part) or Mark(version=profile.version - 1)
        if (nothing and not mark.there) or mark.hash == digest:
            marks[part] = mark._asdict()
        else:
            marks[part] = Mark(mark.version + 1, rfc3339(profile.updated_at), digest, profile.version)._asdict()
    return None if marks == profile.shown else marks


def marks_of_deletion(shown: Any, *, version: int, at: datetime) -> Document:
    """`shown` of the version that says that the profile was deleted: the parts that were there changed with it."""
    return {
        part: (Mark(mark.version + 1, rfc3339(at), "", version) if mark.there else mark)._asdict()
        for part, mark in marks_of(shown).items()
    }


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


def l3_customer_view(
    customer_id: str, document: Document | None, l1: Mapping[str, Any] | None, moment: datetime
) -> Document:
    """The customer's part of l3. Never a score, a level, a flag, a reason, or an alert.

    document: of l3, or None; without a part of the customer's it is as if there were none: version 0, as of l1.
    version, as_of: of the last version of l3 that changed something in this part. l1: its document, or None where the
    customer has none.
    """
    l1 = l1 or {}
    status = derived.assessment_status(l1, business_date(moment))
    public = [
        entry
        for entry in (document or {}).get("restrictions", ())
        if entry["visibility"] == "public" and derived.is_active(entry, moment)
    ]
    return {
        "customer_id": customer_id,
        "version": document["customer_version"] if document else 0,
        "assessment_status": status,
        "assessment_valid_until": l1.get("valid_until"),
        "max_product_risk_level": derived.max_product_risk_level(l1, status, public),
        "restrictions": [
            {"code": entry["code"], "text": entry.get("text"), "until": entry.get("until")} for entry in public
        ],
        "required_steps": derived.required_steps(status, public),
        "as_of": (document or {}).get("customer_as_of") or l1.get("updated_at"),
    }
