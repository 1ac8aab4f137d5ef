"""RISK-005, each sentence of the specification on both sides of its edge."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from memory.core.facts import PositionFact, TradeFact
from risk.rules import risk_005
from risk.rules.facts import Facts
from risk.rules.hit import Hit
from tests.risk.rules.build import at, found, make_customer, make_product, make_rows, make_snapshot, make_trade

MICRO = timedelta(microseconds=1)
T = at("2026-06-15")
MONTH_ENDS = (
    "2025-05-31", "2025-06-30", "2025-07-31", "2025-08-31", "2025-09-30", "2025-10-31", "2025-11-30", "2025-12-31",
    "2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31", "2026-06-30",
)  # fmt: skip
PRODUCTS = [make_product(), make_product("cash", 1, is_cash_like=True)]
OLD = make_customer(opened_at=at("2019-03-01"))


def worth(equity: int = 100_000, days: tuple[str, ...] = MONTH_ENDS) -> list[PositionFact]:
    """A snapshot at each month's end: half in a product, half in cash."""
    return [row for day in days for row in make_snapshot(day, p=equity // 2, cash=equity - equity // 2)]


def buys(*amounts: Any, last: datetime = T, apart: timedelta = timedelta(minutes=1), **fields: Any) -> list[TradeFact]:
    """Purchases one after another, the last at `last`."""
    first = last - apart * (len(amounts) - 1)
    return [
        make_trade(amount=amount, traded_at=first + apart * number, trade_id=f"b{number}", **fields)
        for number, amount in enumerate(amounts)
    ]


def churning(trades: list[TradeFact], **facts: Any) -> list[Hit]:
    facts = {"products": PRODUCTS, "customers": [OLD], "positions": worth(), **facts}
    return found("RISK-005", trades, **facts)


def scores(trades: list[TradeFact], **facts: Any) -> list[tuple[int, tuple[str, ...]]]:
    return [(hit.score, hit.subtypes) for hit in churning(trades, **facts)]


def turnover(score: int) -> list[tuple[int, tuple[str, ...]]]:
    return [(score, ("churning_turnover",))]


def cost(score: int) -> list[tuple[int, tuple[str, ...]]]:
    return [(score, ("churning_cost",))]


SIX = buys(*[100_000] * 6)
SMALL = buys(*[1_000] * 6)


def costing(*fees: Any, trades: list[TradeFact] | None = None) -> list[TradeFact]:
    """The trades, the first ones with these fees."""
    rows = list(SMALL if trades is None else trades)
    return [replace(row, fee=Decimal(str(fees[n]))) if n < len(fees) else row for n, row in enumerate(rows)]


# --- the two measures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([100_000] * 6, turnover(60)),
        ([100_000] * 5 + ["99999.99"], []),
        ([100_000] * 5 + ["109000"], turnover(60)),  # 60.45
        ([100_000] * 5 + ["110000"], turnover(61)),  # 60.5, half up
        ([133_334] * 6, turnover(70)),
        ([1] * 5 + [1_200_000], turnover(90)),
        ([1] * 5 + [5_000_000], turnover(90)),  # the cap
    ],
)
def test_turnover(amounts: list[Any], expected: list[Any]) -> None:
    assert scores(buys(*amounts)) == expected


@pytest.mark.parametrize(
    ("fees", "expected"),
    [
        ([20_000], cost(60)),
        (["19999.99"], []),
        ([10_000, 10_400], cost(60)),  # 60.4
        ([20_500], cost(61)),  # 60.5, half up
        ([50_000], cost(90)),
        ([90_000], cost(90)),
    ],
)
def test_cost(fees: list[Any], expected: list[Any]) -> None:
    assert scores(costing(*fees)) == expected


def test_both_are_one_hit_the_higher_and_five_more_the_cap_before() -> None:
    both = ("churning_turnover", "churning_cost")
    assert scores(costing(30_000, trades=SIX)) == [(75, both)]
    assert scores(costing(90_000, trades=buys(*[900_000] * 6))) == [(95, both)]


def test_fees_are_those_of_all_trades_in_their_currency_up_to_the_purchase() -> None:
    others = [
        make_trade("2026-06-01", trade_id="x1", trade_type="sell", fee=Decimal(2_000)),
        make_trade("2026-06-01", trade_id="x2", trade_type="switch_in", fee=Decimal(2_000)),
        make_trade("2026-06-01", trade_id="x3", plan_id="PLAN", fee=Decimal(2_000)),
        make_trade("2026-06-01", "cash", trade_id="x4", fee=Decimal(2_000)),
        make_trade("2026-06-01", trade_id="x5", trade_type="dividend", price=None, fee=Decimal(2_000)),
        make_trade("2026-06-01", trade_id="x6", trade_type="sell", fx_cny=Decimal(7), fee=Decimal(1_000)),
        make_trade(trade_id="x7", trade_type="sell", traded_at=T - timedelta(days=365), fee=Decimal(3_000)),
    ]  # fmt: skip
    assert scores([*SMALL, *others]) == cost(60)
    for number in range(len(others)):
        assert scores([*SMALL, *others[:number], *others[number + 1 :]]) == []
    early = replace(others[-1], traded_at=T - timedelta(days=365) - MICRO)
    late = replace(others[-1], traded_at=T, trade_id="c")  # the same instant, after b5
    assert scores([*SMALL, *others[:-1], early]) == []
    assert scores([*SMALL, *others[:-1], late]) == []
    assert scores([*SMALL, *others[:-1], replace(late, trade_id="a")]) == cost(60)


