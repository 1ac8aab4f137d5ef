"""RISK-002, each sentence of the specification on both sides of its edge."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from risk.rules.hit import Hit
from tests.risk.rules.build import at, found, make_assessment, make_customer, make_product, make_snapshot, make_trade

CASH = make_product("cash", 1, asset_class="cash", is_cash_like=True)
BOND = make_product("bond", 1, asset_class="fixed_income")


def concentration(trades: list[Any], *products: Any, snapshot: list[Any] | None = None, **facts: Any) -> list[Hit]:
    facts.setdefault("positions", snapshot if snapshot is not None else make_snapshot(bond=600_000))
    facts.setdefault("assessments", [make_assessment(5)])
    return found("RISK-002", trades, products=[CASH, BOND, *products], **facts)


def scores(*args: Any, **kwargs: Any) -> list[int]:
    return [hit.score for hit in concentration(*args, **kwargs)]


# --- product, issuer, class: the limit, and a cent over it --------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "asset_class", "others", "at_limit", "score"),
    [
        (2, "fixed_income", 400_000, 600_000, 50),  # 60 %
        (2, "mixed", 400_000, 600_000, 50),
        (3, "mixed", 600_000, 400_000, 50),  # 40 %
        (4, "equity", 600_000, 400_000, 60),
        (5, "derivative", 600_000, 400_000, 60),
    ],
)
def test_exactly_at_the_products_limit_is_no_hit_and_a_cent_over_is(
    level: int, asset_class: str, others: int, at_limit: int, score: int
) -> None:
    product = make_product(level=level, asset_class=asset_class)
    held = make_snapshot(bond=others)
    assert scores([make_trade(amount=at_limit)], product, snapshot=held) == []
    assert scores([make_trade(amount=f"{at_limit}.01")], product, snapshot=held) == [score]


def test_r1_has_no_limit_for_product_and_issuer_but_one_for_class() -> None:
    held = make_snapshot(bond=1, cash=0)
    assert scores([make_trade(amount=999_999)], make_product(level=1, asset_class="fixed_income"), snapshot=held) == []
    mixed = make_product(level=1, asset_class="mixed")
    assert scores([make_trade(amount=800_000)], mixed, snapshot=make_snapshot(bond=200_000)) == []
    assert scores([make_trade(amount=900_000)], mixed, snapshot=make_snapshot(bond=100_000)) == [70]


@pytest.mark.parametrize(
    ("level", "existing", "others", "amount", "hits"),
    [
        (3, 200_000, 500_000, "300000", []),  # exactly 50 %
        (3, 200_000, 500_000, "300000.01", [50]),
        (2, 300_000, 400_000, "300000", []),  # exactly 60 %
        (2, 300_000, 400_000, "300000.01", [50]),
        (3, 400_000, 300_000, "300000", [66]),  # 70 %: 50 + 40 x 0.2/0.5
        (4, 400_000, 300_000, "300000", [76]),
        (1, 500_000, 100_000, "400000", []),  # R1: none
    ],
)
def test_issuer(level: int, existing: int, others: int, amount: str, hits: list[int]) -> None:
    product = make_product(level=level, issuer_id="same")
    sibling = make_product("sibling", 1, issuer_id="same", asset_class="alternative")
    held = make_snapshot(bond=others, sibling=existing)
    assert scores([make_trade(amount=amount)], product, sibling, snapshot=held) == hits


@pytest.mark.parametrize(
    ("level", "asset_class", "amount", "hits"),
    [
        (3, "equity", "200000", []),  # exactly 80 %
        (3, "equity", "200000.01", [50]),
        (4, "equity", "200000.01", [60]),
        (3, "fixed_income", "200000.01", [50]),  # only R1-R2 fixed income has none
        (2, "fixed_income", "200000.01", []),
        (3, "cash", "200000.01", []),
        (2, "mixed", "200000.01", [50]),
    ],
)
def test_class(level: int, asset_class: str, amount: str, hits: list[int]) -> None:
    product = make_product(level=level, asset_class=asset_class)
    kin = [make_product(f"k{n}", 3, asset_class=asset_class) for n in range(3)]
    other = make_product("other", 3, asset_class="alternative")
    held = make_snapshot(other=200_000, k0=200_000, k1=200_000, k2=200_000)
    assert scores([make_trade(amount=amount)], product, other, *kin, snapshot=held) == hits


def test_the_worst_dimension_is_the_highest_score() -> None:
    # Product 70 % of 40: 50 + 40 x 0.3/0.6 = 70. Issuer 90 % of 50: 82. Class 90 % of 80: 70.
    product = make_product(issuer_id="same")
    sibling = make_product("sibling", issuer_id="same")
    hits = concentration(
        [make_trade(amount=700_000)], product, sibling, snapshot=make_snapshot(bond=100_000, sibling=200_000)
    )
    assert [(hit.score, hit.subtypes) for hit in hits] == [(82, ("concentration",))]
    assert hits[0].figures["dimension"] == "issuer"
    assert set(hits[0].figures["over"]) == {"product", "issuer", "class"}


@pytest.mark.parametrize(
    ("amount", "score"),
    [
        (500_000, 57),  # half: 50 + 40 x 0.1/0.6 = 56.67
        (425_000, 54),  # 0.4595; 50 + 40 x 0.0595/0.6 = 53.96
    ],
)
def test_scores_round_half_up_once_at_the_end(amount: int, score: int) -> None:
    assert scores([make_trade(amount=amount)], make_product(), snapshot=make_snapshot(bond=500_000)) == [score]


def test_a_half_rounds_up_exactly() -> None:
    # share 0.4375: 50 + 40 x 0.0375/0.6 = 52.5 -> 53; a hair below stays 52
    assert scores([make_trade(amount=437_500)], make_product(), snapshot=make_snapshot(bond=562_500)) == [53]
    assert scores([make_trade(amount=437_500)], make_product(), snapshot=make_snapshot(bond="562500.0001")) == [52]


def test_the_score_is_capped_at_100() -> None:
    assert scores([make_trade(amount=1_000_000)], make_product(level=5), snapshot=make_snapshot(cash=0)) == [100]


# --- who and what is judged -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("amount", "hits"), [("59999.99", 0), ("60000", 1)])
def test_a_denominator_under_100000_is_not_judged(amount: str, hits: int) -> None:
    assert len(scores([make_trade(amount=amount)], make_product(), snapshot=make_snapshot(bond=40_000))) == hits


@pytest.mark.parametrize("trade_type", ["sell", "switch_out", "transfer_in", "transfer_out", "dividend", "interest"])
def test_only_purchases_are_judged(trade_type: str) -> None:
    assert scores([make_trade(amount=900_000, trade_type=trade_type)], make_product()) == []


def test_a_switch_in_counts_as_a_buy() -> None:
    assert len(scores([make_trade(amount=900_000, trade_type="switch_in")], make_product())) == 1


def test_a_cash_like_product_is_not_judged_even_when_it_is_everything() -> None:
    fund = make_product("fund", 4, asset_class="cash", is_cash_like=True)
    assert scores([make_trade(product="fund", amount=900_000)], fund) == []


def test_professionals_and_entities_are_judged() -> None:
    for customer in (make_customer(investor_type="professional"), make_customer(kind="entity")):
        assert len(scores([make_trade(amount=900_000)], make_product(), customers=[customer])) == 1


def test_amounts_are_cny_by_the_trades_own_rate() -> None:
    trade = {"currency": "USD", "fx_usd": Decimal(1), "fx_cny": Decimal("7.2")}
    held = make_snapshot(bond=1_080_000)
    assert scores([make_trade(amount=100_000, **trade)], make_product(), snapshot=held) == []  # 720,000 of 1,800,000
    assert scores([make_trade(amount="100000.01", **trade)], make_product(), snapshot=held) == [50]


# --- cash -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cash", "share"),
    [
        (0, "0.400000"),
        (400_001, "0.400000"),  # cash that pays for the purchase is in the denominator once
        (1_400_001, "0.200000"),
    ],
)
def test_cash_counts_as_far_as_it_outlasts_the_purchase(cash: int, share: str) -> None:
    hits = concentration(
        [make_trade(amount=400_001)], make_product(level=3), make_product("other", 3, issuer_id="x"),
        snapshot=make_snapshot(bond=600_001, cash=cash),
    )  # fmt: skip
    if share == "0.200000":
        assert hits == []
    else:
        assert [hit.figures["share"] for hit in hits] == [share]


def test_cash_like_positions_are_left_out_of_issuer_and_class_sums() -> None:
    fund = make_product("fund", 1, issuer_id="same", asset_class="mixed", is_cash_like=True)
    product = make_product(issuer_id="same", asset_class="mixed")
    held = make_snapshot(bond=700_000, fund=300_000)
    assert scores([make_trade(amount=300_000)], product, fund, snapshot=held) == []


def test_only_trades_in_cash_like_products_move_cash() -> None:
    """A purchase of 300,000 leaves the cash of the snapshot alone; a purchase of the money fund adds to it."""
    first = make_trade("2026-06-10", amount=300_000, product="bond")
    trade = make_trade("2026-06-15", amount=500_000)
    held = make_snapshot(bond=300_000, cash=650_000)
    # 500,000 / (600,000 + 500,000 + 150,000) = 40 %: with the purchase paid from cash it would be over
    assert scores([first, trade], make_product(), snapshot=held) == []
    took = make_trade("2026-06-11", amount="0.01", product="cash", trade_type="sell")
    assert scores([first, took, trade], make_product(), snapshot=held) == [50]
    gave = make_trade("2026-06-12", amount="0.01", product="cash", trade_type="buy")
    assert scores([first, took, gave, trade], make_product(), snapshot=held) == []


# --- snapshots ------------------------------------------------------------------------------------------------------


def test_without_a_snapshot_by_then_a_trade_is_not_judged() -> None:
    trade = make_trade("2026-06-15", amount=900_000)
    assert scores([trade], make_product(), snapshot=[]) == []
    assert scores([trade], make_product(), snapshot=make_snapshot("2026-06-30", bond=1)) == []


def test_a_snapshot_is_the_close_of_its_day() -> None:
    """On the day itself it is not closed yet; from 00:00 of the next day on it is."""
    held = make_snapshot("2026-06-15", bond=1)
    assert (
        scores([make_trade("2026-06-15", clock="23:59:59.999999", amount=900_000)], make_product(), snapshot=held) == []
    )
    assert len(scores([make_trade("2026-06-16", clock="00:00:00", amount=900_000)], make_product(), snapshot=held)) == 1


def test_the_newest_closed_snapshot_counts_as_a_whole_and_what_it_lacks_is_zero() -> None:
    old, new = make_snapshot("2026-04-30", bond=600_000, p=400_000), make_snapshot("2026-05-31", bond=1_000_000)
    trade = make_trade("2026-06-15", amount=400_000)
    assert scores([trade], make_product(), snapshot=[*old, *new]) == []
    assert scores([trade], make_product(), snapshot=old) == [61]  # 4/7 of 40: 50 + 40 x 0.1714/0.6


def test_trades_up_to_the_snapshots_close_are_in_it_and_later_ones_are_rolled_forward() -> None:
    trade = make_trade("2026-06-15", amount=300_000)
    inside = make_trade("2026-05-31", clock="23:59:59.999999", amount=300_000)
    after = make_trade("2026-06-01", clock="00:00:00", amount=300_000)
    assert [h.trade_id for h in concentration([inside, trade], make_product())] == []
    assert [h.trade_id for h in concentration([after, trade], make_product())] == [trade.trade_id]


@pytest.mark.parametrize(
    ("trade_type", "moves"),
    [("buy", 1), ("switch_in", 1), ("transfer_in", 1), ("sell", -1), ("switch_out", -1), ("transfer_out", -1),
     ("dividend", 0), ("interest", 0)],
)  # fmt: skip
def test_which_trades_move_a_position(trade_type: str, moves: int) -> None:
    earlier = make_trade("2026-06-10", amount=100_000, trade_type=trade_type)
    trade = make_trade("2026-06-15", amount=500_000)
    hit = concentration([earlier, trade], make_product(), snapshot=make_snapshot(bond=300_000, p=200_000))[-1]
    assert Decimal(hit.figures["over"]["product"]["held"]) == 200_000 + moves * 100_000


def test_a_position_never_falls_below_zero_on_the_way() -> None:
    sold = make_trade("2026-06-10", amount=300_000, trade_type="sell")
    bought = make_trade("2026-06-11", amount=100_000)
    trade = make_trade("2026-06-15", amount=500_000)
    hit = concentration([sold, bought, trade], make_product(), snapshot=make_snapshot(bond=300_000, p=200_000))[-1]
    assert Decimal(hit.figures["over"]["product"]["held"]) == 100_000


def test_history_is_ordered_by_time_then_by_the_bytes_of_the_id() -> None:
    """Of two purchases at one instant the lower id is the other's history: 'B' is before 'a', '10' before '9'."""
    for first, second in (("B", "a"), ("10", "9"), ("a", "é")):
        trades = [make_trade(trade_id=name, amount=300_000) for name in (second, first)]
        assert [hit.trade_id for hit in concentration(trades, make_product())] == [second]


