"""Redis emptied, killed, hung, full; drains killed; answers lost. Nothing committed is lost, nothing is doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import OperationalError, connection, connections

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.keys import prefixed
from config.base.redis import RedisUnavailable
from memory.sessions import drain as drain_room
from memory.sessions import hot, persist, selectors, services
from memory.sessions.drain import backlog, drain, drain_batch
from memory.sessions.entries import COMMITTED, QUEUED
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from memory.sessions.reopen import ensure_attached, reattach
from tests.memory.sessions.helpers import (
    ALICE,
    append,
    empty_redis,
    let_expire,
    make_message,
    make_session,
    owner,
    put,
    stored,
)
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

PROJECT = Path(__file__).resolve().parents[3]


def contents(session: str, limit: int = 200) -> list[str]:
    return [m.content for m in selectors.read_messages(caller=ALICE, session_id=session, limit=limit).messages]


def drain_everything() -> None:
    """Also what other drains hold: claimed at once."""
    while drain_batch(idle_ms=0).batches:
        pass


# --- emptied ------------------------------------------------------------------------------------------------------


def test_an_emptied_redis_never_reuses_the_numbers_of_what_it_lost() -> None:
    session = make_session()
    kept = append(session, "a", "b", durability="sync")
    lost = append(session, "lost")
    empty_redis()
    assert contents(session) == ["a", "b"]
    (after,) = append(session, "c")
    assert after.seq > max(r.seq for r in [*kept, *lost])
    assert after.seq > 1000  # above all that had been leased
    assert [r.seq for r in append(session, "d")] == [after.seq + 1]
    drain()
    assert [content for _, content in stored(session)] == ["a", "b", "c", "d"]
    page = selectors.read_messages(caller=ALICE, session_id=session, limit=2)
    assert [m.content for m in page.messages] == ["c", "d"]
    older = selectors.read_messages(caller=ALICE, session_id=session, before_seq=page.next)
    assert ([m.content for m in older.messages], older.next) == (["a", "b"], None)


def test_the_drain_survives_an_emptied_redis() -> None:
    session = make_session()
    append(session, "a")
    assert drain().stored == 1
    empty_redis()
    assert drain().total == 0
    append(session, "b")
    assert drain().stored == 1


# --- a server of its own: killed, restarted, hung, full -----------------------------------------------------------


def test_killed_redis_appends_commit_and_all_is_there_when_it_is_back(own_redis_server: RedisServer) -> None:
    session = make_session()
    (queued,) = put(session, make_message("queued", entry_id="e0"))
    own_redis_server.kill()

    (first,) = put(session, make_message("one", entry_id="e1"))
    assert first.state == COMMITTED
    assert first.seq > queued.seq
    (second,) = append(session, "two", durability="sync")
    assert (second.seq, second.state) == (first.seq + 1, COMMITTED)
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert (page.source, [m.content for m in page.messages]) == ("database", ["one", "two"])
    with pytest.raises(RedisUnavailable):
        selectors.get_context(caller=ALICE, session_id=session)
    with pytest.raises(DomainError) as refused:
        put(session, make_message("other", entry_id="e1"))
    assert refused.value.code == "ENTRY_CONFLICT"

    own_redis_server.start()
    assert put(session, make_message("one", entry_id="e1")) == [first]
    (third,) = append(session, "three")
    assert third.seq > second.seq
    assert contents(session, 20) == ["queued", "one", "two", "three"]
    drain_everything()
    assert [content for _, content in stored(session)] == ["queued", "one", "two", "three"]
    assert put(session, make_message("queued", entry_id="e0"))[0].seq == queued.seq
    assert MessageDeadLetter.objects.count() == 0


def test_an_outage_is_not_shown_as_an_empty_session(own_redis_server: RedisServer) -> None:
    session = make_session()
    append(session, "only in Redis yet")
    own_redis_server.kill()
    with pytest.raises(RedisUnavailable):
        selectors.read_messages(caller=ALICE, session_id=session)
    born_without_redis = make_session()
    assert contents(born_without_redis) == []
    append(born_without_redis, "x")
    assert contents(born_without_redis) == ["x"]
    own_redis_server.start()
    assert [r.seq for r in append(born_without_redis, "y")] == [2]
    assert contents(session) == ["only in Redis yet"]


def test_a_restarted_server_may_have_lost_its_newest_writes(own_redis_server: RedisServer) -> None:
    """The append-only file ends before the last appends: their numbers are not given to others."""
    session = make_session()
    append(session, "a")
    drain()
    log = next((own_redis_server.directory).rglob("*.incr.aof"))
    size = log.stat().st_size
    lost = append(session, "lost", "lost too")
    services.change_context(caller=ALICE, session_id=session, intent="buy")
    drained = append(session, "drained")
    drain()
    own_redis_server.kill()
    with log.open("r+b") as file:
        file.truncate(size)
    own_redis_server.start()
    (after,) = append(session, "b")
    assert after.seq > max(r.seq for r in [*lost, *drained])
    drain_everything()
    assert [c for _, c in stored(session)] == ["a", "lost", "lost too", "drained", "b"]
    assert MessageDeadLetter.objects.count() == 0


def test_a_restart_keeps_the_context_and_what_is_queued(own_redis_server: RedisServer) -> None:
    session = make_session()
    append(session, "a")
    before = services.change_context(caller=ALICE, session_id=session, intent="buy", slots={"amount": "100"})
    own_redis_server.restart()
    after = selectors.get_context(caller=ALICE, session_id=session)
    assert (after.intent, after.slots, after.version, after.reopened) == (
        "buy",
        {"amount": "100"},
        before.version,
        False,
    )
    assert contents(session, 20) == ["a"]


def test_a_hung_redis_costs_a_bounded_wait_and_doubles_nothing(own_redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_TIMEOUT = 0.3
    base_redis.forget_clients()
    session = make_session()
    put(session, make_message("before", entry_id="e0"))
    own_redis_server.pause()
    try:
        began = time.monotonic()
        # The first is sent to Redis, which will do it when it wakes, and committed in MySQL when no answer comes.
        (one,) = put(session, make_message("one", entry_id="e1"))
        waited = time.monotonic() - began
        (two,) = append(session, "two")
        assert time.monotonic() - began < waited + 0.3  # the breaker spares the next ones the wait
        assert waited < 1.5
        assert {one.state, two.state} == {COMMITTED}
    finally:
        own_redis_server.resume()
    base_redis.breaker.reset()
    assert put(session, make_message("one", entry_id="e1")) == [one]
    (three,) = append(session, "three")
    assert three.seq > two.seq > one.seq
    assert contents(session, 20) == ["before", "one", "two", "three"]
    drain_everything()
    assert stored(session) == [(1, "before"), (one.seq, "one"), (two.seq, "two"), (three.seq, "three")]
    assert contents(session, 20) == ["before", "one", "two", "three"]


def test_a_full_redis_appends_to_the_database_and_is_drained_all_the_same(own_redis_server: RedisServer) -> None:
    session = make_session()
    append(session, "before")
    client = own_redis_server.client()
    client.config_set("maxmemory", "1mb")
    receipts = append(session, "full")
    assert receipts[0].state == COMMITTED
    assert drain().stored == 1  # only what is queued makes room: draining must work on a full server
    client.config_set("maxmemory", "0")
    append(session, "after")
    drain()
    assert [content for _, content in stored(session)] == ["before", "full", "after"]
    assert contents(session, 20) == ["before", "full", "after"]


def test_another_process_catches_up_by_the_beat_task(own_redis_server: RedisServer) -> None:
    """This process went past Redis; `reattach` (each second, from beat) takes Redis's state out of use."""
    session = make_session()
    append(session, "a")
    prepared = services.prepare([make_message("past", entry_id="p1")])
    services.append_past_redis(owner(session), prepared)
    assert AgentSession.objects.get().detached_at is not None
    assert reattach() == 1
    assert AgentSession.objects.get().detached_at is None
    assert contents(session, 20) == ["a", "past"]
    assert [r.seq for r in append(session, "b")] == [1002]
    assert reattach() == 0


