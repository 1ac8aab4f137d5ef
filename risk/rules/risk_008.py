"""RISK-008 advisors' conduct: refusals of access and requests for trades that make a pattern.

Sources: the specification's section 4; patterns, counts and windows are judgement and therefore parameters. The data
are the audit log's: `authz/forbidden` rows of an advisor, and the `trade_request` rows by which advisor agents report a
trade, looked up in the core by trade id (final version).

Readings taken where the words leave a choice:
- A pattern is completed by an audit row, at that row's time: a refusal (probing), a request (probe_then_trade,
  product_push), either (off_hours_burst). Each row is tried with its own sliding window `[t - w, t]`, both ends in, in
  the order of (at, id). The first that completes a pattern on a business day holds the key `advisor:day:pattern`.
- "The same (code, target) within 60 s counts once": a refusal counts unless one of the same code and target that was
  counted lies at most 60 s before it. The same of reports of one trade, where events are counted.
- A refused trade_request is no refusal of access, and no request that led to a trade: it is an event of
  off_hours_burst, and nothing else. Only events outside working time are counted there.
- probe_then_trade: the trade may be of any type. An assignment of this advisor that began at the refusal, at the trade
  or between them makes it no finding: the latest refusal before the trade decides. "Naming a product": the refusal's
  target or its `product_id`.
- product_push: windows and days are those of the request. A trade that is reported twice in a window is one request.
  Of requests without a trade in the core nothing is known but that they were made: they count among "own requests".
  Cancelled and reversed trades are skipped altogether. A request in a campaign of its product is no push of it; it
  stays among "own requests".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from fractions import Fraction
from typing import Any

from config.base.clock import business_date, rfc3339
from risk.calendar.selectors import WorkCalendar
from risk.rules.facts import BUY_TYPES, EXECUTED
from risk.rules.hit import Hit
from risk.rules.numbers import ratio

RULE_ID = "RISK-008"
SUBTYPE = "agent_behavior"
PROBING = "probing"
PROBE_THEN_TRADE = "probe_then_trade"
OFF_HOURS_BURST = "off_hours_burst"
PRODUCT_PUSH = "product_push"
PATTERNS = (PROBING, PROBE_THEN_TRADE, OFF_HOURS_BURST, PRODUCT_PUSH)
# Refusals that say "not your customer"; AUTH_403_SCOPE says "not your agent's business".
CUSTOMER_CODES = frozenset({"NOT_OWNER", "NOT_ASSIGNED"})


@dataclass(frozen=True)
class Params:
    """The specification's figures; hours are of the business time zone."""

    score: int = 75  # points, whatever the pattern
    repeat_seconds: int = 60  # the same code and target within it counts once
    probing_refusals: int = 5
    probing_targets: int = 3
    probing_minutes: int = 60
    trade_hours: int = 24  # from the refusal to the trade
    product_refusals: int = 3  # that name the product of the trade
    burst_events: int = 10
    burst_minutes: int = 30
    opens_hour: int = 8  # working time [opens, closes)
    closes_hour: int = 20
    push_level: int = 3  # R, from which a product can be pushed
    push_customers: int = 8
    push_days: int = 5  # of 24 hours
    push_share: Fraction = Fraction(1, 2)  # of the advisor's own requests


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused access. id: of the audit row. customer_id: whom it was about, '' if nobody known to the core.
    names: all that it names besides (target, product)."""

    at: datetime
    id: int
    code: str
    target: str
    customer_id: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestedTrade:
    """The final version of the trade that was asked for. risk_level: 1 to 5 at traded_at, None if the product has no
    row. assigned_from: when assignments of this advisor to this customer began, ascending."""

    version: int
    customer_id: str
    product_id: str
    trade_type: str
    traded_at: datetime
    status: str
    risk_level: int | None
    assigned_from: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One reported request. trade: None where the core does not have it (yet)."""

    at: datetime
    id: int
    trade_id: str
    refused: bool = False
    trade: RequestedTrade | None = None

    @property
    def live_trade(self) -> RequestedTrade | None:
        """The trade if it was made, by this request, and stands."""
        return self.trade if self.trade is not None and not self.refused and self.trade.status == EXECUTED else None


@dataclass(frozen=True)
class Conduct:
    """What is judged: one advisor's rows. campaigns: product id to its periods, first and last day included."""

    advisor_id: str
    refusals: Sequence[Refusal]
    requests: Sequence[Request]
    calendar: WorkCalendar = field(default_factory=WorkCalendar)
    campaigns: Mapping[str, Sequence[tuple[date, date]]] = field(default_factory=dict)


Event = Refusal | Request
Finding = tuple[Event, dict[str, Any]]


