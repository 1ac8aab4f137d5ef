"""RISK-003 large amounts: what a customer moves in a day reaches the limit from which it has to be reported.

It is a filing duty, not a suspicion: its hits make `report` alerts, one per customer and day, in a queue of their own.

Sources: 金融机构大额交易和可疑交易报告管理办法 (PBOC 2016 No. 3) art. 5 (limits, inclusive; a day's sum by customer,
in and out each by itself), art. 6 (two categories are two reports); the specification's table, edges and settled
readings. Scores are judgement.

Evidence key: `category:direction:trade_id@version`, as in `cash:in:T0000001@1`; category is cash, cross_border or
domestic, direction in or out, and the trade the one that reaches the limit or adds to a sum that has. Each such trade
is a hit; those before it are none. A key never moves: later trades of the day do not change what was true at this one.

Readings taken where the words leave a choice:
- The sum at a trade is that of the day's trades up to it, by (traded_at, trade_id).
- All foreign currencies are one sum, in USD.
- Conversion (the group holds CNY and foreign trades, and neither sum is reached): both sums together, in CNY against
  the limit in CNY or in USD against that in USD. Once one sum is reached, a trade hits by its own kind's sum alone.
- Savings plans count, professionals and entities too.
- What is in and out, and which trades lack a rate: see `flows`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from itertools import groupby
from typing import Any

from risk.rules.facts import Facts
from risk.rules.flows import Flow, Limits, flows
from risk.rules.hit import Hit
from risk.rules.numbers import TICK, exact, money, score

RULE_ID = "RISK-003"
LARGE_AMOUNT = "large_amount"


@dataclass(frozen=True)
class Params(Limits):
    """CNY, USD (see Limits), points. domestic_points; other_points: cash and cross-border (judgement)."""

    domestic_points: int = 30
    other_points: int = 35


@dataclass
class _Day:
    """What one category and direction of one day has come to so far, in 1/TICK."""

    cny: int = 0  # of CNY trades
    foreign: int = 0  # of foreign trades, in USD
    all_cny: int = 0
    all_usd: int = 0
    counts: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})  # of CNY trades, of foreign ones

    def add(self, flow: Flow) -> None:
        self.counts[flow.is_cny] += 1
        if flow.is_cny:
            self.cny += flow.own
        else:
            self.foreign += flow.own
        self.all_cny += flow.trade.ticks
        self.all_usd += flow.usd or 0

    def reached(self, flow: Flow, limit_cny: int, limit_usd: int) -> str:
        """In which sum the trade just added reaches a limit: `cny`, `foreign`, `converted`, or '' if in none."""
        if self.cny >= limit_cny or self.foreign >= limit_usd:
            if flow.is_cny:
                return "cny" if self.cny >= limit_cny else ""
            return "foreign" if self.foreign >= limit_usd else ""
        both = self.counts[True] and self.counts[False]
        return "converted" if both and (self.all_cny >= limit_cny or self.all_usd >= limit_usd) else ""


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of trades. One pass; days that can reach no limit are passed over."""
    hits: list[Hit] = []
    least = params.least_cny * TICK
    for _day, of_day in groupby(flows(facts), key=_day_of):
        today = list(of_day)
        if _is_quiet(today, least):
            continue
        groups: dict[tuple[str, str], _Day] = defaultdict(_Day)
        for flow in today:
            group = groups[(flow.category, flow.direction)]
            group.add(flow)
            limit_cny, limit_usd = params.of(flow)
            basis = group.reached(flow, limit_cny * TICK, limit_usd * TICK)
            if basis:
                hits.append(_hit(flow, group, basis, (limit_cny, limit_usd), params, version))
    return hits


def _day_of(flow: Flow) -> date:
    return flow.trade.day


def _is_quiet(flows_of_day: Sequence[Flow], least: int) -> bool:
    """Whether all of a day together, in CNY alone, stays under the least limit there is (in 1/TICK)."""
    total = 0
    for flow in flows_of_day:
        if not flow.is_cny:
            return False
        total += max(flow.trade.ticks, 0)
    return total < least


def _hit(flow: Flow, group: _Day, basis: str, limits: tuple[int, int], params: Params, version: int) -> Hit:
    fact = flow.trade.fact
    figures: dict[str, Any] = {
        "category": flow.category,
        "direction": flow.direction,
        "kind": "entity" if flow.is_entity else "natural",
        "day": flow.trade.day.isoformat(),
        "basis": basis,
        "sum_cny": money(exact(group.all_cny if basis == "converted" else group.cny)),
        "sum_usd": money(exact(group.all_usd if basis == "converted" else group.foreign)),
        "limit_cny": money(Fraction(limits[0])),
        "limit_usd": money(Fraction(limits[1])),
        "trades": group.counts[True] + group.counts[False],
        "amount": money(Fraction(fact.amount)),
        "currency": fact.currency,
    }
    return flow.trade.hit(
        RULE_ID,
        version,
        score=score(params.domestic_points if flow.is_domestic else params.other_points),
        subtypes=(LARGE_AMOUNT,),
        figures=figures,
        evidence_key=f"{flow.category}:{flow.direction}:{fact.trade_id}@{fact.version}",
    )
