"""Selectors and router: who has whom, what is in force, in how many queries."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from config.base.errors import DomainError
from guard.access import services as access
from memory.core import selectors
from memory.core.models import FACT_MODELS, CoreChange, CoreCustomer, CoreImport, CoreTrade
from memory.core.router import CoreRouter
from tests.memory.core.build import ASSIGNMENT, CUSTOMER, POSITION, PRODUCT, TRADE, a_small_core, load

pytestmark = pytest.mark.django_db


def test_an_assignment_holds_from_its_first_instant_up_to_its_end_and_not_at_it(tmp_path: Path) -> None:
    load(
        tmp_path,
        assignments=[{**ASSIGNMENT, "valid_to": "2026-06-01T00:00:00+08:00"}, {**ASSIGNMENT, "advisor_id": "a2"}],
    )
    start, end = datetime(2025, 12, 31, 16, tzinfo=UTC), datetime(2026, 5, 31, 16, tzinfo=UTC)
    instant = timedelta(microseconds=1)

    def assigned(advisor: str, at: datetime) -> bool:
        return selectors.is_assigned("default", advisor, "c1", at)

    assert [assigned("a1", at) for at in (start - instant, start, end - instant, end)] == [False, True, True, False]
    assert assigned("a2", end + timedelta(days=9999))
    assert not assigned("A2", end)
    assert not selectors.is_assigned("other", "a2", "c1", end)
    assert selectors.advisors_of(tenant="default", customer_id="c1", at=start) == ["a1", "a2"]


def test_access_asks_the_core(tmp_path: Path) -> None:
    load(tmp_path, assignments=[ASSIGNMENT])
    assert access.is_assigned(tenant="default", advisor_id="a1", customer_id="c1")
    assert not access.is_assigned(tenant="default", advisor_id="a9", customer_id="c1")


def test_the_row_in_force_counts(tmp_path: Path) -> None:
    load(
        tmp_path,
        customers=[CUSTOMER, {**CUSTOMER, "investor_type": "professional", "valid_from": "2026-06-01T00:00:00Z"}],
        products=[{**PRODUCT, "valid_from": "2026-06-01"}],
    )
    before, after = datetime(2026, 5, 31, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    rows = [selectors.customer(tenant="default", customer_id="c1", at=at) for at in (before, after)]
    assert [row and row.investor_type for row in rows] == ["ordinary", "professional"]
    # A bare day begins at midnight in Shanghai.
    edge = datetime(2026, 5, 31, 16, tzinfo=UTC)
    assert selectors.product(tenant="default", product_id="p5", at=edge - timedelta(seconds=1)) is None
    assert selectors.product(tenant="default", product_id="p5", at=edge) is not None


def test_facts_of_many_customers_cost_six_queries(tmp_path: Path, django_assert_num_queries: Any) -> None:
    trades = [{**TRADE, "trade_id": f"t{n}", "customer_id": f"c{n % 7}"} for n in range(40)]
    a_small_core(tmp_path, trades=trades)
    with django_assert_num_queries(6):
        facts = selectors.customers_facts(tenant="default", customer_ids=[f"c{n}" for n in range(9)])
    assert len(facts) == 9
    assert sum(len(rows.trades) for rows in facts.values()) == 40
    assert facts["c8"].trades == ()
    with django_assert_num_queries(6):
        assert selectors.customer_facts(tenant="default", customer_id="c1").positions[0].product_id == "p5"


def test_all_versions_of_a_trade_come_whoever_they_name(tmp_path: Path) -> None:
    load(tmp_path, trades=[TRADE, {**TRADE, "version": "2", "customer_id": "c2"}])
    facts = selectors.customers_facts(tenant="default", customer_ids=["c1", "c2"])
    assert sorted(row.version for row in facts["c1"].trades) == [1, 2]
    assert sorted(row.version for row in facts["c2"].trades) == [1, 2]
    assert selectors.recent_trades(tenant="default", customer_id="c1") == []
    assert [row.version for row in selectors.recent_trades(tenant="default", customer_id="c2")] == [2]


def test_an_external_core_is_read_there_and_never_written(settings: Any) -> None:
    settings.CORE_IS_EXTERNAL = True
    router = CoreRouter()
    for model in FACT_MODELS:
        assert router.db_for_read(model) == "core"
        assert router.allow_migrate("default", "memory", model_name=model._meta.model_name) is False
        with pytest.raises(DomainError, match="CORE_READ_ONLY"):
            router.db_for_write(model)
    for ours in (CoreChange, CoreImport):
        assert router.db_for_read(ours) is None
        assert router.db_for_write(ours) is None
        assert router.allow_migrate("default", "memory", model_name=ours._meta.model_name) is None
    assert router.allow_migrate("core", "auth") is False


def test_code_that_names_the_database_is_refused_too(settings: Any) -> None:
    settings.CORE_IS_EXTERNAL = True
    rows = CoreCustomer.objects.using("default")
    attempts = [
        lambda: rows.create(customer_id="c1"),
        lambda: rows.bulk_create([CoreCustomer(customer_id="c1")]),
        lambda: rows.filter(customer_id="c1").update(name="x"),
        lambda: rows.filter(customer_id="c1").delete(),
        lambda: CoreCustomer(customer_id="c1").save(using="default"),
        lambda: CoreCustomer(pk=1, customer_id="c1").delete(using="default"),
        lambda: CoreTrade.objects.using("default").bulk_update([], ["amount"]),
        lambda: rows.get_or_create(customer_id="c1"),
    ]
    for attempt in attempts:
        with pytest.raises(DomainError, match="CORE_READ_ONLY"):
            attempt()


def test_without_an_external_core_everything_lives_in_the_main_database() -> None:
    router = CoreRouter()
    assert router.db_for_read(CoreTrade) is None
    assert router.db_for_write(CoreTrade) is None
    assert router.allow_migrate("default", "memory", model_name="coretrade") is True


def test_positions_as_of_a_day_are_the_newest_snapshot_by_then_as_a_whole(
    tmp_path: Path, django_assert_num_queries: Any
) -> None:
    load(
        tmp_path,
        positions=[
            {**POSITION, "as_of": "2026-05-30", "product_id": "p1", "market_value": "5"},
            {**POSITION, "as_of": "2026-05-30", "product_id": "p2", "market_value": "7"},
            {**POSITION, "as_of": "2026-06-02", "product_id": "p2", "market_value": "9"},
            {**POSITION, "as_of": "2026-06-02", "product_id": "p9", "customer_id": "c2"},
        ],
    )

    def held(day: date | None) -> dict[str, str]:
        with django_assert_num_queries(1):
            found = selectors.positions_as_of(tenant="default", customer_id="c1", day=day)
        return {fact.product_id: str(fact.market_value) for fact in found}

    assert held(date(2026, 5, 29)) == {}
    assert held(date(2026, 5, 30)) == held(date(2026, 6, 1)) == {"p1": "5", "p2": "7"}
    assert held(date(2026, 6, 2)) == held(None) == {"p2": "9"}
    assert selectors.positions_as_of(tenant="other", customer_id="c1") == []
