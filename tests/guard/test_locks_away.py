"""Locks by name while Redis goes, and between processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from guard.locks import acquire, fences, hold, named
from guard.locks.keys import LOCK
from tests.guard.locks import NAME, fence_of, refused_with, timed
from tests.memory.sessions.helpers import empty_redis
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[2]


# --- a server of its own that goes ---------------------------------------------------------------------------------


def test_redis_down_gives_no_lock_and_ends_one_in_time(own_redis_server: RedisServer) -> None:
    lock = acquire(NAME, ttl=1.0)
    own_redis_server.kill()
    with timed(0.1), pytest.raises(RedisUnavailable, match="cannot be taken"):
        acquire(NAME, wait=5)
    assert not lock.lost
    assert lock.wait_lost(3)
    lock.release()
    own_redis_server.start()
    assert fence_of(wait=2) > lock.fence


def test_a_hanging_redis_costs_a_tenth_of_a_second(own_redis_server: RedisServer) -> None:
    lock = acquire(NAME, ttl=1.0)
    other = acquire("another")
    own_redis_server.pause()
    try:
        with timed(0.1), pytest.raises(RedisUnavailable):
            acquire("a-third")
        with timed(0.0), pytest.raises(RedisUnavailable):
            acquire("a-third")
        with timed(0.1):
            other.release()
        assert lock.wait_lost(3)
    finally:
        own_redis_server.resume()
    named._redis().breaker.reset()
    assert fence_of(wait=3) > lock.fence


def test_a_lock_outlives_a_restart(own_redis_server: RedisServer) -> None:
    with hold(NAME, ttl=6.0) as lock:
        own_redis_server.restart()
        assert not lock.wait_lost(2.5)
        refused_with("LOCK_HELD")
    assert (lock.fence, fence_of()) == (1, 1001)  # it may have lost what it gave last


def test_an_emptied_redis_tells_the_holder_and_numbers_go_on(own_redis_server: RedisServer) -> None:
    lock = acquire(NAME, ttl=1.5)
    own_redis_server.empty()
    with hold(NAME) as second:
        assert second.fence > lock.fence
        assert lock.wait_lost(2)
        second.check()
    lock.release()


def test_with_the_database_down_the_leased_numbers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    fence_of()

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError(2002, "away")

    monkeypatch.setattr(fences, "retry_conflicts", away)
    assert fence_of() == 2
    empty_redis()
    with pytest.raises(OperationalError):
        acquire(NAME)


# --- processes of their own -------------------------------------------------------------------------------------------

HOLDER = """
import os, sys
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.REDIS_KEY_PREFIX = sys.argv[1]
django.setup()
from guard.locks import hold
with hold(sys.argv[2], ttl=1.0, wait=5) as lock:
    print(lock.fence, flush=True)
    lock.wait_lost()
    print("lost", flush=True)
"""


@pytest.mark.slow  # starts and kills real processes
def test_two_processes_one_killed_one_suspended(settings: Any) -> None:
    fence_of()  # the numbers are leased: the others need no database

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", HOLDER, settings.REDIS_KEY_PREFIX, NAME],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=PROJECT,
            env={**os.environ, "REDIS_URL": settings.REDIS_URL},
        )

    first = start()
    assert first.stdout is not None
    before = int(first.stdout.readline())
    time.sleep(1.5)  # it is renewed
    refused_with("LOCK_HELD")
    first.kill()
    first.wait()
    second = start()
    assert second.stdout is not None
    number = int(second.stdout.readline())  # the dead one's lock ended by itself
    assert number > before
    second.send_signal(signal.SIGSTOP)
    with hold(NAME, wait=5) as lock:
        assert lock.fence > number
        second.send_signal(signal.SIGCONT)
        assert second.stdout.readline() == b"lost\n"  # it is told, though it never saw the time pass
        second.wait(5)
        lock.check()
    assert second.returncode != 0  # LOCK_LOST at the end of its block


def test_a_forked_child_does_not_give_its_parents_lock_back() -> None:
    with hold(NAME) as lock:
        child = os.fork()
        if not child:
            try:
                lock.release()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert base_redis.state().get(LOCK(name=NAME)) == lock.token
