"""Advisor snapshots: what they say, where they are kept, whom they are for, what they cost."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from config.base.errors import DomainError
from config.base.keys import prefixed
from guard.audit.models import AuditLog
from memory.core.models import CoreAssignment, CorePosition
from memory.erasure.services import erase_customer
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.snapshots import services
from memory.profiles.snapshots.selectors import snapshot_of_customer
from tests.counting import counted_round_trips
from tests.memory.profiles.helpers import (
    ALICE,
    BOB,
    LIN,
    WEI,
    make_agent,
    make_assessment,
    make_assignment,
    make_caller,
    make_core_customer,
)
from tests.memory.profiles.holdings import (
    KEY,
    TODAY,
    cached,
    copy,
    make_alice,
    make_position,
    make_product,
    snapshot,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(transactional_db: None) -> None:
    make_alice()


# --- what it says -------------------------------------------------------------------------------------------------


def test_it_sums_up_what_the_customer_holds(alice: None) -> None:
    make_position("p5", "100000", TODAY - timedelta(days=31))
    make_position("p5", "1", TODAY - timedelta(days=29))
    found = snapshot()
    assert (found["schema_version"], found["as_of"], found["currency"]) == (1, TODAY.isoformat(), "CNY")
    assert found["total"] == "200000.005"
    assert [(line["asset_class"], line["amount"], line["share"]) for line in found["by_class"]] == [
        ("equity", "150000.00", "0.750000"),
        ("fixed_income", "30000.005", "0.150000"),
        ("cash", "20000.00", "0.100000"),
    ]
    assert found["top_share"] == {"product_id": "p5", "share": "0.750000"}
    assert found["cash_like"] == {"amount": "20000.00", "share": "0.100000"}
    assert found["change_30d"] == {
        "from": (TODAY - timedelta(days=31)).isoformat(), "amount": "100000.005", "pct": "100.00", "reason": None,
    }  # fmt: skip
    assert found["suitability_flags"]["codes"] == ["product_above_tolerance"]
    [above] = found["suitability_flags"]["flags"]
    assert (above["product_id"], above["risk_level"], above["tolerance"]) == ("p5", "R5", "C3")
    flags = found["concentration_flags"]
    assert flags["rule"] == "RISK-002@1"
    assert [(flag["dimension"], flag["id"], flag["limit"]) for flag in flags["flags"]] == [
        ("issuer", "i1", "0.500000"),
        ("product", "p5", "0.400000"),
    ]
    assert (found["stale"], found["assessment"]["status"]) == (False, "valid")


def test_the_limits_are_those_of_the_rule_in_force(alice: None) -> None:
    from risk.rules.models import RiskRule, RuleStatus

    rule = {"rule_id": "RISK-002", "version": 1}
    RiskRule.objects.create(**rule, status=RuleStatus.ACTIVE, params={"product_limit": "0.9", "issuer_limit": "0.7"})
    assert [flag["limit"] for flag in snapshot()["concentration_flags"]["flags"]] == ["0.700000"]


def test_many_products_are_all_counted(alice: None) -> None:
    for number in range(30):
        make_product(f"x{number:02}", 1, issuer_id="i9")
        make_position(f"x{number:02}", str(100 + number))
    found = snapshot()["by_product"]
    assert (found["count"], len(found["top"]), found["other"]["count"]) == (33, 10, 23)
    assert [line["product_id"] for line in found["top"][:4]] == ["p5", "b2", "c1", "x29"]
    assert found["other"]["amount"] == f"{sum(100 + n for n in range(23))}.00"


def test_what_is_not_known_is_said_and_not_made_up(alice: None) -> None:
    CorePosition.objects.all().delete()
    make_product("n1", 3, "")
    make_position("n1", "0", quantity="5")
    make_position("ghost", "10")
    make_position("debt", "-4")
    found = snapshot()
    assert found["total"] == "10.00"
    assert [line["asset_class"] for line in found["by_class"]] == ["unknown"]
    assert found["change_30d"]["reason"] == "no_positions_30_days_before"
    assert found["data_quality"] == {
        "no_positions": False,
        "unknown_products": {"count": 2, "ids": ["debt", "ghost"]},
        "products_without_class": {"count": 1, "ids": ["n1"]},
        "positions_without_value": {"count": 1, "ids": ["n1"]},
        "negative_positions": {"count": 1, "ids": ["debt"]},
    }


def test_a_customer_with_nothing_has_an_empty_snapshot(alice: None) -> None:
    CorePosition.objects.all().delete()
    found = snapshot()
    assert (found["total"], found["as_of"], found["top_share"]) == ("0.00", None, None)
    assert found["data_quality"]["no_positions"]
    assert found["change_30d"]["reason"] == "no_positions"


def test_an_assessment_that_runs_out_while_cached_is_shown_as_expired(alice: None) -> None:
    assert snapshot()["assessment"]["status"] == "valid"
    later = snapshot(at=now() + timedelta(days=400))
    assert (later["assessment"]["status"], later["suitability_flags"]["codes"]) == (
        "expired", ["assessment_expired", "product_above_tolerance"],
    )  # fmt: skip


def test_a_professional_is_exempt_from_matching(alice: None) -> None:
    from memory.core.models import CoreCustomer

    CoreCustomer.objects.update(investor_type="professional")
    assert snapshot()["suitability_flags"] == {"codes": [], "count": 0, "amount": "0.00", "flags": []}


# --- copy, cache, costs -------------------------------------------------------------------------------------------


def test_the_cache_and_the_authoritative_copy_are_the_same_and_live_as_agreed(alice: None) -> None:
    found = snapshot()
    assert cached() == copy()
    assert copy().items() <= {**found, "suitability_flags": copy()["suitability_flags"],
                              "assessment": copy()["assessment"]}.items()  # fmt: skip
    assert 890 <= leased.client().ttl(prefixed(KEY)) <= 900
    row = CustomerProfileL2.objects.get()
    assert (row.version, row.updated_by, row.payload) == (1, "advisor-snapshot", {})
    assert row.snapshot_at is not None
    written = AuditLog.objects.filter(event_type="profile_write").get()
    assert written.input_summary["columns"] == ["asset_snapshot"]


def test_equal_figures_make_no_new_version_and_others_do(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot()
    first = copy()
    for _ in range(3):
        leased.drop([services.place_of("default", WEI, ALICE)])
        snapshot()
    assert (CustomerProfileL2.objects.get().version, copy(), cached()) == (1, first, first)
    make_position("b2", "1", TODAY - timedelta(days=40))
    leased.drop([services.place_of("default", WEI, ALICE)])
    snapshot()
    assert CustomerProfileL2.objects.get().version == 2
    # A day later equal figures are confirmed once.
    tomorrow = services.database_now() + timedelta(days=1, seconds=1)
    monkeypatch.setattr(services, "database_now", lambda: tomorrow)
    for _ in range(2):
        leased.drop([services.place_of("default", WEI, ALICE)])
        snapshot()
    assert CustomerProfileL2.objects.get().version == 3


def test_the_advisors_own_fields_stay(alice: None) -> None:
    from memory.profiles.services import write_l2

    write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload={"stage": "lead"})
    snapshot()
    row = CustomerProfileL2.objects.get()
    assert (row.payload["stage"], row.asset_snapshot["total"]) == ("lead", "200000.005")


@pytest.mark.parametrize("positions", [5, 500])
def test_a_load_costs_the_same_queries_whatever_is_held(transactional_db: None, positions: int) -> None:
    make_core_customer()
    make_assessment()
    make_assignment()
    for number in range(positions):
        make_product(f"x{number:03}", 1 + number % 5, issuer_id=f"i{number % 7}")
    for day in (TODAY, TODAY - timedelta(days=30)):
        rows = [
            CorePosition(customer_id=ALICE, product_id=f"x{n:03}", as_of=day, market_value=1000 + n)
            for n in range(positions)
        ]
        CorePosition.objects.bulk_create(rows)
    snapshot()  # a first version costs more
    leased.drop([services.place_of("default", WEI, ALICE)])
    with CaptureQueriesContext(connection) as queries:
        assert snapshot()["by_product"]["count"] == positions
    tables = re.compile(r"FROM .core_(?:assignment|position|product|assessment|customer)\b")
    core = [query["sql"] for query in queries if tables.search(query["sql"])]
    assert len(core) == 1 + 5  # the assignment, and the five of a load
    # clock (on MySQL), rule, import, lock; begin and commit are not statements on MySQL
    assert len([q for q in queries if "SELECT" in q["sql"]]) == 9 + (connection.vendor == "mysql")


def test_a_hit_costs_one_round_trip_and_the_assignment(alice: None) -> None:
    with counted_round_trips() as sent:
        snapshot()
    assert sent.count("EVALSHA") + sent.count("EVAL") >= 2
    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        snapshot()
    assert (sent, len(queries)) == (["EVALSHA"], 1)


# --- whom it is for -----------------------------------------------------------------------------------------------


def test_only_the_assigned_advisor_reads_it_and_refusals_are_audited(alice: None) -> None:
    assert make_agent("advisor").get(f"/snapshots/{WEI}/{ALICE}").json()["total"] == "200000.005"
    for agent, path, code in (
        (make_agent("advisor"), f"/snapshots/{WEI}/{BOB}", "NOT_ASSIGNED"),
        (make_agent("advisor", LIN), f"/snapshots/{WEI}/{ALICE}", "NOT_OWNER"),
        (make_agent("advisor", LIN), f"/snapshots/{LIN}/{ALICE}", "NOT_ASSIGNED"),
        (make_agent("customer"), f"/snapshots/{WEI}/{ALICE}", "AUTH_403_SCOPE"),
        (make_agent("analyst"), f"/snapshots/{WEI}/{ALICE}", "AUTH_403_SCOPE"),
        (make_agent("risk"), f"/snapshots/{WEI}/{ALICE}", "AUTH_403_SCOPE"),
    ):
        before = AuditLog.objects.filter(event_type="authz").count()
        answer = agent.get(path)
        assert (answer.status_code, answer.json()["code"]) == (403, code)
        assert AuditLog.objects.filter(event_type="authz").count() == before + 1
    CoreAssignment.objects.update(valid_to=now() - timedelta(seconds=2))
    assert make_agent("advisor").get(f"/snapshots/{WEI}/{ALICE}").json()["code"] == "NOT_ASSIGNED"
    assert make_agent("advisor").get(f"/snapshots/{WEI}/a:b").json()["code"] == "INVALID_ID"


def test_officers_pages_get_the_newest_copy_without_core_and_redis(alice: None, django_assert_num_queries: Any) -> None:
    assert snapshot_of_customer(tenant="default", customer_id=ALICE) is None
    snapshot()
    with django_assert_num_queries(1):
        found = snapshot_of_customer(tenant="default", customer_id=ALICE)
    assert found is not None
    assert (found.advisor_id, found.document["total"]) == (WEI, "200000.005")


def test_an_erased_customer_has_none_and_gets_none(alice: None) -> None:
    snapshot()
    erase_customer(tenant="default", customer_id=ALICE, by="dpo")
    assert cached() is None
    assert copy() is None
    with pytest.raises(DomainError, match="CUSTOMER_ERASED"):
        snapshot()
    assert cached() is None


@pytest.mark.parametrize(
    ("value", "quantity", "flagged"),
    [("0", "0", False), ("0", None, False), ("-5", "-1", False), ("0", "3", True), ("0.01", "0", True)],
)
def test_what_is_not_held_is_above_no_tolerance(alice: None, value: str, quantity: str | None, flagged: bool) -> None:
    make_product("p4", 4)
    make_position("p4", value, quantity=quantity)
    over = snapshot()["suitability_flags"]
    assert [line["product_id"] for line in over["flags"]] == ["p5", "p4"][: 1 + flagged]
    assert over["count"] == 1 + flagged
