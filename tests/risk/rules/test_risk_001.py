"""RISK-001, each sentence of the specification on both sides of its edge."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from memory.profiles.derived import add_months
from risk.rules.hit import Hit
from tests.risk.rules.build import at, found, make_assessment, make_customer, make_product, make_trade

PAPERS = {"mismatch_confirm_id": "mc", "risk_disclosure_id": "rd"}


def suitability(*args: Any, **kwargs: Any) -> list[Hit]:
    return found("RISK-001", *args, **kwargs)


def verdict(
    level: int, tolerance: int, *, lowest: bool | None = False, **trade: Any
) -> tuple[int, tuple[str, ...]] | None:
    hits = suitability(
        [make_trade(**trade)], products=[make_product(level=level)],
        assessments=[make_assessment(tolerance, is_lowest=lowest)],
    )  # fmt: skip
    assert len(hits) <= 1
    return (hits[0].score, hits[0].subtypes) if hits else None


@pytest.mark.parametrize("gap", [1, 2, 3, 4])
@pytest.mark.parametrize(("solicited", "extra"), [(None, 0), (False, 0), (True, 10)])
def test_a_purchase_above_the_level_scores_50_plus_10_a_level_plus_10_solicited(
    gap: int, solicited: bool | None, extra: int
) -> None:
    assert verdict(1 + gap, 1, solicited=solicited) == (50 + 10 * gap + extra, ("suitability_mismatch",))


@pytest.mark.parametrize("level", [1, 2, 3])
def test_r_up_to_c_never_hits(level: int) -> None:
    assert verdict(level, 3) is None


@pytest.mark.parametrize("trade_type", ["sell", "switch_out", "transfer_in", "transfer_out", "dividend", "interest"])
def test_only_purchases_hit(trade_type: str) -> None:
    assert verdict(5, 1, trade_type=trade_type) is None


@pytest.mark.parametrize("trade_type", ["buy", "switch_in"])
def test_buy_and_switch_in_are_purchases(trade_type: str) -> None:
    assert verdict(4, 3, trade_type=trade_type) == (60, ("suitability_mismatch",))


@pytest.mark.parametrize("trade", [{}, {"solicited": True}, PAPERS, {**PAPERS, "dual_recording_id": "dr"}])
def test_lowest_is_95_in_place_of_mismatch_without_exception(trade: dict[str, Any]) -> None:
    assert verdict(2, 1, lowest=True, **trade) == (95, ("suitability_lowest",))
    assert verdict(5, 1, lowest=True, **trade) == (95, ("suitability_lowest",))


def test_lowest_with_r_up_to_c_never_hits() -> None:
    assert verdict(1, 1, lowest=True) is None


def test_lowest_not_given_is_no_evidence_of_it() -> None:
    assert verdict(2, 1, lowest=None) == (60, ("suitability_mismatch",))


@pytest.mark.parametrize(
    ("trade", "confirmed"),
    [
        ({**PAPERS, "channel": "online"}, True),
        ({**PAPERS, "channel": "phone"}, True),
        ({**PAPERS, "channel": ""}, True),
        ({**PAPERS, "channel": "online", "solicited": False}, True),
        ({**PAPERS, "channel": "branch", "dual_recording_id": "dr"}, True),
        ({**PAPERS, "channel": "branch"}, False),
        ({**PAPERS, "channel": "online", "solicited": True}, False),
        ({**PAPERS, "channel": "branch", "dual_recording_id": "dr", "solicited": True}, False),
        ({"mismatch_confirm_id": "mc", "channel": "online"}, False),
        ({"risk_disclosure_id": "rd", "channel": "online"}, False),
        ({"dual_recording_id": "dr", "channel": "branch"}, False),
    ],
)
def test_confirmed_and_disclosed_on_own_initiative_is_30_in_place_of_mismatch(
    trade: dict[str, Any], confirmed: bool
) -> None:
    expected = (30, ("suitability_confirmed",))
    if not confirmed:
        expected = (80 if trade.get("solicited") else 70, ("suitability_mismatch",))
    assert verdict(5, 3, **trade) == expected


@pytest.mark.parametrize("level", [1, 5])
def test_no_assessment_is_70_and_nothing_is_matched(level: int) -> None:
    hits = suitability([make_trade(solicited=True)], products=[make_product(level=level)], assessments=[])
    assert [(hit.score, hit.subtypes) for hit in hits] == [(70, ("assessment_missing",))]


def test_an_assessment_made_after_the_trade_does_not_count_and_one_at_that_instant_does() -> None:
    trade = make_trade("2026-06-15", clock="12:00:00")
    later = make_assessment(3, "2026-06-15", "12:00:00.000001")
    assert suitability([trade], assessments=[later])[0].subtypes == ("assessment_missing",)
    assert suitability([trade], assessments=[make_assessment(3, "2026-06-15", "12:00:00")]) == []


def test_the_newest_assessment_before_the_trade_counts() -> None:
    history = [make_assessment(1, "2026-01-10"), make_assessment(4, "2026-03-10"), make_assessment(1, "2026-09-01")]
    product = make_product(level=4)
    assert suitability([make_trade("2026-06-15")], products=[product], assessments=history) == []
    assert suitability([make_trade("2026-03-09")], products=[product], assessments=history)[0].score == 80
    assert suitability([make_trade("2026-09-02")], products=[product], assessments=history)[0].score == 80


@pytest.mark.parametrize(
    ("assessed", "traded", "clock", "expired"),
    [
        ("2025-11-30", "2026-11-30", "23:59:59.999999", False),  # valid through 2026-11-30
        ("2025-11-30", "2026-12-01", "00:00:00", True),
        ("2024-02-29", "2025-02-28", "23:59:59", False),  # 29 Feb + 12 months = 28 Feb
        ("2024-02-29", "2025-03-01", "00:00:00", True),
        ("2023-02-28", "2024-02-28", "12:00:00", False),
        ("2023-02-28", "2024-02-29", "12:00:00", True),
    ],
)
def test_an_assessment_is_valid_through_the_same_local_day_twelve_months_on(
    assessed: str, traded: str, clock: str, expired: bool
) -> None:
    hits = suitability([make_trade(traded, clock=clock)], assessments=[make_assessment(3, assessed)])
    assert [(hit.score, hit.subtypes) for hit in hits] == ([(50, ("assessment_expired",))] if expired else [])


def test_days_are_those_of_shanghai_and_not_of_utc() -> None:
    # 00:30 on 1 December in Shanghai is still 30 November in UTC, for the trade and for the assessment.
    assert (
        len(suitability([make_trade("2026-12-01", clock="00:30:00")], assessments=[make_assessment(3, "2025-11-30")]))
        == 1
    )
    assessment = make_assessment(3, "2025-12-01", "00:30:00")
    assert suitability([make_trade("2026-12-01", clock="23:00:00")], assessments=[assessment]) == []


@pytest.mark.parametrize(
    ("level", "lowest", "trade", "score", "subtype"),
    [
        (4, False, {}, 65, "suitability_mismatch"),  # 60 + 5
        (4, False, {"solicited": True}, 75, "suitability_mismatch"),
        (4, False, PAPERS, 55, "suitability_confirmed"),  # the highest part is the expired one: 50 + 5
        (4, True, {}, 100, "suitability_lowest"),  # 95 + 5
    ],
)
def test_an_expired_assessment_is_matched_too_and_shares_one_hit(
    level: int, lowest: bool, trade: dict[str, Any], score: int, subtype: str
) -> None:
    hits = suitability(
        [make_trade(**trade)], products=[make_product(level=level)],
        assessments=[make_assessment(3, "2025-01-01", is_lowest=lowest)],
    )  # fmt: skip
    assert [(hit.score, hit.subtypes) for hit in hits] == [(score, (subtype, "assessment_expired"))]


def test_the_score_is_capped_at_100() -> None:
    hits = suitability(
        [make_trade(solicited=True)], products=[make_product(level=5)], assessments=[make_assessment(1, "2025-01-01")]
    )
    assert hits[0].score == 100  # 50 + 40 + 10 + 5


@pytest.mark.parametrize("assessments", [[], [make_assessment(1, "2020-01-01", is_lowest=True)]])
def test_professionals_are_exempt(assessments: list[Any]) -> None:
    customers = [make_customer(investor_type="professional")]
    assert suitability([make_trade()], customers=customers, assessments=assessments) == []


def test_entities_and_customers_of_unknown_type_are_judged_as_ordinary() -> None:
    for customer in (make_customer(kind="entity"), make_customer(investor_type="")):
        assert len(suitability([make_trade()], customers=[customer], assessments=[])) == 1


def test_the_customer_row_in_force_at_the_trade_counts() -> None:
    rows = [make_customer(), make_customer(investor_type="professional", valid_from=at("2026-06-15"))]
    trades = [make_trade("2026-06-15", clock="11:59:59"), make_trade("2026-06-15", clock="12:00:00")]
    assert [hit.trade_id for hit in suitability(trades, customers=rows, assessments=[])] == [trades[0].trade_id]


def test_a_product_rated_up_later_is_no_violation() -> None:
    rows = [make_product(level=3), make_product(level=5, valid_from=at("2026-06-15"))]
    trades = [make_trade("2026-06-15", clock="11:59:59"), make_trade("2026-06-15", clock="12:00:00")]
    assert [hit.trade_id for hit in suitability(trades, products=rows)] == [trades[1].trade_id]


def test_a_product_row_without_valid_from_counts_until_a_dated_one_begins() -> None:
    rows = [make_product(level=5, valid_from=at("2026-07-01")), make_product(level=3)]
    assert suitability([make_trade("2026-06-15")], products=rows) == []


# --- keys -------------------------------------------------------------------------------------------------------


def test_a_trade_is_keyed_by_id_and_version() -> None:
    hits = suitability([make_trade(trade_id="t9", version=3)], products=[make_product(level=5)])
    assert hits[0].evidence_key == "t9@3"
    assert (hits[0].trade_version, hits[0].product_id, hits[0].advisor_id) == (3, "p", "a1")


def test_a_plan_is_keyed_by_customer_plan_and_month_and_its_first_purchase_holds_the_key() -> None:
    trades = [
        make_trade("2026-06-05", plan_id="s1"),
        make_trade("2026-06-20", plan_id="s1"),
        make_trade("2026-07-05", plan_id="s1"),
        make_trade("2026-06-05", clock="13:00:00", plan_id="s2"),
        make_trade("2026-06-05", clock="14:00:00"),
    ]
    hits = suitability(trades, products=[make_product(level=5)])
    assert {hit.evidence_key: hit.trade_id for hit in hits} == {
        "c1:s1:2026-06": trades[0].trade_id,
        "c1:s1:2026-07": trades[2].trade_id,
        "c1:s2:2026-06": trades[3].trade_id,
        f"{trades[4].trade_id}@1": trades[4].trade_id,
    }


def test_the_month_of_a_plan_is_shanghais() -> None:
    hits = suitability([make_trade("2026-07-01", clock="00:30:00", plan_id="s1")], products=[make_product(level=5)])
    assert hits[0].evidence_key == "c1:s1:2026-07"


def test_when_the_first_purchase_of_a_plan_is_cancelled_the_next_takes_the_key() -> None:
    first = make_trade("2026-06-05", plan_id="s1", trade_id="a")
    gone = make_trade("2026-06-05", plan_id="s1", trade_id="a", version=2, status="cancelled")
    second = make_trade("2026-06-20", plan_id="s1", trade_id="b")
    products = [make_product(level=5)]
    assert [hit.trade_id for hit in suitability([first, second], products=products)] == ["a"]
    hits = suitability([first, gone, second], products=products)
    assert [(hit.evidence_key, hit.trade_id) for hit in hits] == [("c1:s1:2026-06", "b")]


def test_the_first_purchase_that_meets_the_condition_holds_the_key_not_the_first_purchase() -> None:
    history = [make_assessment(5, "2026-01-10"), make_assessment(3, "2026-06-10")]
    trades = [make_trade("2026-06-05", plan_id="s1"), make_trade("2026-06-20", plan_id="s1")]
    hits = suitability(trades, products=[make_product(level=5)], assessments=history)
    assert [hit.trade_id for hit in hits] == [trades[1].trade_id]


@pytest.mark.parametrize("status", ["cancelled", "reversed"])
def test_cancelled_and_reversed_trades_are_skipped(status: str) -> None:
    assert verdict(5, 1, status=status) is None


def test_the_highest_version_is_the_final_state_in_any_order() -> None:
    risky = make_trade(trade_id="t", version=1, product="risky")
    mended = make_trade(trade_id="t", version=2, product="p")
    products = [make_product("risky", 5), make_product("p", 3)]
    for trades in ([risky, mended], [mended, risky]):
        assert suitability(trades, products=products) == []
    worse = make_trade(trade_id="t", version=10, product="risky")
    assert [hit.evidence_key for hit in suitability([worse, mended, risky], products=products)] == ["t@10"]


def test_a_trade_corrected_to_another_customer_is_no_longer_this_ones() -> None:
    mine = make_trade(trade_id="t", version=1)
    moved = make_trade(trade_id="t", version=2, customer_id="c2")
    assert suitability([mine, moved], products=[make_product(level=5)]) == []


@pytest.mark.parametrize(
    ("day", "months", "expected"),
    [("2025-11-30", 12, "2026-11-30"), ("2024-02-29", 12, "2025-02-28"), ("2025-12-31", 2, "2026-02-28")],
)
def test_calendar_months(day: str, months: int, expected: str) -> None:
    assert add_months(date.fromisoformat(day), months) == date.fromisoformat(expected)
