"""Redis, the stream and MySQL compared: who is looked at, every gap explained, and what people are told."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connections

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions import looking
from memory.sessions.dead_letters import drop_letter
from memory.sessions.direct import append_past_redis
from memory.sessions.drain import drain
from memory.sessions.entries import prepare
from memory.sessions.keys import EPOCH, PENDING
from memory.sessions.models import AgentSession, MessageDeadLetter
from memory.sessions.reconcile import reconcile, select
from tests.memory.sessions.helpers import (
    append,
    let_expire,
    make_message,
    make_session,
    owner,
    put,
    stored,
)
from tests.memory.sessions.reconciling import kinds, lose_the_stream, run
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


# --- nothing wrong ------------------------------------------------------------------------------------------------


def test_a_working_system_has_nothing_to_tell() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    append(session, "c")
    make_session()
    code, report = run()
    assert (code, report["findings"], report["sessions"], report["messages"], report["queued"]) == (0, [], 2, 2, 1)
    let_expire(session)
    assert run()[0] == 0


def test_traffic_under_way_is_not_taken_for_a_loss(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 7
    sessions = [make_session() for _ in range(3)]
    stop = threading.Event()
    failures: list[BaseException] = []

    def forever(work: Any) -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    def write(session: str) -> None:
        append(session, "x", "y")

    threads = [threading.Thread(target=forever, args=(lambda s=s: write(s),)) for s in sessions]
    threads += [threading.Thread(target=forever, args=(lambda: drain(seconds=0.2),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            report = reconcile(rows=select(), whole=True, pause=0.05)
            assert [f for f in report.findings if f.open] == []
            base_redis.state().delete(*owner(sessions[0]).keys)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert run("--fix")[0] == 0


# --- gaps and what explains them ----------------------------------------------------------------------------------


def test_an_outage_leaves_a_gap_that_is_explained(own_redis_server: RedisServer) -> None:
    session = make_session()
    append(session, "a")
    drain()
    own_redis_server.kill()
    append(session, "b")
    own_redis_server.start()
    code, report = run()
    assert code == 0
    (gap,) = report["findings"]
    assert (gap["kind"], gap["first"], gap["last"]) == ("gap", 2, 1000)
    append(session, "c")
    drain()
    code, report = run()
    assert [(f["kind"], f["first"], f["last"], f["why"]) for f in report["findings"]] == [("gap", 2, 1000, "restarted")]
    assert code == 0


def test_an_append_past_redis_and_its_lost_twin_explain_each_other() -> None:
    session = make_session()
    append(session, "a")
    put(session, make_message("b", entry_id="e1"))  # its answer was lost, so it was sent past Redis too
    append_past_redis(owner(session), prepare([make_message("b", entry_id="e1"), make_message("c")]))
    code, report = run()
    assert (code, kinds(report)) == (0, {"duplicate", "gap"})
    assert drain().known == 1
    code, report = run()
    assert code == 0
    assert [(f["first"], f["last"], f["why"]) for f in report["findings"]] == [(2, 2, "repeat"), (3, 1000, "outage")]
    append(session, "d")
    drain()
    assert run()[0] == 0
    assert [content for _, content in stored(session)] == ["a", "b", "c", "d"]


def test_a_dead_letter_explains_its_number() -> None:
    session = make_session()
    append(session, "a")
    client = base_redis.state()
    body = '{"entry_id":"clash","role":"user","content":"x","payload":null,"seq":1,"at":1}'
    client.xadd(PENDING(), {"k": owner(session).ident, "g": "d", "x": "t", "m": body})
    stranger = body.replace("clash", "nobody")
    client.xadd(
        PENDING(), {"k": f"{owner(session).pk + 9} default customer {session}", "g": "d", "x": "", "m": stranger}
    )
    client.xadd(PENDING(), {"nonsense": "1"})
    code, report = run()
    assert code == 1
    assert {f["kind"] for f in report["findings"] if f["open"]} == {"unknown_session", "unreadable"}
    code, report = run("--fix")
    assert (code, report["queued"]) == (1, 0)  # what waits for somebody to decide stays open
    assert {f["kind"] for f in report["findings"] if f["open"]} == {"dead_letter"}
    assert MessageDeadLetter.objects.count() == 3
    for letter in MessageDeadLetter.objects.all():
        drop_letter(letter_id=letter.pk, by="ops")
    assert run()[0] == 0


# --- choosing, and not being able ---------------------------------------------------------------------------------


def test_one_session_one_tenant_or_the_lately_used() -> None:
    first, second = make_session(), make_session()
    append(first, "a")
    append(second, "b")
    lose_the_stream()
    assert {f["session_id"] for f in run("--session", first)[1]["findings"]} == {first}
    assert run("--tenant", "nobody") == (0, run("--tenant", "nobody")[1])
    AgentSession.objects.filter(session_id=first).update(
        opened_at=now() - timedelta(days=2), created_at=now() - timedelta(days=2)
    )
    assert {f["session_id"] for f in run("--since", "1h")[1]["findings"]} == {second}
    assert run("--session", "no-such-session-at-all")[0] == 2
    assert run("--since", "yesterday")[0] == 2
    assert run("--session", "a:b")[0] == 2


def test_redis_or_the_database_away_is_said_so(own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, "a")

    def away(*args: Any) -> Any:
        raise OperationalError(2002, "gone")

    monkeypatch.setattr(looking, "_stored", away)
    with pytest.raises(CommandError, match="database is away") as refused:
        call_command("reconcile")
    assert refused.value.returncode == 2
    own_redis_server.kill()
    with pytest.raises(CommandError, match="Redis") as refused:
        call_command("reconcile")
    assert refused.value.returncode == 2


def test_the_cost_of_looking(django_assert_max_num_queries: Any) -> None:
    sessions = [make_session() for _ in range(30)]
    for session in sessions:
        append(session, "a", "b")
    drain()
    with django_assert_max_num_queries(11):
        assert reconcile(rows=select(), whole=True).clean


def test_people_are_told_in_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    session = make_session()
    append(session, "secret words")
    lose_the_stream()
    with pytest.raises(CommandError):
        call_command("reconcile")
    told = capsys.readouterr().out
    assert f"lost_message default/{session} 1-1" in told
    assert "1 sessions, 0 messages stored, 0 queued, 0 dead letters waiting: lost_message 1" in told
    assert "secret" not in told
    assert base_redis.state().exists(EPOCH())
