"""What holds of all rules: missing facts, exact numbers, and one answer whatever the order or the way of scanning."""

from __future__ import annotations

import random
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.base.clock import business_date
from config.base.errors import DomainError
from memory.core.facts import CustomerRows, TradeFact
from risk.rules.engine import default_rules, evaluate, rule_with
from risk.rules.hit import DATA_QUALITY, FinalTrade
from risk.rules.numbers import money, score
from tests.risk.rules.build import (
    at,
    found,
    judge,
    make_assessment,
    make_customer,
    make_product,
    make_rows,
    make_snapshot,
    make_trade,
)

RISKY = make_product(level=5)


# --- missing facts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trade_type", ["buy", "sell", "switch_in", "switch_out"])
def test_a_buy_sell_or_switch_without_a_price_is_data_quality_and_not_judged(trade_type: str) -> None:
    found_ = judge([make_trade(price=None, trade_type=trade_type)], products=[RISKY]).hits
    assert [(hit.rule_id, hit.subtypes, hit.score) for hit in found_] == [(DATA_QUALITY, ("missing_price",), 0)]


@pytest.mark.parametrize("trade_type", ["transfer_in", "transfer_out", "dividend", "interest"])
def test_other_trades_need_no_price(trade_type: str) -> None:
    assert judge([make_trade(price=None, trade_type=trade_type)], products=[RISKY]).hits == ()


def test_a_price_of_zero_is_a_price() -> None:
    assert len(found("RISK-001", [make_trade(price=Decimal(0))], products=[RISKY])) == 1


@pytest.mark.parametrize(
    ("facts", "trade", "missing"),
    [
        ({"customers": []}, {}, "missing_customer"),
        ({"customers": [make_customer(valid_from=at("2026-06-16"))]}, {}, "missing_customer"),
        ({"products": []}, {}, "missing_product"),
        ({"products": [make_product(valid_from=at("2026-06-16"))]}, {}, "missing_product"),
        ({}, {"product": ""}, "missing_product"),
        ({}, {"fx_cny": None}, "missing_rate"),
    ],
)
def test_a_missing_customer_product_or_rate_is_data_quality(
    facts: dict[str, Any], trade: dict[str, Any], missing: str
) -> None:
    evaluation = judge([make_trade("2026-06-15", **trade)], **{"assessments": [], **facts})
    assert [(hit.rule_id, hit.subtypes) for hit in evaluation.hits] == [(DATA_QUALITY, (missing,))]


def test_a_file_without_dollar_rates_silences_nothing() -> None:
    assert len(found("RISK-001", [make_trade(fx_usd=None)], products=[RISKY])) == 1


def test_one_finding_holds_all_that_a_trade_lacks_and_a_cancelled_trade_lacks_nothing() -> None:
    trade = make_trade(price=None, fx_cny=None, trade_id="t")
    hits = judge([trade], customers=[], products=[]).hits
    assert [hit.subtypes for hit in hits] == [("missing_customer", "missing_product", "missing_price", "missing_rate")]
    assert hits[0].evidence_key == "t@1"
    assert judge([replace(trade, status="cancelled")], customers=[], products=[]).hits == ()


def test_a_mended_trade_is_judged() -> None:
    broken = make_trade(trade_id="t", price=None)
    mended = make_trade(trade_id="t", version=2)
    assert [hit.evidence_key for hit in judge([broken, mended], products=[RISKY]).hits] == ["t@2"]


def test_final_trades_hold_the_highest_version_of_every_trade_that_was_ever_the_customers() -> None:
    trades = [
        make_trade(trade_id="a"), make_trade(trade_id="a", version=2, status="cancelled"),
        make_trade(trade_id="b"), make_trade(trade_id="b", version=3, customer_id="c2"),
    ]  # fmt: skip
    assert judge(trades).final_trades == {"a": FinalTrade(2, "cancelled"), "b": FinalTrade(3, "executed")}


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exact", "expected"),
    [(Fraction(1, 2), 1), (Fraction(49999, 100000), 0), (Fraction(105, 2), 53), (101, 100), (-3, 0), (60, 60)],
)
def test_scores_are_whole_half_up_and_between_0_and_100(exact: Fraction | int, expected: int) -> None:
    assert score(exact) == expected


