"""Planted cases of RISK-001 and of trades that cannot be judged."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.stage import OWN_INITIATIVE, PAPERS, SMALL, Case, Stage
from memory.core.demo.world import Person, local


def _mismatch(c_level: int, level: int, score: int, **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(c_level)
        trade = stage.world.trade(person, stage.product(level), SMALL, stage.at(), **{**OWN_INITIATIVE, **cells})
        stage.hit("RISK-001", trade, score, "suitability_mismatch")

    return case


def _lowest(level: int, **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(1, is_lowest=True)
        trade = stage.world.trade(person, stage.product(level), SMALL, stage.at(), **{**OWN_INITIATIVE, **cells})
        stage.hit("RISK-001", trade, 95, "suitability_lowest")

    return case


def _confirmed(**cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(2)
        row = {**OWN_INITIATIVE, **PAPERS, **cells}
        trade = stage.world.trade(person, stage.product(4), SMALL, stage.at(), **row)
        stage.hit("RISK-001", trade, 30, "suitability_confirmed")

    return case


def _missing(stage: Stage) -> None:
    person = stage.somebody(3)
    stage.quietly(person, trading=False)
    trade = stage.world.trade(person, stage.product(2), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.hit("RISK-001", trade, 70, "assessment_missing")


def _a_year_before(day: date) -> date:
    return day.replace(year=day.year - 1, day=28 if (day.month, day.day) == (2, 29) else day.day)


def _assessed_to_end_on(stage: Stage, c_level: int, last_day: date) -> Person:
    """A customer whose newest assessment is valid through last_day, and who traded under valid ones until then."""
    world = stage.world
    person = stage.somebody(c_level)
    newest = _a_year_before(last_day)
    day = newest
    while day > world.start - timedelta(days=30):
        day -= timedelta(days=300)
        world.assess(person, day)
    world.assess(person, newest)
    stage.quietly(person)
    return person


def _expired(level: int, score: int, *subtypes: str) -> Case:
    def case(stage: Stage) -> None:
        person = _assessed_to_end_on(stage, 3, stage.day - timedelta(days=1))
        trade = stage.world.trade(person, stage.product(level), SMALL, stage.at(), **OWN_INITIATIVE)
        stage.hit("RISK-001", trade, score, *subtypes)

    return case


def _valid_on_the_last_day(stage: Stage) -> None:
    if (stage.day.month, stage.day.day) == (2, 29):  # no day of the year before ends on it
        stage.day -= timedelta(days=1)
    person = _assessed_to_end_on(stage, 3, stage.day)
    trade = stage.world.trade(person, stage.product(3), SMALL, local(stage.day, 23, 59, 59), **OWN_INITIATIVE)
    stage.miss(trade, "the assessment is valid through this day")


def _plan(stage: Stage) -> None:
    """A savings plan in too risky a product: the first purchase of each month holds the month's key."""
    world = stage.world
    person = stage.customer(2)
    first = stage.day.replace(day=1)
    months = [first, (first - timedelta(days=1)).replace(day=1)]
    months.append((months[1] - timedelta(days=1)).replace(day=1))
    product = stage.product(3)
    for month in months:
        held = False
        for day in (5, 20):
            at = month.replace(day=day)
            if not world.start <= at <= world.end:
                continue
            trade = world.trade(
                person, product, Decimal(1_000), local(at, 9, 15), plan_id="PLAN-1", **OWN_INITIATIVE
            )  # fmt: skip
            if not held:
                stage.hit("RISK-001", trade, 60, "suitability_mismatch")
                held = True
            else:
                stage.miss(trade, "the month's key is held by the plan's first purchase")


