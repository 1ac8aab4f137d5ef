"""Advisor snapshots: what they say, whom they are for, what they cost, and what an outage does to them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import business_date, now
from config.base.errors import DomainError
from config.base.keys import prefixed
from guard.audit.models import AuditLog
from memory.core import window
from memory.core.importer import import_tables
from memory.core.models import CoreAssignment, CorePosition, CoreProduct
from memory.erasure.services import erase_customer
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.snapshots import services
from memory.profiles.snapshots.selectors import read_snapshot, snapshot_of_customer
from tests.counting import counted_round_trips
from tests.memory.core.external import external_core, make_sqlite_core
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
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

TODAY = business_date(now())
KEY = f"cache:advisor:snapshot:{WEI}:{ALICE}"


def make_product(product_id: str, level: int = 3, asset_class: str = "equity", **more: Any) -> None:
    CoreProduct.objects.create(product_id=product_id, risk_level=level, asset_class=asset_class, **more)


def make_position(product_id: str, value: str, day: date = TODAY, customer_id: str = ALICE, **more: Any) -> None:
    CorePosition.objects.create(
        customer_id=customer_id, product_id=product_id, as_of=day, market_value=value, **{"quantity": "1", **more}
    )


def snapshot(**more: Any) -> dict[str, Any]:
    return read_snapshot(caller=make_caller("advisor"), advisor_id=WEI, customer_id=ALICE, **more)


def cached() -> Any:
    value = leased.client().get(prefixed(KEY))
    return json.loads(value) if value else None


def copy() -> Any:
    row = CustomerProfileL2.objects.filter(customer_id=ALICE, advisor_id=WEI).first()
    return row and row.asset_snapshot


@pytest.fixture
def alice(transactional_db: None) -> None:
    """Alice, C3, whom Wei has: 150,000 in an R5 equity fund, 30,000 in bonds, 20,000 in cash."""
    make_core_customer()
    make_assessment()
    make_assignment()
    make_product("p5", 5, issuer_id="i1")
    make_product("b2", 2, "fixed_income", issuer_id="i2")
    make_product("c1", 1, "cash", is_cash_like=True)
    make_position("p5", "150000.00")
    make_position("b2", "30000.005")
    make_position("c1", "20000")


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


# --- races --------------------------------------------------------------------------------------------------------


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Runs them at once and gives what each answered or raised."""
    answers: list[Any] = [None] * len(work)

    def run(place: int) -> None:
        try:
            answers[place] = work[place]()
        except Exception as error:
            answers[place] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return answers


