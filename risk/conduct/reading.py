"""What the rule needs about an advisor, from the audit log and the core, as it stands now."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta

from config.base.clock import business_day_bounds, rfc3339
from config.base.fields import canonical_json
from guard.audit import pseudonyms
from guard.audit.models import Decision, EventType
from guard.audit.selectors import ConductRow, conduct_rows
from memory.core import selectors as core
from memory.core.facts import ProductFact
from risk.calendar.selectors import WorkCalendar
from risk.conduct.models import Campaign
from risk.rules.hit import FinalTrade
from risk.rules.risk_008 import Conduct, Params, Refusal, Request, RequestedTrade

# What counts once a minute depends on the row before, and so on: read from a little further back.
_EARLIER = timedelta(hours=1)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True)
class Span:
    """Whole business days, first and last included."""

    first: date
    last: date

    @property
    def since(self) -> datetime:
        """Its first instant."""
        return business_day_bounds(self.first)[0]

    @property
    def until(self) -> datetime:
        """The first instant after it."""
        return business_day_bounds(self.last)[1]


@dataclass(frozen=True)
class Material:
    """All that is judged of an advisor in a span, with rows around it that its windows reach; and how the trades that
    were asked for stand."""

    conduct: Conduct
    final_trades: Mapping[str, FinalTrade]
    customers: Mapping[str, str]  # by trade


def conduct_of(
    *,
    tenant: str,
    advisor_id: str,
    span: Span,
    params: Params,
    calendar: WorkCalendar,
    campaigns: Mapping[str, Sequence[tuple[date, date]]],
) -> Material:
    """Reads an advisor's conduct for the days of `span`.

    Cost: 1 query for the rows, 3 of the core where trades were asked for, 1 for their customers' pseudonyms; up to 2
    more where a trade lies outside the days around its request.
    """
    back = max(
        timedelta(days=params.push_days), timedelta(hours=params.trade_hours), timedelta(minutes=params.probing_minutes)
    )
    low, high = span.since - back - _EARLIER, span.until - _INSTANT
    rows = conduct_rows(tenant=tenant, advisor_id=advisor_id, since=low, until=high)
    asked = [row for row in rows if row.event_type == EventType.TRADE_REQUEST and _trade_id(row)]
    wanted = {_trade_id(row) for row in asked if row.decision == Decision.REQUESTED}
    trades = requested_trades(tenant=tenant, advisor_id=advisor_id, trade_ids=wanted)
    # A trade may have been made long before or after it was reported: what was refused in the day before it counts.
    traded = [trades[_trade_id(row)].traded_at for row in asked if row.at >= span.since and _trade_id(row) in trades]
    first = min(traded, default=high) - timedelta(hours=params.trade_hours) - _EARLIER
    last = max(traded, default=low)
    refusals = [row for row in rows if row.event_type == EventType.AUTHZ]
    for since, until in ((first, low - _INSTANT), (high + _INSTANT, last)):
        if since <= until:
            around = conduct_rows(tenant=tenant, advisor_id=advisor_id, since=since, until=until)
            refusals += [row for row in around if row.event_type == EventType.AUTHZ]
    names = _names(tenant, {trade.customer_id for trade in trades.values()}) if refusals and trades else {}
    return Material(
        Conduct(
            advisor_id,
            [_refusal(row, names) for row in refusals],
            [_request(row, trades) for row in asked],
            calendar,
            campaigns,
        ),
        {trade_id: FinalTrade(trade.version, trade.status) for trade_id, trade in trades.items()},
        {trade_id: trade.customer_id for trade_id, trade in trades.items()},
    )


def _names(tenant: str, customer_ids: set[str]) -> dict[str, str]:
    """How the log calls each of these customers, to the core's id. Their own ids too, for rows from before there were
    pseudonyms. A refusal's own name cannot be turned into an id: the trades say whose names to look for."""
    found = pseudonyms.find(tenant, customer_ids)
    return {**{one: one for one in customer_ids}, **{name: one for one, name in found.items()}}


def _trade_id(row: ConductRow) -> str:
    value = row.input_summary.get("trade_id")
    return value if isinstance(value, str) else ""


def _refusal(row: ConductRow, names: Mapping[str, str]) -> Refusal:
    told = {
        name: value for name, value in row.input_summary.items() if isinstance(value, str) and value
    }  # of a tampered row anything may be anything
    target = told.get("target") or row.object_id
    whom = (row.customer, told.get("customer_id", ""), target, row.object_id)
    return Refusal(
        at=row.at,
        id=row.id,
        code=told.get("code") or row.code,
        target=target,
        customer_id=next((names[name] for name in whom if name in names), ""),
        names=tuple({name for name in (told.get("product_id", ""), row.object_id) if name}),
    )


def _request(row: ConductRow, trades: Mapping[str, RequestedTrade]) -> Request:
    refused = row.decision != Decision.REQUESTED
    return Request(row.at, row.id, _trade_id(row), refused, None if refused else trades.get(_trade_id(row)))


def requested_trades(*, tenant: str, advisor_id: str, trade_ids: Iterable[str]) -> dict[str, RequestedTrade]:
    """The final versions of these trades with what the rule asks of each, by id; those that the core does not have are
    left out. At most 3 queries."""
    wanted = set(trade_ids)
    facts = core.trades(tenant=tenant, trade_ids=wanted) if wanted else {}
    if not facts:
        return {}
    products = core.product_histories(tenant=tenant, product_ids={fact.product_id for fact in facts.values()} - {""})
    begun = core.assignments_begun(
        tenant=tenant, advisor_id=advisor_id, customer_ids={fact.customer_id for fact in facts.values()}
    )
    return {
        trade_id: RequestedTrade(
            version=fact.version,
            customer_id=fact.customer_id,
            product_id=fact.product_id,
            trade_type=fact.trade_type,
            traded_at=fact.traded_at,
            status=fact.status,
            risk_level=_level(products.get(fact.product_id, []), fact.traded_at),
            assigned_from=tuple(begun.get(fact.customer_id, ())),
        )
        for trade_id, fact in facts.items()
    }


def _level(history: list[ProductFact], at: datetime) -> int | None:
    row = core.in_force(history, at)
    return row.risk_level if row else None


def fingerprint(trade: RequestedTrade) -> str:
    """The same for all that the rule reads of a trade being the same."""
    told = {**asdict(trade), "traded_at": rfc3339(trade.traded_at)}
    told["assigned_from"] = [moment.isoformat() for moment in trade.assigned_from]
    return hashlib.sha256(canonical_json(told).encode()).hexdigest()


def campaigns_of(*, tenant: str) -> dict[str, list[tuple[date, date]]]:
    """The tenant's sales campaigns by product. One query."""
    found: dict[str, list[tuple[date, date]]] = {}
    rows = Campaign.objects.filter(tenant=tenant).order_by()
    for product_id, first, last in rows.values_list("product_id", "starts_on", "ends_on"):
        found.setdefault(product_id, []).append((first, last))
    return found
