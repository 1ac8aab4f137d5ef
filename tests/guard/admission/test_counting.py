"""What `/metrics` says of admission: how many by limit and outcome, how many run, how many reservations are open."""

from __future__ import annotations

import threading

import pytest
from django.test import Client

from config.base import redis as base_redis
from guard.access.services import issue_key
from guard.admission import counting, keys
from guard.admission.services import admit, release, settle
from tests.counting import counted_round_trips
from tests.guard.admission.helpers import ALICE, BOB, admitted, make_wide, together
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def figures() -> dict[str, float]:
    lines = Client().get("/metrics").content.decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line.startswith("xinghuo_admission"))
    return {name.removeprefix("xinghuo_admission"): float(value) for name, value in found.items()}


def decided(limit: str, outcome: str, where: str = "redis") -> str:
    return f's_total{{limit="{limit}",outcome="{outcome}",where="{where}"}}'


def test_decisions_slots_and_reservations() -> None:
    issue_key(agent="customer")  # a tenant is known by its keys
    make_wide(rate=3, budget="10")
    first = admitted(estimate="1")
    admitted(estimate="1")
    settle(ALICE, first, actual="1")
    admitted(slot=False)
    for _ in range(2):
        assert admit(ALICE).refused_by == "rate"
    assert admit(BOB, estimate="100").refused_by == "budget"
    assert figures() == {
        decided("", "admitted"): 3, decided("rate", "refused"): 2, decided("budget", "refused"): 1,
        "_running_slots": 1, "_open_reservations": 1,
    }  # fmt: skip
    assert 0 < base_redis.state().ttl(keys.COUNTS()) <= keys.COUNTS_SECONDS
    admitted(BOB)
    assert figures()[decided("", "admitted")] == 4


def test_counting_is_no_round_trip_and_loses_nothing_among_threads() -> None:
    make_wide()
    admitted()
    with counted_round_trips() as calls:
        admitted()
    assert len(calls) == 1
    together(16, lambda n: [release(ALICE, admitted()) for _ in range(10)])
    together(4, lambda n: counting.tell())
    assert figures()[decided("", "admitted")] == 162


def test_what_redis_did_not_hear_is_told_when_it_is_back(own_redis_server: RedisServer) -> None:
    make_wide()
    admitted()
    own_redis_server.stop()
    assert admit(ALICE).local
    counting.tell()
    assert figures() == {}  # absent, and not 0
    own_redis_server.start()
    found = figures()
    assert (found[decided("", "admitted")], found[decided("", "admitted", "local")]) == (1, 1)


def test_a_process_tells_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    monkeypatch.setattr(counting, "telling", True)
    monkeypatch.setattr(counting, "COUNT_SECONDS", 0.01)
    monkeypatch.setattr(counting, "tell", told.set)
    monkeypatch.setattr(counting.atexit, "register", lambda work: None)
    admitted()
    assert told.wait(5)


def test_a_spoilt_key_is_begun_anew() -> None:
    base_redis.state().rpush(keys.COUNTS(), "x")
    admitted()
    figures()
    assert figures()[decided("", "admitted")] == 1
