"""Words of rules and subtypes for people. The codes are contract (RISK.md 2), the words are translated."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from risk.alerts.damage import is_damaged
from risk.alerts.models import RiskAlert, RiskAlertHit

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
    "missing_customer": _("customer missing"),
    "missing_product": _("product missing"),
    "missing_price": _("price missing"),
    "missing_rate": _("exchange rate missing"),
    "missing_currency": _("currency missing"),
    "missing_trade": _("reported trade missing"),
    "unreadable_value": _("unreadable value"),
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

# What a trade that cannot be judged lacks, in a sentence.
LACKS: dict[str, Promise] = {
    "missing_customer": _("the customer's record"),
    "missing_product": _("the product's record"),
    "missing_price": _("the price"),
    "missing_rate": _("the exchange rate to CNY"),
    "missing_trade": _("the core system's record of it, a day after an advisor had reported it"),
    "unreadable_value": _("a value of its record that can be read"),
}
# What a trade lacks that every other rule has judged.
LIMITS_LACK: dict[str, Promise] = {
    "missing_rate": _("the exchange rate to USD"),
    "missing_currency": _("the currency"),
}

# What officers and the scanner did, in the timeline: every `AlertAction.action` that the code writes.
ACTIONS: dict[str, Promise] = {
    "claim": _("claimed"),
    "release": _("released"),
    "dispose": _("disposed"),
    "reopen": _("reopened"),
    "assign": _("assigned"),
    "propose": _("escalated with a proposed disposition"),
    "approve": _("approved"),
    "return": _("returned"),
    "snooze": _("put aside"),
    "wake": _("taken up again"),
    "level_1": _("escalated to level 1"),
    "level_2": _("escalated to level 2"),
    "note": _("note"),
    "handover": _("handed over to another officer"),
    "ask": _("asked for information"),
    "answer": _("recorded an answer"),
    "withdraw": _("withdrew a question"),
    "overdue": _("a question is overdue"),
    "stop": _("stopped an actor or an AI agent"),
    "go_on": _("let an actor or an AI agent go on"),
    "hit_superseded": _("hit superseded by a newer version of its trade"),
    "hit_withdrawn": _("hit withdrawn: its condition no longer holds"),
    "hit_cancelled": _("hit marked: its trade was cancelled"),
}


def damage_words(alert: RiskAlert, *hits: RiskAlertHit | None) -> str:
    """What stands where something stored of an alert, or of one of these hits, cannot be read; else ''."""
    if not is_damaged(alert) and not any(is_damaged(hit) for hit in hits if hit is not None):
        return ""
    return gettext("Something that is stored of this alert cannot be read. Operators are told; the rest is shown.")


def subtype_words(codes: list[str]) -> str:
    """`concentration, structuring` in the reader's language; codes without words as they are."""
    return gettext(", ").join(str(SUBTYPES.get(code, code)) for code in codes)
