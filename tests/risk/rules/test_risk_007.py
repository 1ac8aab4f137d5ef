"""RISK-007, each sentence of the specification on both sides of its edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest

from memory.profiles.derived import age_on
from risk.rules.engine import evaluate, rule_with
from tests.risk.rules.build import (
    at,
    found,
    make_assessment,
    make_customer,
    make_product,
    make_rows,
    make_snapshot,
    make_trade,
)

RECORDED = {"dual_recording_id": "dr"}
DISCLOSED = {"risk_disclosure_id": "rd"}
PAPERS = {**RECORDED, **DISCLOSED}
COMPLEX = make_product(level=3, is_complex=True)


def conduct(*args: Any, **kwargs: Any) -> list[tuple[int, tuple[str, ...]]]:
    return [(hit.score, hit.subtypes) for hit in found("RISK-007", *args, **kwargs)]


def elderly(born: str, day: str = "2026-06-15", **trade: Any) -> list[tuple[int, tuple[str, ...]]]:
    """A purchase of R4 (not complex) by a natural, ordinary person."""
    return conduct(
        [make_trade(day, **trade)], products=[make_product(level=4)], assessments=[make_assessment(5)],
        customers=[make_customer(birth_date=date.fromisoformat(born))],
    )  # fmt: skip


# --- the elderly --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("born", "day", "clock", "points"),
    [
        ("1961-06-15", "2026-06-15", "00:00:00", 70),  # 65 on the birthday, from its first instant
        ("1961-06-15", "2026-06-14", "23:59:59.999999", None),
        ("1951-06-15", "2026-06-15", "00:00:00", 80),  # 75: +10
        ("1951-06-15", "2026-06-14", "23:59:59", 70),
        ("1960-02-29", "2025-02-28", "23:59:59", None),  # born on 29 Feb: 1 Mar
        ("1960-02-29", "2025-03-01", "00:00:00", 70),
        ("1952-02-29", "2027-02-28", "23:59:59", 70),
        ("1952-02-29", "2027-03-01", "00:00:00", 80),
        ("1940-02-29", "2028-02-29", "00:00:00", 80),
        ("1900-01-01", "2026-06-15", "12:00:00", 80),
    ],
)
def test_an_age_is_reached_on_the_birthday_in_shanghai(born: str, day: str, clock: str, points: int | None) -> None:
    expected = [] if points is None else [(points, ("elderly_high_risk",))]
    assert elderly(born, day, clock=clock) == expected


def test_a_leap_years_birthday_is_its_own_day() -> None:
    born = date(1960, 2, 29)
    assert [age_on(born, day) for day in (date(2028, 2, 28), date(2028, 2, 29), date(2028, 3, 1))] == [67, 68, 68]


@pytest.mark.parametrize(
    ("product", "hits"),
    [
        ({"level": 4}, True), ({"level": 5}, True), ({"level": 3}, False),
        ({"level": 1, "is_complex": True}, True), ({"level": 3, "is_complex": None}, False),
        ({"level": 3, "is_complex": False}, False), ({"level": 4, "is_complex": None}, True),
    ],
)  # fmt: skip
def test_r4_and_above_or_complex(product: dict[str, Any], hits: bool) -> None:
    subtypes = conduct(
        [make_trade(**RECORDED)], products=[make_product(**product)], assessments=[make_assessment(5)],
        customers=[make_customer(birth_date=date(1955, 1, 1))],
    )  # fmt: skip
    assert bool(subtypes) is hits
    assert all("elderly_high_risk" in names for _score, names in subtypes)


@pytest.mark.parametrize(
    ("papers", "points"), [({}, 80), (RECORDED, 70), (DISCLOSED, 80), (PAPERS, 30)], ids=["none", "dr", "rd", "both"]
)
def test_no_dual_recording_is_10_more_and_both_papers_are_30_flat(papers: dict[str, str], points: int) -> None:
    assert elderly("1951-01-01", **papers) == [(points, ("elderly_high_risk",))]


@pytest.mark.parametrize(
    ("who", "hits"),
    [
        ({}, True), ({"investor_type": ""}, True), ({"investor_type": "professional"}, False),
        ({"kind": "entity"}, False), ({"kind": ""}, False), ({"birth_date": None}, False),
    ],
)  # fmt: skip
def test_natural_ordinary_and_of_a_known_age(who: dict[str, Any], hits: bool) -> None:
    customer = make_customer(**{"birth_date": date(1955, 1, 1), **who})
    kwargs: dict[str, Any] = {"products": [make_product(level=5)], "assessments": [make_assessment(5)]}
    assert bool(conduct([make_trade()], customers=[customer], **kwargs)) is hits


@pytest.mark.parametrize("trade_type", ["sell", "switch_out", "transfer_in", "transfer_out", "dividend", "interest"])
def test_only_purchases_hit(trade_type: str) -> None:
    assert elderly("1951-01-01", trade_type=trade_type) == []
    assert conduct([make_trade(trade_type=trade_type)], products=[COMPLEX]) == []


def test_who_the_customer_was_at_the_trade_counts() -> None:
    customers = [
        make_customer(birth_date=date(1951, 1, 1), investor_type="professional"),
        make_customer(birth_date=date(1951, 1, 1), valid_from=at("2026-06-15")),
    ]
    trades = [make_trade("2026-06-14"), make_trade("2026-06-15")]
    hits = found("RISK-007", trades, products=[make_product(level=4)], customers=customers)
    assert [hit.trade_id for hit in hits] == [trades[1].trade_id]


# --- the first complex product ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("papers", "points"), [({}, 55), (RECORDED, 45), (DISCLOSED, 55), (PAPERS, 30)], ids=["none", "dr", "rd", "both"]
)
def test_a_first_complex_product(papers: dict[str, str], points: int) -> None:
    assert conduct([make_trade(**papers)], products=[COMPLEX]) == [(points, ("first_complex",))]


@pytest.mark.parametrize("who", [{"kind": "entity"}, {"kind": ""}, {"investor_type": ""}])
def test_entities_and_whoever_is_not_known_as_professional_are_asked_too(who: dict[str, Any]) -> None:
    assert conduct([make_trade()], products=[COMPLEX], customers=[make_customer(**who)])


def test_professionals_are_exempt_but_what_they_bought_is_history() -> None:
    customers = [make_customer(investor_type="professional"), make_customer(valid_from=at("2026-06-10"))]
    late, early = make_trade("2026-06-15"), make_trade("2026-06-01")
    assert conduct([late], products=[COMPLEX], customers=customers) == [(55, ("first_complex",))]
    assert conduct([early, late], products=[COMPLEX], customers=customers) == []


@pytest.mark.parametrize(
    ("earlier", "is_first"),
    [
        ({}, False), ({"product": "q"}, False), ({"trade_type": "switch_in"}, False),
        ({"trade_type": "transfer_in"}, True), ({"trade_type": "sell"}, True), ({"product": "plain"}, True),
        ({"product": "unknown"}, True), ({"status": "cancelled"}, True), ({"status": "reversed"}, True),
        ({"price": None}, True), ({"fx_cny": None}, True),
    ],
)  # fmt: skip
def test_first_is_without_an_earlier_purchase_of_any_complex_product(earlier: dict[str, Any], is_first: bool) -> None:
    products = [
        COMPLEX, replace(COMPLEX, product_id="q"), make_product("plain"), make_product("unknown", is_complex=None),
    ]  # fmt: skip
    trades = [make_trade("2026-06-01", **{"trade_id": "early", **earlier}), make_trade("2026-06-15", trade_id="late")]
    hits = found("RISK-007", trades, products=products)
    assert ("late" in [hit.trade_id for hit in hits]) is is_first


def test_of_two_at_one_instant_the_first_is_the_lower_id_by_bytes() -> None:
    trades = [make_trade(trade_id=name) for name in ("b", "B", "é", "a")]
    assert [hit.trade_id for hit in found("RISK-007", trades, products=[COMPLEX])] == ["B"]


def test_a_product_is_what_it_was_at_the_purchase() -> None:
    """Complex from 10 June on: the purchase before was of a plain product, and so is no earlier complex one."""
    products = [make_product(), replace(COMPLEX, valid_from=at("2026-06-10"))]
    trades = [make_trade("2026-06-09"), make_trade("2026-06-10", clock="12:00:00"), make_trade("2026-06-11")]
    hits = found("RISK-007", trades, products=products)
    assert [hit.trade_id for hit in hits] == [trades[1].trade_id]


@pytest.mark.parametrize(
    ("amount", "positions", "extra"),
    [
        ("20000", {"x": 80_000}, 10),  # exactly 20 %
        ("19999.99", {"x": 80_000}, 0),
        ("20000", {"x": "80000.01"}, 0),
        ("20000", {"cash": 100_000}, 10),  # paid from cash: 20,000 of 20,000 + 80,000
        ("20000", {"cash": "100000.01"}, 0),
        ("20000", {"p": 80_000}, 10),  # what was there of it already is no part of this purchase
        ("20000", {"p": 80_001}, 0),
        ("20", {"x": 80}, 10),  # 002's least assets are no condition here
    ],
)
def test_from_20_percent_of_the_assets_on_10_more(amount: str, positions: dict[str, Any], extra: int) -> None:
    products = [COMPLEX, make_product("x"), make_product("cash", 1, asset_class="cash", is_cash_like=True)]
    snapshot = make_snapshot(**positions)
    for papers, base in ((DISCLOSED, 55), (RECORDED, 45)):
        hits = conduct([make_trade(amount=amount, **papers)], products=products, positions=snapshot)
        assert hits == [(base + extra, ("first_complex",))]
    assert conduct([make_trade(amount=amount, **PAPERS)], products=products, positions=snapshot)[0][0] == 30


def test_without_a_snapshot_closed_by_then_the_share_is_not_known() -> None:
    trade = make_trade("2026-06-15", amount=50_000)
    for day in ("2026-06-15", "2026-06-16"):
        assert conduct([trade], products=[COMPLEX], positions=make_snapshot(day, x=1)) == [(55, ("first_complex",))]
    assert conduct([trade], products=[COMPLEX], positions=make_snapshot("2026-06-14", x=1))[0][0] == 65


def test_nothing_held_and_nothing_paid_is_no_share() -> None:
    trade = make_trade(amount=0)
    assert conduct([trade], products=[COMPLEX], positions=make_snapshot(x=0)) == [(55, ("first_complex",))]


def test_assets_are_rolled_forward_to_the_trade() -> None:
    products = [COMPLEX, make_product("x")]
    bought = make_trade("2026-06-02", product="x", amount=30_000, trade_id="x")
    sold = make_trade("2026-06-03", product="x", amount=30_001, trade_id="y", trade_type="sell")
    complex_one = make_trade("2026-06-15", amount=20_000, trade_id="z")
    for trades, points in (([complex_one], 65), ([bought, complex_one], 55), ([bought, sold, complex_one], 65)):
        hits = found("RISK-007", trades, products=products, positions=make_snapshot(x=80_000))
        assert [hit.score for hit in hits] == [points]


# --- a class raised to fit ----------------------------------------------------------------------------------------


def raised(
    level: int, *, classes: Sequence[tuple[int, str, str]], day: str = "2026-06-15", clock: str = "12:00:00",
    who: dict[str, Any] | None = None,
) -> list[tuple[int, tuple[str, ...]]]:  # fmt: skip
    return conduct(
        [make_trade(day, clock=clock)], products=[make_product(level=level)],
        assessments=[make_assessment(c, on, time_) for c, on, time_ in classes],
        customers=[make_customer(**(who or {}))],
    )  # fmt: skip


UPGRADED = [(70, ("assessment_upgraded",))]


@pytest.mark.parametrize(
    ("level", "on", "clock", "hits"),
    [
        (3, "2026-06-08", "12:00:00", True),  # seven days to the instant
        (3, "2026-06-08", "11:59:59.999999", False),
        (3, "2026-06-15", "12:00:00", True),  # the same instant
        (3, "2026-06-15", "12:00:00.000001", False),  # after the purchase
        (4, "2026-06-10", "12:00:00", True),
        (5, "2026-06-10", "12:00:00", True),  # above the new class too
        (2, "2026-06-10", "12:00:00", False),  # R equal to the old class
        (1, "2026-06-10", "12:00:00", False),
    ],
)
def test_a_class_raised_up_to_seven_days_before_a_purchase_above_the_old_one(
    level: int, on: str, clock: str, hits: bool
) -> None:
    assert raised(level, classes=[(2, "2026-01-15", "12:00:00"), (4, on, clock)]) == (UPGRADED if hits else [])


@pytest.mark.parametrize(
    ("classes", "hits"),
    [
        ([4], False),  # a first assessment raises nothing
        ([4, 4], False), ([4, 2], False),
        ([2, 4], True), ([2, 3, 4], True), ([1, 2, 4], True),
        ([2, 4, 2], True),  # raised and lowered again
        ([4, 3, 4], True), ([4, 4, 5], False),
    ],
)  # fmt: skip
def test_it_must_have_been_raised_whatever_was_assessed_since(classes: list[int], hits: bool) -> None:
    days = [f"2026-06-{14 - len(classes) + index:02d}" for index in range(len(classes))]
    history = [(c, day, "12:00:00") for c, day in zip(classes, days, strict=True)]
    assert raised(4, classes=history) == (UPGRADED if hits else [])


def test_of_two_steps_the_lower_old_class_counts_while_its_step_is_in_the_window() -> None:
    steps = [(1, "2026-01-15", "12:00:00"), (2, "2026-06-08", "12:00:00"), (4, "2026-06-12", "12:00:00")]
    assert raised(2, classes=steps) == UPGRADED
    assert raised(2, classes=steps, clock="12:00:00.000001") == []
    assert raised(3, classes=steps, clock="12:00:00.000001") == UPGRADED


def test_entities_are_judged_and_professionals_are_not() -> None:
    classes = [(2, "2026-01-15", "12:00:00"), (4, "2026-06-12", "12:00:00")]
    assert raised(4, classes=classes, who={"kind": "entity"}) == UPGRADED
    assert raised(4, classes=classes, who={"investor_type": "professional"}) == []


# --- shopping for a class -----------------------------------------------------------------------------------------

SHOPPED = [(80, ("assessment_shopping",))]


def shopped(times: Sequence[tuple[str, str]], day: str, clock: str = "12:00:00", **who: Any) -> Any:
    return conduct(
        [make_trade(day, clock=clock)], products=[make_product(level=1)],
        assessments=[make_assessment(3, on, time_) for on, time_ in times], customers=[make_customer(**who)],
    )  # fmt: skip


THREE = [("2026-06-08", "00:00:00"), ("2026-06-08", "10:00:00"), ("2026-06-08", "12:00:00")]


@pytest.mark.parametrize(
    ("times", "day", "clock", "hits"),
    [
        (THREE, "2026-06-15", "12:00:00", True),
        (THREE, "2026-06-15", "12:00:00.000001", False),
        (THREE, "2026-06-08", "12:00:00", True),
        (THREE, "2026-06-08", "11:59:59.999999", False),  # only two by then
        (THREE[:2], "2026-06-09", "12:00:00", False),
        ([("2026-06-07", "23:59:59.999999"), *THREE[1:]], "2026-06-09", "12:00:00", False),  # two days
        ([*THREE[:2], ("2026-06-08", "23:59:59.999999")], "2026-06-15", "23:59:59.999999", True),
        ([*THREE[:2], ("2026-06-09", "00:00:00")], "2026-06-10", "12:00:00", False),
        ([*THREE, ("2026-06-08", "20:00:00")], "2026-06-15", "20:00:00", True),  # the fourth is one too many too
        ([*THREE, ("2026-06-11", "20:00:00")], "2026-06-15", "20:00:00", False),  # the fourth on another day is not
    ],
)
def test_a_third_assessment_in_a_business_day_and_a_purchase_up_to_seven_days_later(
    times: list[tuple[str, str]], day: str, clock: str, hits: bool
) -> None:
    assert shopped(times, day, clock) == (SHOPPED if hits else [])


def monthly(first: tuple[str, str], last: tuple[str, str] = ("2026-06-15", "12:00:00")) -> list[tuple[str, str]]:
    """Nine: the first and last as given, the others between."""
    return [first, *((f"2026-{month:02d}-01", "12:00:00") for month in range(1, 6)), ("2026-06-01", "12:00:00"),
            ("2026-06-14", "12:00:00"), last]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "last", "hits"),
    [
        (("2025-06-15", "12:00:00"), ("2026-06-15", "12:00:00"), True),  # twelve calendar months to the instant
        (("2025-06-15", "11:59:59.999999"), ("2026-06-15", "12:00:00"), False),
        (("2025-06-14", "12:00:00"), ("2026-06-15", "12:00:00"), False),
        (("2023-02-28", "12:00:00"), ("2024-02-29", "12:00:00"), True),  # 29 Feb less 12 months = 28 Feb
        (("2023-02-28", "11:59:59"), ("2024-02-29", "12:00:00"), False),
        (("2024-02-29", "12:00:00"), ("2025-02-28", "12:00:00"), True),
        (("2024-02-29", "12:00:00"), ("2025-03-01", "12:00:00"), False),
        (("2025-06-15", "00:00:00"), ("2026-06-15", "00:00:00"), True),  # another date in UTC
    ],
)
def test_a_ninth_assessment_in_twelve_calendar_months(
    first: tuple[str, str], last: tuple[str, str], hits: bool
) -> None:
    end = date.fromisoformat(last[0])
    between = [((end - timedelta(days=20 * number)).isoformat(), "12:00:00") for number in range(1, 8)]
    times = [first, *between, last]
    buy = (end + timedelta(days=7)).isoformat()
    assert shopped(times, buy, last[1]) == (SHOPPED if hits else [])
    assert shopped(times, buy, f"{last[1][:8]}.000001") == []
    assert shopped(times[1:], buy, last[1]) == []  # eight are not too many


def test_each_later_one_that_is_too_many_begins_its_own_seven_days() -> None:
    times = [*monthly(("2025-12-15", "12:00:00")), ("2026-06-20", "12:00:00")]
    assert shopped(times, "2026-06-27") == SHOPPED
    assert shopped(times, "2026-06-28") == []
    assert shopped(times, "2026-06-19", investor_type="professional") == []
    assert shopped(times, "2026-06-19", kind="entity") == SHOPPED


# --- one hit, plans, versions -------------------------------------------------------------------------------------


def test_subtypes_add_five_to_the_highest_in_the_order_of_the_table() -> None:
    hits = found(
        "RISK-007", [make_trade("2026-06-15")], products=[make_product(level=4, is_complex=True)],
        customers=[make_customer(birth_date=date(1950, 1, 1))],
        assessments=[make_assessment(2, "2026-01-01"), *(make_assessment(c, "2026-06-14", clock) for c, clock in
                     ((2, "09:00:00"), (3, "10:00:00"), (4, "11:00:00")))],
    )  # fmt: skip
    assert [(hit.score, hit.subtypes, hit.evidence_key) for hit in hits] == [
        (95, ("elderly_high_risk", "first_complex", "assessment_upgraded", "assessment_shopping"),
         "t-2026-06-15-12:00:00-p@1"),
    ]  # fmt: skip
    assert hits[0].figures["parts"] == {
        "elderly_high_risk": 80, "first_complex": 55, "assessment_upgraded": 70, "assessment_shopping": 80,
    }  # fmt: skip
    assert hits[0].figures["age"] == 76


def test_both_papers_make_30_of_the_parts_that_ask_for_them_and_of_no_other() -> None:
    kwargs: dict[str, Any] = {
        "products": [make_product(level=4, is_complex=True)],
        "customers": [make_customer(birth_date=date(1950, 1, 1))],
    }
    assert conduct([make_trade(**PAPERS)], **kwargs) == [(35, ("elderly_high_risk", "first_complex"))]
    history = [make_assessment(2, "2026-01-01"), make_assessment(4, "2026-06-14")]
    assert conduct([make_trade(**PAPERS)], assessments=history, **kwargs) == [
        (80, ("elderly_high_risk", "first_complex", "assessment_upgraded"))
    ]


def test_a_plans_first_purchase_of_a_month_that_hits_holds_the_key() -> None:
    trades = [
        make_trade(day, trade_id=name, plan_id="s1")
        for day, name in (("2026-05-31", "a"), ("2026-06-01", "b"), ("2026-06-20", "c"))
    ]
    kwargs: dict[str, Any] = {
        "products": [make_product(level=4)], "customers": [make_customer(birth_date=date(1955, 1, 1))],
        "assessments": [make_assessment(5)],
    }  # fmt: skip
    hits = found("RISK-007", trades, **kwargs)
    assert [(hit.evidence_key, hit.trade_id) for hit in hits] == [("c1:s1:2026-05", "a"), ("c1:s1:2026-06", "b")]
    cancelled = replace(trades[1], version=2, status="cancelled")
    hits = found("RISK-007", [*trades, cancelled], **kwargs)
    assert [(hit.evidence_key, hit.trade_id) for hit in hits] == [("c1:s1:2026-05", "a"), ("c1:s1:2026-06", "c")]


def test_a_cancelled_first_complex_purchase_makes_the_next_one_first() -> None:
    trades = [make_trade("2026-06-01", trade_id="a"), make_trade("2026-06-02", trade_id="b")]
    assert [hit.trade_id for hit in found("RISK-007", trades, products=[COMPLEX])] == ["a"]
    trades.append(replace(trades[0], version=2, status="reversed"))
    assert [hit.trade_id for hit in found("RISK-007", trades, products=[COMPLEX])] == ["b"]


def test_figures_say_what_was_compared() -> None:
    hit = found(
        "RISK-007", [make_trade(amount=20_000, **DISCLOSED)], products=[COMPLEX], positions=make_snapshot(x=80_000)
    )[0]
    assert hit.figures == {
        "product_risk_level": "R3", "is_complex": True, "traded_on": "2026-06-15", "dual_recording": False,
        "risk_disclosure": True, "parts": {"first_complex": 65}, "amount": "20000.00", "assets": "100000.00",
        "share": "0.200000", "share_limit": "0.200000",
    }  # fmt: skip


def test_parameters_of_a_version() -> None:
    rows = make_rows([make_trade()], customers=[make_customer(birth_date=date(1965, 1, 1))],
                     products=[make_product(level=4)])  # fmt: skip
    hits = evaluate(rows, [rule_with("RISK-007", {"elderly_age": 60, "elderly_base": 41}, 3)]).hits
    assert [(hit.score, hit.rule_version) for hit in hits] == [(51, 3)]
