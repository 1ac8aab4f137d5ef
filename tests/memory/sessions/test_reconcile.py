"""Redis, the stream and MySQL compared: every gap explained, every loss told, what can be mended mended."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connections
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions import looking, selectors
from memory.sessions.direct import append_past_redis
from memory.sessions.drain import backlog, drain
from memory.sessions.entries import prepare
from memory.sessions.judging import Lease, Numbers, judge
from memory.sessions.keys import EPOCH, PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter, SessionNumbering
from memory.sessions.numbering import given
from memory.sessions.reconcile import reconcile, select
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


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    given.forget()
    yield
    given.forget()


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of the command."""
    out = io.StringIO()
    try:
        call_command("reconcile", "--json", *arguments, stdout=out)
    except CommandError as error:
        return error.returncode, json.loads(out.getvalue() or "{}")
    return 0, json.loads(out.getvalue())


def kinds(report: dict[str, Any]) -> set[str]:
    return {finding["kind"] for finding in report["findings"]}


def lose_the_stream() -> None:
    base_redis.state().delete(PENDING())


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
    assert (code, report["queued"]) == (0, 0)
    assert MessageDeadLetter.objects.count() == 3
    assert run()[0] == 0


# --- losses -------------------------------------------------------------------------------------------------------


def test_what_only_the_window_has_is_a_loss_and_is_put_back() -> None:
    session = make_session()
    append(session, "a")
    drain()
    put(session, make_message("买基金", payload={"n": 2**70, "l": []}), make_message("c", entry_id="mine"))
    before = selectors.read_messages(caller=ALICE, session_id=session).messages
    lose_the_stream()
    code, report = run()
    assert code == 1
    lost = [f for f in report["findings"] if f["kind"] == "lost_message"]
    assert [(f["first"], f["session_id"]) for f in lost] == [(2, session), (3, session)]
    assert stored(session) == [(1, "a")]

    code, report = run("--fix")
    assert code == 0
    assert {f["repaired"] for f in report["findings"]} == {"put back from the window"}
    assert stored(session) == [(1, "a"), (2, "买基金"), (3, "c")]
    assert run() == (0, {**report, "messages": 3, "counts": {}, "findings": []})
    let_expire(session)
    assert selectors.read_messages(caller=ALICE, session_id=session).messages == before
    assert put(session, make_message("c", entry_id="mine"))[0].seq == 3
    assert [r.seq for r in append(session, "d")] == [4]


def test_what_is_nowhere_stays_a_loss_until_somebody_takes_note() -> None:
    session = make_session()
    large = "x" * 20_000  # the window keeps its head alone
    # Redis keeps receipts of given ids: what is lost can be named.
    contents = ["a", large, *[f"m{n}" for n in range(25)], "z"]
    put(session, *[make_message(content, entry_id=f"e{n}") for n, content in enumerate(contents)])
    lose_the_stream()
    append(session, "after")
    drain()
    code, report = run("--fix")
    assert code == 1
    open_findings = [f for f in report["findings"] if f["open"]]
    assert {(f["kind"], f["first"]) for f in open_findings} == {("lost_message", n) for n in range(1, 10)}
    assert [seq for seq, _ in stored(session)] == list(range(10, 30))
    let_expire(session)
    code, report = run()
    assert (code, [(f["kind"], f["first"], f["last"]) for f in report["findings"]]) == (1, [("lost_numbers", 1, 9)])
    assert run("--accept")[0] == 0
    code, report = run()
    assert (code, [(f["kind"], f["why"]) for f in report["findings"]]) == (0, [("gap", "accepted")])


def test_a_number_lost_in_the_middle_is_found_without_redis() -> None:
    session = make_session()
    append(session, "a", "b", "c", "d")
    drain()
    AgentMessage.objects.filter(seq=2).delete()
    let_expire(session)
    code, report = run()
    assert (code, [(f["kind"], f["first"], f["last"]) for f in report["findings"]]) == (1, [("lost_numbers", 2, 2)])


@pytest.mark.parametrize("also", [("ctx",), ("msgs",), ("ids",), ("ctx", "msgs"), ("ctx", "msgs", "ids")])
def test_numbers_of_a_lost_queue_are_not_given_twice_and_stay_a_loss(also: tuple[str, ...]) -> None:
    """The queue is deleted with messages in it, and then parts of the session's state."""
    session = make_session()
    append(session, "a", "b")
    drain()
    lost = append(session, "c", "d")
    client = base_redis.state()
    client.delete(owner(session).pending)
    for name, key in zip(("ctx", "msgs", "ids"), owner(session).keys, strict=True):
        if name in also:
            client.delete(key)
    after = put(session, make_message("e", entry_id="after-1"), make_message("f", entry_id="after-2"))
    drain()
    assert [receipt.seq for receipt in lost] == [3, 4]
    assert [receipt.seq for receipt in after] == [5, 6]
    code, report = run()
    assert code == 1
    # A window that is still there even says which messages: they can be put back.
    assert kinds(report) & {"lost_numbers", "lost_message"}, "the loss is told, although numbering went on"


