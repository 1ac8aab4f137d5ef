"""Planted cases of RISK-003: large amounts at each limit, and what stays just under them.

Everybody here holds five million in one R1 bond and in cash and buys R1 bonds: nothing for any other rule. Limits are
those of the specification: cash 50,000 / 10,000; entity 2,000,000 / 200,000; natural person at home 500,000 / 100,000,
across the border 200,000 / 10,000 (CNY / USD).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from memory.core.demo.world import USD_RATES, Person, local

if TYPE_CHECKING:
    from memory.core.demo.stage import Stage

Case = Callable[["Stage"], None]
WEALTH = Decimal(5_000_000)
CASH: dict[str, Any] = {"settle_method": "cash"}
ABROAD: dict[str, Any] = {"cross_border": "true"}
SALE: dict[str, Any] = {"trade_type": "sell"}
LOOKBACK = 4  # days before the case on which its first trades may lie


def mover(stage: Stage, **who: Any) -> Person:
    """A customer whose money moves: an assessment, and a snapshot from before the case's first trade."""
    person = stage.somebody(3, **who)
    stage.world.assess(person, stage.day - timedelta(days=60))
    person.holdings = {bond(stage, 0): WEALTH, stage.world.CASH: WEALTH}
    first = stage.day - timedelta(days=LOOKBACK)
    stage.world.snapshot(person, first.replace(day=1) - timedelta(days=1))
    return person


def bond(stage: Stage, index: int) -> str:
    """An R1 bond; number 0 is the one that is held and sold, number 1 is bought."""
    return stage.product(1, "fixed_income", index=index)


def move(
    stage: Stage,
    person: Person,
    amount: str,
    *,
    day: date | None = None,
    clock: tuple[int, int, int] = (10, 30, 0),
    usd: bool = False,
    **cells: Any,
) -> str:
    """A purchase of a bond, or a sale with SALE; amount in CNY, with usd=True in USD. The trade's id."""
    worth = Decimal(amount) * Decimal(USD_RATES[0]) if usd else Decimal(amount)
    product = bond(stage, 0 if cells.get("trade_type") == "sell" else 1)
    row = {"solicited": "false", "channel": "branch", **cells}
    return stage.world.trade(person, product, worth, local(day or stage.day, *clock), usd=usd, **row)


def report(stage: Stage, trade_id: str, score: int, category: str, direction: str, version: int = 1) -> None:
    key = f"{category}:{direction}:{trade_id}@{version}"
    stage.hit("RISK-003", trade_id, score, "large_amount", key=key)


def _one(score: int, category: str, direction: str, amount: str, *, kind: str = "natural", **cells: Any) -> Case:
    """A single trade that reaches its limit."""

    def case(stage: Stage) -> None:
        person = mover(stage, kind=kind)
        report(stage, move(stage, person, amount, **cells), score, category, direction)

    return case


