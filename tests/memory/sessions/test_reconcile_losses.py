"""Messages that somebody has a receipt for and that are nowhere: each is told, and put back where it can be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions import selectors
from memory.sessions.direct import append_past_redis
from memory.sessions.drain import drain
from memory.sessions.entries import prepare
from memory.sessions.models import AgentMessage, AgentSession, SessionNumbering
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
from tests.memory.sessions.reconciling import kinds, lose_the_stream, run

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_what_is_certain_is_told_before_what_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = [make_session() for _ in range(2)]
    numbered = make_session()
    for session in (*quiet, numbered):
        append(session, "a")
    drain()
    append(numbered, "lost")
    empty_redis()
    append(numbered, "b")
    drain()
    named = make_session()
    append(named, "lost too")
    lose_the_stream()
    code, report = run()
    assert code == 1
    assert [f["kind"] for f in report["findings"]] == ["lost_message", "lost_numbers", *["possible_loss"] * 3]
    assert [f["session_id"] for f in report["findings"]] == [named, numbered, *quiet, numbered]
    counts = {"lost_message": 1, "lost_numbers": 1, "possible_loss": 3}
    assert list(report["counts"].items()) == list(counts.items())
    assert list(report)[:2] == ["clean", "counts"]
    with pytest.raises(CommandError):
        call_command("reconcile")
    told = capsys.readouterr().out.splitlines()
    assert told[0].endswith("waiting: lost_message 1, lost_numbers 1, possible_loss 3")
    assert [line.split()[0] for line in told[1:]] == ["lost_message", "lost_numbers", *["possible_loss"] * 3]
    # What somebody took note of is explained, and comes last.
    run("--accept")
    append(named, "c")
    lose_the_stream()
    kinds_told = [f["kind"] for f in run()[1]["findings"]]
    assert kinds_told[0] == "lost_message"
    assert set(kinds_told[1:]) == {"gap"}


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


# --- rows that somebody deletes at a session's end ----------------------------------------------------------------


def test_deleted_rows_at_the_end_are_missed_after_redis_has_forgotten_the_session() -> None:
    session = make_session()
    append(session, "a", "b", "c", "d")
    drain()
    assert run()[0] == 0  # seen once
    let_expire(session)
    AgentMessage.objects.filter(seq__gte=3).delete()
    code, report = run()
    assert (code, [(f["kind"], f["first"], f["last"]) for f in report["findings"]]) == (1, [("lost_numbers", 3, 4)])
    # Whoever writes next does not get their numbers, and they stay a loss.
    assert [receipt.seq for receipt in append(session, "e")] == [5]
    drain()
    code, report = run("--fix")
    assert (code, [(f["kind"], f["first"], f["last"]) for f in report["findings"]]) == (1, [("lost_numbers", 3, 4)])
    AgentMessage.objects.all().delete()
    let_expire(session)
    code, report = run()
    assert [(f["kind"], f["first"], f["last"]) for f in report["findings"]] == [("lost_numbers", 1, 5)]
    assert run("--accept")[0] == 0
    assert run()[0] == 0


def test_a_deleted_row_that_was_committed_past_redis_is_missed_without_any_look_before() -> None:
    session = make_session()
    append(session, "a")
    drain()
    append_past_redis(owner(session), prepare([make_message("b"), make_message("c")]))
    let_expire(session)
    AgentMessage.objects.filter(seq=1002).delete()
    code, report = run()
    assert code == 1
    assert [(f["kind"], f["first"], f["last"]) for f in report["findings"] if f["open"]] == [
        ("lost_numbers", 1002, 1002)
    ]


def test_looking_while_the_range_is_used_up_and_left(settings: Any) -> None:
    """What was seen given leaves the range: it may end up empty, be followed by another, and be given up."""
    settings.SESSION_SEQ_LEASE = 3
    session = make_session()
    for n in range(8):
        append(session, f"m{n}")
        drain()
        code, report = run()
        assert (code, [f for f in report["findings"] if f["open"]]) == (0, [])
        if n == 4:
            append_past_redis(owner(session), prepare([make_message("past")]))
    assert [content for _, content in stored(session)] == ["m0", "m1", "m2", "m3", "m4", "past", "m5", "m6", "m7"]
