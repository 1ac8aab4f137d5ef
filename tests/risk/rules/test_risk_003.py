"""RISK-003, each sentence of the specification on both sides of its edge, and against a second reading of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.core.facts import CustomerRows
from risk.rules import data_quality, risk_003
from risk.rules.engine import rule_with
from risk.rules.facts import Facts
from tests.risk.rules.build import at, found, judge, make_customer, make_product, make_rows, make_trade
from tests.risk.rules.moving import ABROAD, CASH, ENTITY, EUR, USD, customers, instants, moved, shuffled
from tests.risk.rules.oracle_003 import large_amounts, without_limits


def keys(*trades: Any, **facts: Any) -> list[str]:
    return [hit.evidence_key for hit in found("RISK-003", trades, **facts)]


def scores(*trades: Any, **facts: Any) -> list[int]:
    return [hit.score for hit in found("RISK-003", trades, **facts)]


# --- the limits are inclusive -----------------------------------------------------------------------------------------

NATURAL: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("who", "what", "limit", "points"),
    [
        (NATURAL, CASH, 50_000, 35),
        (NATURAL, {**CASH, **USD}, 10_000, 35),
        (ENTITY, CASH, 50_000, 35),
        (ENTITY, {**CASH, **USD}, 10_000, 35),
        (ENTITY, {}, 2_000_000, 30),
        (ENTITY, USD, 200_000, 30),
        (ENTITY, ABROAD, 2_000_000, 35),
        (ENTITY, {**ABROAD, **USD}, 200_000, 35),
        (NATURAL, {}, 500_000, 30),
        (NATURAL, USD, 100_000, 30),
        (NATURAL, ABROAD, 200_000, 35),
        (NATURAL, {**ABROAD, **USD}, 10_000, 35),
        (NATURAL, {**CASH, **ABROAD}, 50_000, 35),  # cash before cross-border
        ({"customers": [make_customer(kind="")]}, {}, 500_000, 30),  # no evidence of an entity
    ],
)
def test_exactly_at_the_limit_is_a_hit_and_a_cent_under_is_none(
    who: dict[str, Any], what: dict[str, Any], limit: int, points: int
) -> None:
    assert scores(moved(limit, **what), **who) == [points]
    assert scores(moved(limit - Decimal("0.01"), **what), **who) == []
    half = Decimal(limit) / 2
    assert scores(moved(half, "09:00:00", **what), moved(half, "10:00:00", **what), **who) == [points]
    less = half - Decimal("0.01")
    assert scores(moved(half, "09:00:00", **what), moved(less, "10:00:00", **what), **who) == []


def test_other_currencies_are_compared_in_dollars() -> None:
    assert scores(moved(80_000, **EUR)) == [30]  # 100,000 dollars
    assert scores(moved("79999.99", **EUR)) == []
    assert scores(moved(50_000, "09:00:00", **USD), moved(40_000, "10:00:00", **EUR)) == [30]


def test_dollars_reach_their_limit_whatever_they_are_in_yuan() -> None:
    """The rates are two columns, each from elsewhere."""
    cheap = {**CASH, **USD, "fx_cny": Decimal(1)}  # far under the limit in CNY
    assert scores(moved(10_000, **cheap)) == [35]
    assert scores(moved("9999.99", **cheap)) == []


def test_a_yuan_is_what_its_rate_says() -> None:
    assert scores(moved(250_000, fx_cny=Decimal(2))) == [30]


# --- which trade holds the key ----------------------------------------------------------------------------------------


def test_the_trade_that_reaches_the_limit_and_each_that_adds_are_hits_and_those_before_are_not() -> None:
    trades = [moved(300_000, f"{hour:02d}:00:00", trade_id=f"t{hour}") for hour in (9, 10, 11)]
    assert keys(*trades) == ["domestic:in:t10@1", "domestic:in:t11@1"]
    small = moved("0.01", "12:00:00", trade_id="t12", version=3)
    assert keys(*trades, small)[-1] == "domestic:in:t12@3"


def test_a_later_trade_changes_nothing_of_an_earlier_hit() -> None:
    first, later = moved(500_000, "09:00:00"), moved(500_000, "10:00:00")
    assert found("RISK-003", [first, later])[0] == found("RISK-003", [first])[0]


def test_at_one_instant_the_bytes_of_the_id_decide_which_trade_reaches() -> None:
    for first, second in (("B", "a"), ("10", "9"), ("a", "é")):
        trades = [moved(250_000, trade_id=name) for name in (second, first)]
        assert keys(*trades) == [f"domestic:in:{second}@1"]


def test_the_days_are_shanghais() -> None:
    before, after = moved(250_000, "23:59:59.999999"), moved(250_000, "00:00:00", "2026-06-16")
    assert keys(before, after) == []
    assert len(keys(before, moved(250_000, "00:00:00"))) == 1
    # 2026-06-15 16:00 UTC is the 16th in Shanghai; 07:59 and 08:00 of one UTC night are one day
    assert len(keys(moved(250_000, "07:59:59"), moved(250_000, "08:00:00"))) == 1


@pytest.mark.parametrize(("last", "first"), [("2026-02-28", "2026-03-01"), ("2026-12-31", "2027-01-01")])
def test_a_month_and_a_year_end_are_ends_of_days(last: str, first: str) -> None:
    assert keys(moved(250_000, "23:59:59", last), moved(250_000, "00:00:00", first)) == []
    assert len(keys(moved(250_000, "00:00:00", last), moved(250_000, "23:59:59", last))) == 1


# --- directions and categories stand each by itself -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "direction"), [("buy", "in"), ("transfer_in", "in"), ("sell", "out"), ("transfer_out", "out")]
)
def test_what_is_in_and_what_is_out(kind: str, direction: str) -> None:
    assert keys(moved(500_000, trade_id="t", trade_type=kind)) == [f"domestic:{direction}:t@1"]


@pytest.mark.parametrize("kind", ["switch_in", "switch_out", "dividend", "interest"])
def test_switches_dividends_and_interest_are_excluded(kind: str) -> None:
    assert keys(moved(9_000_000, trade_type=kind)) == []
    assert keys(moved(9_000_000, "09:00:00", trade_type=kind), moved("499999.99")) == []


def test_in_and_out_are_never_netted_nor_added() -> None:
    assert keys(moved(300_000, "09:00:00"), moved(300_000, "10:00:00", trade_type="sell")) == []
    sale = moved(500_000, "10:00:00", trade_id="s", trade_type="transfer_out")
    purchase = moved(500_000, "11:00:00", trade_id="b")
    assert keys(sale, purchase) == ["domestic:out:s@1", "domestic:in:b@1"]


def test_buys_and_transfers_in_are_one_sum() -> None:
    assert len(keys(moved(250_000, "09:00:00"), moved(250_000, "10:00:00", trade_type="transfer_in"))) == 1


def test_two_categories_are_two_sums_and_two_hits() -> None:
    cash = moved(50_000, "09:00:00", trade_id="c", **CASH)
    abroad = moved(200_000, "10:00:00", trade_id="x", **ABROAD)
    at_home = moved(500_000, "11:00:00", trade_id="d")
    assert keys(cash, abroad, at_home) == ["cash:in:c@1", "cross_border:in:x@1", "domestic:in:d@1"]
    assert scores(cash, abroad, at_home) == [35, 35, 30]
    assert keys(moved(49_999, "09:00:00", **CASH), moved(499_999, "10:00:00")) == []


def test_an_entitys_cross_border_and_domestic_are_summed_apart() -> None:
    abroad, at_home = moved(1_500_000, "09:00:00", **ABROAD), moved(1_500_000, "10:00:00")
    assert keys(abroad, at_home, **ENTITY) == []


@pytest.mark.parametrize("unknown", [{"settle_method": ""}, {"cross_border": None}])
def test_what_is_not_known_to_be_cash_or_abroad_is_domestic(unknown: dict[str, Any]) -> None:
    assert keys(moved(499_999, **unknown)) == []
    assert keys(moved(500_000, trade_id="t", **unknown)) == ["domestic:in:t@1"]


def test_kind_and_limit_are_those_in_force_at_the_trade() -> None:
    history = [make_customer(), make_customer(kind="entity", valid_from=at("2026-06-15", "12:00:00"))]
    assert len(keys(moved(500_000, "11:59:59"), customers=history)) == 1
    assert len(keys(moved(500_000, "12:00:00"), customers=history)) == 0


# --- who and what counts ----------------------------------------------------------------------------------------------


def test_plans_cash_like_products_professionals_and_old_people_count() -> None:
    assert keys(moved(500_000, trade_id="t", plan_id="s1")) == ["domestic:in:t@1"]
    fund = make_product(asset_class="cash", is_cash_like=True)
    assert len(keys(moved(500_000), products=[fund])) == 1
    assert len(keys(moved(500_000), customers=[make_customer(investor_type="professional")])) == 1


def test_two_trades_of_one_plan_are_two_keys() -> None:
    trades = [moved(500_000, f"{hour:02d}:00:00", trade_id=f"t{hour}", plan_id="s1") for hour in (9, 10)]
    assert keys(*trades) == ["domestic:in:t9@1", "domestic:in:t10@1"]


@pytest.mark.parametrize("fields", [{"status": "cancelled"}, {"status": "reversed"}, {"price": None}, {"fx_cny": None}])
def test_what_was_undone_or_cannot_be_judged_is_neither_judged_nor_in_the_sum(fields: dict[str, Any]) -> None:
    assert keys(moved(900_000, **fields)) == []
    assert keys(moved(900_000, "09:00:00", **fields), moved(499_999)) == []


def test_a_cancelled_trade_hands_the_key_to_the_next() -> None:
    first, second, third = (moved(250_000, f"{hour:02d}:00:00", trade_id=f"t{hour}") for hour in (9, 10, 11))
    assert keys(first, second, third) == ["domestic:in:t10@1", "domestic:in:t11@1"]
    assert keys(first, second, replace(second, version=2, status="cancelled"), third) == ["domestic:in:t11@1"]


def test_the_highest_version_counts_whichever_comes_first() -> None:
    old, new = moved(500_000, trade_id="t"), moved(499_999, trade_id="t", version=2)
    assert keys(new, old) == keys(old, new) == []
    moved_on = replace(old, version=3, traded_at=at("2026-06-17"))
    assert keys(moved_on, new, old) == ["domestic:in:t@3"]


# --- CNY and foreign apart, and both where neither is reached -------------------------------------------------------


def test_cny_and_foreign_are_apart_but_converted_where_neither_is_reached() -> None:
    """250,000 yuan are 35,000 dollars at 0.14; 35,714 dollars are 249,998 yuan at 7."""
    yuan = moved(250_000, "09:00:00", trade_id="y")
    assert keys(yuan, moved("35714.28", "10:00:00", trade_id="d", **USD)) == []  # 499,999.96
    assert keys(yuan, moved("35714.29", "10:00:00", trade_id="d", **USD)) == ["domestic:in:d@1"]  # 500,000.03


def test_the_lower_of_both_limits_decides() -> None:
    """Cross-border: 200,000 yuan but 10,000 dollars: 5,000 dollars and 35,714.29 yuan at 0.14 are 10,000.0006."""
    dollars = moved(5_000, "09:00:00", trade_id="d", **USD, **ABROAD)
    assert keys(dollars, moved("35714.28", "10:00:00", trade_id="y", **ABROAD)) == []
    assert keys(dollars, moved("35714.29", "10:00:00", trade_id="y", **ABROAD)) == ["cross_border:in:y@1"]


def test_conversion_needs_both_kinds() -> None:
    """300,000 yuan across the border at 0.14 would be 42,000 dollars, but there is no foreign trade; 9,999 dollars at
    700 would be millions of yuan, but there is no yuan."""
    assert keys(moved(199_999, **ABROAD)) == []
    assert keys(moved(9_999, currency="USD", fx_cny=Decimal(700), fx_usd=Decimal(1), **ABROAD)) == []
    # two foreign currencies are one kind
    rich: dict[str, Any] = {"fx_cny": Decimal(700)}
    assert keys(moved(1_000, "09:00:00", **{**EUR, **rich}), moved(1_000, "10:00:00", **{**USD, **rich})) == []


def test_once_one_sum_is_reached_a_trade_hits_by_its_own_kind_alone() -> None:
    yuan = moved(500_000, "09:00:00", trade_id="y1")
    dollars = moved(99_999, "10:00:00", trade_id="d1", **USD)
    assert keys(yuan, dollars) == ["domestic:in:y1@1"]
    more = moved(1, "11:00:00", trade_id="d2", **USD)
    again = moved(1, "12:00:00", trade_id="y2")
    assert keys(yuan, dollars, more, again) == ["domestic:in:y1@1", "domestic:in:d2@1", "domestic:in:y2@1"]


def test_a_converted_sum_hits_again_until_one_kind_reaches() -> None:
    yuan, dollars = moved(400_000, "09:00:00", trade_id="y1"), moved(20_000, "10:00:00", trade_id="d1", **USD)
    more = moved(1, "11:00:00", trade_id="d2", **USD)
    reaches = moved(100_000, "12:00:00", trade_id="y2")
    silent = moved(1, "13:00:00", trade_id="d3", **USD)  # the yuan are reached, the dollars are not
    hits = found("RISK-003", [yuan, dollars, more, reaches, silent])
    assert [hit.trade_id for hit in hits] == ["d1", "d2", "y2"]
    assert [hit.figures["basis"] for hit in hits] == ["converted", "converted", "cny"]
    assert hits[0].figures["sum_cny"] == "540000.00"
    assert hits[0].figures["sum_usd"] == "76000.00"
    assert hits[2].figures["sum_cny"] == "500000.00"


# --- without a rate, without a currency -------------------------------------------------------------------------------


def lacking(*trades: Any, **facts: Any) -> dict[str, tuple[str, ...]]:
    return {hit.trade_id: hit.subtypes for hit in found("DATA-QUALITY", trades, **facts)}


@pytest.mark.parametrize("kind", ["buy", "sell", "transfer_in", "transfer_out"])
def test_a_foreign_trade_without_its_dollar_rate_is_data_quality_and_neither_judged_nor_history(kind: str) -> None:
    unrated = {**USD, "fx_usd": None, "trade_type": kind, "trade_id": "t"}
    assert keys(moved(900_000, **unrated)) == []
    assert lacking(moved(1, **unrated)) == {"t": ("missing_rate",)}
    assert keys(moved(90_000, "09:00:00", **unrated), moved(99_999, **{**USD, "trade_type": kind})) == []
    mended = moved(100_000, **USD, trade_id="t", version=2, trade_type=kind)
    assert lacking(moved(900_000, **unrated), mended) == {}


@pytest.mark.parametrize("kind", ["switch_in", "switch_out", "dividend", "interest"])
def test_what_needs_no_limit_needs_no_dollars(kind: str) -> None:
    assert lacking(moved(900_000, **{**USD, "fx_usd": None}, trade_type=kind)) == {}
    assert lacking(moved(900_000, currency="", trade_type=kind)) == {}


def test_a_trade_without_dollars_is_judged_by_the_other_rules() -> None:
    trade = moved(1, **{**USD, "fx_usd": None})
    hits = judge([trade], products=[make_product(level=5)]).hits
    assert [hit.rule_id for hit in hits] == ["RISK-001", "DATA-QUALITY"]


def test_yuan_without_a_dollar_rate_count_as_yuan() -> None:
    bare: dict[str, Any] = {"fx_usd": None, "trade_id": "y"}
    assert keys(moved(500_000, **bare)) == ["domestic:in:y@1"]
    assert lacking(moved(500_000, **bare)) == {}


def test_yuan_without_a_dollar_rate_beside_foreign_trades_are_data_quality_and_judged_in_yuan() -> None:
    bare: dict[str, Any] = {"fx_usd": None, "trade_id": "y", **ABROAD}
    dollars = moved(9_999, "10:00:00", trade_id="d", **USD, **ABROAD)
    assert lacking(moved(130_006, "09:00:00", **bare), dollars) == {"y": ("missing_rate",)}
    assert keys(moved(130_006, "09:00:00", **bare), dollars) == []  # 199,999 yuan; in dollars 9,999 and who knows
    assert keys(moved(130_007, "09:00:00", **bare), dollars) == ["cross_border:in:d@1"]
    elsewhere = moved(1, "10:00:00", trade_id="d", **USD)
    assert lacking(moved(100_000, "09:00:00", **bare), elsewhere) == {}


def test_what_is_known_of_the_dollars_suffices_where_it_reaches() -> None:
    yuan = moved(1, "09:00:00", trade_id="bare", fx_usd=None, **ABROAD)
    rated = moved(10, "10:00:00", trade_id="y", **ABROAD)  # 1.40 dollars
    dollars = moved("9998.60", "11:00:00", trade_id="d", **USD, **ABROAD)
    assert keys(yuan, rated, dollars) == ["cross_border:in:d@1"]


def test_without_a_currency_no_limit_is_known() -> None:
    trade = moved(900_000, currency="", trade_id="t")
    assert keys(trade) == []
    assert lacking(trade) == {"t": ("missing_currency",)}
    assert keys(moved(900_000, "09:00:00", currency=""), moved(499_999)) == []


def test_a_cancelled_trade_lacks_nothing() -> None:
    assert lacking(moved(900_000, currency="", status="cancelled")) == {}


# --- figures and parameters -------------------------------------------------------------------------------------------


def test_the_figures_say_what_was_compared_with_what() -> None:
    hit = found("RISK-003", [moved(200_000, "09:00:00", **ABROAD), moved("0.5", "10:00:00", **ABROAD)])[-1]
    assert hit.subtypes == ("large_amount",)
    assert hit.figures == {
        "category": "cross_border", "direction": "in", "kind": "natural", "day": "2026-06-15", "basis": "cny",
        "sum_cny": "200000.50", "sum_usd": "0.00", "limit_cny": "200000.00", "limit_usd": "10000.00",
        "trades": 2, "amount": "0.50", "currency": "CNY",
    }  # fmt: skip


def test_a_tenants_limits_and_points_replace_the_rules_own() -> None:
    rule = rule_with("RISK-003", {"domestic_cny": 1_000, "domestic_points": 12}, 4)
    facts = Facts(make_rows([moved(1_000)]))
    [hit] = rule.evaluate(facts, rule.params, rule.version)
    assert (hit.score, hit.rule_version, hit.figures["limit_cny"]) == (12, 4, "1000.00")


# --- a second reading -------------------------------------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(rows=customers(), data=st.data())
def test_the_rule_says_what_a_second_reading_says(rows: CustomerRows, data: st.DataObject) -> None:
    facts = Facts(rows)
    hits = risk_003.evaluate(facts, risk_003.Params(), 1)
    said = {hit.evidence_key: (hit.score, hit.subtypes) for hit in hits}
    assert len(said) == len(hits)
    assert said == large_amounts(rows)
    limits_only = {h.evidence_key: h.subtypes for h in data_quality.evaluate(facts) if h.figures.get("limits_only")}
    assert limits_only == {key: (lack,) for key, lack in without_limits(rows).items()}
    order = data.draw(st.permutations(range(len(rows.trades))))
    assert risk_003.evaluate(Facts(shuffled(rows, order)), risk_003.Params(), 1) == hits


def test_the_time_grows_with_the_trades_and_not_with_their_square() -> None:
    """All on a few days, all in one group: ten times the trades take about ten times as long."""

    def seconds(count: int) -> float:
        trades = [
            make_trade(trade_id=f"t{number:06d}", traded_at=moment, amount=100_000, **(USD if number % 2 else {}))
            for number, moment in enumerate(instants(count, timedelta(seconds=1)))
        ]
        facts = Facts(make_rows(trades))
        began = process_time()
        assert len(risk_003.evaluate(facts, risk_003.Params(), 1)) > count // 2
        return process_time() - began

    seconds(2_000)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.005)
