"""RISK-007 against a second reading of its words, on data that is all edges; and what a long history costs."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.core.facts import AssessmentFact, CustomerRows
from risk.rules.engine import Rule, evaluate, rule_with
from tests.risk.rules.build import (
    CUSTOMER,
    SHANGHAI,
    at,
    make_customer,
    make_product,
    make_rows,
    make_snapshot,
    make_trade,
)
from tests.risk.rules.oracle_007 import verdict
from tests.risk.rules.test_risk_007 import DISCLOSED, PAPERS, RECORDED

PRODUCTS = [
    make_product("cash", 1, asset_class="cash", is_cash_like=True),
    make_product("r2", 2), make_product("r4", 4), make_product("r5", 5, is_complex=True),
    make_product("u", 3, is_complex=None), make_product("c1", 1, is_complex=True),
    make_product("later", 3), replace(make_product("later", 4, is_complex=True), valid_from=at("2026-03-01")),
]  # fmt: skip
# Instants at which everything happens: days around month ends, a leap day and birthdays, each at edges of days and
# of windows of seven days and twelve months.
DAYS = ["2025-02-27", "2025-02-28", "2025-03-01", "2025-03-06", "2025-03-07", "2025-03-08",
        "2026-02-27", "2026-02-28", "2026-03-01", "2026-03-07", "2026-03-08"]  # fmt: skip
CLOCKS = ["00:00:00", "07:59:59.999999", "08:00:00", "12:00:00", "12:00:00.000001", "23:59:59.999999"]
instants = st.builds(at, st.sampled_from(DAYS), st.sampled_from(CLOCKS))
trades_ = st.lists(
    st.builds(
        lambda number, when, product, amount, kind, status, plan, version, price, papers: replace(
            make_trade(product=product, amount=amount, trade_id=number, trade_type=kind, status=status, plan_id=plan,
                       version=version, price=price, **papers), traded_at=when,
        ),
        st.sampled_from(["a", "b", "B", "é", "c", "d", "e", "f"]), instants,
        st.sampled_from(["cash", "r2", "r4", "r5", "u", "c1", "later"]),
        st.sampled_from([0, 20_000, Decimal("19999.99"), 25_000]),
        st.sampled_from(["buy", "buy", "buy", "switch_in", "sell", "transfer_in", "switch_out"]),
        st.sampled_from(["executed", "executed", "executed", "cancelled"]), st.sampled_from(["", "", "s1"]),
        st.integers(1, 2), st.sampled_from([Decimal(1), Decimal(1), Decimal(1), None]),
        st.sampled_from([{}, RECORDED, DISCLOSED, PAPERS]),
    ),
    max_size=10, unique_by=lambda trade: (trade.trade_id, trade.version),
)  # fmt: skip
assessments_ = st.lists(
    st.builds(lambda when, level: AssessmentFact(CUSTOMER, when, level, None), instants, st.integers(1, 5)),
    max_size=24, unique_by=lambda row: row.assessed_at,
)  # fmt: skip
customers_ = st.builds(
    lambda born, kind, first, second: [
        make_customer(birth_date=born, kind=kind, investor_type=first),
        make_customer(birth_date=born, kind=kind, investor_type=second, valid_from=at("2025-03-07", "00:00:00")),
    ],
    st.sampled_from([None, date(1960, 2, 29), date(1960, 3, 1), date(1950, 2, 28), date(1951, 3, 1), date(1961, 3, 8)]),
    st.sampled_from(["natural", "natural", "entity", ""]),
    st.sampled_from(["ordinary", "ordinary", "", "professional"]), st.sampled_from(["ordinary", "professional"]),
)  # fmt: skip
positions_ = st.sampled_from([
    [], make_snapshot("2025-02-28", r2=80_000), make_snapshot("2025-02-27", cash=100_000),
    [*make_snapshot("2025-02-27", r2=10), *make_snapshot("2026-02-28", cash="99999.99", r5=1)],
])  # fmt: skip


def rule_007() -> list[Rule]:
    return [rule_with("RISK-007", {}, 1)]


def judged(rows: CustomerRows) -> dict[str, tuple[str, int, tuple[str, ...]]]:
    hits = [hit for hit in evaluate(rows, rule_007()).hits if hit.rule_id == "RISK-007"]
    assert len({hit.evidence_key for hit in hits}) == len(hits)
    return {hit.evidence_key: (hit.trade_id, hit.score, hit.subtypes) for hit in hits}


@settings(max_examples=400, deadline=None)
@given(trades_, assessments_, customers_, positions_)
def test_a_second_reading_of_the_words_agrees(trades: Any, assessments: Any, customers: Any, positions: Any) -> None:
    rows = make_rows(
        trades, products=PRODUCTS, assessments=assessments, customers=customers, positions=positions
    )  # fmt: skip
    assert judged(rows) == verdict(rows)


def test_a_long_history_costs_in_proportion() -> None:
    """50,000 trades and 2,000 assessments: seconds, where comparing each with each would be hours."""
    start = datetime(2020, 1, 1, 12, tzinfo=SHANGHAI).astimezone(UTC)
    trades = [
        replace(make_trade(product="r5", trade_id=f"t{number:06d}"), traded_at=start + timedelta(minutes=20 * number))
        for number in range(50_000)
    ]
    assessments = [
        AssessmentFact(CUSTOMER, start + timedelta(days=number), 1 + number % 5, None) for number in range(2_000)
    ]
    rows = make_rows(trades, products=PRODUCTS, assessments=assessments)
    begun = time.process_time()
    hits = evaluate(rows, rule_007()).hits
    assert len(hits) > 49_000
    assert time.process_time() - begun < 20
