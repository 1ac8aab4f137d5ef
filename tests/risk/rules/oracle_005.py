"""A second reading of RISK-005, from the specification's words alone: every window walked trade by trade.

Nothing of risk.rules is used. Slow on purpose: O(n) for each trade, and a replay of the holdings for each month.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

from memory.core.facts import CustomerRows, TradeFact

CHINA = timezone(timedelta(hours=8))


def newest_row(rows: Any, moment: datetime) -> Any:
    """Of dated rows the one in force at the moment."""
    begun = [row for row in rows if row.valid_from <= moment]
    return max(begun, key=lambda row: row.valid_from) if begun else None


def product_of(rows: CustomerRows, trade: TradeFact) -> Any:
    return newest_row([row for row in rows.products if row.product_id == trade.product_id], trade.traded_at)


def judged_trades(rows: CustomerRows) -> list[TradeFact]:
    """Final, executed, this customer's, with all that a trade needs; ordered by time, then the id's bytes."""
    kept = []
    for trade in rows.trades:
        if any(other.trade_id == trade.trade_id and other.version > trade.version for other in rows.trades):
            continue
        if trade.status != "executed" or trade.customer_id != rows.customer_id:
            continue
        if trade.trade_type in ("buy", "sell", "switch_in", "switch_out") and trade.price is None:
            continue
        if (
            trade.fx_cny is None
            or product_of(rows, trade) is None
            or newest_row(rows.customers, trade.traded_at) is None
        ):
            continue
        kept.append(trade)
    return sorted(kept, key=lambda trade: (trade.traded_at, trade.trade_id.encode()))


def cny(trade: TradeFact, value: Decimal) -> Fraction:
    assert trade.fx_cny is not None
    return Fraction(value) * Fraction(trade.fx_cny)


def local_day(moment: datetime) -> date:
    return moment.astimezone(CHINA).date()


def rounded(points: Fraction) -> int:
    whole = points.numerator // points.denominator
    return whole + 1 if points - whole >= Fraction(1, 2) else whole


def held_at_close(rows: CustomerRows, trades: list[TradeFact], day: date) -> Fraction | None:
    """All positions with cash at 24:00 of the day."""
    days = [position.as_of for position in rows.positions if position.as_of <= day]
    if not days:
        return None
    newest = max(days)
    held: dict[str, Fraction] = {}
    for position in rows.positions:
        if position.as_of == newest:
            held[position.product_id] = max(Fraction(0), Fraction(position.market_value))
    for trade in trades:
        if not newest < local_day(trade.traded_at) <= day:
            continue
        before = held.get(trade.product_id, Fraction(0))
        if trade.trade_type in ("buy", "switch_in", "transfer_in"):
            held[trade.product_id] = before + cny(trade, trade.amount)
        if trade.trade_type in ("sell", "switch_out", "transfer_out"):
            held[trade.product_id] = max(Fraction(0), before - cny(trade, trade.amount))
    return sum(held.values(), Fraction(0))


def churning(rows: CustomerRows) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Evidence key, trade id, score and subtypes of each hit, in order."""
    trades = judged_trades(rows)
    found: dict[str, tuple[str, str, int, tuple[str, ...]]] = {}
    for number, trade in enumerate(trades):
        t = trade.traded_at
        past = [other for other in trades[: number + 1] if other.traded_at >= t - timedelta(days=365)]
        counted = [
            other for other in past
            if other.trade_type == "buy" and not other.plan_id and not product_of(rows, other).is_cash_like
        ]  # fmt: skip
        if trade not in counted or len(counted) < 6:
            continue
        opened = newest_row(rows.customers, t).opened_at
        if opened is None or t < opened + timedelta(days=90):
            continue
        closes = []
        day = local_day(t - timedelta(days=366))
        while day <= local_day(t):
            is_month_end = (day + timedelta(days=1)).day == 1
            midnight = datetime(day.year, day.month, day.day, tzinfo=CHINA) + timedelta(days=1)
            if is_month_end and t - timedelta(days=365) <= midnight <= t:
                held = held_at_close(rows, trades, day)
                if held is not None:
                    closes.append(held)
            day += timedelta(days=1)
        if not closes:
            continue
        equity = sum(closes, Fraction(0)) / len(closes)
        if equity < 50_000:
            continue
        days = Fraction(int((t - opened) / timedelta(microseconds=1)), 24 * 3600 * 1_000_000)
        yearly = Fraction(365) / days if days < 365 else Fraction(1)
        turnover = sum((cny(other, other.amount) for other in counted), Fraction(0)) / equity * yearly
        cost = sum((cny(other, other.fee) for other in past if other.fee is not None), Fraction(0)) / equity * yearly
        parts = []
        if turnover >= 6:
            parts.append(("churning_turnover", min(Fraction(90), 60 + 5 * (turnover - 6))))
        if cost >= Fraction(1, 5):
            parts.append(("churning_cost", min(Fraction(90), 60 + 100 * (cost - Fraction(1, 5)))))
        if not parts:
            continue
        points = max(value for _name, value in parts) + (5 if len(parts) == 2 else 0)
        given = [other.solicited for other in counted if other.solicited is not None]
        if given and Fraction(sum(given), len(given)) < Fraction(1, 2):
            points -= 20
        key = f"{rows.customer_id}:{local_day(t):%Y-%m}"
        found.setdefault(key, (key, trade.trade_id, rounded(points), tuple(name for name, _value in parts)))
    return list(found.values())