def test_cancelled_trades_and_those_that_cannot_be_judged_are_no_history() -> None:
    trade = make_trade("2026-06-15", amount=300_000)
    for fields in ({"status": "cancelled"}, {"status": "reversed"}, {"price": None}, {"fx_cny": None}):
        earlier = make_trade("2026-06-10", amount=300_000, **fields)
        assert concentration([earlier, trade], make_product()) == []


def test_issuer_and_class_are_those_in_force_at_the_trade() -> None:
    held = make_snapshot(bond=300_000, sibling=400_000)
    rows = [
        make_product("sibling", 1, issuer_id="other"),
        make_product("sibling", 1, issuer_id="same", valid_from=at("2026-06-15")),
    ]
    product = make_product(issuer_id="same", asset_class="equity")
    assert scores([make_trade("2026-06-15", clock="11:59:59", amount=300_000)], product, *rows, snapshot=held) == []
    assert scores([make_trade("2026-06-15", clock="12:00:00", amount=300_000)], product, *rows, snapshot=held) == [66]


def test_a_held_product_that_nobody_knows_is_an_asset_of_no_issuer_and_no_class() -> None:
    assert scores([make_trade(amount=400_000)], make_product(), snapshot=make_snapshot(mystery=600_000)) == []


def test_an_issuer_that_is_not_given_is_no_evidence() -> None:
    product = make_product(issuer_id="", level=3)
    sibling = make_product("sibling", 1, issuer_id="", asset_class="alternative")
    held = make_snapshot(bond=100_000, sibling=600_000)
    assert scores([make_trade(amount=300_000)], product, sibling, snapshot=held) == []


def test_a_plan_holds_one_key_a_month_and_its_later_purchases_are_history_still() -> None:
    trades = [
        make_trade("2026-06-05", amount=500_000, plan_id="s1"),
        make_trade("2026-06-06", amount=100_000, plan_id="s1"),
        make_trade("2026-06-07", amount=100_000),
    ]
    hits = concentration(trades, make_product())
    assert [hit.evidence_key for hit in hits] == ["c1:s1:2026-06", f"{trades[2].trade_id}@1"]
    assert Decimal(hits[1].figures["over"]["product"]["held"]) == 600_000