# --- what binds both ----------------------------------------------------------------------------------------------


def test_six_purchases_at_least_both_for_turnover_and_cost() -> None:
    assert scores(buys(*[900_000] * 5)) == []
    assert scores(costing(90_000, trades=buys(*[1] * 5))) == []


@pytest.mark.parametrize(
    "fields",
    [{"plan_id": "PLAN"}, {"product_id": "cash"}, {"status": "cancelled"}, {"price": None}]
    + [{"trade_type": kind} for kind in ("switch_in", "transfer_in", "dividend", "interest", "sell")],
)
def test_what_is_no_counted_purchase(fields: dict[str, Any]) -> None:
    trades = [replace(SIX[0], amount=Decimal(100)), *SIX[1:], make_trade("2026-06-14", trade_id="big", amount=99_900)]
    assert scores(trades) == turnover(60)
    assert scores([*trades[:-1], replace(trades[-1], **fields)]) == []


def test_a_purchase_exactly_365_days_ago_counts_a_microsecond_more_does_not() -> None:
    old = make_trade(amount=100_000, traded_at=T - timedelta(days=365), trade_id="old")
    assert scores([old, *SIX[1:]]) == turnover(60)
    assert scores([replace(old, traded_at=old.traded_at - MICRO), *SIX[1:]]) == []


def test_of_one_instant_the_order_of_ids_decides_what_is_earlier() -> None:
    trades = [replace(trade, traded_at=T) for trade in SIX]
    assert [hit.trade_id for hit in churning(trades)] == ["b5"]
    assert [hit.trade_id for hit in churning([replace(trades[5], trade_id="B5"), *trades[:5]])] == ["b4"]


def test_an_account_of_90_days_counts_to_the_microsecond_and_is_scaled_to_a_year() -> None:
    opened = T - timedelta(days=90)
    assert scores(SIX, customers=[make_customer(opened_at=opened)]) == turnover(90)  # 6 x 365/90
    assert scores(SIX, customers=[make_customer(opened_at=opened + MICRO)]) == []
    assert scores(SIX, customers=[make_customer(opened_at=None)]) == []
    assert scores(SIX, customers=[make_customer(opened_at=T + MICRO)]) == []


def test_half_a_year_doubles_both_and_a_year_neither() -> None:
    half = [make_customer(opened_at=T - timedelta(days=182, hours=12))]
    year = [make_customer(opened_at=T - timedelta(days=365))]
    assert scores(buys(*[50_000] * 6), customers=half) == turnover(60)
    assert scores(buys(*[50_000] * 5, "49999.99"), customers=half) == []
    assert scores(costing(10_000), customers=half) == cost(60)
    assert scores(SIX, customers=year) == turnover(60)
    assert scores(SIX, customers=[make_customer(opened_at=T - timedelta(days=365) + MICRO)]) == turnover(60)


def test_the_opening_in_force_at_the_purchase_counts() -> None:
    corrected = make_customer(valid_from=T, opened_at=T - timedelta(days=30))
    assert scores(SIX, customers=[OLD, corrected]) == []
    assert scores(SIX, customers=[OLD, replace(corrected, valid_from=T + MICRO)]) == turnover(60)


@pytest.mark.parametrize("who", [{"investor_type": "professional"}, {"kind": "entity"}])
def test_professionals_and_entities_are_judged_too(who: dict[str, Any]) -> None:
    assert scores(SIX, customers=[replace(OLD, **who)]) == turnover(60)


# --- equity -------------------------------------------------------------------------------------------------------


def test_a_mean_of_50000_is_judged_a_cent_less_is_not() -> None:
    assert scores(SIX, positions=worth(50_000)) == turnover(90)
    less = [replace(row, market_value=row.market_value - Decimal("0.12")) if n == 4 else row
            for n, row in enumerate(worth(50_000))]  # fmt: skip
    assert scores(SIX, positions=less) == []


def test_closes_at_both_ends_of_the_window_are_in() -> None:
    """Month-ends of 100,000 but one so rich that its being in the mean is seen."""

    def rich(day: str) -> list[PositionFact]:
        return [*worth(days=tuple(other for other in MONTH_ENDS if other != day)), *make_snapshot(day, p=10**9)]

    first_of_june = at("2026-06-01", "00:00:00")
    for moment, day, counts in (
        (first_of_june, "2026-05-31", True),
        (first_of_june - MICRO, "2026-05-31", False),
        (first_of_june, "2025-05-31", True),
        (first_of_june + MICRO, "2025-05-31", False),
    ):
        trades = buys(*[100_000] * 6, last=moment, apart=MICRO)
        assert bool(churning(trades, positions=rich(day))) is not counts, (moment, day)


