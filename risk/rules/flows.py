"""Money in and out of a customer's account, as the duty to report large amounts sees it: for RISK-003 and RISK-004.

in = buy, transfer_in; out = sell, transfer_out. Switches, dividends and interest move no money of the customer's.
Each trade has one category: cash, else cross_border, else domestic. CNY is compared in CNY, every other currency in
USD (amount times fx_usd).

Readings taken where the words leave a choice:
- settle_method empty is no evidence of cash, cross_border empty none of a border. A customer whose kind is not given
  has the limits of a natural person, the lower ones. Kind and limits are those in force at the trade.
- Money in cash-like products counts: the text exempts them from other rules only.
- A foreign trade without fx_usd, and a trade without a currency, cannot be compared with any limit: neither judged
  here nor history, and a data quality finding (`unrated`); rules that work in CNY judge it. A rate is never guessed,
  not even the dollar's own.
- A CNY trade needs fx_usd only where it is added to foreign ones. Without it, it counts in CNY and is missing from the
  sum in dollars, which can only be too low then; it is a finding where its day's group holds foreign trades.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from memory.core.facts import TradeFact
from memory.core.quick import made
from risk.rules.facts import Facts, Fault, Trade
from risk.rules.numbers import rate_units

CASH, CROSS_BORDER, DOMESTIC = "cash", "cross_border", "domestic"
_DIRECTIONS = {"buy": "in", "transfer_in": "in", "sell": "out", "transfer_out": "out"}
HOME_CURRENCY = "CNY"


@dataclass(frozen=True)
class Limits:
    """What has to be reported, in CNY and in USD, from the limit on (金融机构大额交易和可疑交易报告管理办法, PBOC 2016
    No. 3, art. 5). cash: anybody's, in and out of cash. entity: domestic and cross-border apart. domestic,
    cross_border: of natural persons.
    """

    cash_cny: int = 50_000
    cash_usd: int = 10_000
    entity_cny: int = 2_000_000
    entity_usd: int = 200_000
    domestic_cny: int = 500_000
    domestic_usd: int = 100_000
    cross_border_cny: int = 200_000
    cross_border_usd: int = 10_000

    @property
    def least_cny(self) -> int:
        """Below it no limit in CNY is reached, whoever's and whatever the trade."""
        return min(self.cash_cny, self.entity_cny, self.domestic_cny, self.cross_border_cny)

    def of(self, flow: Flow) -> tuple[int, int]:
        """The limits in CNY and in USD that bind this trade."""
        if flow.is_cash:
            return self.cash_cny, self.cash_usd
        if flow.is_entity:
            return self.entity_cny, self.entity_usd
        if flow.category == CROSS_BORDER:
            return self.cross_border_cny, self.cross_border_usd
        return self.domestic_cny, self.domestic_usd


@dataclass(frozen=True, slots=True)
class Flow:
    """A trade that moves the customer's money."""

    trade: Trade
    direction: str  # in, out
    category: str  # cash, cross_border, domestic
    is_cny: bool

    @property
    def usd(self) -> int | None:
        """The amount in USD, in 1/TICK, made anew each time; None only of a CNY trade without fx_usd."""
        rate = self.trade.fact.fx_usd
        return None if rate is None else self.trade.units * rate_units(rate)

    @property
    def is_cash(self) -> bool:
        return self.category == CASH

    @property
    def is_domestic(self) -> bool:
        return self.category == DOMESTIC

    @property
    def is_entity(self) -> bool:
        return self.trade.customer.kind == "entity"

    @property
    def own(self) -> int:
        """The amount in what it is compared in, in 1/TICK: CNY, or USD of a foreign trade."""
        usd = None if self.is_cny else self.usd
        return self.trade.ticks if usd is None else usd


def category_of(fact: TradeFact) -> str:
    if fact.settle_method == "cash":
        return CASH
    return CROSS_BORDER if fact.cross_border else DOMESTIC


def flows(facts: Facts) -> Sequence[Flow]:
    """The customer's trades that move money and can be compared with a limit, in order. Made once for all rules."""
    return _flows(facts)[0]


def _flows(facts: Facts) -> tuple[Sequence[Flow], bool]:
    """The flows, and whether a trade that moves money lacks its currency or fx_usd."""
    if "flows" not in facts.made:
        facts.made["flows"] = _made_flows(facts)
    found: tuple[Sequence[Flow], bool] = facts.made["flows"]
    return found


def _made_flows(facts: Facts) -> tuple[Sequence[Flow], bool]:
    columns: list[tuple[Trade, str, str, bool]] = []
    lacking = False
    for trade in facts.trades:
        fact = trade.fact
        direction = _DIRECTIONS.get(fact.trade_type)
        if direction is None:
            continue
        is_cny = fact.currency == HOME_CURRENCY
        if not fact.currency or fact.fx_usd is None:
            lacking = True
            if not is_cny:
                continue
        columns.append((trade, direction, category_of(fact), is_cny))
    return tuple(made(Flow, list(zip(*columns, strict=True)))) if columns else (), lacking


def unrated(facts: Facts) -> list[Fault]:
    """Trades that limits cannot be held against for want of a currency or of fx_usd, in order.

    missing: `missing_currency`, `missing_rate`. Other rules judge such a trade.
    """
    if not _flows(facts)[1]:
        return []
    lacking: list[tuple[Trade, tuple[str, str, date]]] = []
    foreign: set[tuple[str, str, date]] = set()  # groups that hold foreign trades
    for trade in facts.trades:
        fact = trade.fact
        direction = _DIRECTIONS.get(fact.trade_type)
        if direction is None:
            continue
        group = (direction, category_of(fact), trade.day)
        if fact.currency and fact.currency != HOME_CURRENCY:
            foreign.add(group)
        if not fact.currency or fact.fx_usd is None:
            lacking.append((trade, group))
    return [
        Fault(trade.fact, ("missing_rate",) if trade.fact.currency else ("missing_currency",))
        for trade, group in lacking
        if trade.fact.currency != HOME_CURRENCY or group in foreign
    ]
