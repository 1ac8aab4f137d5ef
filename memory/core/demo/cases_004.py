"""Planted cases of RISK-004: amounts one after another a little under the limit, and what only looks like it.

The stage and its people are those of the large amounts (cases_003). Near the limit is [0.8 limit, limit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from memory.core.demo.cases_003 import CASH, SALE, move, mover, report

if TYPE_CHECKING:
    from memory.core.demo.stage import Stage

Case = Callable[["Stage"], None]
TEN = (10, 0, 0)


def _days(stage: Stage, amounts: Sequence[str], **cells: Any) -> list[str]:
    """One trade a day at ten, the last on the case's day: at most four lie within 72 hours."""
    person = mover(stage)
    first = len(amounts) - 1
    return [
        move(stage, person, amount, day=stage.day - timedelta(days=first - number), clock=TEN, **cells)
        for number, amount in enumerate(amounts)
    ]


def _in_a_row(amounts: Sequence[str], scores: Sequence[int], **cells: Any) -> Case:
    """From the third on each is a finding."""

    def case(stage: Stage) -> None:
        trades = _days(stage, amounts, **cells)
        for trade in trades[:2]:
            stage.miss(trade, "fewer than three so far")
        for trade, score in zip(trades[2:], scores, strict=True):
            stage.hit("RISK-004", trade, score, "structuring")

    return case


def _silent(why: str, amounts: Sequence[str], **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        for trade in _days(stage, amounts, **cells):
            stage.miss(trade, why)

    return case


def _within(seconds_over: int) -> Case:
    """The third lies 72 hours after the first, or a little more."""

    def case(stage: Stage) -> None:
        person = mover(stage)
        three, one = (stage.day - timedelta(days=days) for days in (3, 1))
        first = move(stage, person, "45000", day=three, clock=TEN, **CASH, **SALE)
        second = move(stage, person, "45000", day=one, clock=TEN, **CASH, **SALE)
        last = move(stage, person, "45000", clock=(10, 0, seconds_over), **CASH, **SALE)
        for trade in (first, second):
            stage.miss(trade, "fewer than three so far")
        if seconds_over:
            stage.miss(last, "72 hours and a second after the first")
        else:
            stage.hit("RISK-004", last, 70, "structuring")

    return case


def _yuan_and_dollars(stage: Stage) -> None:
    """45,000 yuan, 9,000 dollars, 8,000 dollars in cash: each near its own limit."""
    person = mover(stage)
    two, one = (stage.day - timedelta(days=days) for days in (2, 1))
    first = move(stage, person, "45000", day=two, **CASH)
    second = move(stage, person, "9000", day=one, usd=True, **CASH)
    last = move(stage, person, "8000", usd=True, **CASH)
    for trade in (first, second):
        stage.miss(trade, "fewer than three so far")
    stage.hit("RISK-004", last, 70, "structuring")


def _on_one_day(stage: Stage) -> None:
    """Three times 45,000 in cash on one day: each under 50,000, and a large amount together."""
    person = mover(stage)
    first, second, last = (move(stage, person, "45000", clock=(hour, 0, 0), **CASH) for hour in (9, 11, 14))
    stage.miss(first, "45,000 of 50,000")
    for trade in (second, last):
        report(stage, trade, 35, "cash", "in")
    stage.hit("RISK-004", last, 70, "structuring")


def _at_the_limit(stage: Stage) -> None:
    """Three times exactly 50,000 in cash: large amounts, each of them, and no structuring."""
    for trade in _days(stage, ["50000"] * 3, **CASH):
        report(stage, trade, 35, "cash", "in")


def _two_directions(stage: Stage) -> None:
    person = mover(stage)
    two, one = (stage.day - timedelta(days=days) for days in (2, 1))
    trades = [
        move(stage, person, "45000", day=two, **CASH),
        move(stage, person, "45000", day=one, **CASH, **SALE),
        move(stage, person, "45000", **CASH),
    ]
    for trade in trades:
        stage.miss(trade, "two in and one out")


def _one_cancelled(stage: Stage) -> None:
    person = mover(stage)
    two, one = (stage.day - timedelta(days=days) for days in (2, 1))
    trades = [
        move(stage, person, "45000", day=two, **CASH),
        move(stage, person, "45000", day=one, status="cancelled", **CASH),
        move(stage, person, "45000", **CASH),
    ]
    for trade in trades:
        stage.miss(trade, "one of the three was cancelled")


# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (2, _in_a_row(["45000"] * 3, [70], **CASH)),  # 60, cash + 10
    (1, _in_a_row(["450000"] * 4, [60, 65])),
    (1, _within(0)),
    (1, _within(1)),
    (1, _in_a_row(["40000", "49999.99", "40000"], [70], **CASH, **SALE)),  # both ends of the band
    (1, _silent("the last is a cent under eight tenths", ["40000", "49999.99", "39999.99"], **CASH, **SALE)),
    (1, _yuan_and_dollars),
    (1, _on_one_day),
    (1, _at_the_limit),
    (1, _silent("a savings plan", ["45000"] * 3, plan_id="PLAN-4", **CASH)),
    (1, _two_directions),
    (1, _one_cancelled),
)
