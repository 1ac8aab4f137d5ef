"""RISK-006 unusual trading: a trade that does not fit what this customer did before.

Sources: 金融机构大额交易和可疑交易报告管理办法 (PBOC Order 2016 No. 3) arts. 11 and 12: suspicion is reported whatever
the amount, and the firm sets its own standards over amount, frequency, flow and conduct out of line. It leaves the
figures to the firm: all of them are judgement, hence parameters.

Parts add up, at most 90; a hit only from 40, so an odd hour never alone. Key: `trade_id@version`.

The rule's trades are buys, sells, switches and transfers, in (buy, switch_in, transfer_in) or out (sell, switch_out,
transfer_out). Plans, cash-like products (as of the trade), dividends and interest are neither subject nor history;
history is what is earlier by (traded_at, trade_id).

Readings taken where the words leave a choice:
- dormant_reactivated: at least 180 x 24 h since the last of the rule's trades. The first ever is not dormant.
- fast_in_out: a sale is a sell or a switch_out, bought is a buy or a switch_in: a switch is a sale of one product and
  a purchase of another, a transfer is neither (it moves the queue, but is no lot and no sale). The window is
  [t-7 d, t], a purchase exactly at t-7 d is in it. See lots.py for the queue; what was held before counts plans too,
  for they are held, while within the window they are no history. The share is of the lot as bought.
- size_outlier: the median of the earlier trades in the same direction within [t-365 d, t], of all products, the trade
  itself not among them; of an even count the mean of the two in the middle.
- odd_hour: local time from 00:00:00 to just before 05:00:00; the earlier trades are all of them, without a window.
- Professionals and entities are judged too: the text exempts professionals from 001 and 007 only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from config.base.clock import business_zone
from risk.rules.facts import Facts, Trade
from risk.rules.hit import Hit
from risk.rules.lots import INCOMING, OUTGOING, Lots, Taken, units_of
from risk.rules.numbers import TICK, cents, money, ratio, score

RULE_ID = "RISK-006"
DORMANT = "dormant_reactivated"
FAST = "fast_in_out"
SIZE = "size_outlier"
ODD_HOUR = "odd_hour"

BOUGHT = frozenset({"buy", "switch_in"})
SOLD = frozenset({"sell", "switch_out"})


@dataclass(frozen=True)
class Params:
    """Days, CNY, shares from 0 to 1, local hours, points; all judgement.

    dormant_*: no trade for so many days, then one of so much.
    fast_*: a sale of so much takes such a share of one lot bought so few days ago.
    size_*: so many times the median of at least so many trades in the same direction, and so much.
    odd_*: before this local hour, where of at least so many earlier trades at most such a share was then.
    cap: of the sum. hit_from: below it nothing is found.
    """

    dormant_days: int = 180
    dormant_amount: int = 50_000
    dormant_points: int = 45
    fast_days: int = 7
    fast_share: Fraction = Fraction(80, 100)
    fast_amount: int = 100_000
    fast_points: int = 50
    size_days: int = 365
    size_trades: int = 8
    size_times: Fraction = Fraction(5)
    size_amount: int = 100_000
    size_points: int = 40
    odd_until_hour: int = 5
    odd_trades: int = 20
    odd_share: Fraction = Fraction(5, 100)
    odd_points: int = 20
    cap: int = 90
    hit_from: int = 40


@dataclass(frozen=True, slots=True)
class _Part:
    """One subtype that is true of a trade. points: what it adds. figures: what was compared."""

    points: int
    figures: dict[str, Any]


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of trades. Near linear: running counts, a sorted window, one queue a product
    that has a large sale."""
    subjects = [trade for trade in facts.trades if is_subject(trade)]
    least = min(params.dormant_amount, params.fast_amount, params.size_amount)
    if params.odd_points < params.hit_from and not any(trade.ticks >= least * TICK for trade in subjects):
        return []  # an odd hour alone is no hit
    fast = _Fast(facts, subjects, params)
    sizes = _Sizes(subjects, params)
    hours = _Hours(params)
    hits = []
    previous: Trade | None = None
    # Below this no part but the odd hour can be true, which is no hit by itself: only remembered.
    judged_from = least * TICK if params.odd_points < params.hit_from else None
    for trade in subjects:
        if judged_from is not None and trade.ticks < judged_from:
            sizes.remember(trade)
            hours.remember(trade)
            previous = trade
            continue
        found = {
            DORMANT: _dormant(trade, previous, params),
            FAST: fast.judge(trade),
            SIZE: sizes.judge(trade),
            ODD_HOUR: hours.judge(trade),
        }
        parts = {name: part for name, part in found.items() if part is not None}
        points = min(sum(part.points for part in parts.values()), params.cap)
        if parts and points >= params.hit_from:
            hits.append(_hit(trade, points, parts, params, version))
        previous = trade
    return hits


def is_subject(trade: Trade) -> bool:
    """One of the rule's trades."""
    known = trade.fact.trade_type in INCOMING or trade.fact.trade_type in OUTGOING
    return known and not trade.fact.plan_id and not trade.product.is_cash_like


def direction_of(trade: Trade) -> str:
    return "in" if trade.fact.trade_type in INCOMING else "out"


def _dormant(trade: Trade, previous: Trade | None, params: Params) -> _Part | None:
    if previous is None or trade.ticks < params.dormant_amount * TICK:
        return None
    idle = trade.fact.traded_at - previous.fact.traded_at
    if idle < timedelta(days=params.dormant_days):
        return None
    figures = {"idle_days": idle.days, "last_traded_on": previous.day.isoformat(), "limit_days": params.dormant_days}
    return _Part(params.dormant_points, figures)