def test_money_is_exact() -> None:
    assert (
        money(Fraction(Decimal("12345678901234567890.12345678901234567891")))
        == "12345678901234567890.12345678901234567891"
    )
    assert money(Fraction(5)) == "5.00"


# --- parameters -------------------------------------------------------------------------------------------------------


def test_parameters_of_a_version_replace_the_rules_own() -> None:
    rows = make_rows([make_trade()], products=[make_product(level=4)])
    hits = evaluate(rows, [rule_with("RISK-001", {"mismatch_base": 20}, 7)]).hits
    assert [(hit.score, hit.rule_version) for hit in hits] == [(30, 7)]
    stricter = rule_with("RISK-002", {"product_limit": "0.25"}, 2)
    rows = make_rows([make_trade(amount=300_000)], products=[make_product()], positions=make_snapshot(x=700_000))
    assert len(evaluate(rows, [stricter]).hits) == 1
    assert evaluate(rows, default_rules()).hits == ()


@pytest.mark.parametrize("params", [{"nothing": 1}, {"mismatch_base": "many"}, {"mismatch_base": True}])
def test_a_parameter_that_the_rule_does_not_have_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(DomainError, match="INVALID_REQUEST"):
        rule_with("RISK-001", params, 2)


# --- bulk, single, and a second opinion -------------------------------------------------------------------------------

PRODUCTS = [
    make_product("cash", 1, asset_class="cash", is_cash_like=True),
    make_product("r1", 1, asset_class="fixed_income", issuer_id="i1"),
    make_product("r2", 2, asset_class="fixed_income", issuer_id="i2"),
    make_product("r3", 3, asset_class="equity", issuer_id="i1"),
    make_product("r5", 5, asset_class="equity", issuer_id="i2", is_complex=True),
]
ASSESSMENTS = [
    make_assessment(2, "2025-04-15"),
    make_assessment(4, "2026-05-01"),
    make_assessment(1, "2026-08-01", is_lowest=True),
]
SNAPSHOTS = [
    *make_snapshot("2026-03-31", cash=50_000, r1=60_000, r3=40_000),
    *make_snapshot("2026-05-31", cash=10_000, r2=80_000),
    *make_snapshot("2026-06-15", r1=200_000, r5=70_000),
]

trades_strategy = st.lists(
    st.builds(
        lambda number, day, hour, product, amount, trade_type, status, plan, version, price: make_trade(
            f"2026-{3 + day // 28:02d}-{1 + day % 28:02d}", clock=f"{hour:02d}:00:00", product=product, amount=amount,
            trade_id=f"t{number}", trade_type=trade_type, status=status, plan_id=plan, version=version, price=price,
        ),
        st.integers(0, 30), st.integers(0, 160), st.sampled_from([0, 12, 23]),
        st.sampled_from(["cash", "r1", "r2", "r3", "r5"]), st.sampled_from([0, 10_000, 40_000, 90_000, 150_000]),
        st.sampled_from(["buy", "buy", "switch_in", "sell", "switch_out", "transfer_in", "transfer_out", "dividend"]),
        st.sampled_from(["executed", "executed", "executed", "cancelled"]), st.sampled_from(["", "", "s1"]),
        st.integers(1, 2), st.sampled_from([Decimal(1), Decimal(1), None]),
    ),
    max_size=25, unique_by=lambda trade: (trade.trade_id, trade.version),
)  # fmt: skip


def rows_of(trades: list[TradeFact]) -> CustomerRows:
    return make_rows(trades, products=PRODUCTS, assessments=ASSESSMENTS, positions=SNAPSHOTS)


