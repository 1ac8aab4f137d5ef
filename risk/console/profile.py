"""The customer's risk profile (l3) as lines for the alert page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _

from memory.profiles.models import CustomerProfileL3

LEVELS = {"low": _("low"), "medium": _("medium"), "high": _("high"), "critical": _("critical")}
RESTRICTIONS = {
    "max_risk_level": _("no product above"),
    "no_complex": _("no complex products"),
    "no_new_purchase": _("no new purchases"),
    "dual_recording_required": _("dual recording required"),
    "callback_required": _("callback required"),
}


@dataclass(frozen=True)
class ProfileLine:
    label: Any
    value: Any


def profile_lines(*, tenant: str, customer_id: str, words: Callable[[str], str] = str) -> Sequence[ProfileLine]:
    """Score, level, restrictions and flags of the customer's l3; empty where there is none. One query.

    words: what becomes of text that is no word of ours before it is shown.
    """
    if not customer_id:
        return []
    row = CustomerProfileL3.objects.filter(tenant=tenant, customer_id=customer_id).only("payload").first()
    if row is None or not isinstance(row.payload, dict):
        return []
    lines = []
    for name, label in (
        ("risk_score", _("risk score")),
        ("risk_level", _("risk level")),
        ("valid_until", _("valid until")),
    ):
        if row.payload.get(name) not in (None, ""):
            value = row.payload[name]
            lines.append(ProfileLine(label, LEVELS.get(value, value) if name == "risk_level" else value))
    for entry in _entries(row.payload.get("restrictions")):
        code = entry.get("code", "")
        value = f" {entry['value']}" if entry.get("value") not in (None, "", True) else ""
        lines.append(ProfileLine(_("restriction"), f"{RESTRICTIONS.get(code) or words(str(code))}{words(value)}"))
    for entry in _entries(row.payload.get("flags")):
        lines.append(ProfileLine(_("flag"), words(str(entry.get("code", "")))))
    return lines


def _entries(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)][:10] if isinstance(value, list) else []
