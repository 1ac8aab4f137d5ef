"""One holder at a time: taken, kept, lost and noticed, given back; numbers that never go back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from memory.sessions import locks
from memory.sessions.keys import FENCE, LOCK
from memory.sessions.locks import acquire, hold
from memory.sessions.models import AgentSession
from memory.sessions.services import delete_session
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import ALICE, BOB, empty_redis, make_session
from tests.services import RedisServer
from tests.threads import take_turns

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[3]


def lock_key(session: str) -> str:
    return LOCK(agent="customer", session_id=session)


def fence_of(session: str, **more: Any) -> int:
    with hold(caller=ALICE, session_id=session, **more) as lock:
        return lock.fence


def refused_with(code: str, **arguments: Any) -> DomainError:
    with pytest.raises(DomainError) as refused:
        acquire(**arguments)
    assert refused.value.code == code
    return refused.value


def test_one_holds_it_and_others_are_told_for_how_long() -> None:
    session, other = make_session(), make_session()
    client = base_redis.state()
    with hold(caller=ALICE, session_id=session) as lock:
        assert client.get(lock_key(session)) == lock.token
        assert 29_000 < client.pttl(lock_key(session)) <= 30_000
        error = refused_with("SESSION_LOCKED", caller=ALICE, session_id=session)
        assert (error.status, 29 < error.extra["expires_in"] <= 30) == (409, True)
        assert fence_of(other) == 1
        lock.check()
    assert client.get(lock_key(session)) is None
    assert fence_of(session) == lock.fence + 1


def test_who_may_and_for_how_long() -> None:
    session = make_session()
    refused_with("NOT_OWNER", caller=BOB, session_id=session)
    refused_with("SESSION_NOT_FOUND", caller=ALICE, session_id="not-a-session-of-any")
    for ttl in (0, -1, 31, 0.01):
        refused_with("INVALID_REQUEST", caller=ALICE, session_id=session, ttl=ttl)
    delete_session(caller=ALICE, session_id=session)
    refused_with("SESSION_DELETED", caller=ALICE, session_id=session)


def test_it_costs_one_round_trip_and_no_query(django_assert_num_queries: Any) -> None:
    session = make_session()
    fence_of(session)
    with counted_round_trips() as calls, django_assert_num_queries(0):
        lock = acquire(caller=ALICE, session_id=session)
    assert len(calls) == 1
    with counted_round_trips() as calls:
        lock.release()
    assert len(calls) == 1


def test_a_waiting_one_gets_it_when_it_is_given_back() -> None:
    session = make_session()
    first = acquire(caller=ALICE, session_id=session)
    threading.Timer(0.3, first.release).start()
    began = time.monotonic()
    assert fence_of(session, wait=5) > first.fence
    assert 0.2 < time.monotonic() - began < 2


def test_work_longer_than_the_time_to_live_keeps_it() -> None:
    session = make_session()
    with hold(caller=ALICE, session_id=session, ttl=0.3) as lock:
        for _ in range(5):
            time.sleep(0.2)
            lock.check()
            refused_with("SESSION_LOCKED", caller=ALICE, session_id=session)


def test_a_lost_lock_is_told_and_another_holders_is_left_alone() -> None:
    session = make_session()
    told: list[str] = []

    def work() -> None:
        with hold(caller=ALICE, session_id=session, ttl=0.6, on_lost=lambda: told.append("lost")) as lock:
            base_redis.state().delete(lock_key(session))  # as a Redis does that lost its newest writes
            with hold(caller=ALICE, session_id=session) as other:
                assert lock.wait_lost(2)
                with pytest.raises(DomainError) as late:
                    lock.check()
                assert late.value.code == "LOCK_LOST"
                assert not lock.renew()
                lock.release()
                assert base_redis.state().get(lock_key(session)) == other.token
                assert other.fence > lock.fence

    with pytest.raises(DomainError) as refused:
        work()
    assert refused.value.code == "LOCK_LOST"
    assert told == ["lost"]


def test_expiry_while_working_is_noticed_without_asking_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a suspended process or a long collection: the renewing thread did not run either."""
    monkeypatch.setattr(locks.SessionLock, "_keep", lambda self: None)
    session = make_session()
    lock = acquire(caller=ALICE, session_id=session, ttl=0.3)
    lock.check()
    time.sleep(0.3)
    with counted_round_trips() as calls:
        assert lock.lost
    assert len(calls) == 0
    assert fence_of(session, wait=1) > lock.fence
    lock.release()


def test_an_error_of_the_block_is_not_hidden_by_the_loss() -> None:
    session = make_session()

    def work() -> None:
        with hold(caller=ALICE, session_id=session):
            base_redis.state().delete(lock_key(session))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()


# --- numbers ------------------------------------------------------------------------------------------------------


