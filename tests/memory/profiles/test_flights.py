"""A stampede whose readers Redis tells nothing: a busy machine, a time-out, an outage."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from redis.exceptions import TimeoutError as RedisTimeout

from config.base.redis import RedisUnavailable
from memory.profiles import cache, doubts, selectors
from memory.profiles.cache import Found, Part, Slot
from memory.profiles.flights import Flights
from memory.profiles.models import CustomerProfileL1
from tests.memory.profiles.helpers import ALICE
from tests.memory.profiles.test_loading import at_once, make_l1, missing, read_l1

pytestmark = pytest.mark.django_db(transaction=True)

SLOT = Slot("default", "l1", ALICE)


def test_of_200_whom_redis_tells_nothing_two_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """One who came first, and one for all who came while that one read."""
    make_l1()
    load, loads, flights = selectors._l1_row, [], Flights()
    came = threading.Semaphore(0)
    share = flights.share

    def coming(*arguments: Any, **more: Any) -> Any:
        came.release()
        return share(*arguments, **more)

    def slow(*ids: Any) -> Any:
        loads.append(ids)
        if len(loads) == 1:
            for _ in range(200):
                assert came.acquire(timeout=10)
        return load(*ids)

    monkeypatch.setattr(flights, "share", coming)
    monkeypatch.setattr(selectors, "flights", flights)
    monkeypatch.setattr(selectors, "PATIENCE", 20.0)
    monkeypatch.setattr(cache, "read", lambda slots: [Found(None)] * len(slots))
    monkeypatch.setattr(selectors, "_l1_row", slow)
    results = at_once(200, read_l1)
    assert {result["occupation"] for result in results} == {"teacher"}
    assert len(loads) <= 4  # two, and who was held up between coming and taking a place


def test_who_comes_after_a_save_is_not_given_what_another_read_before_it() -> None:
    flights, began, go_on = Flights(), threading.Event(), threading.Event()
    stored = ["old"]

    def slow() -> list[str]:
        seen = list(stored)
        began.set()
        assert go_on.wait(10)
        return seen

    first = threading.Thread(target=lambda: flights.share("alice", slow, patience=10))
    first.start()
    assert began.wait(10)
    stored[0] = "new"  # a save, and its call has returned
    given: list[Any] = []
    later = [
        threading.Thread(target=lambda: given.append(flights.share("alice", lambda: list(stored), patience=10)))
        for _ in range(5)
    ]
    for thread in later:
        thread.start()
    go_on.set()
    for thread in [first, *later]:
        thread.join()
    assert given == [["new"]] * 5
    assert len({id(one) for one in given}) == 5  # each may do with it as it likes
    assert (flights._under_way, flights._next) == ({}, {})


def test_a_load_that_fails_fails_for_all_who_share_it_and_nobody_waits_for_ever() -> None:
    flights, began, go_on = Flights(), threading.Event(), threading.Event()

    def fails() -> None:
        began.set()
        assert go_on.wait(10)
        raise ZeroDivisionError

    errors = at_once_sharing(flights, fails, began, go_on)
    assert [type(error) for error in errors] == [ZeroDivisionError] * 4
    assert flights.share("alice", lambda: 1, patience=1) == 1

    # One that hangs holds up nobody for longer than the patience.
    hanging = threading.Thread(target=lambda: flights.share("alice", lambda: go_on.wait(10), patience=1))
    go_on.clear()
    hanging.start()
    while not flights._under_way:
        pass
    assert flights.share("alice", lambda: 2, patience=0.01) == 2
    go_on.set()
    hanging.join()
    assert flights.share("alice", lambda: 3, patience=1) == 3


def at_once_sharing(flights: Flights, load: Any, began: threading.Event, go_on: threading.Event) -> list[Any]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            flights.share("alice", load, patience=10)
        except ZeroDivisionError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    threads[0].start()
    assert began.wait(10)
    for thread in threads[1:]:
        thread.start()
    go_on.set()
    for thread in threads:
        thread.join()
    return errors


def timed_out() -> RedisUnavailable:
    error = RedisUnavailable("Redis is unavailable (TimeoutError)")
    error.__cause__ = RedisTimeout("Timeout reading from socket")
    return error


def test_a_time_out_while_redis_answers_others_is_a_busy_machine_and_is_asked_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_l1()
    ask, calls = cache._read, []

    def busy(client: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            cache._Heard.at = float("inf")  # another thread has had its answer meanwhile
            client.breaker.trip()
            raise timed_out()
        return ask(client, *arguments)

    monkeypatch.setattr(cache, "_read", busy)
    assert cache.read([SLOT])[0].part is Part.LOAD  # with a lease: whoever comes now waits for this one
    assert cache.read([SLOT])[0].part is Part.WAIT
    assert not doubts.doubt.standing
    assert not cache._client().breaker.tripped


def test_a_time_out_of_a_redis_that_answers_nobody_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_l1()
    calls = []

    def hanging(client: Any, *arguments: Any) -> Any:
        calls.append(1)
        raise timed_out()

    monkeypatch.setattr(cache, "_read", hanging)
    assert cache.read([SLOT])[0].part is Part.LOAD
    assert len(calls) == 1
    assert doubts.doubt.standing


def test_none_is_shared_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "read", lambda slots: [Found(None)] * len(slots))
    missing()
    CustomerProfileL1.objects.create(customer_id=ALICE)
    assert read_l1()["customer_id"] == ALICE