def second_opinion(trade: TradeFact, earlier: list[TradeFact]) -> int | None:
    """RISK-002 of one trade, written down again the slow way: from the words, sums from scratch, no shared code."""
    of = {product.product_id: product for product in PRODUCTS}
    bought = of[trade.product_id]
    closed = [row for row in SNAPSHOTS if row.as_of < business_date(trade.traded_at)]
    if not closed or trade.trade_type not in ("buy", "switch_in") or bought.is_cash_like:
        return None
    newest = max(row.as_of for row in closed)
    held = {name: Fraction(0) for name in of} | {
        r.product_id: Fraction(r.market_value) for r in closed if r.as_of == newest
    }
    for past in earlier:
        if business_date(past.traded_at) > newest:
            sign = {"buy": 1, "switch_in": 1, "transfer_in": 1, "sell": -1, "switch_out": -1, "transfer_out": -1}
            moved = held[past.product_id] + sign.get(past.trade_type, 0) * Fraction(past.amount)
            held[past.product_id] = max(moved, Fraction(0))
    amount = Fraction(trade.amount)
    cash = sum(value for name, value in held.items() if of[name].is_cash_like)
    whole = (
        sum(value for name, value in held.items() if not of[name].is_cash_like)
        + amount
        + max(Fraction(0), cash - amount)
    )
    if whole < 100_000:
        return None
    level = bought.risk_level
    sums = {
        "product": held[trade.product_id],
        "issuer": sum(v for n, v in held.items() if of[n].issuer_id == bought.issuer_id and not of[n].is_cash_like),
        "class": sum(v for n, v in held.items() if of[n].asset_class == bought.asset_class and not of[n].is_cash_like),
    }
    limits = {
        "product": {1: None, 2: Fraction(6, 10)}.get(level, Fraction(4, 10)),
        "issuer": {1: None, 2: Fraction(6, 10)}.get(level, Fraction(5, 10)),
        "class": None if bought.asset_class == "fixed_income" and level <= 2 else Fraction(8, 10),
    }
    parts = [
        50 + 40 * ((sums[name] + amount) / whole - limit) / (1 - limit) + (10 if level >= 4 else 0)
        for name, limit in limits.items()
        if limit is not None and (sums[name] + amount) / whole > limit
    ]
    return min(100, int((max(parts) + Fraction(1, 2)) // 1)) if parts else None


def live_in_order(trades: list[TradeFact]) -> list[TradeFact]:
    final: dict[str, TradeFact] = {}
    for trade in sorted(trades, key=lambda trade: trade.version):
        final[trade.trade_id] = trade
    priced = ("buy", "sell", "switch_in", "switch_out")
    live = [
        trade
        for trade in final.values()
        if trade.status == "executed" and (trade.price is not None or trade.trade_type not in priced)
    ]
    return sorted(live, key=lambda trade: (trade.traded_at, trade.trade_id.encode()))


@settings(max_examples=150, deadline=None)
@given(trades_strategy)
def test_002_agrees_with_a_second_opinion_trade_by_trade(trades: list[TradeFact]) -> None:
    expected: dict[str, tuple[str, int]] = {}
    live = live_in_order(trades)
    for index, trade in enumerate(live):
        points = second_opinion(trade, live[:index])
        key = (
            f"c1:{trade.plan_id}:{business_date(trade.traded_at):%Y-%m}"
            if trade.plan_id
            else f"{trade.trade_id}@{trade.version}"
        )
        if points is not None and key not in expected:
            expected[key] = (trade.trade_id, points)
    hits = [hit for hit in evaluate(rows_of(trades), default_rules()).hits if hit.rule_id == "RISK-002"]
    assert {hit.evidence_key: (hit.trade_id, hit.score) for hit in hits} == expected


@settings(max_examples=100, deadline=None)
@given(trades_strategy, st.randoms(use_true_random=False))
def test_the_order_in_which_facts_came_does_not_matter(trades: list[TradeFact], order: random.Random) -> None:
    def shuffled(items: Any) -> tuple[Any, ...]:
        items = list(items)
        order.shuffle(items)
        return tuple(items)

    rows = rows_of(trades)
    mixed = replace(
        rows, trades=shuffled(rows.trades), positions=shuffled(rows.positions), products=shuffled(rows.products),
        assessments=shuffled(rows.assessments),
    )  # fmt: skip
    assert evaluate(rows, default_rules()) == evaluate(mixed, default_rules())


@settings(max_examples=100, deadline=None)
@given(trades_strategy)
def test_later_trades_change_nothing_about_earlier_ones(trades: list[TradeFact]) -> None:
    """Bulk and single agree: what a trade was found to be when it was the newest, it stays."""
    live = live_in_order(trades)
    whole = evaluate(rows_of(live), default_rules()).hits
    for index in range(len(live)):
        part = evaluate(rows_of(live[: index + 1]), default_rules()).hits
        assert part == tuple(hit for hit in whole if hit.trade_id in {trade.trade_id for trade in live[: index + 1]})
