"""RISK-002 concentration: after a purchase, too much of the customer's assets is in one product, issuer or class.

Sources: the specification's table, edges and settled readings (金融机构产品适当性管理办法 asks for attention to
concentration and leaves the figures to the firm: limits are judgement, hence parameters).

    share = (position + amount) / (non-cash positions + amount + max(0, cash - amount))

position: the customer's newest snapshot closed by the trade, rolled forward at amount (see facts.Holdings).

Readings taken where the words leave a choice:
- Professionals and entities are judged too: the text exempts professionals from 001 and 007 only.
- R in the limits is that of the product bought, as is "none for cash, R1-R2 fixed income"; the sums over issuer and
  class take every non-cash-like position whatever its R.
- is_cash_like decides what cash is. A class-cash product that is not cash-like is an ordinary position, whose class
  has no limit. A held product without a row in force is a non-cash position of no issuer and no class.
- An issuer or class that is not given ('') is no evidence: that dimension is not judged.
- One subtype, `concentration`, whichever dimensions are over; ties of score go product, issuer, class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from memory.core.facts import ProductFact
from risk.rules.facts import Facts, Holdings, Trade
from risk.rules.hit import Hit
from risk.rules.numbers import TICK, exact, money, ratio, score

RULE_ID = "RISK-002"
CONCENTRATION = "concentration"


@dataclass(frozen=True)
class Params:
    """CNY, shares from 0 to 1, points; all judgement (specification, section 2).

    min_assets: below this denominator nothing is judged.
    *_limit: shares above which a purchase hits; *_limit_r2 for an R2 product; R1 has none in product and issuer.
    base, slope: 50 at the limit, 90 at a share of 1. high_risk_extra: from high_risk_level on.
    """

    min_assets: int = 100_000
    product_limit: Fraction = Fraction(40, 100)
    product_limit_r2: Fraction = Fraction(60, 100)
    issuer_limit: Fraction = Fraction(50, 100)
    issuer_limit_r2: Fraction = Fraction(60, 100)
    class_limit: Fraction = Fraction(80, 100)
    base: int = 50
    slope: int = 40
    high_risk_level: int = 4
    high_risk_extra: int = 10


@dataclass(frozen=True)
class Dimension:
    """One share over its limit, and what it scores (exact)."""

    name: str
    held: Fraction
    share: Fraction
    limit: Fraction
    points: Fraction


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of trades. A plan's first buy of a month that hits holds the month's key."""
    hits: dict[str, Hit] = {}
    holdings = Holdings(facts)
    least = params.min_assets * TICK
    bounds_of: dict[int, dict[str, Fraction]] = {}  # by the product's row, which the facts keep alive
    for trade in facts.buys:
        product = trade.product
        if product.is_cash_like or (trade.fact.plan_id and trade.evidence_key in hits):
            continue
        bounds = bounds_of.get(id(product))
        if bounds is None:
            bounds = bounds_of[id(product)] = limits(trade, params)
        if not bounds:
            continue
        positions = holdings.before(trade)
        if positions is None:
            continue
        sums = _sums(facts, trade, positions)
        denominator = _denominator(sums, trade)
        if denominator < least or not _any_over(trade, sums, denominator, bounds):
            continue
        over = [found for found in _dimensions(trade, sums, denominator, params) if found.share > found.limit]
        if over:
            hits[trade.evidence_key] = _hit(trade, sums, denominator, over, version)
    return list(hits.values())


def assets_after(facts: Facts, trade: Trade, positions: Mapping[str, int]) -> Fraction:
    """The denominator, for whoever weighs a purchase against the customer's assets. CNY; positions: before it."""
    return exact(_denominator(_sums(facts, trade, positions), trade))


def _denominator(sums: Mapping[str, int], trade: Trade) -> int:
    return sums["assets"] + trade.ticks + max(0, sums["cash"] - trade.ticks)


def _any_over(trade: Trade, sums: Mapping[str, int], denominator: int, bounds: Mapping[str, Fraction]) -> bool:
    """Whether a share is over its limit: compared crosswise, without dividing."""
    amount = trade.ticks
    for name, limit in bounds.items():
        if (sums[name] + amount) * limit.denominator > limit.numerator * denominator:
            return True
    return False


def _sums(facts: Facts, trade: Trade, positions: Mapping[str, int]) -> dict[str, int]:
    """Ticks of CNY held before the trade: cash, assets (all non-cash), and of those product, issuer, class."""
    cash = assets = own = issuer = asset_class = 0
    bought, at, always = trade.product, trade.fact.traded_at, facts.always
    product_of, issuer_of, class_of = bought.product_id, bought.issuer_id, bought.asset_class
    for product_id, value in positions.items():
        if not value:
            continue
        product = always.get(product_id) or facts.product_at(product_id, at)
        if product is not None:
            if product.is_cash_like:
                cash += value
                continue
            if product.issuer_id == issuer_of:
                issuer += value
            if product.asset_class == class_of:
                asset_class += value
        assets += value
        if product_id == product_of:
            own += value
    return {"cash": cash, "assets": assets, "product": own, "issuer": issuer, "class": asset_class}


def limits(trade: Trade, params: Params) -> dict[str, Fraction]:
    """The limits that bind this purchase, by dimension."""
    return limits_of(trade.product, params)


def limits_of(bought: ProductFact, params: Params) -> dict[str, Fraction]:
    """The limits that bind any purchase of this product, by dimension; one that is absent has none."""
    found = {}
    if bought.risk_level > 1:
        is_r2 = bought.risk_level == 2
        found["product"] = params.product_limit_r2 if is_r2 else params.product_limit
        if bought.issuer_id:
            found["issuer"] = params.issuer_limit_r2 if is_r2 else params.issuer_limit
    safe = bought.asset_class == "cash" or (bought.asset_class == "fixed_income" and bought.risk_level <= 2)
    if bought.asset_class and not safe:
        found["class"] = params.class_limit
    return found


def _dimensions(trade: Trade, sums: Mapping[str, int], denominator: int, params: Params) -> list[Dimension]:
    extra = params.high_risk_extra if trade.product.risk_level >= params.high_risk_level else 0
    found = []
    for name, limit in limits(trade, params).items():
        share = Fraction(sums[name] + trade.ticks, denominator)
        points = params.base + params.slope * (share - limit) / (1 - limit) + extra
        found.append(Dimension(name, exact(sums[name]), share, limit, points))
    return found


def _hit(trade: Trade, sums: Mapping[str, int], denominator: int, over: list[Dimension], version: int) -> Hit:
    worst = max(over, key=lambda dimension: dimension.points)  # the first of equals
    figures: dict[str, Any] = {
        "dimension": worst.name,
        "share": ratio(worst.share),
        "limit": ratio(worst.limit),
        "amount": money(trade.amount),
        "assets": money(exact(denominator)),
        "cash": money(exact(sums["cash"])),
        "product_risk_level": f"R{trade.product.risk_level}",
        "issuer_id": trade.product.issuer_id,
        "asset_class": trade.product.asset_class,
        "over": {
            dimension.name: {
                "held": money(dimension.held),
                "share": ratio(dimension.share),
                "limit": ratio(dimension.limit),
            }
            for dimension in over
        },
    }
    return trade.hit(RULE_ID, version, score=score(worst.points), subtypes=(CONCENTRATION,), figures=figures)