def evaluate(conduct: Conduct, params: Params, version: int) -> list[Hit]:
    """At most one finding a business day and pattern, in the order of time. Pure; the order of rows does not matter.

    Cost: n log n in the advisor's rows.
    """
    refusals = _counted(conduct.refusals, params)
    requests = sorted(conduct.requests, key=_place)
    found: list[tuple[str, Iterator[Finding]]] = [
        (PROBING, _probing(refusals, params)),
        (PROBE_THEN_TRADE, _probe_then_trade(conduct.refusals, refusals, requests, params)),
        (OFF_HOURS_BURST, _off_hours_burst(refusals, _counted(requests, params), conduct.calendar, params)),
        (PRODUCT_PUSH, _product_push(requests, conduct.campaigns, params)),
    ]
    hits: list[Hit] = []
    for pattern, findings in found:
        days: set[date] = set()
        for event, figures in findings:
            day = business_date(event.at)
            if day not in days:
                days.add(day)
                hits.append(_hit(conduct.advisor_id, day, pattern, event, figures, params, version))
    return sorted(hits, key=lambda hit: (hit.occurred_at, PATTERNS.index(hit.figures["pattern"])))


def _hit(
    advisor_id: str, day: date, pattern: str, event: Event, figures: dict[str, Any], params: Params, version: int
) -> Hit:
    request = event if isinstance(event, Request) else None
    trade = request.live_trade if request else None
    return Hit(
        rule_id=RULE_ID,
        rule_version=version,
        evidence_key=f"{advisor_id}:{day.isoformat()}:{pattern}",
        customer_id="",
        trade_id=request.trade_id if request and trade and pattern != OFF_HOURS_BURST else "",
        trade_version=trade.version if trade and pattern != OFF_HOURS_BURST else 0,
        occurred_at=event.at,
        score=params.score,
        subtypes=(SUBTYPE,),
        figures={"pattern": pattern, "completed_at": rfc3339(event.at), **figures},
        advisor_id=advisor_id,
        product_id=trade.product_id if trade and pattern != OFF_HOURS_BURST else "",
    )


def _place(event: Event) -> tuple[datetime, int]:
    return event.at, event.id


def _same(event: Event) -> tuple[str, str]:
    """What counts once within a minute."""
    if isinstance(event, Refusal):
        return event.code, event.target
    return "refused" if event.refused else "requested", event.trade_id


def _counted(events: Iterable[Any], params: Params) -> list[Any]:
    """In the order of time, without what repeats the last counted one of its kind within a minute."""
    within = timedelta(seconds=params.repeat_seconds)
    last: dict[tuple[str, str], datetime] = {}
    kept = []
    for event in sorted(events, key=_place):
        known = last.get(_same(event))
        if known is None or event.at - known > within:
            last[_same(event)] = event.at
            kept.append(event)
    return kept


class _Window:
    """The events of `[t - width, t]` as t goes on. left: told of each that falls out."""

    def __init__(self, width: timedelta, left: Callable[[Any], None] = lambda _event: None) -> None:
        self._width, self._left = width, left
        self.events: deque[Any] = deque()

    def add(self, event: Any) -> None:
        self.events.append(event)
        while event.at - self.events[0].at > self._width:
            self._left(self.events.popleft())


def _probing(refusals: Sequence[Refusal], params: Params) -> Iterator[Finding]:
    """Many refusals on several targets within an hour."""
    targets: Counter[str] = Counter()

    def left(refusal: Refusal) -> None:
        _take(targets, refusal.target)

    window = _Window(timedelta(minutes=params.probing_minutes), left)
    for refusal in refusals:
        targets[refusal.target] += 1
        window.add(refusal)
        if len(window.events) >= params.probing_refusals and len(targets) >= params.probing_targets:
            yield (
                refusal,
                {
                    "refusals": len(window.events),
                    "targets": len(targets),
                    "from": rfc3339(window.events[0].at),
                    "limit_refusals": params.probing_refusals,
                    "limit_targets": params.probing_targets,
                    "minutes": params.probing_minutes,
                },
            )