def test_of_two_hundred_readers_one_loads(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    original = services.read_core

    def read_core(**which: Any) -> Any:
        loads.append(1)
        return original(**which)

    monkeypatch.setattr(services, "read_core", read_core)
    answers = in_threads(*[snapshot] * 200)
    assert {answer["total"] for answer in answers} == {"200000.005"}
    assert len(loads) == 1
    assert CustomerProfileL2.objects.get().version == 1


def imported(value: str) -> None:
    row = {"customer_id": ALICE, "product_id": "p5", "as_of": TODAY.isoformat(), "market_value": value}
    import_tables(tenant="default", tables={"positions.csv": [row]})


def test_a_slow_load_never_puts_an_old_one_over_a_newer(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Wei's agent reads the core and is held up; 2. an import changes a position; 3. another reads, loads, fills;
    4. the slow one goes on: neither the copy nor the cache take it."""
    read, go_on = threading.Event(), threading.Event()
    original = services.read_core
    slow: list[bool] = []

    def read_core(**which: Any) -> Any:
        rows = original(**which)
        if not slow:
            slow.append(True)
            read.set()
            assert go_on.wait(20)
        return rows

    monkeypatch.setattr(services, "read_core", read_core)
    answers: list[Any] = []
    held_up = threading.Thread(target=lambda: answers.extend(in_threads(snapshot)))
    held_up.start()
    assert read.wait(20)
    imported("160000")
    assert snapshot()["total"] == "210000.005"
    go_on.set()
    held_up.join(20)
    assert answers[0]["total"] == "210000.005"  # it answers the newer copy, too
    assert cached()["total"] == copy()["total"] == snapshot()["total"] == "210000.005"


def test_a_slow_load_gives_way_to_one_that_found_the_old_figures_again(
    alice: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A copy stands; 2. other figures come, and a load that reads them is held up; 3. the first figures are back,
    and a load finds them; 4. the slow one goes on."""
    first = snapshot()["total"]
    before = CustomerProfileL2.objects.get().version
    imported("160000")
    rows = services.read_core(tenant="default", customer_id=ALICE, at=services.database_now())
    original = services.read_core

    def held_up(**which: Any) -> Any:
        monkeypatch.setattr(services, "read_core", original)
        imported("150000")
        assert snapshot()["total"] == first
        return rows

    monkeypatch.setattr(services, "read_core", held_up)
    slow = services.load_snapshot(tenant="default", advisor_id=WEI, customer_id=ALICE)
    assert slow["total"] == copy()["total"] == cached()["total"] == snapshot()["total"] == first
    assert CustomerProfileL2.objects.get().version == before


def test_a_slow_load_keeps_nothing_that_an_import_has_outdated(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    original = services.read_core
    monkeypatch.setattr(services, "read_core", lambda **which: (original(**which), imported("160000"))[0])
    snapshot()
    assert cached() is None
    monkeypatch.setattr(services, "read_core", original)
    assert snapshot()["total"] == "210000.005"


def test_an_import_that_dies_after_its_commit_leaves_nothing_old(alice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The import deletes, and nothing is kept while it is at work; 2. it commits and is killed before it deletes
    again; 3. readers see the new facts at once, and are cached again when the hold has run out."""
    snapshot()
    monkeypatch.setattr(leased, "drop_quietly", lambda places: False)  # killed
    seen: list[Any] = []
    monkeypatch.setattr(
        services.core, "core_as_of", lambda tenant: seen.append(cached())
    )  # a reader in the middle, too, keeps nothing
    imported("160000")
    assert cached() is None
    assert snapshot()["total"] == "210000.005"
    assert cached() is None
    leased.client().delete(prefixed(f"{KEY}:load"))  # the 20 s are over
    assert snapshot()["total"] == "210000.005"
    assert cached()["total"] == "210000.005"
    assert seen == [None, None]


def test_an_import_invalidates_and_a_rolled_back_one_does_not(alice: None) -> None:
    from django.db import transaction

    assert snapshot()["total"] == "200000.005"
    with transaction.atomic():
        imported("160000")
        transaction.set_rollback(True)
    assert snapshot()["total"] == "200000.005"
    imported("160000")
    assert cached() is None
    assert snapshot()["total"] == "210000.005"
    # A product's new rating changes what the snapshots of its holders say.
    import_tables(tenant="default", tables={"products.csv": [{"product_id": "p5", "risk_level": "R1"}]})
    assert snapshot()["suitability_flags"]["count"] == 0


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


# --- outages ------------------------------------------------------------------------------------------------------


@pytest.fixture
def away(settings: Any, tmp_path: Path, alice: None) -> Iterator[Callable[[], None]]:
    """The core is another file, in which Wei has Alice; calling it takes its positions away."""
    path = tmp_path / "core.sqlite3"
    rows = (
        "INSERT INTO core_assignment (id, tenant, advisor_id, customer_id, valid_from) VALUES (1,'default',?,?,?)",
        (WEI, ALICE, "2020-01-01 00:00:00"),
    )
    position = (
        "INSERT INTO core_position (id, tenant, customer_id, product_id, as_of, market_value) "
        "VALUES (1, 'default', ?, 'p5', ?, '77')",
        (ALICE, TODAY.isoformat()),
    )

    def take_away() -> None:
        import sqlite3

        own = sqlite3.connect(path)
        own.execute("DROP TABLE core_position")
        own.close()

    with external_core(settings, make_sqlite_core(path, rows, position)):
        yield take_away


def test_with_the_core_away_the_last_copy_says_how_old_it_is(away: Callable[[], None]) -> None:
    assert snapshot()["total"] == "77.00"
    CustomerProfileL2.objects.update(snapshot_at=now() - timedelta(hours=2))
    away()
    assert not snapshot()["stale"]  # the cached one lives to its end
    leased.drop([services.place_of("default", WEI, ALICE)])
    found = snapshot(at=now() + timedelta(seconds=100))
    assert (found["stale"], found["total"]) == (True, "77.00")
    assert 100 <= found["age_seconds"] < 130
    assert cached() is None  # what is stale is not cached as if it were fresh


def test_with_the_core_away_and_no_copy_it_is_503_and_not_an_empty_snapshot(away: Callable[[], None]) -> None:
    away()
    answer = make_agent("advisor").get(f"/snapshots/{WEI}/{ALICE}")
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")
    window.breaker.trip()
    answer = make_agent("advisor").get(f"/snapshots/{WEI}/{ALICE}")
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")


def test_a_redis_that_is_down_hangs_or_was_emptied(alice: None, settings: Any, own_redis_server: RedisServer) -> None:
    settings.CACHE_REDIS_URL = own_redis_server.url.replace("/0", "/1")
    snapshot()
    own_redis_server.pause()
    began = time.monotonic()
    assert [snapshot()["total"] for _ in range(5)] == ["200000.005"] * 5
    assert time.monotonic() - began < 2
    own_redis_server.resume()
    own_redis_server.kill()
    assert snapshot()["total"] == "200000.005"
    imported("160000")  # its DEL is lost with the server
    assert snapshot()["total"] == "210000.005"
    own_redis_server.start()
    own_redis_server.empty()
    base_redis.forget_clients()
    assert snapshot()["total"] == "210000.005"
    assert cached() == copy()
    assert CustomerProfileL2.objects.get().version == 2


def test_what_another_program_wrote_there_is_no_snapshot(alice: None) -> None:
    client = base_redis.client_for(django_settings.CACHE_REDIS_URL)
    for value in ('{"total": "1"}', "[]", "no json", json.dumps({"advisor_id": WEI, "customer_id": BOB})):
        client.set(prefixed(KEY), value, ex=100)
        assert snapshot()["total"] == "200000.005"
    client.delete(prefixed(KEY))
    client.rpush(prefixed(KEY), "x")
    assert snapshot()["total"] == "200000.005"
