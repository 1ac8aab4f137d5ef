"""The story of a message through the service: numbered, queued, read, drained, repeated, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.errors import DomainError
from memory.sessions import hot, selectors
from memory.sessions.drain import backlog, drain
from memory.sessions.entries import COMMITTED, QUEUED, NewMessage
from memory.sessions.models import AgentMessage, AgentSession
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import (
    ALICE,
    BOB,
    append,
    let_expire,
    make_message,
    make_session,
    owner,
    put,
    stored,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_is_queued_read_from_the_window_and_drained() -> None:
    session = make_session()
    first, second = put(
        session, make_message("买基金"), make_message("好的 👍\r\n ", "assistant", payload={"n": 2**70})
    )
    assert (first.seq, first.state, second.seq, second.state) == (1, QUEUED, 2, QUEUED)

    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert page.source == "window"
    assert page.next is None
    assert [(m.seq, m.role, m.content, m.payload) for m in page.messages] == [
        (1, "user", "买基金", None),
        (2, "assistant", "好的 👍\r\n ", {"n": 2**70}),
    ]
    assert stored(session) == []
    assert backlog() == 2

    done = drain()
    assert (done.stored, done.known, done.dead) == (2, 0, 0)
    assert backlog() == 0
    assert stored(session) == [(1, "买基金"), (2, "好的 👍\r\n ")]
    rows = AgentMessage.objects.order_by("seq")
    assert [row.created_at for row in rows] == [m.created_at for m in page.messages]
    assert rows[1].payload == {"n": 2**70}
    assert drain().total == 0


def test_a_sync_append_is_in_the_database_when_it_returns() -> None:
    session = make_session()
    (receipt,) = append(session, "now", durability="sync")
    assert receipt.state == COMMITTED
    assert stored(session) == [(1, "now")]
    assert backlog() == 0
    assert [m.content for m in selectors.read_messages(caller=ALICE, session_id=session).messages] == ["now"]


def test_a_repeat_answers_the_first_receipt_and_other_content_is_refused_whole() -> None:
    session = make_session()
    once = put(session, make_message("a", entry_id="e1"), make_message("b", entry_id="e2"))
    assert put(session, make_message("a", entry_id="e1"), make_message("b", entry_id="e2")) == once
    mixed = put(session, make_message("c", entry_id="e3"), make_message("a", entry_id="e1"), make_message("d"))
    assert [r.seq for r in mixed] == [3, 1, 4]
    with pytest.raises(DomainError) as refused:
        put(session, make_message("new", entry_id="e9"), make_message("other", entry_id="e1"))
    assert refused.value.code == "ENTRY_CONFLICT"
    drain()
    assert stored(session) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_a_repeat_within_one_batch_is_one_entry() -> None:
    session = make_session()
    twice = put(session, make_message("a", entry_id="e1"), make_message("a", entry_id="e1"), make_message("b"))
    assert [r.seq for r in twice] == [1, 1, 2]
    with pytest.raises(DomainError) as refused:
        put(session, make_message("x", entry_id="e5"), make_message("y", entry_id="e5"))
    assert refused.value.code == "ENTRY_CONFLICT"
    drain()
    assert stored(session) == [(1, "a"), (2, "b")]


def test_a_sync_repeat_commits_what_was_queued_and_says_so_for_ever_after() -> None:
    session = make_session()
    (queued,) = put(session, make_message("a", entry_id="e1"))
    assert queued.state == QUEUED
    (committed,) = put(session, make_message("a", entry_id="e1"), durability="sync")
    assert (committed.seq, committed.state) == (1, COMMITTED)
    assert stored(session) == [(1, "a")]
    assert put(session, make_message("a", entry_id="e1")) == [committed]
    assert drain().known == 1  # the queued copy, met and dropped
    assert stored(session) == [(1, "a")]


def test_a_repeat_of_what_is_older_than_redis_asks_the_database() -> None:
    session = make_session()
    first = put(session, make_message("a", entry_id="e1"))
    drain()
    from memory.sessions import reopen

    reopen.IDS_REFILL, before = 2, reopen.IDS_REFILL
    try:
        append(session, "b", "c", "d")
        drain()
        let_expire(session)
        (again,) = put(session, make_message("a", entry_id="e1"))
        assert (again.seq, again.state) == (first[0].seq, COMMITTED)
        with pytest.raises(DomainError) as refused:
            put(session, make_message("other", entry_id="e1"))
        assert refused.value.code == "ENTRY_CONFLICT"
        assert [r.seq for r in put(session, make_message("e", entry_id="e6"))] == [5]
    finally:
        reopen.IDS_REFILL = before
    drain()
    assert stored(session) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


def test_expiry_is_no_gap_and_loses_nothing_that_is_still_queued() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    append(session, "c")
    let_expire(session)
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert [(m.seq, m.content) for m in page.messages] == [(1, "a"), (2, "b"), (3, "c")]
    assert page.source == "window"
    assert [r.seq for r in append(session, "d")] == [4]
    drain()
    assert stored(session) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_numbers_go_on_without_a_gap_from_lease_to_lease(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 3
    session = make_session()
    numbers = [r.seq for size in (1, 2, 1, 5, 2, 4, 1) for r in append(session, *["x"] * size)]
    assert numbers == list(range(1, 17))
    let_expire(session)
    assert [r.seq for r in append(session, "y", "z")] == [17, 18]
    assert AgentSession.objects.get().seq_ceiling >= 18


def test_a_writer_whose_new_range_others_use_up_gets_a_larger_one(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SESSION_SEQ_LEASE = 2
    session = make_session()
    append(session, "a", "b")
    original, greedy = hot.lease, []

    def lease(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        if len(greedy) < 20 and (not greedy or greedy[-1] != "busy"):
            greedy.append("busy")
            append(session, "greedy", "greedy")
            greedy.append("done")

    monkeypatch.setattr(hot, "lease", lease)
    (receipt,) = append(session, "patient")
    drain()
    assert [seq for seq, _ in stored(session)] == list(range(1, receipt.seq + 1))
    assert receipt.state == QUEUED


def test_the_window_is_bounded_and_older_pages_come_from_the_database(settings: Any) -> None:
    session = make_session()
    for n in range(1, 46):
        append(session, f"m{n}")
        if n == 30:
            drain()
    newest = selectors.read_messages(caller=ALICE, session_id=session)
    assert [m.seq for m in newest.messages] == list(range(26, 46))
    assert (newest.next, newest.source) == (26, "window")
    # 31 to 45 are still in the stream: a page that reaches into it is complete all the same.
    larger = selectors.read_messages(caller=ALICE, session_id=session, limit=40)
    assert [m.content for m in larger.messages] == [f"m{n}" for n in range(6, 46)]
    assert (larger.next, larger.source) == (6, "database")
    older = selectors.read_messages(caller=ALICE, session_id=session, before_seq=6)
    assert [m.seq for m in older.messages] == [1, 2, 3, 4, 5]
    assert older.next is None
    middle = selectors.read_messages(caller=ALICE, session_id=session, before_seq=40, limit=10)
    assert [m.seq for m in middle.messages] == list(range(30, 40))
    assert middle.next == 30
    five = selectors.read_messages(caller=ALICE, session_id=session, limit=5)
    assert ([m.seq for m in five.messages], five.next, five.source) == ([41, 42, 43, 44, 45], 41, "window")
    drain()
    assert selectors.read_messages(caller=ALICE, session_id=session, limit=40).messages == larger.messages


@pytest.mark.parametrize("place", ["stream", "database"])
def test_a_large_message_comes_back_whole(place: str) -> None:
    session = make_session()
    large = "'\"\\\n\0大😀" * 700_000  # 8.4 MB is too much in SQL's spelling: quotes and NULs double
    large = large.encode()[: 8 * 1024 * 1024 - 2000].decode(errors="ignore")
    put(session, make_message(large, payload={"k": ["v" * 100]}), make_message("after"))
    if place == "database":
        assert drain().stored == 2
    msgs = owner(session).keys[1]
    assert sum(len(item) for item in base_redis.state().lrange(msgs, 0, -1)) < 20_000
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert page.messages[0].content == large
    assert page.messages[0].payload == {"k": ["v" * 100]}
    drain()
    assert AgentMessage.objects.get(seq=1).content == large
    older = selectors.read_messages(caller=ALICE, session_id=session, before_seq=2)
    assert older.messages[0].content == large


VALUES = {
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈",
    "extension plane": "𠮷𪚥",
    "combining": "e\u0301 ≠ é",
    "nul": "a\0b",
    "line ends and trailing spaces": "\r\n\t x  \n",
    "quotes": "'\"`\\%s %(x)s {}",
    "json in text": '{"seq":1,"at":2}',
    "line separator": "\u2028\u2029\x7f",
    "one byte": "x",
    "empty": "",
}


@pytest.mark.parametrize("name", VALUES)
def test_exactly_what_was_put_comes_back(name: str) -> None:
    session = make_session()
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    payload = {"int": 2**64 + 1, "float": 0.1, "empty": [], "none": None, "object": {}, "text": VALUES[name], "d": deep}
    put(session, NewMessage("tool", VALUES[name], None, payload))
    window = selectors.read_messages(caller=ALICE, session_id=session).messages
    assert (window[0].content, window[0].payload) == (VALUES[name], payload)
    drain()
    database = selectors.read_messages(caller=ALICE, session_id=session, limit=50).messages
    assert database == window
    let_expire(session)
    assert selectors.read_messages(caller=ALICE, session_id=session).messages == window


def too_deep() -> object:
    value: object = 1
    for _ in range(600):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([], "EMPTY_BATCH"),
        ([NewMessage("robot", "x")], "INVALID_REQUEST"),
        ([NewMessage("user", "\ud800")], "INVALID_REQUEST"),
        ([NewMessage("user", "x", None, {"a": "\udfff"})], "INVALID_REQUEST"),
        ([NewMessage("user", "x", None, float("nan"))], "INVALID_REQUEST"),
        ([NewMessage("user", "x", None, [float("inf")])], "INVALID_REQUEST"),
        ([NewMessage("user", "x", None, too_deep())], "INVALID_REQUEST"),
        ([NewMessage("user", "x", "a:b")], "INVALID_ID"),
        ([NewMessage("user", "x", "*")], "INVALID_ID"),
        ([NewMessage("user", "x", "e" * 300)], "INVALID_ID"),
        ([NewMessage("user", "x", "")], "INVALID_ID"),
        ([NewMessage("user", "x")] * 201, "BATCH_TOO_LARGE"),
        ([NewMessage("user", "x" * (8 * 1024 * 1024 + 1))], "MESSAGE_TOO_LARGE"),
        ([NewMessage("user", "fine"), NewMessage("user", "\ud800")], "INVALID_REQUEST"),
    ],
)
def test_bad_input_writes_nothing(messages: list[NewMessage], code: str) -> None:
    session = make_session()
    with pytest.raises(DomainError) as refused:
        put(session, *messages)
    assert refused.value.code == code
    assert backlog() == 0
    assert selectors.read_messages(caller=ALICE, session_id=session).messages == []


def test_another_actor_is_refused_in_the_service_too_and_by_redis_itself() -> None:
    session = make_session()
    append(session, "mine")
    for attempt in (
        lambda: append(session, "x", caller=BOB),
        lambda: selectors.read_messages(caller=BOB, session_id=session),
    ):
        with pytest.raises(DomainError) as refused:
            attempt()
        assert refused.value.code == "NOT_OWNER"
    # Defence in depth: the script compares the actor with the one that the session was opened for.
    from dataclasses import replace

    from memory.sessions.hot import window_in_redis

    with pytest.raises(DomainError) as refused:
        window_in_redis(replace(owner(session), actor_id="bob"), 20)
    assert refused.value.code == "NOT_OWNER"


def test_ids_that_differ_only_in_case_or_dots_are_different_sessions() -> None:
    sessions = [
        make_session(session_id=name)
        for name in ("Chat-0123456789abcdef", "chat-0123456789abcdef", "chat-0123456789abcdef.")
    ]
    for n, session in enumerate(sessions):
        put(session, make_message(f"m{n}", entry_id="E1"), make_message("other", entry_id="e1"))
    drain()
    for n, session in enumerate(sessions):
        assert stored(session) == [(1, f"m{n}"), (2, "other")]


def test_a_deleted_session_is_gone_and_no_write_revives_it() -> None:
    from memory.sessions.services import delete_session

    session = make_session()
    append(session, "a")
    delete_session(caller=ALICE, session_id=session)
    delete_session(caller=ALICE, session_id=session)
    for redis_remembers in (True, False):
        if not redis_remembers:
            let_expire(session)
        for attempt in (
            lambda: append(session, "b"),
            lambda: append(session, "b", durability="sync"),
            lambda: selectors.read_messages(caller=ALICE, session_id=session),
            lambda: selectors.get_context(caller=ALICE, session_id=session),
            lambda: selectors.get_session(caller=ALICE, session_id=session),
            lambda: make_session(session_id=session),
        ):
            with pytest.raises(DomainError) as refused:
                attempt()
            assert refused.value.code == "SESSION_DELETED"
    drain()
    assert stored(session) == [(1, "a")]  # queued before the deletion: kept until it is erased


def test_what_an_operation_costs(django_assert_num_queries: Any) -> None:
    """Round trips to Redis and queries, warm. The docstrings state the same figures."""
    session = make_session()
    append(session, "warm")
    drain()
    append(session, "warm")
    from memory.sessions.services import change_context

    def cost(redis: int, sql: int, work: Callable[[], Any]) -> None:
        with counted_round_trips() as calls, django_assert_num_queries(sql):
            work()
        assert len(calls) == redis

    cost(1, 0, lambda: append(session, "a"))
    cost(1, 0, lambda: put(session, make_message("b", entry_id="e1"), make_message("c", "assistant", entry_id="e2")))
    cost(1, 0, lambda: put(session, make_message("b", entry_id="e1")))
    cost(1, 0, lambda: selectors.read_messages(caller=ALICE, session_id=session))
    cost(1, 0, lambda: selectors.get_context(caller=ALICE, session_id=session))
    cost(1, 0, lambda: change_context(caller=ALICE, session_id=session, slots={"a": 1}))
    # Two queries and the BEGIN and COMMIT around the INSERT, which Django counts too.
    cost(2, 4, lambda: append(session, "d", durability="sync"))
    drain()
    cost(1, 3, lambda: selectors.read_messages(caller=ALICE, session_id=session, limit=50))
    cost(0, 1, lambda: selectors.get_session(caller=ALICE, session_id=session))
