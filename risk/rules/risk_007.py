"""RISK-007: the elderly and risky products, a first complex product, and tolerance that was raised to fit a purchase.

Sources: 证券期货投资者适当性管理办法 arts. 20 and 25 (special care in selling high-risk products to ordinary
investors; warnings given in a branch are recorded), 金融机构产品适当性管理办法 (2025 No. 7) (customers of 65 and over
are warned with special care; at most two assessments a day and eight in twelve months); the specification's table,
edges and settled readings. Scores are judgement.

Readings taken where the words leave a choice:
- Professionals are exempt from all four, as the edge says of 001 and 007. investor_type empty is no evidence of being
  professional. Only the elderly part asks for a natural person, and a kind that is not given is no evidence of one;
  an entity is judged by the other three.
- An age is reached on the birthday as the trade's business day has it; born on 29 Feb, on 1 Mar of a short year.
- is_complex empty is no evidence of being complex, of the product bought and of those bought before. What was
  complex is what the product's row in force at that purchase said. Purchases made as a professional are history.
- Both papers are the dual recording and the risk disclosure: 30 flat for that part, without its extras.
- The share of a first complex product is this purchase alone over 002's denominator, from 20 % on. That denominator
  is used whatever its size (002's least assets bind 002). Without a snapshot closed by the trade, or where nothing is
  held and nothing paid, the share is not known, which is no evidence: no extra.
- Every assessment that raised the class counts while it is within the days before the purchase, whatever was assessed
  since, with the class that it replaced. A first assessment raises nothing.
- Within a day counts the business day up to the assessment; the twelve months run back from it by the local calendar,
  at the same time of day, both ends in. The ninth in twelve months is one too many, and so is each later one that is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

from config.base.clock import business_date, business_zone
from memory.core.facts import AssessmentFact
from memory.profiles.derived import add_months, age_on
from risk.rules.facts import Facts, Holdings, Trade
from risk.rules.hit import Hit
from risk.rules.numbers import money, ratio, score
from risk.rules.risk_002 import assets_after

RULE_ID = "RISK-007"
ELDERLY = "elderly_high_risk"
FIRST_COMPLEX = "first_complex"
UPGRADED = "assessment_upgraded"
SHOPPING = "assessment_shopping"


@dataclass(frozen=True)
class Params:
    """Years, levels, points, shares from 0 to 1, days, months, numbers of assessments.

    elderly_age, high_risk_level: from 65 on, R4 and above or complex (金融机构产品适当性管理办法).
    elderly_base, old_age, old_extra, elderly_unrecorded: 60; from 75 on +10; no dual recording +10 (judgement).
    complex_base, complex_unrecorded, complex_share, complex_share_extra: 45; no dual recording +10; from 20 % of the
        assets on +10 (judgement).
    papers: dual recording and risk disclosure both there, in place of either of these (judgement).
    upgraded, upgraded_days: a class raised so many days (of 24 h) before a purchase above the old one (judgement).
    shopping, shopping_days: a purchase so many days after an assessment that is one too many (judgement).
    max_in_day, max_in_months, shopping_months: more than 2 a business day or 8 in 12 months
        (金融机构产品适当性管理办法).
    further_part: for each subtype beyond the highest (specification, all rules).
    """

    elderly_age: int = 65
    high_risk_level: int = 4
    elderly_base: int = 60
    old_age: int = 75
    old_extra: int = 10
    elderly_unrecorded: int = 10
    complex_base: int = 45
    complex_unrecorded: int = 10
    complex_share: Fraction = Fraction(20, 100)
    complex_share_extra: int = 10
    papers: int = 30
    upgraded: int = 70
    upgraded_days: int = 7
    shopping: int = 80
    shopping_days: int = 7
    max_in_day: int = 2
    max_in_months: int = 8
    shopping_months: int = 12
    further_part: int = 5


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of trades. A plan's first buy of a month that hits holds the month's key.

    Costs: linear in trades, a few bisections each; the positions are rolled forward for one trade at most.
    """
    hits: dict[str, Hit] = {}
    raises = _Raises(facts.assessments)
    excesses = _excesses(facts.assessments, params)
    bought_complex = False
    for trade in facts.buys:
        is_first = trade.product.is_complex is True and not bought_complex
        bought_complex = bought_complex or trade.product.is_complex is True
        if trade.customer.investor_type == "professional" or (trade.fact.plan_id and trade.evidence_key in hits):
            continue
        parts: dict[str, int] = {}
        figures: dict[str, Any] = {}
        _elderly(trade, params, parts, figures)
        if is_first:
            _first_complex(facts, trade, params, parts, figures)
        if raises:
            _upgraded(trade, raises, params, parts, figures)
        if excesses:
            _shopping(trade, excesses, params, parts, figures)
        if parts:
            hits[trade.evidence_key] = _hit(trade, parts, figures, params, version)
    return list(hits.values())


def _papers(trade: Trade) -> bool:
    return bool(trade.fact.dual_recording_id and trade.fact.risk_disclosure_id)


