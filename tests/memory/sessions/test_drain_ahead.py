"""The drain takes the next batch while the database stores one, and lingers: what that costs, and what it must not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery.signals import worker_shutting_down
from django.conf import settings as django_settings
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given, settings

from config.base import redis as base_redis
from config.base.clock import now
from config.base.fields import canonical_json
from memory.sessions import drain as drain_room
from memory.sessions import persist, tasks
from memory.sessions.drain import BATCH_BYTES, Drained, backlog, drain
from memory.sessions.entries import Entry, prepare, read_entry
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage, MessageDeadLetter
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import append, make_message, make_session, owner, stored
from tests.memory.sessions.test_hot import JSON

pytestmark = pytest.mark.django_db(transaction=True)

PROJECT = Path(__file__).resolve().parents[3]


def make_entry(pk: int, seq: int, **other: Any) -> Entry:
    fields = {
        "session_pk": pk, "tenant": "default", "agent": "customer", "session_id": "s", "entry_id": f"e{seq}",
        "seq": seq, "role": "user", "content": "x", "payload": None, "size": 1, "digest": "d", "trace_id": "t",
        "created_at": now(),
    }  # fmt: skip
    return Entry(**{**fields, **other})


# --- cost ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "batches", "trips"),
    [(0, 0, 1), (1, 1, 2), (4, 1, 2), (5, 1, 3), (23, 5, 6), (20, 4, 6)],
)
def test_what_a_run_costs(messages: int, batches: int, trips: int) -> None:
    """n batches: n + 1 round trips, one more where the last was full; an INSERT and a look at the sessions each."""
    session = make_session()
    drain()  # connections are open, the script is known
    if messages:
        append(session, *[f"m{n}" for n in range(messages)])
    with counted_round_trips() as calls, CaptureQueriesContext(connection) as queries:
        done = drain(entries=5)
    assert (done.stored, done.batches, len(calls)) == (messages, batches, trips)
    kinds = Counter(query["sql"].split()[0] for query in queries.captured_queries)
    assert (kinds["INSERT"], kinds["SELECT"]) == (batches, batches)
    assert backlog() == 0
    assert stored(session) == [(n + 1, f"m{n}") for n in range(messages)]


def test_large_messages_make_small_batches() -> None:
    session = make_session()
    for n in range(20):
        append(session, str(n % 10) * 1024 * 1024)
    done = drain()
    assert (done.stored, done.batches) == (20, 3)
    assert [content[:1] for _, content in stored(session)] == [str(n % 10) for n in range(20)]


# --- dying and stumbling ------------------------------------------------------------------------------------------


def test_what_is_in_hand_and_comes_a_second_time_is_not_written_twice() -> None:
    """A database so slow that the drain's own entries seem a dead drain's."""
    session = make_session()
    append(session, *[f"m{n}" for n in range(23)])
    total = Drained()
    drain_room._empty(drain_room._Queue(5, BATCH_BYTES, 0), total, lambda: False)
    assert (total.stored, total.known, total.dead) == (23, 0, 0)
    assert backlog() == 0
    assert stored(session) == [(n + 1, f"m{n}") for n in range(23)]


def test_a_database_that_goes_away_between_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, *[f"m{n}" for n in range(23)])
    real, calls = persist.insert_entries, list[int]()

    def goes_away(entries: Any) -> None:
        calls.append(len(entries))
        if len(calls) == 3:
            raise OperationalError(2002, "refused")
        real(entries)

    monkeypatch.setattr(persist, "insert_entries", goes_away)
    assert drain(entries=5).stored == 10
    # What was stored has left the stream, and the connection of the call that was under way is in order again.
    assert backlog() == 13
    with base_redis.translated():
        assert base_redis.state().ping()
    total = Drained()
    drain_room._empty(drain_room._Queue(5, BATCH_BYTES, 0), total, lambda: False)
    assert (total.stored, total.known) == (13, 0)
    assert stored(session) == [(n + 1, f"m{n}") for n in range(23)]


DRAIN_PROGRAM = """
import json, os, signal, sys, time
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from config.base.redis import Script, Underway
from memory.sessions import drain, persist
from memory.sessions.models import AgentMessage, MessageDeadLetter

