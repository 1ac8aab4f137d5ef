"""Reads of the core tables, for rules, access and pages. A bounded number of queries for any number of customers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from typing import Any, TypeVar

from django.conf import settings
from django.db.models import Q, QuerySet, Subquery

from config.base.clock import now
from memory.core.facts import AssessmentFact, CustomerFact, CustomerRows, PositionFact, ProductFact, TradeFact
from memory.core.models import (
    CoreAssessment,
    CoreAssignment,
    CoreCustomer,
    CoreImport,
    CorePosition,
    CoreProduct,
    CoreTrade,
)
from memory.core.quick import bulk_facts

Fact = TypeVar("Fact")

DIVES = 199  # values of a list that MariaDB looks up one by one; a longer one it judges by its statistics
PARTS = 400  # of a UNION; SQLite takes 500


def facts_of(kind: type[Fact], queryset: Any) -> Iterator[Fact]:
    """The rows of a queryset as frozen values. One query."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return (kind(*row) for row in queryset.values_list(*names).iterator(chunk_size=5000))


def is_assigned(tenant: str, advisor_id: str, customer_id: str, at: datetime) -> bool:
    """Whether the advisor has the customer at that instant: valid_from <= at < valid_to.

    Half open, so that a hand-over at one instant leaves exactly one advisor in charge.
    """
    rows = CoreAssignment.objects.filter(
        tenant=tenant, advisor_id=advisor_id, customer_id=customer_id, valid_from__lte=at
    ).filter(Q(valid_to=None) | Q(valid_to__gt=at))
    # A core of the firm's own may compare without regard to case: who is `a002` has nothing of what `A002` has.
    return (tenant, advisor_id, customer_id) in set(rows.values_list("tenant", "advisor_id", "customer_id"))


def advisors_of(*, tenant: str, customer_id: str, at: datetime | None = None) -> list[str]:
    """The advisors who have the customer at that instant (default: now), by id."""
    moment = at or now()
    rows = CoreAssignment.objects.filter(tenant=tenant, customer_id=customer_id, valid_from__lte=moment)
    return sorted(set(rows.filter(Q(valid_to=None) | Q(valid_to__gt=moment)).values_list("advisor_id", flat=True)))


def assignments_begun(*, tenant: str, advisor_id: str, customer_ids: Iterable[str]) -> dict[str, list[datetime]]:
    """When this advisor's assignments of each of these customers began, ascending, by customer. One query."""
    rows = CoreAssignment.objects.filter(tenant=tenant, advisor_id=advisor_id, customer_id__in=set(customer_ids))
    found: dict[str, list[datetime]] = defaultdict(list)
    for customer_id, valid_from in rows.order_by("valid_from").values_list("customer_id", "valid_from"):
        found[customer_id].append(valid_from)
    return dict(found)


def customer(*, tenant: str, customer_id: str, at: datetime | None = None) -> CustomerFact | None:
    """The customer's row in force at that instant (default: now), or None. One query."""
    return customers(tenant=tenant, customer_ids=[customer_id], at=at).get(customer_id)


def customers(*, tenant: str, customer_ids: Iterable[str], at: datetime | None = None) -> dict[str, CustomerFact]:
    """The rows in force of many customers, by id. One query."""
    rows = CoreCustomer.objects.filter(tenant=tenant, customer_id__in=set(customer_ids), valid_from__lte=at or now())
    return {fact.customer_id: fact for fact in facts_of(CustomerFact, rows.order_by("valid_from"))}


def product(*, tenant: str, product_id: str, at: datetime | None = None) -> ProductFact | None:
    """The product's row in force at that instant (default: now), or None. One query."""
    return products(tenant=tenant, product_ids=[product_id], at=at).get(product_id)


def products(*, tenant: str, product_ids: Iterable[str], at: datetime | None = None) -> dict[str, ProductFact]:
    """The rows in force of many products, by id. One query."""
    rows = CoreProduct.objects.filter(tenant=tenant, product_id__in=set(product_ids), valid_from__lte=at or now())
    return {fact.product_id: fact for fact in facts_of(ProductFact, rows.order_by("valid_from"))}


def product_histories(*, tenant: str, product_ids: Iterable[str]) -> dict[str, list[ProductFact]]:
    """All rows of many products, oldest first, by id. One query."""
    found: dict[str, list[ProductFact]] = defaultdict(list)
    rows = CoreProduct.objects.filter(tenant=tenant, product_id__in=set(product_ids)).order_by("valid_from")
    for fact in facts_of(ProductFact, rows):
        found[fact.product_id].append(fact)
    return dict(found)


