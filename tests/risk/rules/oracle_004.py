"""RISK-004 read a second time from the specification, slowly: for every trade all others are looked at.

`structured` gives {evidence key: (score, subtypes)}. Which trades stand and what limits they have is the second
reading of RISK-003.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from memory.core.facts import CustomerRows, TradeFact
from tests.risk.rules.oracle_003 import Found, category, comparable, direction, limits, not_after, standing


def near(rows: CustomerRows, trade: TradeFact) -> bool:
    yuan, dollars = limits(rows, trade)
    if trade.currency == "CNY":
        return yuan * 8 <= trade.amount * Decimal(trade.fx_cny or 0) * 10 < yuan * 10
    return dollars * 8 <= trade.amount * Decimal(trade.fx_usd or 0) * 10 < dollars * 10


def structured(rows: CustomerRows) -> Found:
    found: Found = {}
    candidates = [
        trade
        for trade in standing(rows)
        if direction(trade) and comparable(trade) and trade.plan_id == "" and near(rows, trade)
    ]
    for last in candidates:
        together = 0
        for other in candidates:
            same = (direction(other), category(other)) == (direction(last), category(last))
            apart = last.traded_at - other.traded_at
            if same and not_after(other, last) and apart <= timedelta(days=3):
                together += 1
        if together >= 3:
            points = 60 + 5 * (together - 3)
            if points > 85:
                points = 85
            if last.settle_method == "cash":
                points += 10
            found[f"{last.trade_id}@{last.version}"] = (points, ("structuring",))
    return found