def _under(why: str, amount: str, *, kind: str = "natural", **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = mover(stage, kind=kind)
        stage.miss(move(stage, person, amount, **cells), why)

    return case


def _sum_of_the_day(stage: Stage) -> None:
    """150,000 and 50,000 across the border: the second reaches 200,000, and a third adds to it."""
    person = mover(stage)
    first = move(stage, person, "150000", clock=(0, 0, 0), **ABROAD)
    second = move(stage, person, "50000", clock=(15, 0, 0), **ABROAD)
    third = move(stage, person, "100", clock=(23, 59, 59), **ABROAD)
    stage.miss(first, "150,000 of 200,000")
    report(stage, second, 35, "cross_border", "in")
    report(stage, third, 35, "cross_border", "in")


def _around_midnight(stage: Stage) -> None:
    person = mover(stage)
    yesterday = stage.day - timedelta(days=1)
    late = move(stage, person, "300000", day=yesterday, clock=(23, 59, 59))
    early = move(stage, person, "300000", clock=(0, 0, 0))
    for trade in (late, early):
        stage.miss(trade, "300,000 on each of two days")


def _in_and_out(stage: Stage) -> None:
    person = mover(stage)
    for trade in (move(stage, person, "300000"), move(stage, person, "300000", **SALE)):
        stage.miss(trade, "in and out are two sums")


def _two_categories(stage: Stage) -> None:
    person = mover(stage)
    report(stage, move(stage, person, "50000", clock=(10, 0, 0), **CASH), 35, "cash", "in")
    report(stage, move(stage, person, "500000", clock=(11, 0, 0)), 30, "domestic", "in")


def _categories_of_an_entity(stage: Stage) -> None:
    person = mover(stage, kind="entity")
    for trade in (move(stage, person, "1999999.99"), move(stage, person, "1999999.99", **ABROAD)):
        stage.miss(trade, "across the border and at home are two sums")


def _converted(yuan: str, *, reached: bool) -> Case:
    """5,000 dollars and some yuan at 0.1405 against 10,000 dollars: 35,587.19 yuan are 5,000.0002 dollars."""

    def case(stage: Stage) -> None:
        person = mover(stage)
        dollars = move(stage, person, "5000", clock=(10, 0, 0), usd=True, **ABROAD)
        trade = move(stage, person, yuan, clock=(11, 0, 0), **ABROAD)
        stage.miss(dollars, "half of the limit")
        if reached:
            report(stage, trade, 35, "cross_border", "in")
        else:
            stage.miss(trade, "both together are a cent under 10,000 dollars")

    return case


def _corrected_under_the_limit(stage: Stage) -> None:
    person = mover(stage)
    trade = move(stage, person, "500000")
    move(stage, person, "499999.99", trade_id=trade, version="2")
    stage.miss(trade, "the final version is a cent under the limit")


def _corrected_to_the_limit(stage: Stage) -> None:
    person = mover(stage)
    trade = move(stage, person, "499999.99", **SALE)
    move(stage, person, "500000", trade_id=trade, version="2", **SALE)
    report(stage, trade, 30, "domestic", "out", version=2)


def _without_dollars(stage: Stage) -> None:
    trade = move(stage, mover(stage), "20000", usd=True, fx_usd="")
    stage.planted.data_quality.append({"trade_id": trade, "missing": ["missing_rate"]})


# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (2, _one(30, "domestic", "in", "500000")),
    (1, _one(35, "cash", "out", "50000", **CASH, **SALE)),
    (1, _sum_of_the_day),
    (1, _under("a cent under the limit of cash", "49999.99", **CASH)),
    (1, _one(35, "cash", "in", "10000", usd=True, **CASH)),
    (1, _one(30, "domestic", "in", "100000", usd=True)),
    (1, _one(35, "cross_border", "out", "10000", usd=True, **ABROAD, **SALE)),
    (1, _one(30, "domestic", "in", "2000000", kind="entity")),
    (1, _one(35, "cross_border", "in", "200000", kind="entity", usd=True, **ABROAD)),
    (1, _one(35, "cash", "in", "50000", kind="entity", **CASH)),
    (1, _one(30, "domestic", "in", "500000", plan_id="PLAN-3")),
    (1, _two_categories),
    (1, _converted("35587.19", reached=True)),
    (1, _converted("35587.18", reached=False)),
    (1, _corrected_to_the_limit),
    (1, _corrected_under_the_limit),
    (1, _around_midnight),
    (1, _in_and_out),
    (1, _categories_of_an_entity),
    (1, _under("a cent under the limit at home", "499999.99")),
    (1, _under("a cent under the limit across the border", "9999.99", usd=True, **ABROAD, **SALE)),
    (1, _under("cancelled", "900000", status="cancelled")),
    (1, _under("a switch moves no money", "900000", trade_type="switch_in")),
    (1, _under("a dividend is no transfer", "900000", trade_type="dividend", price="")),
    (1, _without_dollars),
)
