"""Trades that move money, for the stories and the comparisons of RISK-003 and RISK-004."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from memory.core.facts import CustomerRows, TradeFact
from tests.risk.rules.build import at, make_customer, make_product, make_rows, make_trade

USD: dict[str, Any] = {"currency": "USD", "fx_cny": Decimal(7), "fx_usd": Decimal(1)}
EUR: dict[str, Any] = {"currency": "EUR", "fx_cny": Decimal(8), "fx_usd": Decimal("1.25")}
CASH: dict[str, Any] = {"settle_method": "cash"}
ABROAD: dict[str, Any] = {"cross_border": True}
ENTITY: dict[str, Any] = {"customers": [make_customer(kind="entity")]}


def moved(amount: str | int | Decimal, clock: str = "12:00:00", day: str = "2026-06-15", **fields: Any) -> TradeFact:
    """A domestic transfer of a purchase in CNY, at 0.14 dollars for a yuan; its id is its time unless given."""
    fields.setdefault("trade_id", f"{day[5:]}-{clock}")
    return make_trade(day, amount=str(amount), clock=clock, **fields)


# --- for the comparisons: everything near an edge, so that most examples hit something or just miss it ---------------

_EDGES = ("50000", "10000", "200000", "500000", "100000", "2000000")
_FLOWS: list[tuple[dict[str, Any], str, str]] = [
    ({"settle_method": method, "cross_border": abroad, "trade_types": types}, yuan, dollars)
    for method, abroad, yuan, dollars in (
        ("cash", True, "50000", "10000"), ("transfer", True, "200000", "10000"),
        ("transfer", False, "500000", "100000"), ("", None, "2000000", "200000"),
    )
    for types in (("buy", "transfer_in"), ("sell", "transfer_out"))
]  # fmt: skip
_BASE = at("2026-02-27", "00:00:00")  # a month end lies within the days below
_MICRO = timedelta(microseconds=1)
_MOMENTS = sorted(
    {
        _BASE + timedelta(hours=hours) + nudge
        for hours in (0, 1, 12, 24, 48, 71, 72, 73, 96, 120)
        for nudge in (-_MICRO, timedelta(0), _MICRO)
    }
)


@st.composite
def _amounts(draw: st.DrawFn) -> Decimal:
    """A limit, or a part of it that others make whole, and the smallest step to either side."""
    limit = Decimal(draw(st.sampled_from(_EDGES)))
    share = draw(st.sampled_from(("1", "0.8", "0.5", "0.25", "0.9", "0.125")))
    step = draw(st.sampled_from(("0", "0", "0.01", "-0.01", "0.00000001", "-0.00000001")))
    return limit * Decimal(share) + Decimal(step)


@st.composite
def _trades(draw: st.DrawFn) -> TradeFact:
    currency, fx_cny, fx_usd = draw(
        st.sampled_from(
            [("CNY", "1", "0.125")] * 5
            + [("USD", "8", "1")] * 3
            + [("EUR", "10", "1.25"), ("CNY", "1", None), ("USD", "8", None), ("CNY", None, "0.125"), ("", "1", "1")]
        )
    )
    return make_trade(
        trade_id=draw(st.sampled_from(("a", "B", "é", "9", "10", "t1", "t2", "t3", "t4", "t5", "t6", "t7"))),
        version=draw(st.sampled_from((1, 1, 1, 2, 3))),
        amount=str(draw(_amounts())),
        traded_at=draw(st.sampled_from(_MOMENTS)),
        trade_type=draw(
            st.sampled_from(("buy",) * 4 + ("transfer_in", "sell", "transfer_out", "switch_in", "dividend", "interest"))
        ),
        currency=currency,
        fx_cny=None if fx_cny is None else Decimal(fx_cny),
        fx_usd=None if fx_usd is None else Decimal(fx_usd),
        settle_method=draw(st.sampled_from(("transfer", "transfer", "cash", ""))),
        cross_border=draw(st.sampled_from((False, False, True, None))),
        plan_id=draw(st.sampled_from(("", "", "", "s1"))),
        status=draw(st.sampled_from(("executed",) * 6 + ("cancelled", "reversed"))),
        price=draw(st.sampled_from((Decimal(1), Decimal(1), Decimal(1), None))),
        customer_id=draw(st.sampled_from(("c1",) * 7 + ("c2",))),
    )


@st.composite
def _streaks(draw: st.DrawFn) -> list[TradeFact]:
    """One category and direction, each amount at an edge of its limit, in yuan and dollars; now and then a stranger."""
    flow, yuan, dollars = draw(st.sampled_from(_FLOWS))
    share = draw(st.sampled_from((("0.8", "0.9", "0.99"), ("0.8", "1"), ("0.1", "0.25", "0.5"))))
    found = []
    for number in range(draw(st.integers(3, 13))):
        currency, fx_cny, limit = draw(st.sampled_from((("CNY", "1", yuan), ("CNY", "1", yuan), ("USD", "8", dollars))))
        step = draw(st.sampled_from(("0", "0", "0", "0.01", "-0.01", "-0.00000001")))
        found.append(
            make_trade(
                trade_id=draw(st.sampled_from("aBé9tZ")) + str(number),
                amount=str(Decimal(limit) * Decimal(draw(st.sampled_from(share))) + Decimal(step)),
                traded_at=draw(st.sampled_from(_MOMENTS)),
                trade_type=draw(st.sampled_from(flow["trade_types"])),
                currency=currency,
                fx_cny=Decimal(fx_cny),
                fx_usd=Decimal("0.125") * Decimal(fx_cny),
                settle_method=flow["settle_method"],
                cross_border=flow["cross_border"],
                plan_id=draw(st.sampled_from(("",) * 9 + ("s1",))),
            )
        )
    return found + draw(st.lists(_trades(), max_size=2))


@st.composite
def customers(draw: st.DrawFn) -> CustomerRows:
    """A customer with up to fourteen trades in five days: of all kinds, or most of one flow with amounts about one
    limit, so that sums and windows fill."""
    trades = draw(st.one_of(st.lists(_trades(), min_size=1, max_size=14), _streaks()))
    # A delivery has each version of a trade once.
    unique = {(trade.trade_id, trade.version): trade for trade in trades}
    kinds = draw(
        st.sampled_from(
            [
                [make_customer()],
                [make_customer(kind="entity")],
                [make_customer(kind="")],
                [make_customer(), make_customer(kind="entity", valid_from=_BASE + timedelta(hours=12))],
                [make_customer(valid_from=_BASE)],
            ]
        )
    )
    return make_rows(unique.values(), customers=kinds, products=[make_product()])


def shuffled(rows: CustomerRows, order: list[int]) -> CustomerRows:
    """The same rows in another order."""
    return replace(rows, trades=tuple(rows.trades[index] for index in order))


def instants(count: int, apart: timedelta) -> list[datetime]:
    """So many instants, evenly apart."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [start + apart * number for number in range(count)]