def test_months_before_the_first_snapshot_are_left_out_and_without_any_nothing_is_judged() -> None:
    assert [hit.figures["months"] for hit in churning(SIX)] == [12]
    assert [hit.figures["months"] for hit in churning(SIX, positions=worth(days=("2026-05-31",)))] == [1]
    assert churning(SIX, positions=[]) == []
    assert churning(SIX, positions=worth(days=("2026-06-01",))) == []  # no month has closed since


def test_a_month_without_a_snapshot_is_the_last_one_rolled_forward() -> None:
    moved = [
        make_trade("2026-03-31", trade_id="m0", trade_type="transfer_in", amount=10**6),  # is in the snapshot already
        make_trade("2026-04-10", trade_id="m1", trade_type="transfer_in", amount=100_000),
        make_trade("2026-05-31", trade_id="m2", trade_type="sell", amount=10**6, clock="23:59:59"),  # never below 0
    ]
    [hit] = churning([*moved, *buys(*[200_000] * 6)], positions=make_snapshot("2026-03-31", p=50_000, cash=50_000))
    assert (hit.figures["months"], hit.figures["equity_sum"]) == (3, "350000.00")  # 100,000, 200,000, 50,000
    assert hit.figures["equity"] == "116666.67"
    [hit] = churning(SIX, positions=make_snapshot("2026-05-20", p=100_000))
    assert (hit.figures["months"], hit.figures["equity"]) == (1, "100000.00")


# --- the key ------------------------------------------------------------------------------------------------------


def test_the_first_trade_over_decides_the_month_and_the_next_month_is_another() -> None:
    more = buys(*[500_000] * 3, last=at("2026-06-20"))
    july = make_trade("2026-07-01", trade_id="j", amount=1, clock="00:00:00")
    trades = [*SIX, *(replace(trade, trade_id=f"m{trade.trade_id}") for trade in more), july]
    hits = churning(trades)
    assert [(hit.evidence_key, hit.trade_id) for hit in hits] == [("c1:2026-06", "b5"), ("c1:2026-07", "j")]
    # 6 and 15 times 100,000, and a yuan; what the seventh brought is July's
    assert [hit.score for hit in hits] == [60, 90]


def test_the_month_is_local() -> None:
    trades = buys(*[100_000] * 6, last=at("2026-07-01", "00:00:00"), apart=MICRO)
    assert [hit.evidence_key for hit in churning(trades)] == ["c1:2026-07"]
    assert [hit.evidence_key for hit in churning([replace(t, traded_at=t.traded_at - MICRO) for t in trades])] == [
        "c1:2026-06"
    ]


def test_cancelled_or_corrected_the_next_one_over_takes_the_key() -> None:
    seventh = make_trade("2026-06-16", trade_id="b7", amount=200_000)
    cancelled = replace(SIX[5], version=2, status="cancelled")
    corrected = replace(SIX[5], version=2, amount=Decimal(10))
    for last in (cancelled, corrected):
        [hit] = churning([*SIX, seventh, last])
        assert (hit.evidence_key, hit.trade_id) == ("c1:2026-06", "b7")
    assert churning([*SIX, cancelled]) == []


# --- solicited ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solicited", "score"),
    [
        ([None] * 6, 60),
        ([True] * 6, 60),
        ([False] * 6, 40),
        ([True, False, None, None, None, None], 60),  # exactly half of those given
        ([True, True, True, False, False, False], 60),
        ([True, False, False, None, None, None], 40),
        ([None] * 5 + [False], 40),
    ],
)
def test_mostly_at_own_initiative_takes_twenty_off(solicited: list[bool | None], score: int) -> None:
    assert scores([replace(t, solicited=s) for t, s in zip(SIX, solicited, strict=True)]) == turnover(score)


def test_what_is_not_counted_says_nothing_of_soliciting_and_the_twenty_come_off_last() -> None:
    plans = [make_trade("2026-06-01", trade_id=f"n{n}", plan_id="PLAN", solicited=False) for n in range(9)]
    assert scores([*plans, *(replace(t, solicited=True) for t in SIX)]) == turnover(60)
    own = [replace(t, solicited=False) for t in costing(90_000, trades=buys(*[900_000] * 6))]
    assert [score for score, _parts in scores(own)] == [75]  # 90 + 5 - 20


# --- cost of a long history ---------------------------------------------------------------------------------------


def test_a_long_history_costs_in_proportion() -> None:
    """100,000 purchases within a year that never come over a limit: each is tried."""
    count = 100_000
    trades = [
        make_trade(trade_id=f"t{n:06d}", traded_at=T - timedelta(minutes=5) * n, amount=1, fee=Decimal("0.01"))
        for n in range(count)
    ]
    facts = Facts(make_rows(trades, products=PRODUCTS, customers=[OLD], positions=worth(10_000_000)))
    begun = time.process_time()
    assert risk_005.evaluate(facts, risk_005.Params(), 1) == []
    assert time.process_time() - begun < 12  # under 2 s of a free core; quadratic would be hours
