"""RISK-005 churning: so much bought, or so much paid in fees, that the trading serves whoever earns by it.

Sources: 证券法 (2019) art. 57 (4) forbids inducing a client to unnecessary trades for the sake of commission and gives
no figure. A turnover of 6 and a cost of 20 % of the equity a year are the usual measures of reviews for excessive
trading (quantitative suitability, FINRA Rule 2111 .05(c) and the cases decided under it). Scores are judgement.

    turnover = counted buys in [t-365 d, t] / mean equity x annual
    cost     = fees of all trades in [t-365 d, t] / mean equity x annual
    annual   = 365 / days since the account was opened, where that is less than 365; else 1

Tried at each counted buy, at its instant t, with the trades up to it in order. The first of a month that is over a
limit holds the key `customer:YYYY-MM` (local month); if it is cancelled or corrected, the next one over takes it.

Counted: type buy, not cash-like when traded, no plan. Switches are other types; what is reinvested arrives as a
dividend, not as a buy.

Equity: all positions with cash at the close (24:00 local) of each calendar month whose close lies in [t-365 d, t],
the mean of them; a close exactly at t or at t-365 d is in. The snapshot that serves a month is the newest with an
as_of on its last day or before, rolled forward to the close at amount, as `Holdings` does for RISK-002. Months that
close before the first snapshot are left out of the mean; without any month there is no equity: not judged.

Readings taken where the words leave a choice:
- The account's age is exact: t - opened_at of the customer's row in force, at least 90 x 24 h. opened_at not given is
  no evidence of 90 days: not judged.
- Both measures are annualised for a younger account, by exact days.
- A fee is in the trade's currency and counts by its fx_cny; one that is not given is 0. Fees of every trade count,
  of plans, switches and cash-like products too.
- Professionals and entities are judged too: the text exempts professionals from 001 and 007 only.
- The -20 comes off the sum with its +5: of the counted buys in the window with `solicited` given (one at least),
  fewer than half are true.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import accumulate
from typing import Any

from config.base.clock import business_date, business_day_bounds
from memory.profiles.derived import add_months
from risk.rules.facts import Facts, Holdings, Trade
from risk.rules.hit import Hit
from risk.rules.numbers import TICK, cents, exact, money, most_in_all, ratio, score, ticks

RULE_ID = "RISK-005"
TURNOVER = "churning_turnover"
COST = "churning_cost"
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Params:
    """Days, CNY, times and shares a year, points.

    window_days: what is looked back upon, and the year to which a younger account is scaled.
    min_age_days, min_equity, min_buys: below these nothing is judged (judgement).
    turnover_limit, cost_limit: reached from the limit on (usual measures of excessive trading).
    base, *_slope, cap: 60 at the limit, +5 for each further turn, +1 for each further percent, at most 90 a part.
    further_part: for the second subtype (specification, all rules).
    unsolicited_discount: off where less than solicited_share of the buys known were solicited.
    """

    window_days: int = 365
    min_age_days: int = 90
    min_equity: int = 50_000
    min_buys: int = 6
    turnover_limit: Fraction = Fraction(6)
    cost_limit: Fraction = Fraction(20, 100)
    base: int = 60
    turnover_slope: int = 5
    cost_slope: int = 100
    cap: int = 90
    further_part: int = 5
    unsolicited_discount: int = 20
    solicited_share: Fraction = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class _Year:
    """What stands in the window of one buy; amounts in 1/TICK CNY. age, full: the account's and a whole window's
    microseconds; a younger account is scaled up. solicited, known: buys solicited, and buys of which that is given."""

    buys: int
    bought: int
    fees: int
    equity_sum: int
    months: int
    age: int
    full: int
    solicited: int
    known: int

    @property
    def annual(self) -> Fraction:
        """The factor to a year."""
        return Fraction(self.full, self.age) if 0 < self.age < self.full else Fraction(1)

    @property
    def equity(self) -> Fraction:
        return Fraction(self.equity_sum, self.months * TICK)

    @property
    def turnover(self) -> Fraction:
        return Fraction(self.bought * self.months, self.equity_sum) * self.annual

    @property
    def cost(self) -> Fraction:
        return Fraction(self.fees * self.months, self.equity_sum) * self.annual

    def reaches(self, amount: int, limit: Fraction) -> bool:
        """Whether the amount, scaled to a year, is at least `limit` times the equity: crosswise, without dividing."""
        up, down = (self.full, self.age) if 0 < self.age < self.full else (1, 1)
        return amount * self.months * up * limit.denominator >= limit.numerator * down * self.equity_sum


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of months. Near linear: sums up to each trade, and bisection."""
    counted = [index for index, trade in enumerate(facts.trades) if is_counted(trade)]
    if not counted or len(counted) < params.min_buys:
        return []
    # First what can be told without looking at any window: most customers never come near.
    most = _Most(facts, counted, params)
    if not most.reaches(params.min_equity * TICK, params):
        return []
    closes = month_closes(facts, facts.trades[counted[-1]])
    if not closes or not most.reaches(max(min(equity for _close, equity in closes), params.min_equity * TICK), params):
        return []
    ledger = _Ledger(facts, counted, closes)
    hits: dict[date, Hit] = {}
    for number, index in enumerate(counted):
        trade = facts.trades[index]
        month = trade.day.replace(day=1)
        if month in hits:
            continue
        year = ledger.year(number, params)
        if year is None:
            continue
        if not (year.reaches(year.bought, params.turnover_limit) or year.reaches(year.fees, params.cost_limit)):
            continue
        parts = _parts(year, params)
        if parts:
            hits[month] = _hit(trade, year, parts, params, version)
    return list(hits.values())