def _corrected_into_a_violation(stage: Stage) -> None:
    person = stage.customer(2)
    trade = stage.world.trade(person, stage.product(2), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.world.trade(person, stage.product(3), SMALL, stage.at(), trade_id=trade, version="2", **OWN_INITIATIVE)
    stage.hit("RISK-001", trade, 60, "suitability_mismatch")


def _corrected_out_of_it(stage: Stage) -> None:
    person = stage.customer(2)
    trade = stage.world.trade(person, stage.product(3), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.world.trade(person, stage.product(2), SMALL, stage.at(), trade_id=trade, version="2", **OWN_INITIATIVE)
    stage.miss(trade, "the final version is suitable")


def _undone(status: str) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(2)
        row = {**OWN_INITIATIVE, "status": status}
        trade = stage.world.trade(person, stage.product(5), SMALL, stage.at(), **row)
        stage.miss(trade, f"the trade was {status}")

    return case


def _at_the_level(stage: Stage) -> None:
    trade = stage.world.trade(stage.customer(3), stage.product(3), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.miss(trade, "R equals C")


def _professional(stage: Stage) -> None:
    person = stage.somebody(1, investor_type="professional")
    stage.quietly(person, trading=False)
    trade = stage.world.trade(person, stage.product(5), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.miss(trade, "professional investors are exempt")


def _sale_above_the_level(stage: Stage) -> None:
    person = stage.customer(1, is_lowest=True)
    product = stage.product(5)
    stage.world.trade(person, product, SMALL, stage.at(5), trade_type="transfer_in", price="", **OWN_INITIATIVE)
    row = {**OWN_INITIATIVE, "trade_type": "sell"}
    trade = stage.world.trade(person, product, SMALL, stage.at(), **row)
    stage.miss(trade, "a sale never hits")


def _rated_up_later(stage: Stage) -> None:
    """Its own product, so that nobody else is touched: R2 when bought, R4 afterwards."""
    world = stage.world
    number = len(world.products)
    template = world.products[stage.product(2, "mixed")]
    product = type(template)(f"P{number:03d}-UP", template.issuer_id, template.asset_class, 6)
    world.products[product.product_id] = product  # level 6: in nobody's portfolio
    world.rate_product(product, 2)
    world.rate_product(product, 4, local(stage.day + timedelta(days=1), 0, 0))
    trade = world.trade(stage.customer(2), product.product_id, SMALL, stage.at(), **OWN_INITIATIVE)
    stage.miss(trade, "R4 only since the next day")


def _unjudged(missing: str, *, known: bool = True, product_id: str = "", **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.world.person(2, known=known, born=stage.grown())
        stage.world.assess(person, stage.day - timedelta(days=60))
        product = product_id or stage.product(5)
        trade = stage.world.trade(person, product, SMALL, stage.at(), **{**OWN_INITIATIVE, **cells})
        stage.planted.data_quality.append({"trade_id": trade, "missing": [missing]})

    return case


# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (3, _lowest(5)),
    (3, _mismatch(2, 3, 60)),
    (3, _confirmed()),
    (3, _missing),
    (3, _expired(3, 50, "assessment_expired")),
    (2, _mismatch(2, 4, 80, solicited="true")),  # 50 + 20 + 10
    (1, _unjudged("missing_price", price="")),
    (1, _mismatch(2, 5, 80, channel="phone")),
    (1, _mismatch(3, 4, 60, trade_type="switch_in")),
    (2, _mismatch(2, 3, 60, channel="branch", **PAPERS)),  # no dual recording
    (1, _mismatch(2, 3, 70, solicited="true", **PAPERS)),
    (1, _lowest(2, channel="branch", dual_recording_id="DR-1", **PAPERS)),  # no exception
    (1, _confirmed(channel="branch", dual_recording_id="DR-1")),
    (2, _expired(4, 65, "suitability_mismatch", "assessment_expired")),  # 60 + 5
    (1, _plan),
    (1, _corrected_into_a_violation),
    (1, _at_the_level),
    (1, _valid_on_the_last_day),
    (1, _professional),
    (1, _sale_above_the_level),
    (1, _undone("cancelled")),
    (1, _undone("reversed")),
    (1, _corrected_out_of_it),
    (1, _rated_up_later),
    (1, _unjudged("missing_rate", fx_cny="", fx_usd="")),
    (1, _unjudged("missing_customer", known=False)),
    (1, _unjudged("missing_product", product_id="P999-NONE")),
)