def _elderly(trade: Trade, params: Params, parts: dict[str, int], figures: dict[str, Any]) -> None:
    born = trade.customer.birth_date
    if trade.customer.kind != "natural" or born is None:
        return
    if trade.product.risk_level < params.high_risk_level and trade.product.is_complex is not True:
        return
    age = age_on(born, trade.day)
    if age < params.elderly_age:
        return
    figures.update(age=age, elderly_age=params.elderly_age, high_risk_level=f"R{params.high_risk_level}")
    if _papers(trade):
        parts[ELDERLY] = params.papers
        return
    parts[ELDERLY] = params.elderly_base
    parts[ELDERLY] += params.old_extra if age >= params.old_age else 0
    parts[ELDERLY] += 0 if trade.fact.dual_recording_id else params.elderly_unrecorded


def _first_complex(facts: Facts, trade: Trade, params: Params, parts: dict[str, int], figures: dict[str, Any]) -> None:
    positions = Holdings(facts).before(trade)
    assets = None if positions is None else assets_after(facts, trade, positions)
    share = trade.amount / assets if assets else None
    figures.update(
        amount=money(trade.amount),
        assets=None if assets is None else money(assets),
        share=None if share is None else ratio(share),
        share_limit=ratio(params.complex_share),
    )
    if _papers(trade):
        parts[FIRST_COMPLEX] = params.papers
        return
    parts[FIRST_COMPLEX] = params.complex_base
    parts[FIRST_COMPLEX] += 0 if trade.fact.dual_recording_id else params.complex_unrecorded
    if share is not None and share >= params.complex_share:
        parts[FIRST_COMPLEX] += params.complex_share_extra


class _Raises:
    """The assessments that raised the class, by the class that they replaced."""

    def __init__(self, assessments: Sequence[AssessmentFact]) -> None:
        self._times: dict[int, list[datetime]] = defaultdict(list)
        self._to: dict[int, list[int]] = defaultdict(list)
        for old, new in pairwise(assessments):
            if new.c_level > old.c_level:
                self._times[old.c_level].append(new.assessed_at)
                self._to[old.c_level].append(new.c_level)

    def __bool__(self) -> bool:
        return bool(self._times)

    def below(self, level: int, since: datetime, until: datetime) -> tuple[datetime, int, int] | None:
        """The newest rise within [since, until] from a class below `level`: when, from, to."""
        found = None
        for old, times in self._times.items():
            index = bisect_right(times, until) - 1
            if old < level and index >= 0 and times[index] >= since and (found is None or times[index] > found[0]):
                found = (times[index], old, self._to[old][index])
        return found


def _upgraded(trade: Trade, raises: _Raises, params: Params, parts: dict[str, int], figures: dict[str, Any]) -> None:
    at = trade.fact.traded_at
    found = raises.below(trade.product.risk_level, at - timedelta(days=params.upgraded_days), at)
    if found is None:
        return
    when, old, new = found
    parts[UPGRADED] = params.upgraded
    figures.update(
        raised_on=business_date(when).isoformat(), raised_from=f"C{old}", raised_to=f"C{new}",
        upgraded_days=params.upgraded_days,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Excess:
    """An assessment that is one too many: how many there were with it that business day, and in the months."""

    assessed_at: datetime
    in_day: int
    in_months: int


def _excesses(assessments: Sequence[AssessmentFact], params: Params) -> list[_Excess]:
    times = [assessment.assessed_at for assessment in assessments]
    in_day: dict[date, int] = defaultdict(int)
    found = []
    for index, moment in enumerate(times):
        day = business_date(moment)
        in_day[day] += 1
        in_months = index + 1 - bisect_left(times, _months_before(moment, params.shopping_months))
        if in_day[day] > params.max_in_day or in_months > params.max_in_months:
            found.append(_Excess(moment, in_day[day], in_months))
    return found


def _months_before(moment: datetime, months: int) -> datetime:
    """The same local time of day, calendar months earlier."""
    local = moment.astimezone(business_zone())
    return datetime.combine(add_months(local.date(), -months), local.timetz())


def _shopping(
    trade: Trade, excesses: list[_Excess], params: Params, parts: dict[str, int], figures: dict[str, Any]
) -> None:
    at = trade.fact.traded_at
    index = bisect_right(excesses, at, key=lambda excess: excess.assessed_at) - 1
    if index < 0 or excesses[index].assessed_at < at - timedelta(days=params.shopping_days):
        return
    newest = excesses[index]
    parts[SHOPPING] = params.shopping
    figures.update(
        assessed_on=business_date(newest.assessed_at).isoformat(),
        assessments_in_day=newest.in_day, max_in_day=params.max_in_day,
        assessments_in_months=newest.in_months, max_in_months=params.max_in_months, months=params.shopping_months,
        shopping_days=params.shopping_days,
    )  # fmt: skip


def _hit(trade: Trade, parts: dict[str, int], figures: dict[str, Any], params: Params, version: int) -> Hit:
    common = {
        "product_risk_level": f"R{trade.product.risk_level}",
        "is_complex": trade.product.is_complex,
        "traded_on": trade.day.isoformat(),
        "dual_recording": bool(trade.fact.dual_recording_id),
        "risk_disclosure": bool(trade.fact.risk_disclosure_id),
        "parts": parts,
    }
    return trade.hit(
        RULE_ID,
        version,
        score=score(max(parts.values()) + params.further_part * (len(parts) - 1)),
        subtypes=tuple(parts),
        figures={**common, **figures},
    )