def dies(owner, name, nth, before=False):
    real, calls = getattr(owner, name), []
    def instead(*args, **options):
        calls.append(1)
        if before and len(calls) >= nth:
            os.kill(os.getpid(), signal.SIGKILL)
        value = real(*args, **options)
        if len(calls) >= nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return value
    setattr(owner, name, instead)

point = sys.argv[3]
if point == "taken": dies(drain._Queue, "take", 1)
if point == "sent": dies(Script, "ahead", 2)
if point == "inserted": dies(persist, "insert_entries", 2)
if point == "committed": dies(drain, "persist", 2)
if point == "answered": dies(Underway, "answer", 2)
if point == "not settled": dies(drain._Queue, "settle", 1, before=True)
until = time.monotonic() + 20
while drain.backlog() and time.monotonic() < until:
    drain._empty(drain._Queue(5, drain.BATCH_BYTES, 500), drain.Drained(), lambda: point == "not settled")
    time.sleep(0.05)
rows = AgentMessage.objects.order_by("seq").values_list("seq", "content")
print(json.dumps([list(rows), drain.backlog(), MessageDeadLetter.objects.count()]))
"""


@pytest.fixture
def programs(settings: Any, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts drains as processes: each dies at the step that it is told, or goes on until the queue is empty."""
    name = connection.settings_dict["NAME"]
    if connection.vendor == "sqlite":
        name = str(tmp_path / "copy.sqlite3")  # the test's own is in memory, where no other process can open it
    started: list[subprocess.Popen[str]] = []

    def start(point: str) -> subprocess.Popen[str]:
        if connection.vendor == "sqlite" and not Path(name).exists():
            with connection.cursor() as cursor:
                cursor.execute("VACUUM INTO %s", [name])
        process = subprocess.Popen(
            [sys.executable, "-c", DRAIN_PROGRAM, name, settings.REDIS_KEY_PREFIX, point],
            cwd=PROJECT,
            env={**os.environ, "REDIS_URL": django_settings.REDIS_URL},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.mark.slow  # starts and kills real processes
def test_a_drain_killed_at_any_step_loses_and_doubles_nothing(programs: Any) -> None:
    append(make_session(), *[f"m{n}" for n in range(70)])
    for point in ("taken", "sent", "inserted", "committed", "answered", "not settled"):
        assert programs(point).wait() == -signal.SIGKILL, point
        assert backlog() > 0
    done = programs("finishes")
    assert json.loads(done.communicate()[0]) == [[[n + 1, f"m{n}"] for n in range(70)], 0, 0]
    assert done.returncode == 0


@pytest.mark.slow  # starts and kills real processes
def test_drains_of_several_processes_of_which_some_are_killed(programs: Any) -> None:
    session = make_session()
    for _ in range(4):
        append(session, *["m"] * 200)
    dying = [programs(point) for point in ("sent", "inserted", "committed")]
    assert [process.wait() for process in dying] == [-signal.SIGKILL] * 3
    finishing = [programs("finishes"), programs("finishes")]
    for process in finishing:
        assert json.loads(process.communicate()[0]) == [[[n, "m"] for n in range(1, 801)], 0, 0]
        assert process.returncode == 0


# --- what stands in the stream ------------------------------------------------------------------------------------


def test_names_that_no_column_holds_are_letters_and_hold_up_nobody() -> None:
    session = make_session()
    append(session, "before")
    pk, client = owner(session).pk, base_redis.state()
    body = '{"entry_id":"%s","role":"user","content":"x","seq":%s,"at":1}'
    idents = [
        f"{pk} {'t' * 65} customer {session}",
        f"{pk} default customer {'s' * 65}",
        f"{2**70} default customer {session}",
        f"-1 default customer {session}",
        f"{pk} it's customer {session}",
        f"{pk} 大 customer {session}",
    ]
    for n, ident in enumerate(idents):
        client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": body % (f"e{n}", n + 10), "p": ""})
    append(session, "after")
    done = drain()
    assert (done.stored, done.dead) == (2, len(idents))
    assert set(MessageDeadLetter.objects.values_list("reason", flat=True)) == {"unreadable"}
    assert backlog() == 0


def test_fields_of_another_order_or_number_are_read_all_the_same() -> None:
    session = make_session()
    ident, client = owner(session).ident, base_redis.state()
    body = '{"entry_id":"%s","role":"user","content":"x","seq":%s,"at":1}'
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": body % ("no-parent", 5)})
    client.xadd(PENDING(), {"p": "a", "m": body % ("other-order", 6), "x": "t", "g": "d", "k": ident})
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": body % ("one-more", 7), "p": "", "new": "1"})
    assert drain().stored == 3
    rows = AgentMessage.objects.order_by("seq").values_list("entry_id", "parent_entry_id")
    assert list(rows) == [("no-parent", ""), ("other-order", "a"), ("one-more", "")]


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_a_payloads_text_is_what_encoding_it_again_would_give(value: Any) -> None:
    (one,) = prepare([make_message("大x", payload=value)])
    message = f'{one.body},"seq":1,"at":2}}'
    entry = read_entry("1-1", {"k": "1 default customer s", "g": one.digest, "x": "", "m": message})
    assert entry.stored_payload == (None if value is None else canonical_json(value))
    assert (entry.size, entry.digest) == (one.size, one.digest)


@pytest.mark.parametrize(
    "payload", ["1e999", "NaN", '"\\ud800"', "01", "[1,]", '"\x01"', "[" * 5000, "{}}", "9" * 5000]
)
def test_a_payload_that_is_no_json_is_poison(payload: str) -> None:
    body = f'{{"entry_id":"e","role":"user","content":"x","payload":{payload},"seq":1,"at":2}}'
    with pytest.raises((ValueError, RecursionError)):
        read_entry("1-1", {"k": "1 default customer s", "g": "", "x": "", "m": body})


def test_names_that_need_quoting_are_quoted() -> None:
    """None gets past the checks in front; if one did, it would be a strange name and no statement."""
    pk = owner(make_session()).pk
    strange = "x', 'y'); DROP TABLE agent_message; -- %s \\"
    persist.insert_entries(
        [make_entry(pk, 1), make_entry(pk, 2, entry_id="e'\\\"%s", parent=strange), make_entry(pk, 3)]
    )
    rows = AgentMessage.objects.filter(session_row_id=pk).order_by("seq").values_list("entry_id", "parent_entry_id")
    assert list(rows) == [("e1", ""), ("e'\\\"%s", strange), ("e3", "")]


# --- lingering ----------------------------------------------------------------------------------------------------


class Clock:
    """Stands for the drain's `time`: sleeping is instant, and something happens meanwhile."""

    def __init__(self, meanwhile: Any = lambda: None) -> None:
        self.at, self.meanwhile = 100.0, meanwhile

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.meanwhile()


def test_a_drain_that_lingers_finds_what_comes_in_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, "first")
    clock = Clock(lambda: append(session, "more"))
    monkeypatch.setattr(drain_room, "time", clock)
    done = drain(linger=0.5)
    assert (done.stored, done.batches) == (4, 4)  # at 0, 0.2, 0.4 and 0.5 s
    assert clock.at == pytest.approx(100.5)
    assert drain(linger=0.0).stored == 0


def test_a_drain_that_is_asked_to_end_ends_with_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, *[f"m{n}" for n in range(20)])
    clock = Clock()
    monkeypatch.setattr(drain_room, "time", clock)
    done = drain(linger=60.0, ending=lambda: True, entries=5)
    assert (done.stored, backlog()) == (5, 15)
    asked = iter([False, False, False, True, True])
    assert drain(linger=60.0, ending=lambda: next(asked), entries=5).stored == 15
    assert (clock.at, backlog()) == (100.0, 0)


def test_a_worker_that_is_asked_to_end_tells_its_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.ending, "asked", False)
    assert not tasks.ending()
    worker_shutting_down.send(sender="drain@here", sig="SIGTERM", how="Warm", exitcode=0)
    assert tasks.ending()


def test_a_tick_lingers_within_its_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(drain_room, "time", clock)
    tasks.drain()
    assert clock.at == pytest.approx(100.9)