# --- lost answers ---------------------------------------------------------------------------------------------


def lose_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis does the append; the answer never arrives."""
    real = hot._append

    def done_but_silent(*args: Any) -> Any:
        real(*args)
        base_redis._outage_listeners[0]()
        raise RedisUnavailable("the answer was lost")

    monkeypatch.setattr(hot, "_append", done_but_silent)


@pytest.mark.parametrize("entry_id", ["given-by-client", None])
@pytest.mark.parametrize("drained_first", [True, False])
def test_a_lost_answer_never_doubles(
    monkeypatch: pytest.MonkeyPatch, entry_id: str | None, drained_first: bool
) -> None:
    session = make_session()
    append(session, "a")
    with monkeypatch.context() as patch:
        lose_answers(patch)
        if drained_first:
            real = services.append_past_redis

            def late(*args: Any) -> Any:
                drain()
                return real(*args)

            patch.setattr(services, "append_past_redis", late)
        (receipt,) = put(session, make_message("b", entry_id=entry_id))
    assert receipt.state == COMMITTED
    drain_everything()
    assert [content for _, content in stored(session)] == ["a", "b"]
    assert stored(session)[1][0] == receipt.seq  # what the client was told is the truth
    append(session, "c")
    assert contents(session, 20) == ["a", "b", "c"]
    drain_everything()
    assert [content for _, content in stored(session)] == ["a", "b", "c"]
    assert MessageDeadLetter.objects.count() == 0


# --- the drain ------------------------------------------------------------------------------------------------


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


# --- many writers ---------------------------------------------------------------------------------------------


def write_in_threads(
    session: str, writers: int, appends: int, errors: list[BaseException], meanwhile: Callable[[], None] | None = None
) -> None:
    """meanwhile: runs in this thread (a server that a thread starts is ended with that thread)."""

    def work(writer: int) -> None:
        try:
            for n in range(appends):
                put(
                    session,
                    make_message(f"{writer}.{n}.a", entry_id=f"w{writer}-{n}-a"),
                    make_message(f"{writer}.{n}.b", "assistant", entry_id=f"w{writer}-{n}-b"),
                )
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    if meanwhile:
        meanwhile()
    for thread in threads:
        thread.join()


def check_batches(session: str, writers: int, appends: int, *, gap_free: bool) -> None:
    rows = stored(session)
    assert len(rows) == writers * appends * 2
    if gap_free:
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    heads = [content for _, content in rows]
    for n in range(0, len(heads), 2):
        writer, turn, part = heads[n].split(".")
        assert part == "a"
        assert heads[n + 1] == f"{writer}.{turn}.b"
    for number in range(writers):  # each writer's own order is kept
        turns = [int(head.split(".")[1]) for head in heads if head.startswith(f"{number}.") and head.endswith(".a")]
        assert turns == sorted(turns)


def test_sixteen_first_writers_on_one_session(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 50
    session = make_session()
    errors: list[BaseException] = []
    write_in_threads(session, 16, 25, errors)
    assert errors == []
    drain_everything()
    check_batches(session, 16, 25, gap_free=True)
    window = selectors.read_messages(caller=ALICE, session_id=session).messages
    database = list(AgentMessage.objects.order_by("-seq")[:20])[::-1]
    assert [(m.seq, m.entry_id, m.content, m.created_at) for m in window] == [
        (m.seq, m.entry_id, m.content, m.created_at) for m in database
    ]


def test_writers_while_the_session_expires_again_and_again(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 20
    session = make_session()
    errors: list[BaseException] = []
    over = threading.Event()

    def trouble() -> None:
        try:
            n = 0
            while not over.is_set():
                n += 1
                if n % 3 == 0:
                    base_redis.state().delete(*owner(session).keys)
                else:
                    drain_batch(idle_ms=0)
                time.sleep(0.02)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    troubles = [threading.Thread(target=trouble) for _ in range(2)]
    for thread in troubles:
        thread.start()
    write_in_threads(session, 8, 15, errors)
    over.set()
    for thread in troubles:
        thread.join()
    assert errors == []
    drain_everything()
    check_batches(session, 8, 15, gap_free=False)
    assert MessageDeadLetter.objects.count() == 0


def test_writers_while_redis_is_killed_and_restarted(own_redis_server: RedisServer) -> None:
    session = make_session()
    errors: list[BaseException] = []

    def trouble() -> None:
        for _ in range(3):
            time.sleep(0.3)
            own_redis_server.kill()
            time.sleep(0.2)
            own_redis_server.start()

    write_in_threads(session, 8, 60, errors, trouble)
    assert errors == []
    ensure_attached()
    drain_everything()
    check_batches(session, 8, 60, gap_free=False)
    assert MessageDeadLetter.objects.count() == 0
    assert contents(session, 20) == [c for _, c in stored(session)][-20:]


def test_writers_while_redis_hangs(own_redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_TIMEOUT = 0.2
    base_redis.forget_clients()
    session = make_session()
    errors: list[BaseException] = []

    def trouble() -> None:
        for _ in range(3):
            time.sleep(0.2)
            own_redis_server.pause()
            time.sleep(0.4)
            own_redis_server.resume()
            time.sleep(0.8)

    write_in_threads(session, 8, 60, errors, trouble)
    assert errors == []
    base_redis.breaker.reset()
    ensure_attached()
    drain_everything()
    rows = stored(session)
    assert len(rows) == len({content for _, content in rows}) == 8 * 60 * 2
    assert contents(session, 20) == [c for _, c in rows][-20:]


def test_prefixes_keep_two_environments_apart(settings: Any) -> None:
    session = make_session()
    append(session, "a")
    settings.REDIS_KEY_PREFIX += "x"
    assert drain().total == 0
    settings.REDIS_KEY_PREFIX = settings.REDIS_KEY_PREFIX[:-1]
    assert prefixed("sess:pending") == PENDING()
    assert drain().stored == 1
    let_expire(session)
    assert isinstance(base_redis.state(), redis.Redis)