def test_an_emptied_redis_is_a_loss_as_far_as_it_is_known() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    append(session, "lost", "lost too")
    empty_redis()
    code, report = run()
    assert (code, [(f["kind"], f["first"], f["last"]) for f in report["findings"]]) == (1, [("possible_loss", 3, 1000)])
    # The process that answered for them remembers how far it came, and says so when it opens the session again.
    append(session, "c")
    drain()
    code, report = run()
    assert code == 1
    assert {(f["kind"], f["first"], f["last"]) for f in report["findings"]} == {
        ("lost_numbers", 3, 4),
        ("possible_loss", 5, 1000),
    }
    assert run("--accept")[0] == 0
    assert run()[0] == 0


def test_a_session_that_had_ended_in_redis_lost_nothing_with_it() -> None:
    session = make_session()
    append(session, "a")
    drain()
    AgentSession.objects.update(opened_at=now() - timedelta(hours=9))
    empty_redis()
    assert run() == (0, run()[1])
    append(session, "b")
    drain()
    code, report = run()
    assert (code, [(f["kind"], f["why"]) for f in report["findings"]]) == (0, [("gap", "idle")])
    assert SessionNumbering.objects.get().kind == "idle"


# --- faults that are mended ---------------------------------------------------------------------------------------


def test_a_ceiling_below_used_numbers_is_raised() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    AgentSession.objects.update(seq_ceiling=1, lease_to=1)  # a database put back from an old copy
    code, report = run()
    assert (code, kinds(report)) == (1, {"ceiling_low"})
    assert run("--fix")[0] == 0
    assert run()[0] == 0
    assert append(session, "c")[0].seq > 1000


def test_outdated_state_is_taken_out_of_use() -> None:
    session, other, gone, lonely = (make_session() for _ in range(4))
    for one in (session, other, gone, lonely):
        append(one, "a", "b")
    drain()
    client = base_redis.state()
    client.delete(owner(session).keys[1])
    client.hset(owner(other).keys[0], "seq", "1")
    AgentSession.objects.filter(session_id=gone).update(deleted_at=now())
    AgentSession.objects.filter(session_id=lonely).update(detached_at=now() - timedelta(minutes=5))
    code, report = run()
    assert code == 1
    assert {(f["kind"], f["session_id"]) for f in report["findings"]} == {
        ("stale_state", session),
        ("stale_state", other),
        ("deleted_open", gone),
        ("detached", lonely),
    }
    assert run("--fix")[0] == 0
    assert run()[0] == 0
    assert len(selectors.read_messages(caller=ALICE, session_id=session).messages) == 2
    assert [r.seq for r in append(other, "c")] == [3]
    assert client.hget(owner(gone).keys[0], "deleted") == "1"


def test_fix_drains_what_a_dead_drain_holds() -> None:
    session = make_session()
    append(session, "a")
    client = base_redis.state()
    client.xgroup_create(PENDING(), "persist", "0")
    client.xreadgroup("persist", "somebody", {PENDING(): ">"}, count=1)
    code, report = run("--fix")
    assert (code, report["queued"], backlog()) == (0, 0, 0)
    assert stored(session) == [(1, "a")]


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
    with django_assert_max_num_queries(8):
        assert reconcile(rows=select(), whole=True).clean


def test_people_are_told_in_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    session = make_session()
    append(session, "secret words")
    lose_the_stream()
    with pytest.raises(CommandError):
        call_command("reconcile")
    told = capsys.readouterr().out
    assert f"lost_message default/{session} 1-1" in told
    assert "1 sessions, 0 messages stored, 0 queued: lost_message 1" in told
    assert "secret" not in told
    assert base_redis.state().exists(EPOCH())


# --- the judgement itself -----------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=200, deadline=None)
@examples(st.data())
def test_every_number_is_judged_rightly(data: st.DataObject) -> None:
    """Made-up histories of ranges and appends past Redis: what was given and vanished is exactly what is lost."""
    size = 8
    start, present, queued, lost, leases = 1, [], [], [], []
    for _ in range(data.draw(st.integers(1, 4))):
        used = data.draw(st.integers(0, size))
        seen = data.draw(st.booleans())
        alive = 0
        for seq in range(start, start + used):
            fate = data.draw(st.sampled_from(["stored", "queued", "lost"]))
            {"stored": present, "queued": queued, "lost": lost}[fate].append(seq)
            alive = seq if fate != "lost" else alive
        known = start + used - 1 if seen and used else 0
        if not known:  # nobody knows that what comes after the last survivor was ever given
            lost = [seq for seq in lost if seq < start or seq <= alive]
        leases.append(Lease(start, start + size - 1, known, data.draw(st.sampled_from(["outage", "restarted"]))))
        start += size
        for _ in range(data.draw(st.integers(0, 3))):
            present.append(start)
            start += 1
    verdict = judge(Numbers([(seq, seq) for seq in present], queued, leases))
    assert [seq for low, high in verdict.lost for seq in range(low, high + 1)] == lost
    explained = {seq for (low, high), _ in verdict.explained for seq in range(low, high + 1)}
    assert not explained & {*present, *queued, *lost}
    top = max([*present, *queued, *lost], default=0)
    assert {*present, *queued, *lost} | explained >= set(range(1, top + 1))
