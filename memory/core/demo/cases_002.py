"""Planted cases of RISK-002: shares at and over each limit.

What else is held is R1 fixed income of six issuers, none of them the issuer of what is bought.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.stage import OWN_INITIATIVE, Case, Stage


def _others(stage: Stage, total: int, bought: str) -> dict[str, int]:
    issuer = stage.world.products[bought].issuer_id
    found = [
        product.product_id
        for product in stage.world.products.values()
        if product.asset_class == "fixed_income" and product.risk_level == 1 and product.issuer_id != issuer
    ][:4]
    return {product_id: total // len(found) for product_id in found}


def _bought(
    level: int, asset_class: str, others: int, amount: str, score: int | None, why: str = "", **cells: Any
) -> Case:
    """Cash just covers the purchase, so the denominator is others + amount."""

    def case(stage: Stage) -> None:
        product = stage.product(level, asset_class)
        cash = int(Decimal(amount))
        person = stage.holder(5, {**_others(stage, others, product), stage.world.CASH: cash})
        trade = stage.world.trade(person, product, Decimal(amount), stage.at(), **{**OWN_INITIATIVE, **cells})
        reported = stage.reported(trade, Decimal(amount))
        if score is not None:
            stage.hit("RISK-002", trade, score, "concentration")
        elif not reported:
            stage.miss(trade, why)

    return case


def _issuer(existing: int, others: int, amount: int, score: int | None) -> Case:
    def case(stage: Stage) -> None:
        world = stage.world
        product = stage.product(3, "mixed")
        issuer = world.products[product].issuer_id
        sibling = next(
            p.product_id for p in world.products.values()
            if p.issuer_id == issuer and p.product_id != product and not p.is_cash_like and p.risk_level < 6
        )  # fmt: skip
        person = stage.holder(5, {**_others(stage, others, product), sibling: existing, world.CASH: amount})
        trade = world.trade(person, product, Decimal(amount), stage.at(), **OWN_INITIATIVE)
        if score is None:
            stage.miss(trade, "the issuer comes to exactly 50 %")
        else:
            stage.hit("RISK-002", trade, score, "concentration")

    return case


def _class(each: int, others: int, amount: int, score: int | None) -> Case:
    def case(stage: Stage) -> None:
        world = stage.world
        equities = [stage.product(3, "equity", index=index) for index in range(4)]
        holdings = {**_others(stage, others, equities[3]), **dict.fromkeys(equities[:3], each), world.CASH: amount}
        person = stage.holder(5, holdings)
        trade = world.trade(person, equities[3], Decimal(amount), stage.at(), **OWN_INITIATIVE)
        if score is None:
            stage.miss(trade, "the class comes to exactly 80 %")
        else:
            stage.hit("RISK-002", trade, score, "concentration")

    return case


def _switched(stage: Stage) -> None:
    """Half of a million in fixed income switched into one R3 fund: 50 % of 40, 50 + 40 x 0.1/0.6."""
    world = stage.world
    product = stage.product(3, "mixed")
    person = stage.holder(5, _others(stage, 1_000_000, product))
    for minute, source in enumerate(list(person.holdings)[:2]):
        at = stage.at(10 + minute)
        world.trade(person, source, Decimal(250_000), at, trade_type="switch_out", **OWN_INITIATIVE)
    trade = world.trade(person, product, Decimal(500_000), stage.at(20), trade_type="switch_in", **OWN_INITIATIVE)
    stage.hit("RISK-002", trade, 57, "concentration")


def _rolled_forward(stage: Stage) -> None:
    """300,000 twice beside 600,000: a third, then half. Only the second is over 40 %."""
    world = stage.world
    product = stage.product(3, "mixed")
    person = stage.holder(5, _others(stage, 600_000, product))
    first = world.trade(person, product, Decimal(300_000), stage.at(5), **OWN_INITIATIVE)
    second = world.trade(person, product, Decimal(300_000), stage.at(45), **OWN_INITIATIVE)
    stage.miss(first, "a third of the assets")
    stage.hit("RISK-002", second, 57, "concentration")
    stage.reported(second, Decimal(600_000))  # with the first


def _no_snapshot(stage: Stage) -> None:
    person = stage.world.person(5, born=stage.grown())
    stage.world.assess(person, stage.day - timedelta(days=60))
    trade = stage.world.trade(person, stage.product(5), Decimal(500_000), stage.at(), **OWN_INITIATIVE)
    stage.reported(trade, Decimal(500_000))  # no snapshot by then: not judged for concentration


# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (2, _bought(3, "mixed", 500_000, "500000", 57)),  # 50 % of 40: 50 + 40 x 0.1/0.6
    (2, _issuer(400_000, 300_000, 300_000, 66)),  # 70 % of 50: 50 + 40 x 0.2/0.5
    (2, _class(200_000, 150_000, 250_000, 60)),  # 85 % of 80: 50 + 40 x 0.05/0.2
    (2, _bought(5, "equity", 500_000, "500000", 67)),  # 56.67 + 10
    (1, _bought(2, "fixed_income", 300_000, "700000", 60)),  # 70 % of 60: 50 + 40 x 0.1/0.4
    (1, _bought(3, "mixed", 600_000, "400000.01", 50)),
    (1, _rolled_forward),
    (1, _switched),
    (1, _bought(3, "mixed", 600_000, "400000", None, "exactly 40 %")),
    (1, _bought(2, "fixed_income", 400_000, "600000", None, "exactly 60 %, R2")),
    (1, _bought(1, "fixed_income", 4, "900000", None, "R1 has no limit")),
    (1, _bought(5, "equity", 40_000, "59999.99", None, "assets of 99,999.99 are not judged")),
    (1, _issuer(200_000, 500_000, 300_000, None)),
    (1, _class(200_000, 200_000, 200_000, None)),
    (1, _no_snapshot),
)