def _probe_then_trade(
    every: Iterable[Refusal], counted: Sequence[Refusal], requests: Sequence[Request], params: Params
) -> Iterator[Finding]:
    """Refused a customer and then traded for them, or refused about a product and then traded in it."""
    hours = timedelta(hours=params.trade_hours)
    by_customer: dict[str, list[datetime]] = defaultdict(list)
    for refusal in sorted(every, key=_place):
        if refusal.customer_id and refusal.code in CUSTOMER_CODES:
            by_customer[refusal.customer_id].append(refusal.at)
    by_name: dict[str, list[datetime]] = defaultdict(list)
    for refusal in counted:
        for name in {refusal.target, *refusal.names}:
            by_name[name].append(refusal.at)
    for request in requests:
        trade = request.live_trade
        if trade is None:
            continue
        figures: dict[str, Any] = {"traded_at": rfc3339(trade.traded_at), "hours": params.trade_hours}
        refused = by_customer.get(trade.customer_id, [])
        latest = bisect_left(refused, trade.traded_at) - 1
        if latest >= 0 and trade.traded_at - refused[latest] <= hours:
            begun = bisect_right(trade.assigned_from, trade.traded_at) - bisect_left(
                trade.assigned_from, refused[latest]
            )
            if not begun:
                yield request, {**figures, "by": "customer", "refused_at": rfc3339(refused[latest])}
                continue
        named = by_name.get(trade.product_id, []) if trade.product_id else []
        end = bisect_left(named, trade.traded_at)
        start = bisect_left(named, trade.traded_at - hours)
        if end - start >= params.product_refusals:
            yield (
                request,
                {
                    **figures,
                    "by": "product",
                    "refusals": end - start,
                    "limit_refusals": params.product_refusals,
                    "refused_at": rfc3339(named[end - 1]),
                },
            )


def _off_hours_burst(
    refusals: Sequence[Refusal], requests: Sequence[Request], calendar: WorkCalendar, params: Params
) -> Iterator[Finding]:
    """Many events in half an hour outside working time."""
    opens, closes = time(params.opens_hour), _closing(params.closes_hour)
    window = _Window(timedelta(minutes=params.burst_minutes))
    events: list[Event] = sorted([*refusals, *requests], key=_place)
    for event in events:
        if calendar.is_working_time(event.at, opens=opens, closes=closes):
            continue
        window.add(event)
        if len(window.events) >= params.burst_events:
            yield (
                event,
                {
                    "events": len(window.events),
                    "refusals": sum(1 for one in window.events if isinstance(one, Refusal)),
                    "from": rfc3339(window.events[0].at),
                    "limit_events": params.burst_events,
                    "minutes": params.burst_minutes,
                    "working_day": calendar.is_working_day(business_date(event.at)),
                    "opens": params.opens_hour,
                    "closes": params.closes_hour,
                },
            )


def _closing(hour: int) -> time:
    return time(hour) if hour < 24 else time.max


def _product_push(
    requests: Sequence[Request], campaigns: Mapping[str, Sequence[tuple[date, date]]], params: Params
) -> Iterator[Finding]:
    """One product of some risk, bought for many customers, as a large part of all that the advisor asked for."""
    trades: Counter[str] = Counter()
    pushed: dict[str, Counter[str]] = defaultdict(Counter)  # product -> its trades
    customers: dict[str, Counter[str]] = defaultdict(Counter)  # product -> for whom

    def left(request: Request) -> None:
        _take(trades, request.trade_id)
        trade = _push(request, campaigns, params)
        if trade is not None:
            _take(pushed[trade.product_id], request.trade_id)
            _take(customers[trade.product_id], trade.customer_id)

    window = _Window(timedelta(days=params.push_days), left)
    for request in requests:
        if request.refused or (request.trade is not None and request.live_trade is None):
            continue
        trades[request.trade_id] += 1
        trade = _push(request, campaigns, params)
        if trade is not None:
            pushed[trade.product_id][request.trade_id] += 1
            customers[trade.product_id][trade.customer_id] += 1
        window.add(request)
        if trade is None:
            continue
        count, whom = len(pushed[trade.product_id]), len(customers[trade.product_id])
        if whom >= params.push_customers and count >= params.push_share * len(trades):
            yield (
                request,
                {
                    "customers": whom,
                    "pushed": count,
                    "requests": len(trades),
                    "product_risk_level": f"R{trade.risk_level}",
                    "limit_customers": params.push_customers,
                    "limit_share": ratio(params.push_share),
                    "days": params.push_days,
                    "from": rfc3339(window.events[0].at),
                },
            )


def _push(
    request: Request, campaigns: Mapping[str, Sequence[tuple[date, date]]], params: Params
) -> RequestedTrade | None:
    """The request's trade where it is a purchase that can be a push."""
    trade = request.live_trade
    if trade is None or not trade.product_id or trade.trade_type not in BUY_TYPES:
        return None
    if trade.risk_level is None or trade.risk_level < params.push_level:
        return None
    day = business_date(request.at)
    promoted = any(first <= day <= last for first, last in campaigns.get(trade.product_id, ()))
    return None if promoted else trade


def _take(counter: Counter[str], name: str) -> None:
    """One less, and gone at nought: the length of a counter is how many different names there are."""
    counter[name] -= 1
    if counter[name] <= 0:
        del counter[name]