def customer_history(*, tenant: str, customer_id: str) -> list[CustomerFact]:
    """All rows of the customer, oldest first. One query."""
    rows = CoreCustomer.objects.filter(tenant=tenant, customer_id=customer_id)
    return list(facts_of(CustomerFact, rows.order_by("valid_from")))


Dated = TypeVar("Dated", ProductFact, CustomerFact)


def in_force(history: Sequence[Dated], at: datetime) -> Dated | None:
    """The row of a history (oldest first) that counts at that instant, or None."""
    return next((row for row in reversed(history) if row.valid_from <= at), None)


def assessments(*, tenant: str, customer_id: str) -> list[AssessmentFact]:
    """The customer's assessments, newest first. One query."""
    rows = CoreAssessment.objects.filter(tenant=tenant, customer_id=customer_id)
    return list(facts_of(AssessmentFact, rows.order_by("-assessed_at")))


def positions(*, tenant: str, customer_id: str) -> list[PositionFact]:
    """The customer's newest snapshot, by product id; empty where there is none. One query."""
    return positions_as_of(tenant=tenant, customer_id=customer_id)


def positions_as_of(*, tenant: str, customer_id: str, day: date | None = None) -> list[PositionFact]:
    """What the customer held at the close of `day`: the newest snapshot of that day or before, by product id.

    A snapshot is the customer's as a whole: a product that is absent from it was not held, whatever an older one
    says. Empty where there is none by then. day: a business day; None for the newest there is. One query, however
    many positions.
    """
    rows = CorePosition.objects.filter(tenant=tenant, customer_id=customer_id)
    known = rows if day is None else rows.filter(as_of__lte=day)
    newest = known.order_by("-as_of").values("as_of")[:1]
    return list(facts_of(PositionFact, rows.filter(as_of=Subquery(newest)).order_by("product_id")))


def trades(*, tenant: str, trade_ids: Iterable[str]) -> dict[str, TradeFact]:
    """The final state (highest version) of these trades, by id. One query."""
    rows = CoreTrade.objects.filter(tenant=tenant, trade_id__in=set(trade_ids)).order_by("version")
    return {fact.trade_id: fact for fact in facts_of(TradeFact, rows)}


def recent_trades(*, tenant: str, customer_id: str, limit: int = 50) -> list[TradeFact]:
    """The final states of the customer's newest trades, newest first. Two queries."""
    rows = CoreTrade.objects.filter(tenant=tenant, customer_id=customer_id).order_by("-traded_at", "-trade_id")
    ids = list(dict.fromkeys(rows.values_list("trade_id", flat=True)[: 2 * limit]))
    final = [fact for fact in trades(tenant=tenant, trade_ids=ids).values() if fact.customer_id == customer_id]
    return sorted(final, key=lambda fact: (fact.traded_at, fact.trade_id), reverse=True)[:limit]


def core_as_of(*, tenant: str) -> datetime | None:
    """When the tenant's core tables were last written here; None before that, and on an external core."""
    return CoreImport.objects.filter(tenant=tenant).values_list("imported_at", flat=True).first()


def customer_facts(*, tenant: str, customer_id: str) -> CustomerRows:
    """Everything that rules need about one customer. Six queries."""
    return customers_facts(tenant=tenant, customer_ids=[customer_id])[customer_id]


def customers_facts(*, tenant: str, customer_ids: Iterable[str]) -> dict[str, CustomerRows]:
    """Everything that rules need about these customers, by id; unknown ids have empty rows. Six queries in all,
    and one for each DIVES trades that were corrected.

    Trades of a customer are all versions of every trade with a version of that customer, for only the highest
    version, whoever it names, says whose trade it is.
    """
    ids = list(dict.fromkeys(customer_ids))
    rows = CoreTrade.objects.filter(tenant=tenant).order_by()
    trades = bulk_facts(TradeFact, rows.filter(customer_id__in=ids))
    # A first version has no other beside it.
    names = {trade.trade_id for trade in trades}
    several = {trade.trade_id for trade in trades if trade.version != 1}
    several |= _corrected(tenant, names - several)
    for page in in_short_lists(several):
        trades.extend(bulk_facts(TradeFact, rows.filter(trade_id__in=page).exclude(customer_id__in=ids)))
    positions = bulk_facts(PositionFact, CorePosition.objects.filter(tenant=tenant, customer_id__in=ids))
    in_play = {row.product_id for row in trades} | {row.product_id for row in positions}
    return assembled(
        ids,
        trades,
        facts_of(CustomerFact, CoreCustomer.objects.filter(tenant=tenant, customer_id__in=ids)),
        facts_of(AssessmentFact, CoreAssessment.objects.filter(tenant=tenant, customer_id__in=ids)),
        positions,
        facts_of(ProductFact, CoreProduct.objects.filter(tenant=tenant, product_id__in=in_play)),
    )


