"""Planted cases of RISK-005: accounts turned over six times, or a fifth of them paid in fees; and what just is not.

Everybody here closes each month with 100,000 (unless said), 60,000 of it in an R1 bond and the rest in cash, and buys
another R1 bond once a day, at most 300,000 a day: nothing for any other rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.stage import Case, Stage
from memory.core.demo.world import Person, local, month_ends

RULE = "RISK-005"
TURNOVER, COST = "churning_turnover", "churning_cost"
UNKNOWN: dict[str, Any] = {"solicited": "", "channel": "online"}
SIX = ("100000",) * 6
Clock = tuple[int, int, int]
HALF_PAST_TEN: Clock = (10, 30, 0)


def turner(stage: Stage, *, equity: str = "100000", opened_days: int = 1500) -> Person:
    """A customer with this equity at each month's end of the last fourteen months, or since the account's opening."""
    world = stage.world
    person = stage.somebody(3, opened=stage.day - timedelta(days=opened_days))
    for days in (60, 300, 540):
        world.assess(person, stage.day - timedelta(days=days))
    reach = min(opened_days, 425)
    for close in month_ends(stage.day - timedelta(days=reach), stage.day - timedelta(days=1)):
        bonds = Decimal(60_000) if Decimal(equity) > 60_000 else Decimal(30_000)
        person.holdings = {_bond(stage, 0): bonds, world.CASH: Decimal(equity) - bonds}
        world.snapshot(person, close)
    return person


def _bond(stage: Stage, index: int) -> str:
    return stage.product(1, "fixed_income", index=index)


def buy(stage: Stage, person: Person, amount: str, *, ago: int = 0, clock: Clock = HALF_PAST_TEN, **cells: Any) -> str:
    at = local(stage.day - timedelta(days=ago), *clock)
    return stage.world.trade(person, _bond(stage, 1), Decimal(amount), at, **{**UNKNOWN, "fee": "0", **cells})


def buys(stage: Stage, person: Person, rows: Sequence[dict[str, Any]], *, clock: Clock = HALF_PAST_TEN) -> list[str]:
    """One purchase a day, the last on the case's day at this clock. Each row: amount, and cells of its own."""
    last = len(rows) - 1
    return [
        buy(stage, person, **row, ago=last - number, clock=clock if number == last else HALF_PAST_TEN)
        for number, row in enumerate(rows)
    ]


def rows_of(amounts: Sequence[str], **lists: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"amount": amount, **{name: cells[number] for name, cells in lists.items()}}
        for number, amount in enumerate(amounts)
    ]


def hit(stage: Stage, person: Person, trade: str, score: int, *subtypes: str) -> None:
    stage.hit(RULE, trade, score, *subtypes, key=f"{person.customer_id}:{stage.day:%Y-%m}")


def _over(score: int, subtypes: Sequence[str], rows: Sequence[dict[str, Any]], **who: Any) -> Case:
    """The last of the purchases comes over a limit, none before."""

    def case(stage: Stage) -> None:
        clock = who.get("clock", HALF_PAST_TEN)
        person = turner(stage, **{name: value for name, value in who.items() if name != "clock"})
        *before, last = buys(stage, person, rows, clock=clock)
        for trade in before:
            stage.miss(trade, "not over a limit yet")
        hit(stage, person, last, score, *subtypes)

    return case


def _under(why: str, rows: Sequence[dict[str, Any]], **who: Any) -> Case:
    def case(stage: Stage) -> None:
        clock = who.get("clock", HALF_PAST_TEN)
        person = turner(stage, **{name: value for name, value in who.items() if name != "clock"})
        for trade in buys(stage, person, rows, clock=clock):
            stage.miss(trade, why)

    return case


def _held_by_the_first(stage: Stage) -> None:
    person = turner(stage)
    *_before, sixth = buys(stage, person, rows_of(SIX))
    hit(stage, person, sixth, 60, TURNOVER)
    stage.miss(buy(stage, person, "100000", clock=(15, 0, 0)), "the month's key is held by the first purchase over")


def _taken_by_the_next(stage: Stage) -> None:
    person = turner(stage)
    *_before, sixth = buys(stage, person, rows_of(SIX))
    buy(stage, person, "100000", trade_id=sixth, version="2", status="cancelled")
    stage.miss(sixth, "the trade was cancelled")
    hit(stage, person, buy(stage, person, "100000", clock=(15, 0, 0)), 60, TURNOVER)


def _a_year_ago(*, late: bool) -> Case:
    """The first of six lies 365 days back, or a second more. Small transfers between keep the account awake."""

    def case(stage: Stage) -> None:
        person = turner(stage)
        buy(stage, person, "100000", ago=365, clock=(10, 29, 59) if late else HALF_PAST_TEN)
        for ago in (270, 180, 90):
            buy(stage, person, "100", ago=ago, trade_type="transfer_in", price="")
        *_before, last = buys(stage, person, rows_of(SIX[1:]))
        if late:
            stage.miss(last, "the first of six purchases is more than 365 days old")
        else:
            hit(stage, person, last, 60, TURNOVER)

    return case


COSTLY = ("3333.33",) * 5 + ("3333.35",)  # 20,000
CHEAPER = ("3333.33",) * 5 + ("3333.34",)  # a cent less
YOUNG = rows_of(("30000",) * 6)  # 1.8 times in all

# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (2, _over(60, (TURNOVER,), rows_of(SIX))),  # exactly six times
    (1, _over(60, (COST,), rows_of(("1000",) * 6, fee=COSTLY))),  # exactly 20 %
    (1, _over(40, (TURNOVER,), rows_of(SIX, solicited=("false",) * 6))),  # 60 - 20
    (1, _held_by_the_first),
    (1, _taken_by_the_next),
    (1, _over(70, (TURNOVER, COST), rows_of(("110000",) * 5 + ("150000",), fee=COSTLY))),  # 7 times: 65, 20 %: 60; + 5
    (1, _over(90, (TURNOVER,), rows_of(("200000",) * 6), equity="50000")),  # 24 times: the cap
    (1, _over(60, (TURNOVER,), rows_of(SIX, solicited=("true", "false", "true", "false", "", "")))),  # just half
    (1, _over(40, (TURNOVER,), rows_of(SIX, solicited=("true", "false", "false", "", "", "")))),
    (1, _over(67, (TURNOVER,), YOUNG, opened_days=90, clock=(10, 0, 0))),  # 1.8 x 365/90 = 7.3: 66.5, half up
    (1, _over(63, (TURNOVER,), YOUNG, opened_days=100, clock=(10, 0, 0))),  # 1.8 x 3.65 = 6.57: 62.85
    (1, _a_year_ago(late=False)),
    (1, _a_year_ago(late=True)),
    (1, _under("the account is a second short of 90 days", YOUNG, opened_days=90, clock=(9, 59, 59))),
    (1, _under("a cent short of six times", rows_of((*SIX[1:], "99999.99")))),
    (1, _under("a cent short of 20 %", rows_of(("1000",) * 6, fee=CHEAPER))),
    (1, _under("five purchases only", rows_of(("130000",) * 5))),
    (1, _under("the mean equity is a cent short of 50,000", rows_of(SIX), equity="49999.99")),
    (1, _under("a plan does not count", rows_of(SIX, plan_id=("",) * 3 + ("PLAN-5",) + ("",) * 2))),
    (1, _under("a switch does not count", rows_of(SIX, trade_type=("buy",) * 5 + ("switch_in",)))),
)
