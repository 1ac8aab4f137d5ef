"""Queued messages go to the database: drains that die, what cannot be a message, a database that stumbles."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import OperationalError, connection, connections

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from memory.sessions import drain as drain_room
from memory.sessions import persist
from memory.sessions.drain import backlog, drain, drain_batch
from memory.sessions.entries import QUEUED
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage, MessageDeadLetter
from tests.memory.sessions.helpers import (
    append,
    drain_everything,
    make_session,
    owner,
    stored,
)

pytestmark = pytest.mark.django_db(transaction=True)

PROJECT = Path(__file__).resolve().parents[3]


def test_a_drain_that_dies_after_its_commit_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, "a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(drain_room, "_settle", lambda *args: (_ for _ in ()).throw(RedisUnavailable("killed")))
        with pytest.raises(RedisUnavailable):
            drain_batch()
    assert len(stored(session)) == 2
    assert drain_batch().total == 0  # held by the dead one until it has been idle
    done = drain_batch(idle_ms=0)
    assert (done.stored, done.known) == (0, 2)
    assert backlog() == 0
    assert stored(session) == [(1, "a"), (2, "b")]


def own_bytes_client() -> redis.Redis:
    return redis.Redis.from_url(django_settings.REDIS_URL)


def test_poison_goes_to_the_dead_letters_and_holds_up_nobody() -> None:
    session = make_session()
    append(session, "good")
    client = base_redis.state()
    pk = owner(session).pk
    ident = owner(session).ident
    good = '{"entry_id":"%s","role":"user","content":"x","payload":null,"seq":%s,"at":1}'
    client.xadd(PENDING(), {"nonsense": "1"})
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": "{not json"})
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": "[" * 5000})
    client.xadd(PENDING(), {"k": f"{pk + 999} default customer {session}", "g": "d", "x": "t", "m": good % ("n1", 7)})
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": good % ("clash", 1)})
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": good % ("too-large", 2**70)})
    raw = own_bytes_client()
    raw.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": b"\xff\xfe not text"})
    append(session, "after")
    done = drain()
    assert (done.stored, done.dead) == (2, 7)
    assert backlog() == 0
    assert stored(session) == [(1, "good"), (2, "after")]
    letters = Counter(MessageDeadLetter.objects.values_list("reason", flat=True))
    assert letters["unreadable"] == 5
    assert letters["no_session"] == 1
    assert letters["seq_taken"] == 1
    clash = MessageDeadLetter.objects.get(reason="seq_taken")
    assert (clash.session_id, clash.entry_id, clash.seq) == (session, "clash", 1)
    assert '"content":"x"' in json.loads(clash.raw)["message"]


def test_what_the_database_refuses_is_found_by_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import DataError

    session = make_session()
    append(session, *[f"m{n}" for n in range(20)])
    real = persist.insert_entries

    def refuses_seven(entries: Any) -> None:
        if any(entry.content == "m7" for entry in entries):
            raise DataError("refused")
        real(entries)

    monkeypatch.setattr(persist, "insert_entries", refuses_seven)
    done = drain()
    assert (done.stored, done.dead) == (19, 1)
    assert MessageDeadLetter.objects.get().seq == 8
    assert backlog() == 0


def test_a_deadlock_is_tried_again_and_a_lost_database_keeps_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, "a", "b")
    real = persist.insert_entries
    answers = iter([OperationalError(1213, "Deadlock"), OperationalError(1205, "Lock wait"), None])

    def stumbles(entries: Any) -> None:
        error = next(answers)
        if error:
            raise error
        real(entries)

    with monkeypatch.context() as patch:
        patch.setattr(persist, "insert_entries", stumbles)
        assert drain().stored == 2

    append(session, "c")

    def away(entries: Any) -> None:
        raise OperationalError(2006, "gone away")

    with monkeypatch.context() as patch:
        patch.setattr(persist, "insert_entries", away)
        assert drain().total == 0
        # A sync append while MySQL is away is in the stream and says so.
        assert append(session, "d", durability="sync")[0].state == QUEUED
    assert backlog() == 2
    drain_everything()
    assert [c for _, c in stored(session)] == ["a", "b", "c", "d"]


def test_many_drains_at_once_are_harmless() -> None:
    sessions = [make_session() for _ in range(5)]
    for n in range(60):
        append(sessions[n % 5], f"m{n}")

    def work() -> None:
        try:
            while drain_batch(entries=7, idle_ms=0).batches:
                pass
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drain_everything()
    assert AgentMessage.objects.count() == 60
    assert [seq for seq, _ in stored(sessions[0])] == list(range(1, 13))
    assert MessageDeadLetter.objects.count() == 0


DRAIN_PROGRAM = """
import os, sys, time
import django
from django.conf import settings
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from memory.sessions import drain, persist
real = persist.insert_entries
def slowly(entries):
    real(entries)
    print("inserted", flush=True)
    time.sleep(0.2)
persist.insert_entries = slowly
while True:
    drain.drain_batch(entries=5)
"""


@pytest.mark.slow  # starts and kills real processes
def test_a_drain_killed_in_the_middle_loses_and_doubles_nothing(settings: Any) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the test database of SQLite is in memory: no other process can open it")
    session = make_session()
    for n in range(60):
        append(session, f"m{n}")
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", DRAIN_PROGRAM, connection.settings_dict["NAME"], settings.REDIS_KEY_PREFIX],
            stdout=subprocess.PIPE,
            cwd=PROJECT,
            env={**os.environ, "REDIS_URL": django_settings.REDIS_URL},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"inserted\n"  # in the middle of a transaction
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert backlog() > 0
    deadline = time.monotonic() + 10
    while backlog() and time.monotonic() < deadline:
        drain()
        time.sleep(0.05)
    assert backlog() == 0
    assert stored(session) == [(n + 1, f"m{n}") for n in range(60)]