def test_fencing_numbers_never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "FENCE_LEASE", 3)
    session = make_session()
    numbers = [fence_of(session) for _ in range(7)]
    assert numbers == list(range(1, 8))
    empty_redis()
    numbers.append(fence_of(session))
    base_redis.state().delete(FENCE(agent="customer", session_id=session))
    numbers.append(fence_of(session))
    base_redis.state().hset(FENCE(agent="customer", session_id=session), "server", "another process of the server")
    numbers += [fence_of(session) for _ in range(4)]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] <= AgentSession.objects.get(session_id=session).fence_ceiling


def test_a_late_lease_of_lower_numbers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    original, seen = locks._lease_fences, []

    def slow(owner: Any) -> tuple[int, int]:
        mine = original(owner)
        if not seen:
            seen.append(mine)
            seen.append(fence_of(session))  # somebody else leases, locks and gives back in between
        return mine

    monkeypatch.setattr(locks, "_lease_fences", slow)
    fence = fence_of(session)
    assert seen[0] == (1, 100)
    assert seen[1] == 101
    assert fence == 102


def test_sixteen_threads_never_hold_it_together() -> None:
    session = make_session()
    take_turns(lambda: hold(caller=ALICE, session_id=session, wait=30))


# --- a server of its own, processes of their own ------------------------------------------------------------------


def test_redis_away_gives_no_lock_and_ends_one_in_time(own_redis_server: RedisServer) -> None:
    session = make_session()
    lock = acquire(caller=ALICE, session_id=session, ttl=1.0)
    own_redis_server.kill()
    with pytest.raises(RedisUnavailable, match="cannot be taken"):
        acquire(caller=ALICE, session_id=session)
    assert not lock.lost
    assert lock.wait_lost(3)
    lock.release()
    own_redis_server.start()
    assert fence_of(session, wait=2) > lock.fence


def test_a_lock_outlives_a_short_outage(own_redis_server: RedisServer) -> None:
    session = make_session()
    with hold(caller=ALICE, session_id=session, ttl=6.0) as lock:
        own_redis_server.restart()
        time.sleep(2.5)
        lock.check()
        refused_with("SESSION_LOCKED", caller=ALICE, session_id=session)
    own_redis_server.empty()
    assert fence_of(session) > lock.fence


HOLDER = """
import os, sys, time
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from guard.access.services import Caller
from memory.sessions.locks import hold
with hold(caller=Caller("default", "customer", "alice"), session_id=sys.argv[3], ttl=1.0, wait=5) as lock:
    print(lock.fence, flush=True)
    while not lock.lost:
        time.sleep(0.01)
    print("lost", flush=True)
"""


@pytest.mark.slow  # starts and kills real processes
def test_two_processes_one_killed_one_suspended(settings: Any) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the test database of SQLite is in memory: no other process can open it")
    session = make_session()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", HOLDER, connection.settings_dict["NAME"], settings.REDIS_KEY_PREFIX, session],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=PROJECT,
            env={**os.environ, "REDIS_URL": settings.REDIS_URL},
        )

    first = start()
    assert first.stdout is not None
    number = int(first.stdout.readline())
    time.sleep(1.5)  # it is renewed
    refused_with("SESSION_LOCKED", caller=ALICE, session_id=session)
    first.kill()
    first.wait()
    second = start()
    assert second.stdout is not None
    number, before = int(second.stdout.readline()), number  # the dead one's lock ended by itself
    assert number > before
    second.send_signal(signal.SIGSTOP)
    with hold(caller=ALICE, session_id=session, wait=5) as lock:
        assert lock.fence > number
        second.send_signal(signal.SIGCONT)
        assert second.stdout.readline() == b"lost\n"  # it is told, though it never saw the time pass
        lock.check()
        second.wait(5)
        lock.check()
    assert second.returncode != 0  # LOCK_LOST at the end of its block


# --- async --------------------------------------------------------------------------------------------------------


async def test_async_holders_take_turns() -> None:
    from asgiref.sync import sync_to_async

    session = await sync_to_async(make_session)()
    fences: list[int] = []

    async def work() -> None:
        async with hold(caller=ALICE, session_id=session, wait=10) as lock:
            fences.append(lock.fence)
            await asyncio.sleep(0.02)
            lock.check()

    await asyncio.gather(*(work() for _ in range(6)))
    assert fences == sorted(set(fences))
    assert len(fences) == 6
    async with hold(caller=ALICE, session_id=session):
        with pytest.raises(DomainError) as refused:
            async with hold(caller=ALICE, session_id=session):
                pass
        assert refused.value.code == "SESSION_LOCKED"
    await sync_to_async(connections.close_all)()


async def test_a_cancelled_waiter_leaves_no_lock_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from asgiref.sync import sync_to_async

    session = await sync_to_async(make_session)()
    original = locks._try

    def slowly(*args: Any) -> Any:
        reply = original(*args)
        time.sleep(0.3)
        return reply

    monkeypatch.setattr(locks, "_try", slowly)

    async def work() -> None:
        async with hold(caller=ALICE, session_id=session):
            raise AssertionError("it was cancelled before")

    task = asyncio.create_task(work())
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    monkeypatch.undo()
    async with hold(caller=ALICE, session_id=session, wait=3):
        pass
    await sync_to_async(connections.close_all)()