def _corrected(tenant: str, names: Collection[str]) -> set[str]:
    """Which of these trades have a version that is not the first. One query, two where corrections are many.

    Corrections are few, so all of the tenant's are read by their index, up to a quarter of what is asked about: looking
    up each trade costs as much as reading four. Beyond that, and in a core of the firm's own, which need not have the
    index, they are looked up by the index of the trades.
    """
    if not any(names):
        return set()
    rows = CoreTrade.objects.filter(tenant=tenant).exclude(version=1).order_by().values_list("trade_id", flat=True)
    if not settings.CORE_IS_EXTERNAL:
        limit = max(DIVES, len(names) // 4)
        if len(found := set(rows[: limit + 1])) <= limit:
            return found.intersection(names)
    parts = [rows.filter(trade_id__in=page) for page in in_short_lists(names)]
    return set(parts[0].union(*parts[1:], all=True) if len(parts) > 1 else parts[0])


def versions_elsewhere(tenant: str, trades: Iterable[TradeFact], ids: Collection[str]) -> list[QuerySet[CoreTrade]]:
    """Versions of these trades that name none of the customers `ids`, for a UNION; nothing is read yet.

    By ids and not by a sub-query or a join: where the server has old statistics, as after a large import, it would
    rather read the whole table. And in short lists, each value of which it looks up, whatever its statistics say.
    """
    rows = CoreTrade.objects.filter(tenant=tenant).exclude(customer_id__in=ids).order_by()
    return [rows.filter(trade_id__in=page) for page in in_short_lists({trade.trade_id for trade in trades})]


def in_short_lists(names: Collection[str]) -> list[list[str]]:
    """In order, at most DIVES in each as long as PARTS are enough."""
    ordered = sorted(filter(None, names))  # a core of the firm's own may hold NULL where a name should be
    size = max(DIVES, -(-len(ordered) // PARTS))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def assembled(
    ids: Sequence[str],
    trades: Iterable[TradeFact],
    customers: Iterable[CustomerFact],
    assessments: Iterable[AssessmentFact],
    positions: Iterable[PositionFact],
    products: Iterable[ProductFact],
) -> dict[str, CustomerRows]:
    """Rows of several customers, told apart: by id, for each of `ids`."""
    wanted = set(ids)
    versions: dict[str, list[TradeFact]] = defaultdict(list)
    for trade in trades:
        versions[trade.trade_id].append(trade)
    trades_by: dict[str, list[TradeFact]] = defaultdict(list)
    for rows in versions.values():
        if len(rows) == 1:
            trades_by[rows[0].customer_id].append(rows[0])
        else:
            for customer_id in {row.customer_id for row in rows} & wanted:
                trades_by[customer_id].extend(rows)
    customers_by = _grouped(customers)
    assessments_by = _grouped(assessments)
    positions_by = _grouped(positions)
    products_by: dict[str, list[ProductFact]] = defaultdict(list)
    for product_row in products:
        products_by[product_row.product_id].append(product_row)
    found = {}
    for customer_id in ids:
        own_trades, own_positions = trades_by.get(customer_id, ()), positions_by.get(customer_id, ())
        named = {row.product_id for row in own_trades}
        named.update([row.product_id for row in own_positions])
        found[customer_id] = CustomerRows(
            customer_id=customer_id,
            customers=tuple(customers_by.get(customer_id, ())),
            assessments=tuple(assessments_by.get(customer_id, ())),
            positions=tuple(own_positions),
            trades=tuple(own_trades),
            products=tuple(
                row for product_id in sorted(filter(None, named)) for row in products_by.get(product_id, ())
            ),
        )
    return found


def _grouped(facts: Iterable[Fact]) -> Mapping[str, list[Fact]]:
    groups: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        groups[fact.customer_id].append(fact)  # type: ignore[attr-defined]
    return groups


def known_customer_ids(*, tenant: str) -> list[str]:
    """Every customer id that a customer row or a trade names, by bytes."""
    ids = set(CoreCustomer.objects.filter(tenant=tenant).values_list("customer_id", flat=True).distinct())
    ids.update(CoreTrade.objects.filter(tenant=tenant).values_list("customer_id", flat=True).distinct())
    return sorted(filter(None, ids))


def known_tenants() -> list[str]:
    """Every tenant that has customers or trades."""
    found = set(CoreCustomer.objects.values_list("tenant", flat=True).distinct())
    found.update(CoreTrade.objects.values_list("tenant", flat=True).distinct())
    return sorted(filter(None, found))
