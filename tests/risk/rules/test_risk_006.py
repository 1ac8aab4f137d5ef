"""RISK-006, each sentence of the specification on both sides of its edge."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from memory.core.facts import PositionFact, TradeFact
from risk.rules import risk_006
from risk.rules.facts import Facts
from risk.rules.hit import Hit
from tests.risk.rules.build import CUSTOMER, at, found, make_customer, make_product, make_rows, make_trade

MICRO = timedelta(microseconds=1)
T = at("2026-06-15")
WEEK = timedelta(days=7)
PRODUCTS = [make_product(), make_product("q"), make_product("cash", 1, is_cash_like=True)]


def unusual(trades: list[TradeFact], **facts: Any) -> list[Hit]:
    return found("RISK-006", trades, **{"products": PRODUCTS, **facts})


def scores(trades: list[TradeFact], **facts: Any) -> list[tuple[int, tuple[str, ...]]]:
    return [(hit.score, hit.subtypes) for hit in unusual(trades, **facts)]


def trade(trade_id: str, ago: timedelta = timedelta(0), amount: Any = 1_000, **fields: Any) -> TradeFact:
    return make_trade(trade_id=trade_id, traded_at=T - ago, amount=amount, **fields)


DORMANT = [(45, ("dormant_reactivated",))]
FAST = [(50, ("fast_in_out",))]
SIZE = [(40, ("size_outlier",))]


# --- dormant_reactivated ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ago", "amount", "expected"),
    [
        (timedelta(days=180), 50_000, DORMANT),
        (timedelta(days=180) - MICRO, 50_000, []),
        (timedelta(days=180), "49999.99", []),
        (timedelta(days=900), 50_000, DORMANT),
    ],
)
def test_half_a_year_without_a_trade(ago: timedelta, amount: Any, expected: list[Any]) -> None:
    assert scores([trade("a", ago), trade("b", amount=amount)]) == expected


def test_the_first_trade_ever_is_not_dormant() -> None:
    assert scores([trade("b", amount=50_000)]) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"plan_id": "PLAN"}, {"product_id": "cash"}, {"trade_type": "dividend"}, {"trade_type": "interest"},
        {"price": None}, {"status": "reversed"},
    ],
)  # fmt: skip
def test_what_is_neither_subject_nor_history(fields: dict[str, Any]) -> None:
    old, last = trade("a", timedelta(days=200)), trade("c", amount=50_000)
    between = trade("b", timedelta(days=10))
    assert scores([old, between, last]) == []
    assert scores([old, replace(between, **fields), last]) == DORMANT
    assert scores([replace(old, **fields), last]) == []
    assert scores([old, replace(last, **fields)]) == []


@pytest.mark.parametrize("kind", ["buy", "sell", "switch_in", "switch_out", "transfer_in", "transfer_out"])
def test_the_rules_trades_are_subject_and_history(kind: str) -> None:
    assert scores([trade("a", timedelta(days=180), trade_type=kind), trade("b", amount=50_000)]) == DORMANT
    assert scores([trade("a", timedelta(days=180)), trade("b", amount=50_000, trade_type=kind)]) == DORMANT
    assert (
        scores([trade("a", timedelta(days=180)), trade("aa", WEEK, trade_type=kind), trade("b", amount=50_000)]) == []
    )


# --- fast_in_out --------------------------------------------------------------------------------------------------


def lot(trade_id: str, ago: timedelta, units: Any, **fields: Any) -> TradeFact:
    return trade(trade_id, ago, quantity=Decimal(str(units)), **fields)


def sale(units: Any, amount: Any = 100_000, trade_id: str = "s", **fields: Any) -> TradeFact:
    return lot(trade_id, timedelta(0), units, amount=amount, **{"trade_type": "sell", **fields})


def held(units: Any, as_of: str = "2026-05-31", product: str = "p") -> list[PositionFact]:
    quantity = None if units is None else Decimal(str(units))
    return [PositionFact(CUSTOMER, product, at(as_of).date(), quantity, Decimal(1))]


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("ago", "sold", "expected"),
    [
        (WEEK, sale(80), FAST),
        (WEEK + MICRO, sale(80), []),
        (DAY, sale("79.9999"), []),
        (DAY, sale(80, "99999.99"), []),
        (timedelta(0), sale(100), FAST),
        (DAY, sale(500), FAST),  # more than there is
    ],
)
def test_a_sale_of_most_of_a_fresh_lot(ago: timedelta, sold: TradeFact, expected: list[Any]) -> None:
    assert scores([lot("b", ago, 100), sold]) == expected


def test_first_in_first_out_what_was_held_before_goes_first() -> None:
    bought = lot("b", DAY, 100)
    assert scores([bought, sale(80)], positions=held(1)) == []
    assert scores([bought, sale(81)], positions=held(1)) == FAST
    assert scores([bought, sale(81)], positions=[*held(1), *held(99, product="q")]) == FAST
    assert scores([bought, sale(80)], positions=[*held(900), *held(5, "2026-06-01", product="q")]) == FAST  # sold out
    assert scores([bought, sale(80)], positions=held(-5)) == FAST
    assert scores([bought, sale(80)], positions=held(None)) == FAST  # no evidence


def test_the_holding_is_that_at_the_start_of_the_week_rolled_forward() -> None:
    bought = lot("b", DAY, 100)
    positions = held(10, "2026-06-05")
    before = lot("a", timedelta(days=8), 5)
    assert scores([before, bought, sale(94)], positions=positions) == []
    assert scores([before, bought, sale(95)], positions=positions) == FAST
    out = [replace(before, trade_type=kind, quantity=Decimal(99)) for kind in ("sell", "switch_out", "transfer_out")]
    for gone in out:  # never below 0
        assert scores([gone, bought, sale("79.9")], positions=positions) == []
        assert scores([gone, bought, sale(80)], positions=positions) == FAST
    plan = replace(before, plan_id="PLAN")  # it is held, whatever brought it
    assert scores([plan, bought, sale(94)], positions=positions) == []
    # The week begins on 8 June at noon: the snapshot of the 7th has closed by then, that of the 8th has not.
    assert scores([bought, sale(80)], positions=[*positions, *held(0, "2026-06-07")]) == FAST
    assert scores([bought, sale(80)], positions=[*positions, *held(0, "2026-06-08")]) == []


def test_without_a_snapshot_the_holding_is_what_the_trades_make() -> None:
    trades = [lot("a", timedelta(days=300), 50), lot("b", DAY, 100)]
    assert scores([*trades, sale(129)]) == []
    assert scores([*trades, sale(130)]) == FAST


def test_what_left_before_in_the_week_is_gone_and_the_share_is_of_the_lot_as_bought() -> None:
    trades = [lot("b", 3 * DAY, 100), lot("c", 2 * DAY, 1000)]
    earlier = lot("d", DAY, 21, trade_type="transfer_out")
    assert scores([*trades, earlier, sale(79)]) == []
    assert scores([*trades, replace(earlier, quantity=Decimal(20)), sale(80)]) == FAST
    [hit] = unusual([*trades, earlier, sale(79 + 800)])
    assert (hit.figures["fast_in_out"]["lot_trade_id"], hit.figures["fast_in_out"]["share"]) == ("c", "0.800000")


def test_a_lot_that_is_gone_to_the_last_unit_is_passed() -> None:
    trades = [lot("b", 3 * DAY, 100), lot("c", 2 * DAY, 100), lot("d", DAY, 100, trade_type="transfer_out")]
    [hit] = unusual([*trades, sale(80)])
    assert hit.figures["fast_in_out"]["lot_trade_id"] == "c"
    assert scores([*trades, sale("79.9")]) == []


def test_two_sales_that_together_take_it_are_no_hit() -> None:
    half = lot("r", timedelta(hours=1), 50, amount=100_000, trade_type="sell")
    assert scores([lot("b", DAY, 100), half, sale(50)]) == []


def test_plans_are_no_lots_of_the_week() -> None:
    assert scores([lot("b", DAY, 100, plan_id="PLAN"), sale(100)]) == []
    assert scores([lot("a", 2 * DAY, 30, plan_id="PLAN"), lot("b", DAY, 100), sale(80)]) == FAST


@pytest.mark.parametrize(
    ("way_in", "way_out", "expected"),
    [
        ("buy", "sell", FAST), ("switch_in", "sell", FAST), ("buy", "switch_out", FAST),
        ("transfer_in", "sell", []), ("buy", "transfer_out", []), ("dividend", "sell", []),
    ],
)  # fmt: skip
def test_a_switch_buys_and_sells_a_transfer_does_neither(way_in: str, way_out: str, expected: list[Any]) -> None:
    assert scores([lot("b", DAY, 100, trade_type=way_in), sale(100, trade_type=way_out)]) == expected


def test_a_transfer_in_stands_in_the_queue() -> None:
    trades = [lot("a", 2 * DAY, 30, trade_type="transfer_in"), lot("b", DAY, 100)]
    assert scores([*trades, sale(109)]) == []
    assert scores([*trades, sale(110)]) == FAST


def test_a_quantity_that_is_not_given_moves_nothing() -> None:
    assert scores([lot("b", DAY, 100), replace(sale(100), quantity=None)]) == []
    assert scores([replace(lot("b", DAY, 100), quantity=None), sale(100)]) == []
    assert scores([lot("b", DAY, 0), sale(100)]) == []
    assert scores([lot("b", DAY, 100, product="q"), sale(100)]) == []


def test_of_one_instant_the_lot_with_the_greater_id_is_later() -> None:
    assert scores([lot("a", timedelta(0), 100), sale(100, trade_id="b")]) == FAST
    assert scores([lot("c", timedelta(0), 100), sale(100, trade_id="b")]) == []


# --- size_outlier -------------------------------------------------------------------------------------------------


def usual(*amounts: Any, ago: timedelta = DAY, **fields: Any) -> list[TradeFact]:
    return [trade(f"u{n:02d}", ago - MICRO * n, amount, **fields) for n, amount in enumerate(amounts)]


@pytest.mark.parametrize(
    ("amounts", "amount", "expected"),
    [
        ([20_000] * 8, 100_000, SIZE),
        ([20_000] * 7, 100_000, []),
        ([20_000] * 8, "99999.99", []),
        ([19_000] * 8, "99999.99", []),
        ([22_000] * 8, 110_000, SIZE),
        ([22_000] * 8, "109999.99", []),
        ([1, 1, 1, 20_000, 30_000, 10**6, 10**6, 10**6], 125_000, SIZE),  # even: the mean of 20,000 and 30,000
        ([1, 1, 1, 20_000, 30_000, 10**6, 10**6, 10**6], "124999.99", []),
        ([1, 1, 1, 1, 40_000, 10**6, 10**6, 10**6, 10**6], 200_000, SIZE),  # odd: the middle one
        ([1, 1, 1, 1, 40_000, 10**6, 10**6, 10**6, 10**6], "199999.99", []),
    ],
)
def test_five_times_the_median(amounts: list[Any], amount: Any, expected: list[Any]) -> None:
    hits = unusual([*usual(*reversed(amounts)), trade("x", amount=amount)])
    assert [(hit.score, hit.subtypes) for hit in hits] == expected


def test_the_year_has_both_ends_in() -> None:
    last = trade("x", amount=100_000)
    seven = usual(*[20_000] * 7)
    assert scores([trade("a", timedelta(days=365), 20_000), *seven, last]) == SIZE
    assert scores([trade("a", timedelta(days=365) + MICRO, 20_000), *seven, last]) == []


@pytest.mark.parametrize("kind", ["buy", "switch_in", "transfer_in", "sell", "switch_out", "transfer_out"])
def test_each_direction_by_itself(kind: str) -> None:
    into = kind in {"buy", "switch_in", "transfer_in"}
    last = trade("x", amount=100_000)
    assert scores([*usual(*[20_000] * 8, trade_type=kind), last]) == (SIZE if into else [])
    out = replace(last, trade_type="transfer_out")
    assert scores([*usual(*[20_000] * 8, trade_type=kind), out]) == ([] if into else SIZE)


def test_amounts_are_in_cny_and_of_all_products() -> None:
    history = usual(*[4_000] * 8, product="q", fx_cny=Decimal(5))
    assert scores([*history, trade("x", amount=20_000, fx_cny=Decimal(5))]) == SIZE
    assert scores([*history, trade("x", amount="19999.99", fx_cny=Decimal(5))]) == []


# --- odd_hour -----------------------------------------------------------------------------------------------------


def night(clock: str, *, earlier: int = 20, odd: int = 1, day: str = "2026-06-15") -> list[tuple[int, tuple[str, ...]]]:
    """A sale of 100,000 of a fresh lot (50) at this local time, after so many earlier trades, so many at night."""
    sold = replace(sale(100), traded_at=at(day, clock))
    bought = replace(lot("l", DAY, 100), traded_at=at(day, clock) - 2 * DAY)
    history = [bought]
    for number in range(earlier - 1):
        moment = at("2026-03-01", "02:00:00" if number < odd else "12:00:00") + DAY * number
        history.append(replace(trade(f"e{number}", amount=10, product="q"), traded_at=moment))
    if bought.traded_at.hour >= 16 and bought.traded_at.hour < 21:  # the lot itself was bought at night
        history[0] = replace(bought, traded_at=bought.traded_at + timedelta(hours=12))
    return scores([*history, sold])


WITH_ODD = [(70, ("fast_in_out", "odd_hour"))]


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        ("00:00:00", WITH_ODD), ("04:59:59.999999", WITH_ODD), ("05:00:00", FAST), ("23:59:59.999999", FAST),
        ("02:30:00", WITH_ODD),
    ],
)  # fmt: skip
def test_from_midnight_to_five_local(clock: str, expected: list[Any]) -> None:
    assert night(clock) == expected


def test_of_at_least_twenty_at_most_a_twentieth_at_night() -> None:
    assert night("01:00:00", earlier=20, odd=1) == WITH_ODD  # exactly 5 %
    assert night("01:00:00", earlier=19, odd=0) == FAST
    assert night("01:00:00", earlier=20, odd=2) == FAST
    assert night("01:00:00", earlier=39, odd=2) == FAST
    assert night("01:00:00", earlier=40, odd=2) == WITH_ODD


def test_an_odd_hour_alone_is_no_hit_however_large() -> None:
    history = [trade(f"e{n}", DAY * (60 - n), 900_000) for n in range(30)]
    assert scores([*history, replace(trade("x", amount=900_000), traded_at=at("2026-06-15", "03:00:00"))]) == []


# --- together -----------------------------------------------------------------------------------------------------


def test_parts_add_up_to_ninety_at_most_and_a_hit_begins_at_forty() -> None:
    history = usual(*[20_000] * 8, ago=timedelta(days=200))
    last = trade("x", amount=100_000)
    assert scores([*history, last]) == [(85, ("dormant_reactivated", "size_outlier"))]
    twenty = usual(*[20_000] * 20, ago=timedelta(days=200))
    odd = replace(last, traded_at=at("2026-06-15", "01:00:00"))
    assert scores([*twenty, odd]) == [(90, ("dormant_reactivated", "size_outlier", "odd_hour"))]  # 105
    assert scores([*usual(*[20_000] * 20), odd]) == [(60, ("size_outlier", "odd_hour"))]
    assert [hit.evidence_key for hit in unusual([*history, last])] == ["x@1"]


def test_a_corrected_trade_has_a_key_of_its_own_and_history_changes_with_it() -> None:
    old, last = trade("a", timedelta(days=200)), trade("b", amount=50_000)
    assert [hit.evidence_key for hit in unusual([old, last, replace(last, version=2)])] == ["b@2"]
    assert unusual([old, last, replace(old, version=2, traded_at=T - DAY)]) == []
    assert unusual([old, last, replace(old, version=2, status="cancelled")]) == []


@pytest.mark.parametrize("who", [{"investor_type": "professional"}, {"kind": "entity"}])
def test_professionals_and_entities_are_judged_too(who: dict[str, Any]) -> None:
    trades = [trade("a", timedelta(days=180)), trade("b", amount=50_000)]
    assert scores(trades, customers=[replace(make_customer(), **who)]) == DORMANT


# --- cost of a long history ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("span_days", [6, 1500])
def test_a_long_history_costs_in_proportion(span_days: int) -> None:
    """100,000 trades in one product, every second a sale that is large enough to ask for its lots and its median."""
    count = 100_000
    trades = [
        make_trade(
            trade_id=f"t{n:06d}", traded_at=T + timedelta(days=span_days) * n / count, amount=100_000 + n * 7919 % 9973,
            trade_type=("buy", "sell")[n % 2], quantity=Decimal(n * 31 % 101 + 1),
        )
        for n in range(count)
    ]  # fmt: skip
    facts = Facts(make_rows(trades, products=PRODUCTS))
    begun = time.process_time()
    assert risk_006.evaluate(facts, risk_006.Params(), 1)
    assert time.process_time() - begun < 20  # under 4 s of a free core; quadratic would be hours
