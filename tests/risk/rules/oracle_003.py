"""RISK-003 read a second time from the specification, slowly: every sum is added up anew for every trade.

Nothing of risk.rules is used. `large_amounts` gives {evidence key: (score, subtypes)}.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any
from zoneinfo import ZoneInfo

from memory.core.facts import CustomerRows, TradeFact

SHANGHAI = ZoneInfo("Asia/Shanghai")
# category, is an entity: CNY, USD
LIMITS = {
    ("cash", False): ("50000", "10000"),
    ("cash", True): ("50000", "10000"),
    ("cross_border", False): ("200000", "10000"),
    ("domestic", False): ("500000", "100000"),
    ("cross_border", True): ("2000000", "200000"),
    ("domestic", True): ("2000000", "200000"),
}
Found = dict[str, tuple[int, tuple[str, ...]]]


def in_force(rows: Any, moment: datetime) -> Any:
    begun = [row for row in rows if row.valid_from <= moment]
    return max(begun, key=lambda row: row.valid_from) if begun else None


def standing(rows: CustomerRows) -> list[TradeFact]:
    """The final versions that were executed and lack nothing that every rule needs."""
    found = []
    for trade in rows.trades:
        if any(other.trade_id == trade.trade_id and other.version > trade.version for other in rows.trades):
            continue
        if trade.status != "executed" or trade.customer_id != rows.customer_id or trade.fx_cny is None:
            continue
        if trade.trade_type in ("buy", "sell", "switch_in", "switch_out") and trade.price is None:
            continue
        products = [product for product in rows.products if product.product_id == trade.product_id]
        if in_force(rows.customers, trade.traded_at) is None or in_force(products, trade.traded_at) is None:
            continue
        found.append(trade)
    return found


def direction(trade: TradeFact) -> str | None:
    if trade.trade_type in ("buy", "transfer_in"):
        return "in"
    return "out" if trade.trade_type in ("sell", "transfer_out") else None


def category(trade: TradeFact) -> str:
    if trade.settle_method == "cash":
        return "cash"
    return "cross_border" if trade.cross_border is True else "domestic"


def comparable(trade: TradeFact) -> bool:
    return trade.currency == "CNY" or (trade.currency != "" and trade.fx_usd is not None)


def limits(rows: CustomerRows, trade: TradeFact) -> tuple[Decimal, Decimal]:
    entity = in_force(rows.customers, trade.traded_at).kind == "entity"
    cny, usd = LIMITS[(category(trade), entity)]
    return Decimal(cny), Decimal(usd)


def not_after(trade: TradeFact, other: TradeFact) -> bool:
    here, there = trade.trade_id.encode(), other.trade_id.encode()
    return trade.traded_at < other.traded_at or (trade.traded_at == other.traded_at and here <= there)


def large_amounts(rows: CustomerRows) -> Found:
    with localcontext() as context:
        context.prec = 100
        return _large_amounts(rows)


def _large_amounts(rows: CustomerRows) -> Found:
    moving = [trade for trade in standing(rows) if direction(trade) and comparable(trade)]
    found: Found = {}
    for trade in moving:
        day = trade.traded_at.astimezone(SHANGHAI).strftime("%Y-%m-%d")
        group = [
            other
            for other in moving
            if other.traded_at.astimezone(SHANGHAI).strftime("%Y-%m-%d") == day
            and (direction(other), category(other)) == (direction(trade), category(trade))
            and not_after(other, trade)
        ]
        limit_cny, limit_usd = limits(rows, trade)
        in_cny = [other for other in group if other.currency == "CNY"]
        foreign = [other for other in group if other.currency != "CNY"]
        yuan = sum((other.amount * other.fx_cny for other in in_cny), Decimal(0))  # type: ignore[operator]
        dollars = sum((other.amount * other.fx_usd for other in foreign), Decimal(0))  # type: ignore[operator]
        if yuan >= limit_cny or dollars >= limit_usd:
            hit = yuan >= limit_cny if trade.currency == "CNY" else dollars >= limit_usd
        elif in_cny and foreign:
            all_yuan = sum((other.amount * other.fx_cny for other in group), Decimal(0))  # type: ignore[operator]
            rated = [other for other in group if other.fx_usd is not None]
            all_dollars = sum((other.amount * other.fx_usd for other in rated), Decimal(0))  # type: ignore[operator]
            hit = all_yuan >= limit_cny or all_dollars >= limit_usd
        else:
            hit = False
        if hit:
            key = f"{category(trade)}:{direction(trade)}:{trade.trade_id}@{trade.version}"
            found[key] = (30 if category(trade) == "domestic" else 35, ("large_amount",))
    return found


def without_limits(rows: CustomerRows) -> dict[str, str]:
    """`trade_id@version` of the trades that cannot be held against a limit in dollars: what they lack."""
    found = {}
    for trade in standing(rows):
        if direction(trade) is None:
            continue
        key = f"{trade.trade_id}@{trade.version}"
        if trade.currency == "":
            found[key] = "missing_currency"
        elif trade.fx_usd is None and any(
            other.currency not in ("", "CNY")
            and (direction(other), category(other)) == (direction(trade), category(trade))
            and other.traded_at.astimezone(SHANGHAI).date() == trade.traded_at.astimezone(SHANGHAI).date()
            for other in standing(rows)
        ):
            found[key] = "missing_rate"
    return found
