"""Locks by name: one holder at a time, who is told when it is over; numbers that never go back; a Redis that goes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from django.db import transaction

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.locks import Lock, acquire, hold, named
from guard.locks.keys import FENCE, LOCK
from guard.locks.models import LockFence
from tests.counting import counted_round_trips
from tests.guard.locks import NAME, fence_of, refused_with
from tests.memory.sessions.helpers import empty_redis
from tests.threads import take_turns

pytestmark = pytest.mark.django_db(transaction=True)


# --- taken, kept, given back -----------------------------------------------------------------------------------------


def test_one_holds_it_and_others_are_told_for_how_long() -> None:
    client = base_redis.state()
    with hold(NAME) as lock:
        assert client.get(LOCK(name=NAME)) == lock.token
        assert LOCK(name=NAME).endswith("lock:document-import:7")
        assert 29_000 < client.pttl(LOCK(name=NAME)) <= 30_000
        error = refused_with("LOCK_HELD")
        assert (error.status, 29 < error.extra["expires_in"] <= 30) == (409, True)
        fence_of("document-import:8")
        fence_of(tenant="acme")  # another tenant's name is another lock
        lock.check()
    assert client.get(LOCK(name=NAME)) is None
    assert fence_of() > lock.fence


def test_names_and_times() -> None:
    for name in ("", "a b", "a::b", ":a", "a:", "a" * 65, ":".join("a" * 9), "a\n", None, "名"):
        refused_with("INVALID_ID", name)
    for times in ({"ttl": 0}, {"ttl": 3601}, {"ttl": "x"}, {"ttl": True}, {"wait": -1}, {"wait": float("nan")}):
        refused_with("INVALID_REQUEST", **times)
        with pytest.raises(DomainError):
            hold(NAME, **times)
    assert fence_of("a:b:c", ttl=3600) > 0


def test_it_costs_one_round_trip_and_no_query(django_assert_num_queries: Any) -> None:
    fence_of()
    with counted_round_trips() as calls, django_assert_num_queries(0):
        lock = acquire(NAME)
    assert len(calls) == 1
    with counted_round_trips() as calls:
        lock.release()
    assert len(calls) == 1


def test_a_waiting_one_gets_it_when_it_is_given_back() -> None:
    first = acquire(NAME)
    threading.Timer(0.3, first.release).start()
    began = time.monotonic()
    assert fence_of(wait=5) > first.fence
    assert 0.2 < time.monotonic() - began < 2


def test_work_longer_than_the_time_to_live_keeps_it() -> None:
    with hold(NAME, ttl=0.4) as lock:
        for _ in range(4):
            assert not lock.wait_lost(0.25)
            refused_with("LOCK_HELD")


def test_within_a_transaction_it_is_refused_each_time() -> None:
    fence_of()
    with transaction.atomic(), pytest.raises(RuntimeError, match="before the transaction"):
        acquire(NAME)


# --- lost -------------------------------------------------------------------------------------------------------------


def test_a_lost_lock_is_told_and_its_second_owners_is_left_alone() -> None:
    told: list[str] = []

    def work() -> None:
        with hold(NAME, ttl=0.6, on_lost=lambda: told.append("lost")) as lock:
            base_redis.state().delete(LOCK(name=NAME))  # as a Redis does that lost its newest writes
            with hold(NAME) as second:
                assert lock.wait_lost(2)
                with pytest.raises(DomainError) as late:
                    lock.check()
                assert (late.value.code, late.value.extra) == ("LOCK_LOST", {"fence": lock.fence})
                assert not lock.renew()
                lock.release()
                assert base_redis.state().get(LOCK(name=NAME)) == second.token
                assert second.fence > lock.fence

    with pytest.raises(DomainError) as refused:
        work()
    assert refused.value.code == "LOCK_LOST"
    assert told == ["lost"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("fault", [ValueError("odd"), None])
def test_a_renewal_that_fails_or_dies_is_a_loss_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, fault: Exception | None
) -> None:
    def renew(self: Lock) -> bool:
        raise fault or SystemExit  # the latter ends the thread without a word

    def work() -> int:
        with hold(NAME, ttl=0.4) as lock:
            lock.check()
            time.sleep(0.4)
            assert lock.lost
            return lock.fence

    monkeypatch.setattr(Lock, "renew", renew)
    with pytest.raises(DomainError) as refused:
        work()
    assert refused.value.code == "LOCK_LOST"
    assert fence_of(wait=1) > refused.value.extra["fence"]


def test_an_error_of_the_block_is_not_hidden_by_the_loss() -> None:
    def work() -> None:
        with hold(NAME):
            base_redis.state().delete(LOCK(name=NAME))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


def test_a_lock_without_an_end_gets_one() -> None:
    fence_of()
    client = base_redis.state()
    client.set(LOCK(name=NAME), "whoever took it without a time to live")
    refused_with("LOCK_HELD", ttl=0.4)
    assert 0 < client.pttl(LOCK(name=NAME)) <= 400
    with hold(NAME, wait=2) as lock:
        client.persist(LOCK(name=NAME))
        lock.renew()
        assert client.pttl(LOCK(name=NAME)) > 0


def test_a_key_of_another_type_is_nobodys_lock() -> None:
    fence = fence_of()
    client = base_redis.state()
    for key in (LOCK(name=NAME), FENCE()):
        client.delete(key)
        client.zadd(key, {"x": 1})
    lock = acquire(NAME)
    assert lock.fence > fence
    client.delete(LOCK(name=NAME))
    client.zadd(LOCK(name=NAME), {"x": 1})
    assert not lock.renew()
    lock.release()
    assert client.exists(LOCK(name=NAME))


def test_no_thread_to_renew_it_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="thread"):
        acquire(NAME)
    monkeypatch.undo()
    assert fence_of() > 0


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_fencing_numbers_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "FENCE_LEASE", 3)
    numbers = [fence_of() for _ in range(7)]
    assert numbers == list(range(1, 8))
    empty_redis()
    numbers.append(fence_of())
    base_redis.state().delete(FENCE())
    numbers.append(fence_of())
    ceiling = LockFence.objects.get().ceiling
    base_redis.state().hset(FENCE(), "server", "another process of the server")
    numbers += [fence_of() for _ in range(4)]
    assert numbers[-4] == ceiling + 1  # that one may have given all that were leased
    base_redis.state().hset(FENCE(), "next", "no number")
    numbers.append(fence_of("another:name"))
    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= LockFence.objects.get().ceiling
    assert base_redis.state().ttl(FENCE()) > 0


def test_a_late_lease_of_lower_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    original, seen = named._lease, []

    def slow() -> Any:
        mine = original()
        if not seen:
            seen.append(mine)
            seen.append(fence_of("b"))  # somebody else leases, locks and gives back in between
        return mine

    monkeypatch.setattr(named, "_lease", slow)
    assert (fence_of("a"), seen) == (1002, [(1, 1000), 1001])


def test_sixteen_threads_never_hold_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "FENCE_LEASE", 7)
    take_turns(lambda: hold(NAME, wait=30))


# --- async ------------------------------------------------------------------------------------------------------------


async def test_async_holders_take_turns() -> None:
    numbers: list[int] = []

    async def work() -> None:
        async with hold(NAME, wait=10) as lock:
            numbers.append(lock.fence)
            await asyncio.sleep(0.02)
            lock.check()

    await asyncio.gather(*(work() for _ in range(6)))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 6
    async with hold(NAME):
        with pytest.raises(DomainError) as refused:
            async with hold(NAME):
                pass
        assert refused.value.code == "LOCK_HELD"


async def test_a_cancelled_waiter_and_a_cancelled_holder_leave_no_lock_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    original, entered = named._try, asyncio.Event()

    def slowly(lock: Lock) -> Any:
        reply = original(lock)
        time.sleep(0.2)
        return reply

    monkeypatch.setattr(named, "_try", slowly)

    async def work() -> None:
        async with hold(NAME):
            entered.set()
            await asyncio.sleep(60)

    waiting = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not entered.is_set()
    monkeypatch.undo()
    holding = asyncio.create_task(work())
    await asyncio.wait_for(entered.wait(), 5)
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding
    async with hold(NAME):
        pass
