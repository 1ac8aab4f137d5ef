"""What the core system says of an alert: its trades and those around them, who the customer was, what they held."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from config.base.clock import business_date
from config.base.errors import DomainError
from memory.core import selectors as core
from memory.core.facts import AssessmentFact, CustomerFact, PositionFact, ProductFact
from memory.core.models import CoreTrade
from risk.alerts.models import RiskAlert, RiskAlertHit

MAX_TRADES = 40
BEFORE, AFTER = timedelta(days=30), timedelta(days=7)


@dataclass(frozen=True)
class CoreFacts:
    """trades: final states, newest first. positions: the newest snapshot closed before the day of the trade.
    assessments: newest first. known_as: the customer's rows, oldest first. products: theirs, oldest first, by id."""

    away: bool = False
    trades: Sequence[CoreTrade] = ()
    positions: Sequence[PositionFact] = ()
    products: Mapping[str, Sequence[ProductFact]] = field(default_factory=dict)
    assessments: Sequence[AssessmentFact] = ()
    known_as: Sequence[CustomerFact] = ()
    advisors: Sequence[str] = ()

    def product(self, product_id: str, at: datetime) -> ProductFact | None:
        return core.in_force(self.products.get(product_id, ()), at)

    def customer(self, at: datetime) -> CustomerFact | None:
        return core.in_force(self.known_as, at)

    def assessment(self, at: datetime) -> AssessmentFact | None:
        return next((row for row in self.assessments if row.assessed_at <= at), None)


def core_facts(
    alert: RiskAlert, hits: Sequence[RiskAlertHit], named: Collection[str], happened_at: datetime
) -> CoreFacts:
    """Eight queries of the core, two for an alert without a customer; `away` where it does not answer.

    named: trades that the evidence speaks of; the customer's others are from BEFORE to AFTER, MAX_TRADES in all.
    """
    try:
        return _read(alert, hits, named, happened_at)
    except DomainError as error:
        if error.code != "CORE_UNAVAILABLE":
            raise
        return CoreFacts(away=True)


def _read(alert: RiskAlert, hits: Sequence[RiskAlertHit], named: Collection[str], happened_at: datetime) -> CoreFacts:
    tenant, customer_id = alert.tenant, alert.customer_id
    trades = _trades(tenant, customer_id, hits, named, happened_at)
    if not customer_id:
        products = core.product_histories(tenant=tenant, product_ids={trade.product_id for trade in trades} - {""})
        return CoreFacts(trades=trades, products=products)
    eve = business_date(happened_at) - timedelta(days=1)
    positions = core.positions_as_of(tenant=tenant, customer_id=customer_id, day=eve)
    ids = {trade.product_id for trade in trades} | {row.product_id for row in positions}
    return CoreFacts(
        trades=trades,
        positions=positions,
        products=core.product_histories(tenant=tenant, product_ids=ids - {""}),
        assessments=core.assessments(tenant=tenant, customer_id=customer_id),
        known_as=core.customer_history(tenant=tenant, customer_id=customer_id),
        advisors=core.advisors_of(tenant=tenant, customer_id=customer_id, at=happened_at),
    )


def _trades(
    tenant: str, customer_id: str, hits: Sequence[RiskAlertHit], named: Collection[str], happened_at: datetime
) -> list[CoreTrade]:
    """The final state of the named trades and of the customer's others around them, newest first."""
    first = min((hit.occurred_at for hit in hits), default=happened_at)
    rows = list(CoreTrade.objects.filter(tenant=tenant, trade_id__in=named))
    if customer_id:
        around = CoreTrade.objects.filter(
            tenant=tenant, customer_id=customer_id, traded_at__range=(first - BEFORE, happened_at + AFTER)
        )
        rows += around.order_by("-traded_at")[: MAX_TRADES * 2]
    final: dict[str, CoreTrade] = {}
    for row in rows:
        if row.trade_id not in final or row.version > final[row.trade_id].version:
            final[row.trade_id] = row
    ordered = sorted(final.values(), key=lambda row: (row.traded_at, row.trade_id), reverse=True)
    kept = [row for row in ordered if row.trade_id in named]
    kept += [row for row in ordered if row.trade_id not in named][: max(0, MAX_TRADES - len(kept))]
    return sorted(kept, key=lambda row: (row.traded_at, row.trade_id), reverse=True)