class _Fast:
    """Sales that take most of a fresh lot."""

    def __init__(self, facts: Facts, subjects: Sequence[Trade], params: Params) -> None:
        self._params = params
        asked = {trade.fact.product_id for trade in subjects if self._is_large_sale(trade)}
        moves: dict[str, list[Trade]] = defaultdict(list)
        if asked:
            for trade in facts.trades:
                if trade.fact.product_id in asked:
                    moves[trade.fact.product_id].append(trade)
        self._lots = {
            product_id: Lots(
                facts,
                product_id,
                found,
                counts=is_subject,
                is_lot=lambda trade: trade.fact.trade_type in BOUGHT,
            )
            for product_id, found in moves.items()
        }

    def _is_large_sale(self, trade: Trade) -> bool:
        return trade.fact.trade_type in SOLD and trade.ticks >= self._params.fast_amount * TICK

    def judge(self, trade: Trade) -> _Part | None:
        if not self._is_large_sale(trade):
            return None
        params = self._params
        since = trade.fact.traded_at - timedelta(days=params.fast_days)
        taken = self._lots[trade.fact.product_id].taken(trade, since)
        if taken is None or taken.share < params.fast_share:
            return None
        return _Part(params.fast_points, self._figures(taken))

    def _figures(self, taken: Taken) -> dict[str, Any]:
        return {
            "lot_trade_id": taken.lot.fact.trade_id,
            "lot_bought_on": taken.lot.day.isoformat(),
            "lot_units": money(units_of(taken.lot)),
            "units_taken": money(taken.units),
            "share": ratio(taken.share),
            "limit": ratio(self._params.fast_share),
            "limit_days": self._params.fast_days,
        }


class _Window:
    """Amounts of the last days in one direction, as whole numbers of 1/TICK CNY, sorted."""

    def __init__(self, days: int) -> None:
        self._span = timedelta(days=days)
        self._entries: list[tuple[datetime, int]] = []
        self._oldest = 0
        self._sorted: list[int] = []

    def add(self, at: datetime, amount: int) -> None:
        self._entries.append((at, amount))
        insort(self._sorted, amount)

    def sorted_at(self, moment: datetime) -> Sequence[int]:
        """What is not older than the window at this moment."""
        since = moment - self._span
        while self._oldest < len(self._entries) and self._entries[self._oldest][0] < since:
            amount = self._entries[self._oldest][1]
            del self._sorted[bisect_left(self._sorted, amount)]
            self._oldest += 1
        return self._sorted


class _Sizes:
    """Amounts far above what the customer is used to, each direction by itself. Judges, then remembers."""

    def __init__(self, subjects: Sequence[Trade], params: Params) -> None:
        self._params = params
        self._needed = any(trade.ticks >= params.size_amount * TICK for trade in subjects)
        self._windows = {name: _Window(params.size_days) for name in ("in", "out")}

    def judge(self, trade: Trade) -> _Part | None:
        if not self._needed:
            return None
        direction = direction_of(trade)
        window = self._windows[direction]
        amounts = window.sorted_at(trade.fact.traded_at)
        part = self._judge(trade, amounts, direction) if trade.ticks >= self._params.size_amount * TICK else None
        window.add(trade.fact.traded_at, trade.ticks)
        return part

    def remember(self, trade: Trade) -> None:
        """As `judge` of a trade that is known not to be large."""
        if self._needed:
            self._windows[direction_of(trade)].add(trade.fact.traded_at, trade.ticks)

    def _judge(self, trade: Trade, amounts: Sequence[int], direction: str) -> _Part | None:
        params, count = self._params, len(amounts)
        if not count or count < params.size_trades:
            return None
        median = Fraction(amounts[(count - 1) // 2] + amounts[count // 2], 2 * TICK)
        if trade.amount < params.size_times * median:
            return None
        figures = {
            "median": cents(median),
            "times": ratio(trade.amount / median) if median else None,
            "limit": ratio(params.size_times),
            "trades": count,
            "direction": direction,
            "window_days": params.size_days,
        }
        return _Part(params.size_points, figures)


class _Hours:
    """Trades in the small hours by somebody who hardly ever makes any. Judges, then remembers."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._earlier = 0
        self._odd = 0

    def judge(self, trade: Trade) -> _Part | None:
        params = self._params
        is_odd = trade.hour < params.odd_until_hour
        part = None
        if is_odd and self._earlier >= params.odd_trades and self._odd <= params.odd_share * self._earlier:
            local = trade.fact.traded_at.astimezone(business_zone())
            figures = {
                "local_time": f"{local:%H:%M:%S}",
                "earlier": self._earlier,
                "earlier_then": self._odd,
                "share": ratio(Fraction(self._odd, self._earlier)) if self._earlier else None,
                "limit": ratio(params.odd_share),
                "until_hour": params.odd_until_hour,
            }
            part = _Part(params.odd_points, figures)
        self.remember(trade)
        return part

    def remember(self, trade: Trade) -> None:
        """It is one of the earlier trades from now on."""
        self._earlier += 1
        self._odd += trade.hour < self._params.odd_until_hour


def _hit(trade: Trade, points: int, parts: dict[str, _Part], params: Params, version: int) -> Hit:
    figures: dict[str, Any] = {
        "amount": money(trade.amount),
        "trade_type": trade.fact.trade_type,
        **{name: part.figures for name, part in parts.items()},
        "cap": params.cap,
        "parts": {name: part.points for name, part in parts.items()},
    }
    return trade.hit(RULE_ID, version, score=score(points), subtypes=tuple(parts), figures=figures)
