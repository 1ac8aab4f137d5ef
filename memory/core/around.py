"""All that rules need about the customers of one trade, in two queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.db.models import BooleanField, CharField, DateField, DateTimeField, IntegerField, QuerySet, Value

from config.base.fields import IdField
from memory.core.facts import AssessmentFact, CustomerFact, CustomerRows, PositionFact, ProductFact, TradeFact
from memory.core.fields import ExactDecimalField
from memory.core.models import CoreAssessment, CoreCustomer, CorePosition, CoreProduct, CoreTrade
from memory.core.selectors import assembled, facts_of, versions_elsewhere

# The columns of the one answer that holds four tables: kind, then each table's own by type, NULL where it has none.
_KINDS = (CustomerFact, AssessmentFact, PositionFact, ProductFact)
_COLUMNS: Sequence[tuple[str, Any]] = (
    ("kind_of_row", IntegerField()), ("id_1", IdField()), ("id_2", IdField()),
    ("text_1", CharField()), ("text_2", CharField()), ("text_3", CharField()),
    ("moment_1", DateTimeField()), ("moment_2", DateTimeField()), ("day", DateField()), ("level", IntegerField()),
    ("flag_1", BooleanField(null=True)), ("flag_2", BooleanField(null=True)),
    ("number_1", ExactDecimalField()), ("number_2", ExactDecimalField()),
)  # fmt: skip


def _spread(kind: int, rows: QuerySet[Any], **columns: str) -> QuerySet[Any, tuple[Any, ...]]:
    absent = {
        f"{name}_": Value(kind if name == "kind_of_row" else None, output_field=field)
        for name, field in _COLUMNS
        if name not in columns
    }
    return rows.annotate(**absent).order_by().values_list(*(columns.get(name, f"{name}_") for name, _ in _COLUMNS))


def _others(
    tenant: str, ids: Collection[str], products: Collection[str], elsewhere: Sequence[QuerySet[CoreTrade]]
) -> Iterator[Any]:
    """Customers, assessments, positions and products as facts, and the ids of the trades `elsewhere`. One query."""
    held = CorePosition.objects.filter(tenant=tenant, customer_id__in=ids)
    rows_of_products = CoreProduct.objects.filter(tenant=tenant)
    # Two parts, not one with OR: each is a look-up by the index.
    product_parts = [
        rows_of_products.filter(product_id__in=products),
        rows_of_products.filter(product_id__in=held.values("product_id")).exclude(product_id__in=products),
    ]
    parts = (
        _spread(
            0, CoreCustomer.objects.filter(tenant=tenant, customer_id__in=ids), id_1="customer_id",
            moment_1="valid_from", text_1="name", text_2="kind", day="birth_date", text_3="investor_type",
            moment_2="opened_at",
        ),
        _spread(
            1, CoreAssessment.objects.filter(tenant=tenant, customer_id__in=ids), id_1="customer_id",
            moment_1="assessed_at", level="c_level", flag_1="is_lowest",
        ),
        _spread(
            2, held, id_1="customer_id", id_2="product_id", day="as_of", number_1="quantity", number_2="market_value"
        ),
        *(
            _spread(
                3, rows, id_1="product_id", moment_1="valid_from", id_2="issuer_id", text_1="asset_class",
                level="risk_level", flag_1="is_complex", flag_2="is_cash_like",
            )
            for rows in product_parts
        ),
        *(_spread(4, rows, id_1="trade_id") for rows in elsewhere),
    )  # fmt: skip
    for row in parts[0].union(*parts[1:], all=True):
        kind, id_1, id_2, text_1, text_2, text_3, moment_1, moment_2, day, level, flag_1, flag_2, n_1, n_2 = row
        if kind == 0:
            yield CustomerFact(id_1, moment_1, text_1, text_2, day, text_3, moment_2)
        elif kind == 1:
            yield AssessmentFact(id_1, moment_1, level, flag_1)
        elif kind == 2:
            yield PositionFact(id_1, id_2, day, n_1, n_2)
        elif kind == 4:
            yield id_1
        else:
            yield ProductFact(id_1, moment_1, id_2, text_1, level, flag_1, flag_2)


def facts_around(*, tenant: str, trade_id: str) -> dict[str, CustomerRows]:
    """As `customers_facts`, of the customers whom any version of the trade names; empty where there is no such trade.

    Two queries, whatever the history: its own rows by index, no others; two more where a version of one of these
    customers' trades names somebody else.
    """
    versions = CoreTrade.objects.filter(tenant=tenant, trade_id=trade_id)
    rows = CoreTrade.objects.filter(tenant=tenant)
    trades = list(facts_of(TradeFact, rows.filter(customer_id__in=versions.values("customer_id"))))
    ids = sorted({trade.customer_id for trade in trades if trade.trade_id == trade_id})
    if not ids:
        return {}
    elsewhere = versions_elsewhere(tenant, trades, ids)
    groups = _grouped_by_kind(_others(tenant, ids, {trade.product_id for trade in trades}, elsewhere))
    if moved := groups.get(str):
        trades.extend(facts_of(TradeFact, rows.filter(trade_id__in=set(moved)).exclude(customer_id__in=ids)))
        groups = _grouped_by_kind(_others(tenant, ids, {trade.product_id for trade in trades}, []))
    return assembled(ids, trades, *(groups.get(kind, []) for kind in _KINDS))


def _grouped_by_kind(facts: Iterator[Any]) -> dict[type, list[Any]]:
    groups: dict[type, list[Any]] = defaultdict(list)
    for fact in facts:
        groups[type(fact)].append(fact)
    return groups
