"""What belongs to no session, and what waits for people: keys without a row, dead letters."""

from __future__ import annotations

import pytest
from django.db import connection

from config.base import redis as base_redis
from config.base.keys import prefixed
from guard.access.services import Caller
from memory.sessions import locks, services
from memory.sessions.dead_letters import drop_letter, retry_letter
from memory.sessions.drain import drain
from memory.sessions.healing import keys_of
from memory.sessions.keys import CTX, PENDING
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from memory.sessions.reopen import reattach
from tests.memory.sessions.helpers import ALICE, append, make_message, make_session, owner, put
from tests.memory.sessions.reconciling import kinds, run

pytestmark = pytest.mark.django_db(transaction=True)


def lose_the_row(session: str) -> tuple[str, ...]:
    """The session's row is gone from MySQL; its keys are still in Redis."""
    keys = keys_of(owner(session))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_session WHERE session_id = %s", [session])
    return keys


def test_keys_of_a_session_that_the_database_has_not() -> None:
    session, living, gone = make_session(), make_session(), make_session()
    east = Caller("east", "customer", "alice")
    abroad = services.open_session(caller=east, session_id=f"{session}-east").owner.session_id
    with locks.hold(caller=ALICE, session_id=session):
        pass
    append(living, "a")
    drain()
    services.delete_session(caller=ALICE, session_id=gone)
    base_redis.state().hset(CTX(agent="customer", session_id="being-opened-now-1"), "gen", "mark")
    keys = lose_the_row(session)
    AgentSession.objects.filter(tenant="east").delete()
    AgentSession.objects.filter(session_id=gone).delete()  # its tombstone stays: late writers must meet it
    code, report = run()
    assert code == 1
    assert [(f["kind"], f["tenant"], f["session_id"], f["why"]) for f in report["findings"]] == [
        ("ghost", "default", session, "ctx, fence of a session that the database has not"),
        ("ghost", "east", abroad, "ctx of a session that the database has not"),
    ]
    assert run("--tenant", "default")[0] == 0  # the whole of Redis is walked only when all is looked at
    code, report = run("--fix")
    assert (code, {f["repaired"] for f in report["findings"]}) == (0, {"removed"})
    client = base_redis.state()
    assert not client.exists(*keys)
    assert client.hget(CTX(agent="customer", session_id=gone), "deleted") == "1"
    assert client.exists(CTX(agent="customer", session_id="being-opened-now-1"))
    assert run()[0] == 0


def test_ghosts_that_hold_what_is_nowhere_else_stay() -> None:
    session, queued = make_session(), make_session()
    put(session, make_message("a", entry_id="given-1"), make_message("b"))
    base_redis.state().delete(PENDING())
    append(queued, "still in the queue")
    keys, waiting = lose_the_row(session), lose_the_row(queued)
    code, report = run("--fix")
    told = {f["session_id"]: f for f in report["findings"] if f["kind"] == "ghost"}
    assert code == 1
    assert told[session]["open"]
    assert "2 entries that may be nowhere else" in told[session]["why"]
    assert base_redis.state().exists(*keys) == 3
    # What was queued is a dead letter now, whole: its keys may go.
    assert told[queued]["repaired"] == "removed"
    assert not base_redis.state().exists(*waiting)
    assert MessageDeadLetter.objects.get().session_id == queued


def test_ghosts_of_any_type_and_names_that_are_no_sessions() -> None:
    client = base_redis.state()
    name = CTX(agent="customer", session_id="a-ghost-of-a-string")
    client.set(name, "secret words")
    client.set(prefixed("other:sess:customer:x:ctx:y"), "not ours")
    client.set(prefixed("sess:odd"), "not a session's")
    code, report = run()
    assert (code, [f["session_id"] for f in report["findings"]]) == (1, ["a-ghost-of-a-string"])
    assert run("--fix")[0] == 0
    assert not client.exists(name)
    assert client.exists(prefixed("other:sess:customer:x:ctx:y"), prefixed("sess:odd")) == 2


# --- dead letters -------------------------------------------------------------------------------------------------


def queue_raw(session: str, entry_id: str, seq: int, ident: str = "") -> None:
    body = f'{{"entry_id":"{entry_id}","role":"user","content":"x","payload":null,"seq":{seq},"at":1}}'
    base_redis.state().xadd(PENDING(), {"k": ident or owner(session).ident, "g": "d", "x": "t", "m": body})


def test_dead_letters_are_open_until_somebody_has_decided() -> None:
    session = make_session()
    append(session, "first")
    queue_raw(session, "clash-1", 1)
    queue_raw(session, "clash-2", 1)
    queue_raw(session, "", 0, ident="nonsense")
    queue_raw(session, "orphan", 1, ident=f"{owner(session).pk + 9} default customer not-a-session-here")
    assert drain().dead == 4
    code, report = run()
    assert (code, report["dead_letters"], report["counts"]) == (1, 4, {"dead_letter": 3})
    told = {f["session_id"]: f["why"] for f in (dict({"session_id": ""}, **f) for f in report["findings"])}
    way_out = "retry or drop them in the admin under Dead letters"
    assert told == {
        session: f"2 wait (seq_taken 2): {way_out}",
        "": f"1 wait (unreadable 1): {way_out}",
        "not-a-session-here": f"1 wait (no_session 1): {way_out}",
    }
    code, report = run("--session", session)
    assert (code, report["dead_letters"]) == (1, 2)
    assert run("--tenant", "east")[1]["dead_letters"] == 0
    assert run("--fix", "--accept")[0] == 1  # nobody has decided yet
    for letter in MessageDeadLetter.objects.all():
        drop_letter(letter_id=letter.pk, by="ops")
    code, report = run()
    assert (code, report["dead_letters"]) == (0, 0)


@pytest.mark.parametrize("appended_after", [True, False])
def test_numbers_that_a_retried_letter_skipped_say_so(appended_after: bool) -> None:
    session = make_session()
    append(session, "first")
    queue_raw(session, "clash", 1)
    drain()
    number = retry_letter(letter_id=MessageDeadLetter.objects.get().pk, by="ops")
    assert number == 1001
    if appended_after:
        reattach()
        append(session, "after")
        drain()
    code, report = run()
    assert code == 0
    assert [(f["kind"], f["first"], f["last"], f["why"]) for f in report["findings"]] == [
        ("gap", 2, 1000, "dead_letter_retried")
    ]
    # An outage is still called one, also where a letter was retried later.
    assert AgentMessage.objects.get(seq=number).entry_id == "clash"
    assert kinds(report) == {"gap"}
