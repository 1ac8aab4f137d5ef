"""Fields of a profile as lines for people, and which of them stay behind a mask until somebody asks, with a reason.

Shown to whoever may open the page: what a suitability review needs (assessment, experience, horizon) and risk's own
view, its reasons among it, which is written for the readers of this page; less the ids, names, numbers and addresses of
people that stand in its words (`hidden`). Masked: who the customer is, how to reach them, and whatever an agent wrote
down in words of its own, bands and stages too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from config.base.clock import business_zone
from config.base.pii import hidden
from guard.access.masking import STARS
from risk.console.profile import LEVELS, RESTRICTIONS

# Masked until unmasked: by name of the field, in whichever layer.
PERSONAL = frozenset({
    "name", "gender", "birth_date", "id_no_masked", "phone_masked", "occupation", "goals", "liquidity_needs",
    "preferences", "do_not_contact", "consents", "notes", "needs", "household", "next_steps", "explanations_given",
    "last_contact_at", "channel", "stage", "income_band", "net_assets_band",
})  # fmt: skip

LABELS: dict[str, Promise] = {
    "name": _("name"),
    "gender": _("gender"),
    "birth_date": _("birth date"),
    "id_no_masked": _("identity number"),
    "phone_masked": _("phone"),
    "investor_type": _("investor type"),
    "civil_capacity": _("civil capacity"),
    "c_level": _("risk tolerance"),
    "is_lowest": _("lowest tolerance"),
    "assessed_at": _("assessed"),
    "valid_until": _("valid until"),
    "assessment_id": _("assessment"),
    "occupation": _("occupation"),
    "income_band": _("income band"),
    "net_assets_band": _("net assets band"),
    "experience_years": _("years of experience"),
    "complex_experience": _("experience with complex products"),
    "goals": _("goals"),
    "horizon_months": _("horizon in months"),
    "liquidity_needs": _("needs of cash"),
    "max_drawdown_pct": _("largest loss borne, %"),
    "preferences": _("preferences"),
    "do_not_contact": _("do not contact"),
    "language": _("language"),
    "consents": _("consents"),
    "stage": _("stage"),
    "notes": _("notes"),
    "needs": _("needs"),
    "household": _("household"),
    "next_steps": _("next steps"),
    "last_contact_at": _("last contact"),
    "channel": _("channel"),
    "explanations_given": _("explanations given"),
    "risk_score": _("risk score"),
    "risk_level": _("risk level"),
    "flags": _("flags"),
    "restrictions": _("restrictions"),
    "reviewed_by": _("reviewed by"),
    "aml_rating": _("money-laundering rating"),
    "reasons": _("reasons"),
    "open_alerts": _("open alerts"),
    "asset_snapshot": _("asset snapshot"),
    "snapshot_at": _("snapshot taken"),
    "core_as_of": _("core as of"),
    "total": _("total, CNY"),
    "as_of": _("positions of"),
    # within entries
    "kind": _("kind"),
    "amount": _("amount"),
    "date": _("date"),
    "priority": _("priority"),
    "by": _("by"),
    "like": _("likes"),
    "avoid": _("avoids"),
    "channels": _("channels"),
    "hours": _("hours"),
    "until": _("until"),
    "since": _("since"),
    "purpose": _("purpose"),
    "granted_at": _("granted"),
    "withdrawn_at": _("withdrawn"),
    "text": _("text"),
    "at": _("at"),
    "relation": _("relation"),
    "note": _("note"),
    "action": _("what"),
    "due": _("due"),
    "status": _("status"),
    "product_id": _("product"),
    "code": _("code"),
    "value": _("value"),
    "visibility": _("visible to"),
}
WORDS: dict[str, Promise] = {
    "ordinary": _("ordinary investor"),
    "professional": _("professional investor"),
    **LEVELS,
    "public": _("everybody, the customer too"),
    "advisor": _("advisors and risk"),
    "risk": _("risk alone"),
    **RESTRICTIONS,
}
# Fields whose text is one of ours and has words; other fields' text is the customer's or the advisor's own.
_WORDED = {"investor_type", "risk_level", "visibility", "code"}
_INSTANTS = {
    "assessed_at", "snapshot_at", "core_as_of", "granted_at", "withdrawn_at", "at", "last_contact_at", "since", "until",
    "due", "valid_until",
}  # fmt: skip
# Not fields of a profile: its head, and what only machines read.
_HEAD = frozenset({
    "customer_id", "advisor_id", "version", "updated_at", "schema_version", "asset_snapshot", "snapshot_at",
    "core_as_of", "is_elderly", "assessment_status", "trace_id",
})  # fmt: skip
MOST_ENTRIES = 50


@dataclass(frozen=True)
class Line:
    """entries: more than one for a list. masked: it is there, and not shown."""

    label: Any
    entries: tuple[str, ...]
    masked: bool = False


def lines_of(
    document: Mapping[str, Any], fields: Iterable[str], *, clear: bool, known: Collection[str] = ()
) -> list[Line]:
    """What the document says in these fields, in their order; fields that say nothing are left out.

    known: the customer's id and names, which are hidden in words unless `clear`.
    """
    lines = []
    for name in fields:
        value = document.get(name)
        if name in _HEAD or value is None or value in ("", [], {}):
            continue
        if name in PERSONAL and not clear:
            lines.append(Line(label_of(name), (STARS,), masked=True))
        else:
            told = said(value, name)
            lines.append(Line(label_of(name), told if clear else tuple(hidden(one, known) for one in told)))
    return lines


def label_of(name: str) -> Any:
    """Words for a field, `payload.goals` and `goals` alike; an unknown one as it is."""
    return LABELS.get(name.rpartition(".")[2], name)


def is_personal(name: str) -> bool:
    """Of a field as a version's difference names it: `payload.notes`, `asset_snapshot`."""
    return name.rpartition(".")[2] in PERSONAL


def is_told(name: str) -> bool:
    """Whether a difference of this field says something to people: of a snapshot, its day and its total do."""
    column, _dot, field = name.partition(".")
    return column != "asset_snapshot" or field in ("as_of", "total")


def said(value: Any, name: str = "") -> tuple[str, ...]:
    """A field's value in words, one text for each entry of a list."""
    if isinstance(value, list):
        shown = tuple(_one(entry, name) for entry in value[:MOST_ENTRIES])
        more = len(value) - MOST_ENTRIES
        return (*shown, gettext("and %(count)d more") % {"count": more}) if more > 0 else shown
    return (_one(value, name),)


def _one(value: Any, name: str) -> str:
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, Mapping):
        parts = [
            (label_of(key), ", ".join(said(inner, key)))
            for key, inner in value.items()
            if inner not in (None, "", [], {}) and key != "trace_id"
        ]
        return gettext("; ").join(gettext("%(label)s: %(value)s") % {"label": a, "value": b} for a, b in parts)
    if name in _INSTANTS and isinstance(value, str):
        return _instant(value)
    if name in _WORDED and value in WORDS:
        return str(WORDS[value])
    return str(value)


def _instant(text: str) -> str:
    """In the business time zone, to the minute; a day stays a day."""
    if len(text) == 10:
        return text
    try:
        return datetime.fromisoformat(text).astimezone(business_zone()).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text
