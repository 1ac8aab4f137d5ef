"""RISK-004 structuring: one amount after another a little under the limit from which it would have to be reported.

Sources: 金融机构大额交易和可疑交易报告管理办法 (PBOC 2016 No. 3) art. 11 (suspicious transactions are reported whatever
their amount) and art. 12 (the firm sets its own monitoring standards); the specification's table, edges and settled
readings. That amounts close under the limit, often and within days, are a sign of it is old supervisory practice;
figures and scores are judgement.

Evidence key: `trade_id@version` of the last trade of the three or more. Each further trade whose window holds at least
two before it is a hit of its own.

Readings taken where the words leave a choice:
- The window is [t - 72 h, t], both ends in, over the trades up to this one by (traded_at, trade_id).
- "Each in [0.8 limit, limit)" asks of each trade by itself: CNY against the limit in CNY, any other currency in USD
  against that in USD, by the customer's kind at that trade. They are counted together; sums do not matter here.
- The cap binds the part that grows with the number; cash comes on top of it.
- A trade of a savings plan is neither counted nor judged.
- What is in and out, and which trades lack a rate: see `flows`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from itertools import islice
from typing import Any

from config.base.clock import rfc3339
from risk.rules.facts import Facts
from risk.rules.flows import Flow, Limits, flows
from risk.rules.hit import Hit
from risk.rules.numbers import TICK, money, score

RULE_ID = "RISK-004"
STRUCTURING = "structuring"
MAX_NAMED = 20  # trades that the figures name, the newest; a window may hold thousands


@dataclass(frozen=True)
class Params(Limits):
    """CNY, USD (see Limits: RISK-003 has its own, change both), a share of 1, hours, points; all judgement.

    near: from this share of the limit on, and under the limit. at_least: trades within window_hours.
    base, per_further, cap: 60 + 5 for each trade beyond at_least, at most 85. cash_extra: on top of the cap.
    """

    near: Fraction = Fraction(80, 100)
    at_least: int = 3
    window_hours: int = 72
    base: int = 60
    per_further: int = 5
    cap: int = 85
    cash_extra: int = 10


def evaluate(facts: Facts, params: Params, version: int) -> list[Hit]:
    """All hits of one customer, in order of trades. One pass, a window for each category and direction."""
    hits: list[Hit] = []
    width = timedelta(hours=params.window_hours)
    windows: dict[tuple[str, str], deque[Flow]] = defaultdict(deque)
    down = params.near.denominator
    least = params.near.numerator * params.least_cny * TICK
    for flow in flows(facts):
        # What is far from any limit, as nearly all is, is passed over at once.
        if flow.is_cny and flow.trade.ticks * down < least:
            continue
        if flow.trade.fact.plan_id or not _just_under(flow, params):
            continue
        window = windows[(flow.category, flow.direction)]
        window.append(flow)
        begin = flow.trade.fact.traded_at - width
        while window[0].trade.fact.traded_at < begin:
            window.popleft()
        if len(window) >= params.at_least:
            hits.append(_hit(flow, window, params, version))
    return hits


def _just_under(flow: Flow, params: Params) -> bool:
    """In [0.8 limit, limit): exactly at the limit is RISK-003's."""
    limit_cny, limit_usd = params.of(flow)
    limit = limit_cny if flow.is_cny else limit_usd
    # Crosswise, without dividing.
    return params.near.numerator * limit * TICK <= flow.own * params.near.denominator and flow.own < limit * TICK


def _hit(flow: Flow, window: deque[Flow], params: Params, version: int) -> Hit:
    count = len(window)
    points = min(params.base + params.per_further * (count - params.at_least), params.cap)
    limit_cny, limit_usd = params.of(flow)
    figures: dict[str, Any] = {
        "category": flow.category,
        "direction": flow.direction,
        "kind": "entity" if flow.is_entity else "natural",
        "count": count,
        "from": rfc3339(window[0].trade.fact.traded_at),
        "to": rfc3339(flow.trade.fact.traded_at),
        "hours": params.window_hours,
        "near": money(params.near),
        "limit_cny": money(Fraction(limit_cny)),
        "limit_usd": money(Fraction(limit_usd)),
        "trades": _newest(window),
    }
    return flow.trade.hit(
        RULE_ID,
        version,
        score=score(points + (params.cash_extra if flow.is_cash else 0)),
        subtypes=(STRUCTURING,),
        figures=figures,
    )


def _newest(window: deque[Flow]) -> Sequence[dict[str, str]]:
    """The newest MAX_NAMED trades, in order: each `trade_id@version`, and amount and currency as booked."""
    newest = [flow.trade.fact for flow in islice(reversed(window), MAX_NAMED)]
    return [
        {
            "trade": f"{fact.trade_id}@{fact.version}",
            "amount": money(Fraction(fact.amount)),
            "currency": fact.currency,
        }
        for fact in reversed(newest)
    ]
