"""Facts read many at a time are those that are read one by one; which trades were corrected is told by an index."""

from __future__ import annotations

import random
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.core import selectors
from memory.core.facts import AssessmentFact, CustomerFact, PositionFact, ProductFact, TradeFact
from memory.core.models import CoreAssessment, CoreCustomer, CorePosition, CoreProduct, CoreTrade
from memory.core.quick import bulk_facts
from memory.core.selectors import customers_facts, facts_of
from tests.bench.scans import make_customers, make_products, trades_of

pytestmark = pytest.mark.django_db


def make_trades(*names: str, each: int = 30) -> None:
    rng = random.Random(5)
    for name in names:
        CoreTrade.objects.bulk_create(trades_of("default", name, each, rng))


def correct(trade_id: str, **changes: Any) -> None:
    row = CoreTrade.objects.get(trade_id=trade_id, version=1)
    row.pk, row.version = None, 2
    for name, value in changes.items():
        setattr(row, name, value)
    row.save(force_insert=True)


def test_the_same_facts_as_one_by_one() -> None:
    make_products("default")
    make_customers("default", ["c1", "c2"])
    make_trades("c1", "c2")
    correct(
        "c1-0000001", traded_at=datetime(2026, 3, 1, 16, 0, 0, 1, tzinfo=UTC), cross_border=None, solicited=None,
        fx_usd=None, price=None, fee=None, quantity=Decimal("-0.00000000000000000001"),
        amount=Decimal("9999999999999999999999999999.99999999999999999999"), product_id="产品", currency="",
    )  # fmt: skip
    CoreCustomer.objects.create(customer_id="c3", valid_from=datetime(1000, 1, 1, tzinfo=UTC), name="", kind="natural")
    for kind, model in (
        (TradeFact, CoreTrade), (CustomerFact, CoreCustomer), (AssessmentFact, CoreAssessment),
        (PositionFact, CorePosition), (ProductFact, CoreProduct),
    ):  # fmt: skip
        rows: Any = model.objects.order_by("pk")
        quick, slow = bulk_facts(kind, rows), list(facts_of(kind, rows))
        assert quick == slow
        assert [repr(type(value)) for row in quick for value in values(row)] == [
            repr(type(value)) for row in slow for value in values(row)
        ]
    assert bulk_facts(TradeFact, CoreTrade.objects.none()) == []
    assert bulk_facts(TradeFact, CoreTrade.objects.filter(customer_id__in=[])) == []


def values(row: Any) -> list[Any]:
    return [getattr(row, name) for name in type(row).__slots__]


def test_they_are_frozen_and_have_a_hash() -> None:
    make_trades("c1", each=1)
    quick, slow = bulk_facts(TradeFact, CoreTrade.objects.all()), list(facts_of(TradeFact, CoreTrade.objects.all()))
    assert type(quick[0]) is TradeFact
    assert set(quick) == set(slow)
    with pytest.raises(FrozenInstanceError):
        quick[0].status = "cancelled"  # type: ignore[misc]


@pytest.mark.parametrize("corrected", [0, 1, 8])
def test_corrections_are_found_few_or_many(corrected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever else has them now; more than are read at once are looked up."""
    monkeypatch.setattr(selectors, "DIVES", 3)
    make_trades("c1", "c2", each=16)
    for number in range(corrected):
        correct(f"c1-{number:07d}", customer_id="c9")
    with CaptureQueriesContext(
        connection,
    ) as asked:
        found = customers_facts(tenant="default", customer_ids=["c1"])["c1"]
    assert len(found.trades) == 16 + corrected
    assert {row.trade_id for row in found.trades if row.customer_id == "c9"} == {
        f"c1-{number:07d}" for number in range(corrected)
    }
    assert any(" UNION " in query["sql"] for query in asked.captured_queries) == (corrected > 4)


def test_what_was_corrected_in_another_tenant_is_another_trade() -> None:
    make_trades("c1", each=4)
    for row in CoreTrade.objects.filter(customer_id="c1"):
        row.pk, row.tenant, row.version, row.customer_id = None, "other", 2, "c9"
        row.save(force_insert=True)
    assert {row.customer_id for row in customers_facts(tenant="default", customer_ids=["c1"])["c1"].trades} == {"c1"}
