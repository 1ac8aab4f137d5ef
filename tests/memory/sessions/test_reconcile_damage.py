"""Somebody wrote into a session's keys by hand: it is said, not stumbled over, and the session works again."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from config.base import redis as base_redis
from memory.sessions import locks, selectors, services
from memory.sessions.drain import drain
from memory.sessions.healing import keys_of
from memory.sessions.keys import GROUP, PENDING
from memory.sessions.looking import Stream
from memory.sessions.reconcile import queue_itself
from tests.memory.sessions.helpers import ALICE, append, contents, make_message, make_session, owner, put, stored
from tests.memory.sessions.reconciling import kinds, run

pytestmark = pytest.mark.django_db(transaction=True)

CTX, MSGS, IDS, LOCK, FENCE = range(5)


def key(session: str, which: int) -> str:
    return keys_of(owner(session))[which]


def become(session: str, which: int, kind: str) -> None:
    """The key is something else from now on, with the time to live that it had or a new one."""
    client, name = base_redis.state(), key(session, which)
    client.delete(name)
    if kind == "string":
        client.set(name, "secret words")
    elif kind == "list":
        client.rpush(name, "secret words")
    elif kind == "hash":
        client.hset(name, "secret", "words")
    client.expire(name, 100)


WRONG = [
    (CTX, "string"),
    (CTX, "list"),
    (MSGS, "hash"),
    (MSGS, "string"),
    (IDS, "list"),
    (LOCK, "hash"),
    (FENCE, "string"),
]


@pytest.mark.parametrize(("which", "kind"), WRONG)
def test_a_key_of_another_type_is_told_and_made_again(which: int, kind: str) -> None:
    session, other = make_session(), make_session()
    put(session, make_message("a", entry_id="given-1"), make_message("b"))
    append(other, "x")
    drain()
    append(session, "queued")
    become(session, which, kind)
    code, report = run()
    name = ("ctx", "msgs", "ids", "lock", "fence")[which]
    wanted = ("hash", "list", "hash", "string", "hash")[which]
    assert (code, report["sessions"]) == (1, 2)
    assert [(f["kind"], f["session_id"], f["why"]) for f in report["findings"]] == [
        ("damaged", session, f"{name} is a {kind}, not a {wanted}")
    ]
    code, report = run("--fix")
    assert (code, report["findings"][0]["repaired"]) == (0, "to be made again")
    assert run()[0] == 0
    assert contents(session, 20) == ["a", "b", "queued"]
    assert put(session, make_message("a", entry_id="given-1"))[0].seq == 1
    assert append(session, "c")[0].seq == 4
    with locks.hold(caller=ALICE, session_id=session):
        pass
    drain()
    assert [seq for seq, _ in stored(session)] == [1, 2, 3, 4]
    assert run()[0] == 0


@pytest.mark.parametrize("field", ["seq", "ceiling", "opened_at", "updated_at", "version", "first"])
@pytest.mark.parametrize("value", ["abc", "", "-1", "1.5", "9" * 30])
def test_a_number_that_is_none(field: str, value: str) -> None:
    session = make_session()
    services.change_context(caller=ALICE, session_id=session, intent="buy", slots={"fund": "X"})
    append(session, "a", "b")
    drain()
    base_redis.state().hset(key(session, CTX), field, value)
    code, report = run()
    assert (code, [(f["kind"], f["why"]) for f in report["findings"]]) == (
        1,
        [("damaged", f"ctx: {field} is no number")],
    )
    assert run("--fix")[0] == 0
    assert run()[0] == 0
    assert [receipt.seq for receipt in append(session, "c")] == [3]
    context = selectors.get_context(caller=ALICE, session_id=session)
    assert (context.intent, context.slots) == ("buy", {"fund": "X"})  # it lives in Redis alone: what is sound stays
    drain()
    assert run()[0] == 0


def test_numbers_of_a_lost_queue_are_not_given_again_by_mending() -> None:
    session = make_session()
    put(session, make_message("a", entry_id="e1"), make_message("b", entry_id="e2"))
    base_redis.state().delete(PENDING())
    base_redis.state().hset(key(session, CTX), "seq", "abc")
    become(session, MSGS, "string")
    code, report = run("--fix")
    assert (code, kinds(report)) == (1, {"damaged", "lost_message"})
    assert [receipt.seq for receipt in append(session, "c")] == [3]
    drain()
    code, report = run()
    assert [(f["kind"], f["first"], f["last"]) for f in report["findings"]] == [("lost_numbers", 1, 2)]


def test_another_actors_context_and_fields_that_are_no_json() -> None:
    mine, odd = make_session(), make_session()
    services.change_context(caller=ALICE, session_id=odd, intent="buy", slots={"fund": "X", "amount": "1"})
    for one in (mine, odd):
        append(one, "a")
    drain()
    client = base_redis.state()
    client.hset(key(mine, CTX), "actor", "mallory")
    client.hset(key(odd, CTX), "slot:fund", b"\xff{broken")
    client.hset(key(odd, CTX), b"slot:\xff", "{broken")
    code, report = run()
    assert (code, {(f["session_id"], f["why"]) for f in report["findings"]}) == (
        1,
        {(mine, "ctx: it names another actor"), (odd, "ctx: 2 fields cannot be read")},
    )
    assert run("--fix")[0] == 0
    assert contents(mine, 20) == ["a"]
    assert selectors.get_context(caller=ALICE, session_id=odd).slots == {"amount": "1"}
    assert run()[0] == 0


def item(entry_id: str = "x", role: str = "user", seq: int = 1) -> bytes:
    return f'{{"id":"{entry_id}","role":"{role}","content":"","seq":{seq},"at":1}}'.encode()


JUNK = [
    *(b"not json", b"\xff\xfe", b"[1]", b'{"entry_id":"x"}', b"[" * 500, b""),
    *(item(entry_id="a b"), item(role="nobody"), item(seq=0)),
]


@pytest.mark.parametrize("junk", JUNK)
def test_an_item_of_the_window_that_is_no_message(junk: bytes) -> None:
    session = make_session()
    append(session, "a")
    drain()
    base_redis.state().rpush(key(session, MSGS), junk)
    code, report = run()
    assert (code, [f["why"] for f in report["findings"]]) == (1, ["msgs: 1 of 2 items are no messages"])
    assert run("--fix")[0] == 0
    assert contents(session, 20) == ["a"]
    assert run()[0] == 0


def test_junk_beside_a_lost_message_does_not_keep_it_from_being_put_back() -> None:
    session = make_session()
    append(session, "only in the window")
    client = base_redis.state()
    client.delete(PENDING())
    client.rpush(key(session, MSGS), "junk")
    client.hset(key(session, IDS), "e9", "junk")
    code, report = run("--fix")
    assert (code, kinds(report)) == (0, {"lost_message", "damaged"})
    assert stored(session) == [(1, "only in the window")]
    assert contents(session, 20) == ["only in the window"]


def test_a_lock_without_an_end_and_fencing_numbers_that_are_none() -> None:
    session = make_session()
    with locks.hold(caller=ALICE, session_id=session):
        pass
    client = base_redis.state()
    client.set(key(session, LOCK), "for ever")
    client.hset(key(session, FENCE), "next", "abc")
    code, report = run()
    assert (code, {f["why"] for f in report["findings"]}) == (
        1,
        {"lock has no time to live: it would be held for ever", "fence: its numbers are none"},
    )
    assert run("--fix")[0] == 0
    with locks.hold(caller=ALICE, session_id=session) as lock:
        assert lock.fence > 1
        assert run()[0] == 0
        code, report = run("--fix")
        lock.check()  # a sound lock is nobody's to take


def test_a_deleted_sessions_damaged_keys_become_its_tombstone() -> None:
    session = make_session()
    append(session, "a")
    services.delete_session(caller=ALICE, session_id=session)
    become(session, CTX, "string")
    assert kinds(run()[1]) == {"damaged"}
    assert run("--fix")[0] == 0
    assert base_redis.state().hget(key(session, CTX), "deleted") == "1"
    assert run()[0] == 0


# --- the queue itself ---------------------------------------------------------------------------------------------


def test_a_queue_that_is_no_stream_is_said_so_and_removed() -> None:
    session = make_session()
    append(session, "a")
    client = base_redis.state()
    client.delete(PENDING())
    client.set(PENDING(), "secret words")
    code, report = run()
    assert code == 1
    assert kinds(report) == {"queue_damaged", "lost_message"}
    (finding,) = [f for f in report["findings"] if f["kind"] == "queue_damaged"]
    assert finding["why"].startswith(f"{PENDING()} is a string, not a stream")
    assert "--fix" in finding["why"]
    with pytest.raises(CommandError, match="is a string, not a stream") as refused:
        call_command("drain_messages")
    assert refused.value.returncode == 1
    code, report = run("--fix")
    assert (code, {f["repaired"] for f in report["findings"]}) == (0, {"removed", "put back from the window"})
    append(session, "b")
    call_command("drain_messages", verbosity=0)
    assert stored(session) == [(1, "a"), (2, "b")]
    assert run()[0] == 0


def test_a_missing_group_is_said_so_once_entries_have_waited(capsys: pytest.CaptureFixture[str]) -> None:
    session = make_session()
    append(session, "a")
    assert queue_itself(Stream(kind="stream", grouped=False, age=3.0), fix=False) == []
    (finding,) = queue_itself(Stream(kind="stream", grouped=False, age=60.0), fix=False)
    assert (finding.kind, finding.open) == ("no_group", True)
    for word in (GROUP, PENDING(), "drain_messages"):
        assert word in finding.why
    drain()
    base_redis.state().xgroup_destroy(PENDING(), GROUP)
    append(session, "b")
    call_command("drain_messages")
    told = capsys.readouterr()
    assert f"the group {GROUP} of {PENDING()} was missing" in told.err
    assert stored(session) == [(1, "a"), (2, "b")]


def test_what_is_found_is_told_without_what_the_keys_hold(capsys: pytest.CaptureFixture[str], caplog: Any) -> None:
    session = make_session()
    append(session, "a")
    become(session, CTX, "string")
    with pytest.raises(CommandError):
        call_command("reconcile")
    call_command("reconcile", "--fix")
    told = capsys.readouterr()
    assert f"damaged default/{session}: ctx is a string, not a hash" in told.out
    assert "secret" not in told.out + told.err + caplog.text
