"""Who loads a missing profile, who waits for it, and how long it is remembered that there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import now
from config.base.errors import DomainError
from config.base.keys import match
from memory.core.importer import import_tables
from memory.profiles import cache, recording, selectors, services
from memory.profiles.cache import Part, Slot
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, ProfileVersion
from memory.profiles.sweeping import sweep
from tests.counting import counted_round_trips
from tests.memory.profiles.helpers import (
    ALICE,
    BOB,
    WEI,
    make_alert,
    make_assignment,
    make_caller,
    make_core_customer,
)

pytestmark = pytest.mark.django_db(transaction=True)

SLOT = Slot("default", "l1", ALICE)


def write_l1(occupation: str = "teacher") -> services.Written:
    return services.write_l1(caller=make_caller("customer"), customer_id=ALICE, payload={"occupation": occupation})


def make_l1(occupation: str = "teacher") -> None:
    """One that needs no look at the core: a load of it is 1 SQL and no write."""
    CustomerProfileL1.objects.create(
        customer_id=ALICE, payload={"schema_version": 1, "occupation": occupation}, core_synced_at=now()
    )


def read_l1() -> dict[str, Any]:
    return selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)


def missing(read: Callable[[], Any] = read_l1) -> None:
    with pytest.raises(DomainError) as refusal:
        read()
    assert refusal.value.code == "PROFILE_NOT_FOUND"


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- one loader ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_of_200_who_miss_at_once_one_loads_and_all_are_answered(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if there:
        make_l1()
    asked, loads = threading.Semaphore(0), []
    ask, load = cache.read, selectors._l1_row
    seen = threading.local()

    def counted(slots: Any) -> Any:
        found = ask(slots)
        if not getattr(seen, "once", False):
            seen.once = True
            asked.release()
        return found

    def slow(*ids: Any) -> Any:
        loads.append(ids)
        for _ in range(200):  # not before each of them has asked
            assert asked.acquire(timeout=10)
        return load(*ids)

    monkeypatch.setattr(cache, "_LEASE_MS", 20_000)
    monkeypatch.setattr(selectors, "PATIENCE", 20.0)
    monkeypatch.setattr(cache, "read", counted)
    monkeypatch.setattr(selectors, "_l1_row", slow)
    results = at_once(200, read_l1)
    assert len(loads) == 1
    if there:
        assert {result["occupation"] for result in results} == {"teacher"}
    else:
        assert [result.code for result in results] == ["PROFILE_NOT_FOUND"] * 200


def test_a_loader_that_died_holds_up_the_next_for_a_second_and_no_longer() -> None:
    make_l1()
    [dead] = cache.read([SLOT])
    assert dead.part is Part.LOAD
    [other] = cache.read([SLOT])
    assert (other.part, other.generation) == (Part.WAIT, dead.generation)
    began = time.monotonic()
    assert read_l1()["occupation"] == "teacher"
    assert 0.5 < time.monotonic() - began < 1.0 + 1.0
    assert cache.read([SLOT])[0].part is Part.HIT


def test_a_loader_slower_than_its_lease_has_a_successor_and_both_may_fill() -> None:
    [slow] = cache.read([SLOT])
    expire_lease(slow.generation)
    [next_one] = cache.read([SLOT])
    assert (next_one.part, next_one.generation) == (Part.LOAD, slow.generation)
    document = {"customer_id": ALICE, "version": 1}
    assert cache.fill([(SLOT, slow.generation, document)]) == 1
    assert cache.fill([(SLOT, next_one.generation, document)]) == 1
    # What a lease says that was written before the server's clock went back binds nobody.
    cache.drop([SLOT])
    [fresh] = cache.read([SLOT])
    set_generation(f"{fresh.generation} 99999999999999")
    assert cache.read([SLOT])[0].part is Part.LOAD


def test_nobody_waits_longer_than_the_patience_although_loader_follows_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    make_l1()
    monkeypatch.setattr(selectors, "PATIENCE", 0.1)
    cache.read([SLOT])
    began = time.monotonic()
    assert read_l1()["occupation"] == "teacher"
    assert time.monotonic() - began < 0.8  # it read MySQL itself, before the lease was over


def test_a_load_that_fails_gives_the_lease_back(monkeypatch: pytest.MonkeyPatch) -> None:
    make_l1()
    with monkeypatch.context() as patch:
        patch.setattr(selectors, "_l1_row", lambda *ids: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            read_l1()
    assert cache.read([SLOT])[0].part is Part.LOAD


def test_a_writer_ends_the_lease_and_whoever_waits_loads_what_was_written() -> None:
    make_l1()
    [slow] = cache.read([SLOT])  # the loader reads MySQL ...
    CustomerProfileL1.objects.update(payload={"schema_version": 1, "occupation": "judge"}, core_synced_at=now())
    began = time.monotonic()
    assert read_l1()["occupation"] == "judge"  # ... nobody waits for it any more ...
    assert time.monotonic() - began < 0.5
    assert (
        cache.fill([(SLOT, slow.generation, {"customer_id": ALICE, "occupation": "teacher"})]) == 0
    )  # ... nor keeps it
    assert read_l1()["occupation"] == "judge"


def test_two_who_need_each_others_layers_do_not_wait_for_each_other_for_ever() -> None:
    make_l1()
    CustomerProfileL3.objects.create(customer_id=ALICE)
    read_l3 = lambda: selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)  # noqa: E731
    cache.drop([SLOT, Slot("default", "l3", ALICE)])
    began = time.monotonic()
    results = at_once(8, read_l3) + at_once(8, read_l1)
    assert not [result for result in results if isinstance(result, Exception)]
    assert time.monotonic() - began < 2


def test_a_generation_of_a_program_before_leases_is_replaced() -> None:
    set_generation("0123456789abcdef")
    [found] = cache.read([SLOT])
    assert found.part is Part.LOAD
    assert found.generation != "0123456789abcdef"
    assert cache.fill([(SLOT, "0123456789abcdef", {"customer_id": ALICE})]) == 0


def set_generation(text: str) -> None:
    base_redis.state().set(SLOT.names[1], text, ex=60)


def expire_lease(generation: str) -> None:
    set_generation(f"{generation} 1")


# --- a profile that is not there ------------------------------------------------------------------------------------


def test_that_there_is_none_is_remembered_for_five_seconds_and_other_teams_see_no_key(own_redis_prefix: str) -> None:
    missing()
    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        missing()
    assert (len(sent), len(queries)) == (1, 0)
    client = base_redis.state()
    assert list(client.scan_iter(f"{own_redis_prefix}:profile:*")) == [f"{own_redis_prefix}:profile:l1:{ALICE}:gen"]
    assert 0 < client.pttl(SLOT.names[1]) <= 5000
    client.pexpire(SLOT.names[1], 1)  # its time is over
    while client.exists(SLOT.names[1]):
        pass
    with CaptureQueriesContext(connection) as queries:
        missing()
    assert queries
    # A mark without an end is not believed.
    client.persist(SLOT.names[1])
    assert cache.read([SLOT])[0].part is Part.LOAD
    assert client.pttl(SLOT.names[1]) > 0


CREATIONS: dict[str, Callable[[], Any]] = {
    "service": write_l1,
    "create": make_l1,
    "get_or_create": lambda: CustomerProfileL1.objects.get_or_create(customer_id=ALICE),
    "bulk_create": lambda: CustomerProfileL1.objects.bulk_create([CustomerProfileL1(customer_id=ALICE)]),
    "core sync": lambda: (make_core_customer(), sync_l1_from_core(tenant="default", customer_id=ALICE)),
    "import": lambda: import_tables(
        tenant="default", tables={"customers.csv": [{"customer_id": ALICE, "name": "王", "kind": "natural"}]}
    ),
}


@pytest.mark.parametrize("how", CREATIONS)
def test_whoever_creates_a_profile_is_seen_at_once(how: str) -> None:
    missing()
    assert cache.read([SLOT])[0].part is Part.NONE
    CREATIONS[how]()
    assert read_l1()["customer_id"] == ALICE


def test_the_same_of_l2_and_l3() -> None:
    make_assignment()
    advisor = make_caller("advisor")
    read_l2 = lambda: selectors.read_l2(caller=advisor, customer_id=ALICE, advisor_id=WEI)  # noqa: E731
    read_l3 = lambda: selectors.read_l3(caller=advisor, customer_id=ALICE)  # noqa: E731
    for read in (read_l2, read_l3):
        missing(read)
    assert {cache.read([Slot("default", layer, ALICE, adv)])[0].part for layer, adv in (("l2", WEI), ("l3", ""))} == {
        Part.NONE
    }
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI)
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 1})
    assert (read_l2()["version"], read_l3()["version"]) == (1, 1)


def test_a_creator_that_dies_before_its_del_is_swept_up(monkeypatch: pytest.MonkeyPatch) -> None:
    missing()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)
        patch.setattr(recording, "settle_quietly", lambda rows, moment: None)  # killed here
        make_l1()
    missing()
    sweep()
    assert read_l1()["occupation"] == "teacher"
    assert ProfileVersion.objects.exclude(visible_at=None).count() == 1


def test_a_slow_reader_who_found_none_cannot_say_so_after_it_was_created() -> None:
    [slow] = cache.read([SLOT])  # it looks, and finds no row ...
    make_l1()  # ... somebody creates it ...
    assert cache.fill([(SLOT, slow.generation, None)]) == 0  # ... and it comes too late
    assert read_l1()["occupation"] == "teacher"
    cache.drop([SLOT])
    [slow] = cache.read([SLOT])
    cache.drop([SLOT])
    cache.read([SLOT])  # also when another reader has opened a new generation meanwhile
    assert cache.fill([(SLOT, slow.generation, None)]) == 0


def test_a_deletion_is_seen_and_a_creation_that_is_rolled_back_is_not() -> None:
    make_l1()
    read_l1()
    CustomerProfileL1.objects.all().delete()
    missing()
    with transaction.atomic():
        write_l1()
        assert read_l1()["occupation"] == "teacher"  # its own
        transaction.set_rollback(True)
    missing()


# --- every write path ----------------------------------------------------------------------------------------------

SECRETS = ("aml", "B2", "reasons", "three cash", "alert-1", "structuring", "hidden", "no_new_purchase", "tip")
PAYLOAD = {
    "schema_version": 1,
    "risk_score": 72,
    "flags": [{"code": "structuring", "visibility": "risk"}, {"code": "seen", "visibility": "advisor"}],
    "restrictions": [{"code": "no_new_purchase", "text": "hidden", "visibility": "risk"}, {"code": "tip"}],
    # Where somebody writes past the schema, into the wrong column.
    "reasons": ["three cash deposits"],
    "aml_rating": "B2",
}
INTERNAL = {"aml_rating": "B2", "reasons": ["three cash deposits"], "open_alerts": ["alert-1"]}


def l3(**changes: Any) -> CustomerProfileL3:
    return CustomerProfileL3(customer_id=ALICE, payload=PAYLOAD, internal=INTERNAL, **changes)


def changed(row: CustomerProfileL3) -> CustomerProfileL3:
    row.payload, row.internal = PAYLOAD, INTERNAL
    return row


WRITES: dict[str, Callable[[], Any]] = {
    "service": lambda: services.write_l3(
        caller=make_caller("risk"),
        customer_id=ALICE,
        payload={
            **INTERNAL, "flags": PAYLOAD["flags"], "restrictions": [{"code": "no_new_purchase", "text": "hidden"}],
        },
    ),
    "create": lambda: l3().save(),
    "bulk_create": lambda: CustomerProfileL3.objects.bulk_create([l3()]),
    "save": lambda: changed(CustomerProfileL3.objects.create(customer_id=ALICE)).save(),
    "save in part": lambda: changed(CustomerProfileL3.objects.create(customer_id=ALICE)).save(
        update_fields=["payload", "internal"]
    ),
    "update": lambda: (
        CustomerProfileL3.objects.create(customer_id=ALICE),
        CustomerProfileL3.objects.update(payload=PAYLOAD, internal=INTERNAL),
    ),
    "bulk_update": lambda: CustomerProfileL3.objects.bulk_update(
        [changed(CustomerProfileL3.objects.create(customer_id=ALICE))], ["payload", "internal"]
    ),
    "delete and again": lambda: (l3().save(), CustomerProfileL3.objects.all().delete(), l3().save()),
    "without its DEL": lambda: (
        CustomerProfileL3.objects.create(customer_id=ALICE, payload={"risk_score": 1}), read_as_all(), l3_without_del(),
    ),
}  # fmt: skip


def l3_without_del() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)
        CustomerProfileL3.objects.update(payload=PAYLOAD, internal=INTERNAL)
    read_as_all()
    sweep()


def read_as_all() -> None:
    for agent in ("customer", "advisor", "analyst", "risk"):
        selectors.read_l3(caller=make_caller(agent), customer_id=ALICE)


@pytest.mark.parametrize("how", WRITES)
def test_whatever_way_l3_is_written_nothing_internal_comes_to_redis(
    how: str, own_redis_prefix: str, settings: Any
) -> None:
    settings.ANALYST_READS_PROFILES = True
    make_alert()
    make_assignment()
    WRITES[how]()
    read_as_all()
    moment = now()
    for agent in ("customer", "advisor", "analyst", "risk"):
        selectors.read_l3(caller=make_caller(agent), customer_id=ALICE, as_of=moment)
        selectors.versions_l3(caller=make_caller(agent), customer_id=ALICE)
    client = base_redis.state()
    names = list(client.scan_iter(f"{own_redis_prefix}:*"))
    assert f"{own_redis_prefix}:profile:l3:{ALICE}" in names
    for name in names:
        kind = match(name.removeprefix(f"{own_redis_prefix}:"))
        assert kind is not None, name
        assert 0 < client.ttl(name) <= (kind.ttl or 0), name
        held = str(client.get(name))
        assert not [secret for secret in SECRETS if secret in held], (name, held)


def test_redis_down_sends_everybody_straight_to_mysql_and_nobody_waits(own_redis_server: Any) -> None:
    make_l1()
    cache.read([SLOT])  # somebody has the lease, and dies with the server
    own_redis_server.kill()
    began = time.monotonic()
    results = at_once(20, read_l1)
    assert {result["occupation"] for result in results} == {"teacher"}
    with pytest.raises(DomainError):
        selectors.read_l1(caller=make_caller("customer", BOB), customer_id=BOB)
    assert time.monotonic() - began < 5
