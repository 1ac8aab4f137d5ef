"""Planted cases of RISK-007: ages, papers, first complex products, classes raised or shopped for, at each edge.

Everybody here is assessed C5 when buying, has a million in R1 bonds of other issuers and buys little of anything: no
other rule has a say. Points: 60 for the elderly and 45 for a first complex product, +10 without dual recording, +10
from 75 years or 20 % of the assets on; 30 with both papers; 70 a class raised; 80 shopped for; +5 each further part.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.stage import OWN_INITIATIVE, SMALL, Case, Stage
from memory.core.demo.world import Person, local

RECORDED: dict[str, Any] = {"dual_recording_id": "DR-7"}
DISCLOSED: dict[str, Any] = {"risk_disclosure_id": "RD-7"}
BOTH: dict[str, Any] = {**RECORDED, **DISCLOSED}
OTHERS = 1_000_000
WEEK = timedelta(days=7)
TICK = timedelta(seconds=1)


def _holder(stage: Stage, bought: str, *, others: int = OTHERS, **who: Any) -> Person:
    """Holds `others` CNY in four R1 bonds, none of them the issuer's of what is bought."""
    products = stage.world.products
    bonds = [
        product.product_id
        for product in products.values()
        if product.asset_class == "fixed_income" and product.risk_level == 1
        if product.issuer_id != products[bought].issuer_id
    ][:4]
    return stage.holder(5, dict.fromkeys(bonds, others // 4), **who)


def _buy(stage: Stage, person: Person, product: str, at: datetime, amount: Decimal = SMALL, **cells: Any) -> str:
    return stage.world.trade(person, product, amount, at, **{**OWN_INITIATIVE, **cells})


def turning(age: int, day: date) -> date:
    """The birth date of somebody who reaches the age on that day (on the day before, where that year has no 29 Feb
    to be born on)."""
    year = day.year - age
    short = (day.month, day.day) == (2, 29) and year % 4 != 0
    return date(year, day.month, 28 if short else day.day)


def turning_tomorrow(age: int, day: date) -> date:
    """The birth date of somebody who has not yet reached the age on that day, but will at midnight."""
    after = day + timedelta(days=1)
    year = after.year - age
    if (after.month, after.day) == (2, 29) and year % 4 != 0:
        return date(year, 3, 1)  # a day later still
    return date(year, after.month, after.day)


# --- the elderly --------------------------------------------------------------------------------------------------


def _turned(age: int, score: int, *, level: int = 4, **cells: Any) -> Case:
    """Bought in the first second of the birthday."""

    def case(stage: Stage) -> None:
        product = stage.product(level)
        person = _holder(stage, product, born=turning(age, stage.day))
        trade = _buy(stage, person, product, local(stage.day, 0, 0, 0), **cells)
        stage.hit("RISK-007", trade, score, "elderly_high_risk")

    return case


def _turns_tomorrow(age: int, score: int | None) -> Case:
    """Bought in the last second before the birthday."""

    def case(stage: Stage) -> None:
        product = stage.product(4)
        person = _holder(stage, product, born=turning_tomorrow(age, stage.day))
        trade = _buy(stage, person, product, local(stage.day, 23, 59, 59))
        if score is None:
            stage.miss(trade, f"{age} only tomorrow")
        else:
            stage.hit("RISK-007", trade, score, "elderly_high_risk")

    return case


def _born_on_29_february(*, reached: bool) -> Case:
    """The newest 1 March of the story on which somebody born on a 29 February turned 65 or 75, and the day before."""

    def case(stage: Stage) -> None:
        world = stage.world
        for year in range(world.end.year, world.start.year, -1):
            age = {1: 65, 3: 75}.get(year % 4)
            if age and date(year, 3, 1) <= world.end:
                break
        else:
            return  # no such day in this story
        stage.day = date(year, 3, 1)
        product = stage.product(4)
        person = _holder(stage, product, born=date(year - age, 2, 29))
        if reached:
            trade = _buy(stage, person, product, local(stage.day, 0, 0, 0))
            stage.hit("RISK-007", trade, 70 if age == 65 else 80, "elderly_high_risk")
            return
        trade = _buy(stage, person, product, local(stage.day - timedelta(days=1), 23, 59, 59))
        if age == 65:
            stage.miss(trade, "born on 29 February: 65 only on 1 March")
        else:
            stage.hit("RISK-007", trade, 70, "elderly_high_risk")

    return case


def _old_but(why: str, *, level: int = 4, trade_type: str = "buy", **who: Any) -> Case:
    def case(stage: Stage) -> None:
        product = stage.product(level)
        person = _holder(stage, product, born=turning(80, stage.day), **who)
        if trade_type == "sell":
            _buy(stage, person, product, stage.at(5), trade_type="transfer_in", price="")
        stage.miss(_buy(stage, person, product, stage.at(), trade_type=trade_type), why)

    return case


def _old_and_complex(stage: Stage) -> None:
    """70 for somebody of 66 without dual recording, 5 for a first complex product."""
    product = stage.product(4, is_complex=True)
    person = _holder(stage, product, born=turning(66, stage.day))
    first = _buy(stage, person, product, stage.at(10))
    again = _buy(stage, person, product, stage.at(20), **BOTH)
    stage.hit("RISK-007", first, 75, "elderly_high_risk", "first_complex")
    stage.hit("RISK-007", again, 30, "elderly_high_risk")


def _plan_of_the_old(stage: Stage) -> None:
    """The month's first purchase holds its key."""
    product = stage.product(4)
    person = _holder(stage, product, born=turning(70, stage.day))
    first = _buy(stage, person, product, stage.at(10), Decimal(1_000), plan_id="PLAN-7")
    again = _buy(stage, person, product, stage.at(20), Decimal(1_000), plan_id="PLAN-7")
    stage.hit("RISK-007", first, 70, "elderly_high_risk")
    stage.miss(again, "the month's key is held by the plan's first purchase")


# --- a first complex product --------------------------------------------------------------------------------------


def _first(score: int, *, amount: str = "8000", others: int = OTHERS, **cells: Any) -> Case:
    """The first is found, and a second complex product is not."""

    def case(stage: Stage) -> None:
        product = stage.product(5, is_complex=True)
        person = _holder(stage, product, others=others)
        first = _buy(stage, person, product, stage.at(10), Decimal(amount), **cells)
        second = _buy(stage, person, stage.product(5, is_complex=True, index=1), stage.at(20), Decimal(100))
        stage.hit("RISK-007", first, score, "first_complex")
        stage.miss(second, "not the first complex product")

    return case


def _first_of_an_entity(stage: Stage) -> None:
    product = stage.product(5, is_complex=True)
    trade = _buy(stage, _holder(stage, product, kind="entity"), product, stage.at(), trade_type="switch_in")
    stage.hit("RISK-007", trade, 55, "first_complex")


def _after_a_cancelled_one(stage: Stage) -> None:
    product = stage.product(5, is_complex=True)
    person = _holder(stage, product)
    cancelled = _buy(stage, person, product, stage.at(10), status="cancelled")
    trade = _buy(stage, person, product, stage.at(20), **RECORDED)
    stage.miss(cancelled, "cancelled")
    stage.hit("RISK-007", trade, 45, "first_complex")


def _complex_of_a_professional(stage: Stage) -> None:
    product = stage.product(5, is_complex=True)
    person = _holder(stage, product, investor_type="professional")
    stage.miss(_buy(stage, person, product, stage.at()), "professional investors are exempt")


def _not_known_as_complex(stage: Stage) -> None:
    world = stage.world
    template = world.products[stage.product(3, "mixed")]
    product = replace(template, product_id=f"P{len(world.products):03d}-NK", risk_level=6, is_complex=None)
    world.products[product.product_id] = product  # level 6: in nobody's portfolio
    world.rate_product(product, 3)
    person = _holder(stage, product.product_id)
    stage.miss(_buy(stage, person, product.product_id, stage.at()), "not known as complex: no evidence")


# --- classes ------------------------------------------------------------------------------------------------------


def _raised(level: int, after: timedelta, why: str = "") -> Case:
    """C2, raised to C5; bought so long after. R4 is above C2, R2 is not. why: for those that are silent."""

    def case(stage: Stage) -> None:
        product = stage.product(level)
        person = _holder(stage, product, assessed=False)
        at = stage.at()
        stage.world.assess(person, stage.day - timedelta(days=200), c_level=2)
        stage.world.assess(person, stage.day, at=at - after)
        trade = _buy(stage, person, product, at)
        if why:
            stage.miss(trade, why)
        else:
            stage.hit("RISK-007", trade, 70, "assessment_upgraded")

    return case


def _assessed(times: int, day: date) -> list[datetime]:
    """The last at ten o'clock, the others in the hours before."""
    return [local(day, 10 - number, 0) for number in range(times)][::-1]


def _a_day_of(times: int, after: timedelta, why: str = "", *, product_level: int = 1) -> Case:
    """Assessed so often in one day; bought so long after the last."""

    def case(stage: Stage) -> None:
        product = stage.product(product_level)
        person = _holder(stage, product, assessed=False)
        day = stage.day - timedelta(days=10)
        for at in _assessed(times, day):
            stage.world.assess(person, day, at=at)
        _judge_shopping(stage, _buy(stage, person, product, local(day, 10, 0) + after), why)

    return case


def _around_midnight(stage: Stage) -> None:
    """Two before midnight and one after it: two days."""
    product = stage.product(1)
    person = _holder(stage, product, assessed=False)
    midnight = local(stage.day, 0, 0)
    for at in (midnight - 2 * TICK, midnight - TICK, midnight):
        stage.world.assess(person, stage.day, at=at)
    stage.miss(_buy(stage, person, product, stage.at()), "two assessments in one day, one in the next")


def _in_twelve_months(times: int, first_earlier: timedelta, why: str = "") -> Case:
    """So many assessments, the first twelve calendar months (or a little more) before the last."""

    def case(stage: Stage) -> None:
        product = stage.product(1)
        person = _holder(stage, product, assessed=False)
        last = local(stage.day, 9, 0)
        day = min(stage.day.day, 28) if stage.day.month == 2 else stage.day.day
        first = last.replace(year=last.year - 1, day=day) - first_earlier
        for number in range(1, times - 1):
            stage.world.assess(person, stage.day, at=last - timedelta(days=30 * number))
        for at in (first, last):
            stage.world.assess(person, stage.day, at=at)
        _judge_shopping(stage, _buy(stage, person, product, stage.at()), why)

    return case


def _judge_shopping(stage: Stage, trade: str, why: str) -> None:
    if why:
        stage.miss(trade, why)
    else:
        stage.hit("RISK-007", trade, 80, "assessment_shopping")


def _everything(stage: Stage) -> None:
    """80 years, a first complex product, C2 raised to C5 in three assessments of one day: 80 and three times 5."""
    product = stage.product(5, is_complex=True)
    person = _holder(stage, product, assessed=False, born=turning(80, stage.day))
    day = stage.day - timedelta(days=2)
    for level, at in zip((2, 3, 5), _assessed(3, day), strict=True):
        stage.world.assess(person, day, at=at, c_level=level)
    parts = ("elderly_high_risk", "first_complex", "assessment_upgraded", "assessment_shopping")
    stage.hit("RISK-007", _buy(stage, person, product, stage.at()), 95, *parts)


# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (2, _turned(65, 70)),
    (2, _first(55)),
    (1, _raised(4, WEEK)),
    (1, _a_day_of(3, WEEK)),
    (1, _turned(75, 80, level=5)),
    (1, _everything),
    (1, _turned(70, 30, **BOTH)),
    (1, _in_twelve_months(9, timedelta(0))),
    (1, _first(65, amount="20000", others=80_000)),  # exactly 20 %
    (1, _old_and_complex),
    (1, _turned(70, 60, **RECORDED)),
    (1, _turned(70, 70, **DISCLOSED)),
    (1, _turns_tomorrow(65, None)),
    (1, _turns_tomorrow(75, 70)),
    (1, _born_on_29_february(reached=True)),
    (1, _born_on_29_february(reached=False)),
    (1, _plan_of_the_old),
    (1, _old_but("R3 is not high", level=3)),
    (1, _old_but("professional investors are exempt", investor_type="professional")),
    (1, _old_but("an entity has no age", kind="entity")),
    (1, _old_but("a sale never hits", trade_type="sell")),
    (1, _first(45, **RECORDED)),
    (1, _first(30, **BOTH)),
    (1, _first(55, amount="20000", others=80_004)),  # a little under 20 %
    (1, _first_of_an_entity),
    (1, _after_a_cancelled_one),
    (1, _complex_of_a_professional),
    (1, _not_known_as_complex),
    (1, _raised(5, timedelta(0))),
    (1, _raised(4, WEEK + TICK, "raised a second more than seven days before")),
    (1, _raised(2, WEEK, "R2 was suitable before too")),
    (1, _a_day_of(4, timedelta(0))),
    (1, _a_day_of(3, WEEK + TICK, "a second more than seven days after")),
    (1, _a_day_of(2, WEEK, "twice a day is allowed")),
    (1, _around_midnight),
    (1, _in_twelve_months(9, TICK, "the first of nine is a second too old")),
    (1, _in_twelve_months(8, timedelta(0), "eight in twelve months are allowed")),
)
