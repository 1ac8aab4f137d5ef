"""Values of a core that cannot be read: a finding for that trade, no crash, no silence, and nobody else's loss."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from memory.core.facts import TradeFact
from memory.core.selectors import assembled
from memory.core.soundness import LAST_VERSION, all_sound, told_apart, unreadable
from risk.rules.engine import default_rules, evaluate
from risk.rules.facts import Facts
from risk.rules.hit import DATA_QUALITY
from tests.risk.rules.build import CUSTOMER, judge, make_rows, make_trade

REFUSED: list[tuple[str, Any]] = [
    ("trade_id", "x" * 70), ("trade_id", None),
    ("version", None), ("version", -1), ("version", 10**9),
    ("product_id", "p" * 65), ("advisor_id", "a" * 65), ("plan_id", "n" * 65), ("dual_recording_id", "r" * 65),
    ("trade_type", "borrow"), ("trade_type", None), ("trade_type", ""), ("trade_type", "BUY"),
    ("status", "settled"), ("status", None),
    ("traded_at", None), ("traded_at", datetime(9999, 12, 31, 23, tzinfo=UTC)),
    ("traded_at", datetime(900, 1, 1, tzinfo=UTC)),
    ("amount", None), ("amount", Decimal(-5)),
    ("currency", "cny"), ("currency", "RMBX"),
    ("fx_cny", Decimal(0)), ("fx_cny", Decimal(-1)), ("fx_usd", Decimal(0)), ("fx_usd", Decimal("-0.1")),
    ("channel", "fax"), ("settle_method", "CASH"),
]  # fmt: skip


def with_value(trade: TradeFact, column: str, value: Any) -> TradeFact:
    changed: dict[str, Any] = {column: value}
    return replace(trade, **changed)


@pytest.mark.parametrize(("column", "value"), REFUSED)
def test_what_the_importer_refuses_is_a_finding_and_no_history(column: str, value: Any) -> None:
    sound = make_trade("2026-06-15", trade_id="t1")
    odd = with_value(make_trade("2026-06-16", trade_id="t2"), column, value)
    assert unreadable(odd) == (column,)
    assert not all_sound([sound, odd])
    facts = Facts(make_rows([odd, sound]))
    assert [trade.fact for trade in facts.trades] == [sound]
    [hit] = [hit for hit in judge([odd, sound]).hits if hit.rule_id == DATA_QUALITY]
    assert (hit.subtypes, hit.figures["unreadable"]) == (("unreadable_value",), [column])
    assert 0 < len(hit.trade_id) <= 64
    assert 0 <= hit.trade_version <= LAST_VERSION
    assert judge([odd, sound]).final_trades[hit.trade_id].status == "executed"
    others = [hit for hit in judge([odd, sound]).hits if hit.rule_id != DATA_QUALITY]
    assert others == [hit for hit in judge([sound]).hits if hit.rule_id != DATA_QUALITY]


@pytest.mark.parametrize(
    "column", ["product_id", "advisor_id", "channel", "plan_id", "mismatch_confirm_id", "currency"]
)
def test_null_in_a_text_that_may_be_empty_is_no_evidence(column: str) -> None:
    odd = with_value(make_trade(), column, None)
    empty = make_trade(**{column: ""})
    assert judge([odd]).hits == judge([empty]).hits


def test_a_product_that_is_null_is_missing_and_the_chunk_goes_on() -> None:
    odd, other = with_value(make_trade(trade_id="t1"), "product_id", None), make_trade(trade_id="t2", customer_id="c2")
    rows = assembled([CUSTOMER, "c2"], [odd, other], [], [], [], [])
    assert [row.trade_id for row in rows["c2"].trades] == ["t2"]
    [hit] = evaluate(rows[CUSTOMER], default_rules()).hits
    assert "missing_product" in hit.subtypes


def test_a_cancelled_trade_is_no_finding_and_a_mended_version_counts() -> None:
    assert not Facts(make_rows([make_trade(status="cancelled", amount=-1)])).faults
    mended = [make_trade(trade_id="t1", currency="cny"), make_trade(trade_id="t1", version=2)]
    facts = Facts(make_rows(mended))
    assert (len(facts.trades), facts.faults) == (1, ())


def test_sound_trades_are_given_back_as_they_are() -> None:
    trades: tuple[TradeFact, ...] = (make_trade(), make_trade(trade_id="t9", currency="", fx_usd=None, price=None))
    assert told_apart(trades)[0] is trades
    assert all(unreadable(trade) == () for trade in trades)
