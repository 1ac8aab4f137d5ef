"""A second reading of RISK-006, from the specification's words alone: each trade looks back over all before it, and
each sale replays its week with a list of lots."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from statistics import median

from memory.core.facts import CustomerRows, TradeFact
from tests.risk.rules.oracle_005 import CHINA, cny, judged_trades, local_day, product_of

INWARD = ("buy", "switch_in", "transfer_in")
OUTWARD = ("sell", "switch_out", "transfer_out")
WEEK = timedelta(days=7)


def quantity(trade: TradeFact) -> Fraction:
    return Fraction(trade.quantity) if trade.quantity is not None and trade.quantity > 0 else Fraction(0)


def held_before(rows: CustomerRows, trades: list[TradeFact], product_id: str, moment: datetime) -> Fraction:
    """Units of a product just before the moment: the newest snapshot closed by then, and what was traded since."""
    midnights = {
        position.as_of: datetime(
            position.as_of.year, position.as_of.month, position.as_of.day, 23, 59, 59, tzinfo=CHINA
        )
        + timedelta(seconds=1)
        for position in rows.positions
    }
    closed = [day for day, midnight in midnights.items() if midnight <= moment]
    held = Fraction(0)
    for position in rows.positions:
        if closed and position.as_of == max(closed) and position.product_id == product_id and position.quantity:
            held = max(Fraction(0), Fraction(position.quantity))
    for trade in trades:
        if trade.product_id != product_id or trade.traded_at >= moment:
            continue
        if closed and local_day(trade.traded_at) <= max(closed):
            continue
        if trade.trade_type in INWARD:
            held += quantity(trade)
        if trade.trade_type in OUTWARD:
            held = max(Fraction(0), held - quantity(trade))
    return held


def takes_a_fresh_lot(rows: CustomerRows, trades: list[TradeFact], mine: list[TradeFact], sale: TradeFact) -> bool:
    since = sale.traded_at - WEEK
    week = [other for other in mine if other.product_id == sale.product_id and other.traded_at >= since]
    week = week[: week.index(sale)]
    # lots as [units left, units bought (None: not bought in this week)]
    queue: list[list[Fraction | None]] = [[held_before(rows, trades, sale.product_id, since), None]]

    def take(units: Fraction) -> bool:
        fresh = False
        for lot in queue:
            left = lot[0]
            assert left is not None
            part = min(left, units)
            lot[0] = left - part
            units -= part
            if lot[1] is not None and part >= lot[1] * Fraction(4, 5):
                fresh = True
        return fresh

    for other in week:
        if other.trade_type in INWARD and quantity(other):
            queue.append([quantity(other), quantity(other) if other.trade_type in ("buy", "switch_in") else None])
        elif other.trade_type in OUTWARD:
            take(quantity(other))
    return take(quantity(sale))


def unusual(rows: CustomerRows) -> list[tuple[str, str, int, tuple[str, ...]]]:
    """Evidence key, trade id, score and subtypes of each hit, in order."""
    trades = judged_trades(rows)
    mine = [
        trade for trade in trades
        if trade.trade_type in INWARD + OUTWARD and not trade.plan_id and not product_of(rows, trade).is_cash_like
    ]  # fmt: skip
    found = []
    for number, trade in enumerate(mine):
        t, amount, earlier = trade.traded_at, cny(trade, trade.amount), mine[:number]
        parts: list[tuple[str, int]] = []
        if earlier and t - earlier[-1].traded_at >= timedelta(hours=180 * 24) and amount >= 50_000:
            parts.append(("dormant_reactivated", 45))
        is_large_sale = trade.trade_type in ("sell", "switch_out") and amount >= 100_000
        if is_large_sale and takes_a_fresh_lot(rows, trades, mine, trade):
            parts.append(("fast_in_out", 50))
        side = INWARD if trade.trade_type in INWARD else OUTWARD
        same = [
            cny(other, other.amount)
            for other in earlier
            if other.trade_type in side and other.traded_at >= t - timedelta(days=365)
        ]
        if len(same) >= 8 and amount >= 100_000 and amount >= 5 * median(same):
            parts.append(("size_outlier", 40))
        odd = [other for other in earlier if 0 <= other.traded_at.astimezone(CHINA).hour <= 4]
        if t.astimezone(CHINA).hour <= 4 and len(earlier) >= 20 and 100 * len(odd) <= 5 * len(earlier):
            parts.append(("odd_hour", 20))
        points = min(90, sum(value for _name, value in parts))
        if points >= 40:
            key = f"{trade.trade_id}@{trade.version}"
            found.append((key, trade.trade_id, points, tuple(name for name, _value in parts)))
    return found
