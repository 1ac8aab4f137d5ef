"""RISK-001 suitability: an ordinary investor buys above the tolerance assessed, or without a valid assessment.

Sources: 证券期货投资者适当性管理办法 arts. 18, 19 and 22 (no selling above the level to the lowest class; others only
on their own initiative, warned and confirmed in writing), 金融机构产品适当性管理办法 (2025 No. 7) (assessments are
valid for twelve months); the specification's table and settled readings. Scores are judgement.

Readings taken where the words leave a choice:
- The assessment that counts is the newest made by traded_at, that instant included.
- Sells, transfers and dividends never hit. A product re-rated later is no violation: its row in force at the trade
  counts.
- investor_type empty is no evidence of being professional: such a customer is ordinary. Entities are judged alike.
- solicited, is_lowest and channel empty count as not solicited, not lowest, not branch.
- A cash-like product is judged like any other: the text exempts it from 002 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from config.base.clock import business_date
from memory.core.facts import AssessmentFact
from memory.profiles.derived import add_months
from risk.rules.facts import Facts, Trade
from risk.rules.hit import Hit
from risk.rules.numbers import score

RULE_ID = "RISK-001"
MISMATCH = "suitability_mismatch"
LOWEST = "suitability_lowest"
CONFIRMED = "suitability_confirmed"
MISSING = "assessment_missing"
EXPIRED = "assessment_expired"


@dataclass(frozen=True)
class Params:
    """Points, months.

    mismatch_base, mismatch_per_level, solicited_extra: R above C, 50 + 10(R-C), +10 solicited (judgement).
    lowest: any sale above the level to the lowest class, forbidden without exception (办法 art. 22).
    confirmed: warned and confirmed in writing at the customer's own initiative (办法 art. 19).
    missing, expired: bought without an assessment, or with one past its term (judgement).
    validity_months: an assessment's term (金融机构产品适当性管理办法).
    further_part: for each subtype beyond the highest (specification, all rules).
    """

    mismatch_base: int = 50
    mismatch_per_level: int = 10
    solicited_extra: int = 10
    lowest: int = 95
    confirmed: int = 30
    missing: int = 70
    expired: int = 50
    validity_months: int = 12
    further_part: int = 5


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of trades. A plan's first buy of a month that hits holds the month's key."""
    hits: dict[str, Hit] = {}
    newest: AssessmentFact | None = None
    valid_through: date | None = None
    for trade in facts.buys:
        if trade.customer.investor_type == "professional" or (trade.fact.plan_id and trade.evidence_key in hits):
            continue
        assessment = facts.assessment_at(trade.fact.traded_at)
        if assessment is not newest:
            newest, valid_through = assessment, _valid_through(assessment, params) if assessment else None
        parts = _parts(trade, assessment, valid_through, params)
        if parts:
            hits[trade.evidence_key] = _hit(trade, assessment, valid_through, parts, params, version)
    return list(hits.values())


def _valid_through(assessment: AssessmentFact, params: Params) -> date:
    """The last local day on which the assessment counts: assessed 2025-11-30, valid through 2026-11-30."""
    return add_months(business_date(assessment.assessed_at), params.validity_months)


def _parts(
    trade: Trade, assessment: AssessmentFact | None, valid_through: date | None, params: Params
) -> dict[str, int]:
    """Subtype to points, in the rule's order; at most one of mismatch, lowest and confirmed."""
    if assessment is None or valid_through is None:
        return {MISSING: params.missing}
    parts = {}
    gap = trade.product.risk_level - assessment.c_level
    if gap > 0:
        if assessment.is_lowest:
            parts[LOWEST] = params.lowest
        elif _confirmed(trade):
            parts[CONFIRMED] = params.confirmed
        else:
            extra = params.solicited_extra if trade.fact.solicited else 0
            parts[MISMATCH] = params.mismatch_base + params.mismatch_per_level * gap + extra
    if trade.day > valid_through:
        parts[EXPIRED] = params.expired
    return parts


def _confirmed(trade: Trade) -> bool:
    """Own initiative with both papers; in a branch the dual recording too."""
    fact = trade.fact
    papers = bool(fact.mismatch_confirm_id and fact.risk_disclosure_id)
    recorded = bool(fact.dual_recording_id) or fact.channel != "branch"
    return papers and recorded and not fact.solicited


def _hit(
    trade: Trade,
    assessment: AssessmentFact | None,
    valid_through: date | None,
    parts: dict[str, int],
    params: Params,
    version: int,
) -> Hit:
    figures: dict[str, Any] = {
        "product_risk_level": f"R{trade.product.risk_level}",
        "tolerance_level": f"C{assessment.c_level}" if assessment else None,
        "is_lowest": assessment.is_lowest if assessment else None,
        "assessed_on": _day(assessment) if assessment else None,
        "valid_through": valid_through.isoformat() if valid_through else None,
        "traded_on": trade.day.isoformat(),
        "channel": trade.fact.channel,
        "solicited": trade.fact.solicited,
        "mismatch_confirm": bool(trade.fact.mismatch_confirm_id),
        "risk_disclosure": bool(trade.fact.risk_disclosure_id),
        "dual_recording": bool(trade.fact.dual_recording_id),
        "parts": parts,
    }
    return trade.hit(
        RULE_ID,
        version,
        score=score(max(parts.values()) + params.further_part * (len(parts) - 1)),
        subtypes=tuple(parts),
        figures=figures,
    )


def _day(assessment: AssessmentFact) -> str:
    return business_date(assessment.assessed_at).isoformat()
