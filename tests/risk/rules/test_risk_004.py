"""RISK-004, each sentence of the specification on both sides of its edge, and against a second reading of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.core.facts import CustomerRows, TradeFact
from risk.rules import risk_004
from risk.rules.engine import rule_with
from risk.rules.facts import Facts
from tests.risk.rules.build import at, found, judge, make_customer, make_product, make_rows, make_trade
from tests.risk.rules.moving import ABROAD, CASH, ENTITY, EUR, USD, customers, instants, moved, shuffled
from tests.risk.rules.oracle_004 import structured

CENT = Decimal("0.01")


def keys(*trades: Any, **facts: Any) -> list[str]:
    return [hit.evidence_key for hit in found("RISK-004", trades, **facts)]


def scores(*trades: Any, **facts: Any) -> list[int]:
    return [hit.score for hit in found("RISK-004", trades, **facts)]


def several(count: int, amount: Any, **fields: Any) -> list[TradeFact]:
    """So many alike, a minute apart: t1, t2, ..."""
    return [
        moved(amount, f"10:{number:02d}:00", trade_id=f"t{number}", **fields) for number in range(1, count + 1)
    ]  # fmt: skip


# --- the band: [0.8 limit, limit) -------------------------------------------------------------------------------------

NATURAL: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("who", "what", "limit", "points"),
    [
        (NATURAL, CASH, 50_000, 70),
        (NATURAL, {**CASH, **USD}, 10_000, 70),
        (ENTITY, CASH, 50_000, 70),
        (ENTITY, {**CASH, **USD}, 10_000, 70),
        (ENTITY, {}, 2_000_000, 60),
        (ENTITY, USD, 200_000, 60),
        (ENTITY, ABROAD, 2_000_000, 60),
        (ENTITY, {**ABROAD, **USD}, 200_000, 60),
        (NATURAL, {}, 500_000, 60),
        (NATURAL, USD, 100_000, 60),
        (NATURAL, ABROAD, 200_000, 60),
        (NATURAL, {**ABROAD, **USD}, 10_000, 60),
        (NATURAL, {**CASH, **ABROAD}, 50_000, 70),
    ],
)
def test_from_eight_tenths_of_the_limit_up_to_just_under_it(
    who: dict[str, Any], what: dict[str, Any], limit: int, points: int
) -> None:
    low, high = Decimal(limit) * 8 / 10, Decimal(limit)
    assert scores(*several(3, low, **what), **who) == [points]
    assert scores(*several(3, high - CENT, **what), **who) == [points]
    assert scores(*several(3, low - CENT, **what), **who) == []
    assert scores(*several(3, high, **what), **who) == [], "exactly at the limit is RISK-003's"


def test_each_is_asked_by_itself() -> None:
    one, two, three = several(3, 450_000)
    for outside in (Decimal(500_000), Decimal("399999.99")):
        assert keys(one, replace(two, amount=outside), three) == []


def test_other_currencies_are_compared_in_dollars_and_counted_with_yuan() -> None:
    yuan, dollars, euros = several(3, 450_000)
    dollars = replace(dollars, amount=Decimal(80_000), **USD)
    euros = replace(euros, amount=Decimal(64_000), **EUR)  # 80,000 dollars
    assert keys(yuan, dollars, euros) == ["t3@1"]
    assert keys(yuan, dollars, replace(euros, amount=Decimal("63999.99"))) == []
    assert keys(yuan, replace(dollars, amount=Decimal(100_000)), euros) == []


# --- three or more within 72 hours, both ends in ----------------------------------------------------------------------


def test_two_are_none_and_each_from_the_third_on_is_a_hit() -> None:
    trades = several(10, 450_000)
    assert scores(*trades[:2]) == []
    assert keys(*trades) == [f"t{number}@1" for number in range(3, 11)]
    assert scores(*trades) == [60, 65, 70, 75, 80, 85, 85, 85]


def test_cash_comes_on_top_of_the_cap() -> None:
    assert scores(*several(10, 45_000, **CASH)) == [70, 75, 80, 85, 90, 95, 95, 95]


def test_the_window_is_72_hours_with_both_ends_in() -> None:
    first = moved(450_000, "10:00:00", "2026-06-15", trade_id="a")
    second = moved(450_000, "10:00:00", "2026-06-16", trade_id="b")
    assert keys(first, second, moved(450_000, "10:00:00", "2026-06-18", trade_id="c")) == ["c@1"]
    assert keys(first, second, moved(450_000, "10:00:00.000001", "2026-06-18", trade_id="c")) == []


@pytest.mark.parametrize("day", ["2026-02-28", "2026-06-30", "2026-12-31"])
def test_the_window_slides_over_midnights_and_month_ends(day: str) -> None:
    start = at(day, "23:59:59.999999")
    trades = [
        make_trade(trade_id=f"t{number}", traded_at=start + timedelta(hours=36 * number), amount=450_000)  # type: ignore[arg-type]
        for number in range(4)
    ]
    assert keys(*trades) == ["t2@1", "t3@1"]
    assert [hit.figures["count"] for hit in found("RISK-004", trades)] == [3, 3]


def test_at_one_instant_the_bytes_of_the_id_decide_which_is_last() -> None:
    for names in (("10", "9", "a"), ("B", "a", "é")):
        trades = [moved(450_000, trade_id=name) for name in reversed(names)]
        assert keys(*trades) == [f"{names[-1]}@1"]


def test_a_later_trade_changes_nothing_of_an_earlier_hit() -> None:
    trades = several(5, 450_000)
    assert found("RISK-004", trades)[0] == found("RISK-004", trades[:3])[0]


# --- same category, same direction ------------------------------------------------------------------------------------


def test_directions_are_not_mixed_but_buys_and_transfers_are() -> None:
    one, two, three = several(3, 450_000)
    assert keys(one, two, replace(three, trade_type="transfer_in")) == ["t3@1"]
    assert keys(one, two, replace(three, trade_type="sell")) == []
    out = replace(one, trade_type="sell"), replace(two, trade_type="transfer_out"), replace(three, trade_type="sell")
    assert keys(*out) == ["t3@1"]


def test_categories_are_not_mixed() -> None:
    one, two, three = several(3, 160_000, **ABROAD)
    assert keys(one, two, three) == ["t3@1"]
    assert keys(one, two, replace(three, amount=Decimal(450_000), cross_border=False)) == []
    assert keys(one, two, replace(three, amount=Decimal(45_000), settle_method="cash")) == []


def test_trades_between_of_other_kinds_do_not_matter() -> None:
    one, two, three = several(3, 450_000)
    between = moved(900_000, "10:01:30"), moved(45_000, "10:01:31", **CASH), moved(450_000, "10:01:32", plan_id="s1")
    assert keys(one, *between, two, three) == ["t3@1"]


@pytest.mark.parametrize("kind", ["switch_in", "switch_out", "dividend", "interest"])
def test_switches_dividends_and_interest_are_excluded(kind: str) -> None:
    assert keys(*several(5, 450_000, trade_type=kind)) == []


# --- who and what counts ----------------------------------------------------------------------------------------------


def test_a_savings_plan_is_neither_counted_nor_judged() -> None:
    assert keys(*several(5, 450_000, plan_id="s1")) == []
    one, two, three = several(3, 450_000)
    assert keys(replace(one, plan_id="s1"), two, three) == []
    assert keys(one, two, replace(three, plan_id="s1")) == []


def test_cash_like_products_and_professionals_count() -> None:
    fund = make_product(asset_class="cash", is_cash_like=True)
    assert len(keys(*several(3, 450_000), products=[fund])) == 1
    assert len(keys(*several(3, 450_000), customers=[make_customer(investor_type="professional")])) == 1


def test_each_trades_limit_is_that_of_the_customers_kind_at_that_trade() -> None:
    history = [make_customer(), make_customer(kind="entity", valid_from=at("2026-06-15", "10:03:00"))]
    one, two, three = several(3, 450_000)
    assert keys(one, two, three, customers=history) == []
    assert keys(one, two, replace(three, amount=Decimal(1_800_000)), customers=history) == ["t3@1"]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "cancelled"}, {"status": "reversed"}, {"price": None}, {"fx_cny": None}, {"currency": ""},
        {**USD, "fx_usd": None},
    ],
)  # fmt: skip
def test_what_was_undone_or_cannot_be_compared_is_neither_judged_nor_counted(fields: dict[str, Any]) -> None:
    one, two, three = several(3, 90_000, **USD)
    assert keys(one, two, three) == ["t3@1"]
    assert keys(one, two, replace(three, **fields)) == []
    assert keys(replace(one, **fields), two, three) == []


def test_yuan_need_no_dollar_rate() -> None:
    assert keys(*several(3, 450_000, fx_usd=None)) == ["t3@1"]


def test_a_cancelled_trade_hands_on_and_a_corrected_one_is_judged_anew() -> None:
    trades = several(4, 450_000)
    gone = replace(trades[1], version=2, status="cancelled")
    assert keys(*trades, gone) == ["t4@1"]
    corrected = replace(trades[3], version=2, amount=Decimal(500_000))
    assert keys(*trades, corrected) == ["t3@1"]


def test_both_rules_may_speak_of_one_trade() -> None:
    """Three times 450,000 in a day are under the limit each and over it together."""
    hits = [hit for hit in judge(several(3, 450_000)).hits if hit.rule_id in ("RISK-003", "RISK-004")]
    assert [(hit.rule_id, hit.evidence_key) for hit in hits] == [
        ("RISK-003", "domestic:in:t2@1"), ("RISK-003", "domestic:in:t3@1"), ("RISK-004", "t3@1"),
    ]  # fmt: skip


# --- figures and parameters -------------------------------------------------------------------------------------------


def test_the_figures_say_what_was_compared_with_what() -> None:
    [hit] = found("RISK-004", several(3, 45_000, **CASH, trade_type="sell"))
    assert hit.subtypes == ("structuring",)
    assert hit.figures == {
        "category": "cash", "direction": "out", "kind": "natural", "count": 3, "hours": 72, "near": "0.80",
        "from": "2026-06-15T02:01:00.000000Z", "to": "2026-06-15T02:03:00.000000Z",
        "limit_cny": "50000.00", "limit_usd": "10000.00",
        "trades": [{"trade": f"t{n}@1", "amount": "45000.00", "currency": "CNY"} for n in (1, 2, 3)],
    }  # fmt: skip


def test_the_figures_name_the_newest_of_very_many() -> None:
    hit = found("RISK-004", several(45, 450_000))[-1]
    assert hit.figures["count"] == 45
    assert [entry["trade"] for entry in hit.figures["trades"]] == [f"t{number}@1" for number in range(26, 46)]


def test_a_tenants_parameters_replace_the_rules_own() -> None:
    rule = rule_with("RISK-004", {"near": "0.5", "at_least": 2, "window_hours": 1, "domestic_cny": 1_000}, 3)
    hits = rule.evaluate(Facts(make_rows(several(3, 500))), rule.params, rule.version)
    assert [(hit.score, hit.rule_version) for hit in hits] == [(60, 3), (65, 3)]


# --- a second reading -------------------------------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(rows=customers(), data=st.data())
def test_the_rule_says_what_a_second_reading_says(rows: CustomerRows, data: st.DataObject) -> None:
    hits = risk_004.evaluate(Facts(rows), risk_004.Params(), 1)
    said = {hit.evidence_key: (hit.score, hit.subtypes) for hit in hits}
    assert len(said) == len(hits)
    assert said == structured(rows)
    order = data.draw(st.permutations(range(len(rows.trades))))
    assert risk_004.evaluate(Facts(shuffled(rows, order)), risk_004.Params(), 1) == hits


def test_the_time_grows_with_the_trades_and_not_with_their_square() -> None:
    """All within one window: ten times the trades take about ten times as long."""

    def seconds(count: int) -> float:
        trades = [
            make_trade(trade_id=f"t{number:06d}", traded_at=moment, amount=450_000)
            for number, moment in enumerate(instants(count, timedelta(seconds=1)))
        ]
        facts = Facts(make_rows(trades))
        began = process_time()
        assert len(risk_004.evaluate(facts, risk_004.Params(), 1)) == count - 2
        return process_time() - began

    seconds(2_000)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.005)
