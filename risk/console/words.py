"""Words of rules and subtypes for people. The codes are contract (RISK.md 2), the words are translated."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

SUBTYPES: dict[str, Promise] = {
    "suitability_mismatch": _("product above the customer's risk tolerance"),
    "suitability_lowest": _("sale to the lowest risk class"),
    "suitability_confirmed": _("mismatch confirmed by the customer"),
    "assessment_missing": _("no risk assessment"),
    "assessment_expired": _("risk assessment expired"),
    "concentration": _("concentration"),
    "large_amount": _("large amount"),
    "structuring": _("structuring"),
    "churning_turnover": _("churning: turnover"),
    "churning_cost": _("churning: cost"),
    "dormant_reactivated": _("dormant account reactivated"),
    "fast_in_out": _("fast in and out"),
    "size_outlier": _("unusual size"),
    "odd_hour": _("unusual hour"),
    "elderly_high_risk": _("elderly customer, high risk"),
    "first_complex": _("first complex product"),
    "assessment_upgraded": _("risk class raised shortly before"),
    "assessment_shopping": _("repeated assessments"),
    "agent_behavior": _("advisor conduct"),
}

RULES: dict[str, Promise] = {
    "RISK-001": _("Suitability"),
    "RISK-002": _("Concentration"),
    "RISK-003": _("Large-amount report"),
    "RISK-004": _("Structuring"),
    "RISK-005": _("Churning"),
    "RISK-006": _("Unusual trading"),
    "RISK-007": _("Elderly and complex products"),
    "RISK-008": _("Advisor conduct"),
    "DATA-QUALITY": _("Data quality"),
}

# What officers did, in the timeline.
ACTIONS: dict[str, Promise] = {
    "open": _("opened"),
    "opened": _("opened"),
    "merge": _("hit added"),
    "merged": _("hit added"),
    "after_disposition": _("hit after disposition"),
    "rescored": _("score changed"),
    "claim": _("claimed"),
    "claimed": _("claimed"),
    "release": _("released"),
    "released": _("released"),
    "dispose": _("disposed"),
    "disposed": _("disposed"),
    "confirmed": _("confirmed"),
    "false_positive": _("marked as false positive"),
    "closed": _("closed"),
    "reopen": _("reopened"),
    "reopened": _("reopened"),
    "escalate": _("escalated"),
    "escalated": _("escalated"),
    "level": _("level raised"),
    "note": _("note"),
    "noted": _("note"),
    "withdrawn": _("hit withdrawn"),
    "revised": _("hit revised"),
    "trade_cancelled": _("trade cancelled"),
}


def subtype_words(codes: list[str]) -> str:
    """`concentration, structuring` in the reader's language; codes without words as they are."""
    return gettext(", ").join(str(SUBTYPES.get(code, code)) for code in codes)