def is_counted(trade: Trade) -> bool:
    """A purchase that turns the account over: no switch, no plan, nothing cash-like."""
    return trade.fact.trade_type == "buy" and not trade.fact.plan_id and not trade.product.is_cash_like


def _sums(values: Iterable[Any], start: Any) -> list[Any]:
    """Sums of the first 0, 1, 2 ... values."""
    return list(accumulate(values, initial=start))


class _Most:
    """The most that any window can hold, at the highest factor to a year: all counted buys, and all fees."""

    def __init__(self, facts: Facts, counted: Sequence[int], params: Params) -> None:
        buys = [facts.trades[index] for index in counted]
        self._bought = sum(max(trade.ticks, 0) for trade in buys)
        self._fees = most_in_all((trade.fact.fee, trade.fact.fx_cny) for trade in facts.trades)
        full = timedelta(days=params.window_days)
        # An account only grows older, so of each of the customer's rows the first buy has the highest factor.
        ages, row = [], None
        for trade in buys:
            if trade.customer is not row:
                row = trade.customer
                if row.opened_at is not None:
                    ages.append(trade.fact.traded_at - row.opened_at)
        age = max(min(ages, default=full), timedelta(days=params.min_age_days))
        self._annual: Fraction | None = Fraction(1)
        if age <= timedelta(0):
            self._annual = None  # of an account of no age nothing can be said
        elif age < full:
            self._annual = Fraction(full // _MICROSECOND, age // _MICROSECOND)

    def reaches(self, equity: int, params: Params) -> bool:
        """Whether a limit may be reached by somebody whose mean equity is at least so much, in 1/TICK."""
        if self._annual is None:
            return True
        bought, fees = self._bought * self._annual, self._fees * self._annual
        return bought >= params.turnover_limit * equity or fees >= params.cost_limit * equity


class _Ledger:
    """Sums over the customer's trades and month-ends, from which any window is a difference."""

    def __init__(self, facts: Facts, counted: Sequence[int], closes: Sequence[tuple[datetime, int]]) -> None:
        trades = facts.trades
        buys = [trades[index] for index in counted]
        self._counted = counted
        self._buys = buys
        self._buy_times = [trade.fact.traded_at for trade in buys]
        self._bought = _sums((trade.ticks for trade in buys), 0)
        self._known = _sums((int(trade.fact.solicited is not None) for trade in buys), 0)
        self._solicited = _sums((int(bool(trade.fact.solicited)) for trade in buys), 0)
        self._times = [trade.fact.traded_at for trade in trades]
        self._fees = _sums((_fee(trade) for trade in trades), 0)
        self._closes = [close for close, _equity in closes]
        self._equity = _sums((equity for _close, equity in closes), 0)

    def year(self, number: int, params: Params) -> _Year | None:
        """The window that ends with the counted buy of this number; None where one of the three bounds is not met."""
        trade = self._buys[number]
        until = trade.fact.traded_at
        opened_at = trade.customer.opened_at
        if opened_at is None or until - opened_at < timedelta(days=params.min_age_days):
            return None
        since = until - timedelta(days=params.window_days)
        first = bisect_left(self._buy_times, since)
        if number + 1 - first < params.min_buys:
            return None
        early, late = bisect_left(self._closes, since), bisect_right(self._closes, until)
        equity_sum = self._equity[late] - self._equity[early]
        if equity_sum <= 0 or equity_sum < params.min_equity * TICK * (late - early):
            return None
        return _Year(
            buys=number + 1 - first,
            bought=self._bought[number + 1] - self._bought[first],
            fees=self._fees[self._counted[number] + 1] - self._fees[bisect_left(self._times, since)],
            equity_sum=equity_sum,
            months=late - early,
            age=(until - opened_at) // _MICROSECOND,
            full=params.window_days * _DAY // _MICROSECOND,
            solicited=self._solicited[number + 1] - self._solicited[first],
            known=self._known[number + 1] - self._known[first],
        )


def _fee(trade: Trade) -> int:
    fact = trade.fact
    return ticks(fact.fee, fact.fx_cny) if fact.fee and fact.fx_cny is not None else 0


def month_closes(facts: Facts, last: Trade) -> list[tuple[datetime, int]]:
    """The instant of each calendar month's close and all positions with cash then, in 1/TICK CNY: from the first
    snapshot's month to the newest close by the trade `last`."""
    first = facts.first_snapshot_day
    if first is None:
        return []
    holdings = Holdings(facts)
    found = []
    month = add_months(first.replace(day=1), 1)
    newest = business_date(last.fact.traded_at)
    while month <= newest:  # a month's first instant is the close of the month before
        values = holdings.at_close(month - _DAY)
        if values is not None:
            found.append((business_day_bounds(month)[0], sum(values.values())))
        month = add_months(month, 1)
    return found


def _parts(year: _Year, params: Params) -> dict[str, Fraction]:
    """Subtype to points, exact, in the rule's order."""
    parts = {}
    cap = Fraction(params.cap)
    turnover, cost = year.turnover, year.cost
    if turnover >= params.turnover_limit:
        parts[TURNOVER] = min(params.base + params.turnover_slope * (turnover - params.turnover_limit), cap)
    if cost >= params.cost_limit:
        parts[COST] = min(params.base + params.cost_slope * (cost - params.cost_limit), cap)
    return parts


def _hit(trade: Trade, year: _Year, parts: dict[str, Fraction], params: Params, version: int) -> Hit:
    own_will = year.solicited < params.solicited_share * year.known
    points = max(parts.values()) + params.further_part * (len(parts) - 1)
    figures: dict[str, Any] = {
        "turnover": ratio(year.turnover),
        "turnover_limit": ratio(params.turnover_limit),
        "cost": ratio(year.cost),
        "cost_limit": ratio(params.cost_limit),
        "bought": money(exact(year.bought)),
        "fees": money(exact(year.fees)),
        "buys": year.buys,
        "equity": cents(year.equity),
        "equity_sum": money(exact(year.equity_sum)),
        "months": year.months,
        "window_days": params.window_days,
        "account_days": year.age // (_DAY // _MICROSECOND),
        "annualised": year.annual != 1,
        "annual_factor": ratio(year.annual),
        "solicited": year.solicited,
        "solicited_known": year.known,
        "discount": params.unsolicited_discount if own_will else 0,
        "parts": {name: score(part) for name, part in parts.items()},
    }
    return trade.hit(
        RULE_ID,
        version,
        score=score(points - (params.unsolicited_discount if own_will else 0)),
        subtypes=tuple(parts),
        figures=figures,
        evidence_key=f"{trade.fact.customer_id}:{trade.day:%Y-%m}",
    )
