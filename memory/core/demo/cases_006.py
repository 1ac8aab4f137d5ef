"""Planted cases of RISK-006: a dormant account, a fresh lot sold again, an unusual size, an unusual hour; and what only
looks like it.

Everybody here holds five million in one R1 bond and in cash and trades another R1 bond, at most 250,000 a day: nothing
for any other rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.stage import OWN_INITIATIVE, Case, Stage
from memory.core.demo.world import Person, local

RULE = "RISK-006"
DORMANT, FAST, SIZE, ODD_HOUR = "dormant_reactivated", "fast_in_out", "size_outlier", "odd_hour"
HELD, TRADED = 0, 1  # which bond
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
WEALTH = 5_000_000


def holder(stage: Stage) -> Person:
    person = stage.holder(3, {stage.product(1, "fixed_income", index=HELD): WEALTH, stage.world.CASH: WEALTH})
    for days in (300, 540):
        stage.world.assess(person, stage.day - timedelta(days=days))
    # What is held a week before the case counts, and that may be another month.
    stage.world.snapshot(person, stage.last_close().replace(day=1) - DAY)
    return person


def trade(stage: Stage, person: Person, amount: str, at: datetime, *, bond: int = TRADED, **cells: Any) -> str:
    product = stage.product(1, "fixed_income", index=bond)
    return stage.world.trade(person, product, Decimal(amount), at, **{**OWN_INITIATIVE, **cells})


def _told(stage: Stage, trade_id: str, score: int | None, subtypes: Sequence[str], why: str) -> None:
    if score is None:
        stage.miss(trade_id, why)
    else:
        stage.hit(RULE, trade_id, score, *subtypes)


def _asleep(
    score: int | None, gap: timedelta, amount: str, why: str = "", between: dict[str, Any] | None = None
) -> Case:
    """A purchase so long after another one, with perhaps something in between."""

    def case(stage: Stage) -> None:
        person = holder(stage)
        stage.miss(trade(stage, person, "20000", stage.at() - gap), "nothing before it")
        if between is not None:
            cells = dict(between)
            product = stage.world.CASH if cells.pop("cash", False) else stage.product(1, "fixed_income", index=TRADED)
            at = stage.at() - 30 * DAY
            stage.world.trade(person, product, Decimal(1_000), at, **{**OWN_INITIATIVE, **cells})
        _told(stage, trade(stage, person, amount, stage.at()), score, (DORMANT,), why)

    return case


def _resold(
    score: int | None,
    ago: timedelta,
    units: str,
    amount: str,
    why: str = "",
    *,
    bond: int = TRADED,
    way_in: str = "buy",
    way_out: str = "sell",
) -> Case:
    """A thousand units for 120,000, and some of them sold."""

    def case(stage: Stage) -> None:
        person = holder(stage)
        cells = {"trade_type": way_in, "quantity": "1000.0000"}
        stage.miss(trade(stage, person, "120000", stage.at() - ago, bond=bond, **cells), "a purchase")
        cells = {"trade_type": way_out, "quantity": units}
        _told(stage, trade(stage, person, amount, stage.at(), bond=bond, **cells), score, (FAST,), why)

    return case


def _resold_in_two(stage: Stage) -> None:
    person = holder(stage)
    trade(stage, person, "240000", stage.at() - DAY, quantity="2000.0000")
    for minute in (40, 50):
        sold = trade(stage, person, "120000", stage.at(minute), trade_type="sell", quantity="1000.0000")
        stage.miss(sold, "each takes half of the lot")


def _unusual(
    score: int | None,
    amount: str,
    why: str = "",
    *,
    earlier: int = 8,
    habit: str = "20000",
    at_night: int = 0,
    clock: tuple[int, int, int] = (10, 30, 0),
    gap: int = 1,
    subtypes: Sequence[str] = (SIZE,),
) -> Case:
    """So many purchases of the habitual amount, one a day, the first few at night; then one of this amount."""

    def case(stage: Stage) -> None:
        person = holder(stage)
        for number in range(earlier):
            day = stage.day - timedelta(days=gap + earlier - 1 - number)
            hour = 2 if number < at_night else 11
            stage.miss(trade(stage, person, habit, local(day, hour, 0)), "the habit")
        _told(stage, trade(stage, person, amount, local(stage.day, *clock)), score, subtypes, why)

    return case


HALF_YEAR = 180 * DAY
LATE = (4, 59, 59)
BOTH = (SIZE, ODD_HOUR)

# how often, case
CASES: tuple[tuple[int, Case], ...] = (
    (2, _asleep(45, HALF_YEAR, "50000")),
    (2, _resold(50, 2 * DAY, "800.0000", "100000")),
    (2, _unusual(40, "100000")),
    (1, _unusual(60, "100000", earlier=20, clock=LATE, subtypes=BOTH)),
    (1, _unusual(90, "100000", earlier=20, clock=LATE, gap=200, subtypes=(DORMANT, *BOTH))),  # 105
    (1, _unusual(85, "100000", gap=200, subtypes=(DORMANT, SIZE))),
    (1, _asleep(45, HALF_YEAR, "50000", between={"plan_id": "PLAN-6"})),
    (1, _asleep(45, HALF_YEAR, "50000", between={"cash": True})),
    (1, _asleep(45, HALF_YEAR, "50000", between={"trade_type": "dividend", "price": ""})),
    (1, _asleep(45, HALF_YEAR, "50000", between={"status": "cancelled"})),
    (1, _asleep(None, HALF_YEAR, "50000", "a transfer was in between", {"trade_type": "transfer_in", "price": ""})),
    (1, _asleep(None, HALF_YEAR - SECOND, "50000", "a second short of 180 days")),
    (1, _asleep(None, HALF_YEAR, "49999.99", "less than 50,000")),
    (1, _resold(50, 7 * DAY, "800.0000", "100000")),
    (1, _resold(50, DAY, "1000.0000", "125000", way_in="switch_in", way_out="switch_out")),
    (1, _resold(None, 7 * DAY + SECOND, "1000.0000", "125000", "bought more than 7 days ago")),
    (1, _resold(None, DAY, "799.9999", "100000", "less than 80 % of the lot")),
    (1, _resold(None, DAY, "1000.0000", "99999.99", "less than 100,000")),
    (1, _resold(None, DAY, "1000.0000", "125000", "what was held before goes first", bond=HELD)),
    (1, _resold_in_two),
    (1, _unusual(40, "110000", habit="22000")),
    (1, _unusual(None, "109999.99", "less than five times the median", habit="22000")),
    (1, _unusual(None, "99999.99", "less than 100,000", habit="19000")),
    (1, _unusual(None, "100000", "seven trades before", earlier=7)),
    (1, _unusual(40, "100000", earlier=20, clock=(5, 0, 0))),  # five o'clock is no odd hour
    (1, _unusual(40, "100000", earlier=19, clock=LATE)),
    (1, _unusual(60, "100000", earlier=20, at_night=1, clock=(0, 0, 0), subtypes=BOTH)),  # 5 %
    (1, _unusual(40, "100000", earlier=20, at_night=2, clock=LATE)),
    (1, _unusual(None, "20000", "an odd hour alone", earlier=20, clock=LATE)),
)
