"""Redis emptied, killed, hung, full; answers lost. Nothing committed is lost, nothing is doubled."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.keys import prefixed
from config.base.redis import RedisUnavailable
from memory.sessions import hot, selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import COMMITTED
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentSession, MessageDeadLetter
from memory.sessions.reopen import reattach
from tests.memory.sessions.helpers import (
    ALICE,
    append,
    contents,
    drain_everything,
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


def test_an_outage_is_a_line_at_its_begin_and_one_at_its_end(
    own_redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    reattach()  # an earlier test's outage is over
    caplog.clear()
    session = make_session()
    own_redis_server.kill()
    opened = [make_session() for _ in range(5)]
    for one in (session, *opened):
        append(one, "a")
        assert contents(one) == ["a"]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "Redis is away: sessions go on in the database"
    ]
    own_redis_server.start()
    caplog.clear()
    append(session, "b")
    reattach()
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told.startswith("Redis is back after ")
    assert told.endswith("; past it: 6 appends committed, 5 sessions opened")


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
