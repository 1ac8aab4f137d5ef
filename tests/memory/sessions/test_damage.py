"""A session whose keys somebody has spoiled goes on: no call answers 500, nothing committed or queued is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.conf import settings
from django.db import OperationalError
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.errors import DomainError
from memory.sessions import branching, hot, keys, locks, selectors, services
from memory.sessions.direct import append_past_redis
from memory.sessions.drain import backlog, drain
from memory.sessions.entries import COMMITTED, QUEUED, prepare
from memory.sessions.healing import keys_of
from memory.sessions.keys import PENDING
from memory.sessions.models import MessageDeadLetter
from memory.sessions.reopen import reattach
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import (
    ALICE,
    append,
    contents,
    make_message,
    make_session,
    owner,
    put,
    stored,
)
from tests.memory.sessions.reconciling import run

pytestmark = pytest.mark.django_db(transaction=True)

CTX, MSGS, IDS, LOCK, FENCE = range(5)
KEYS = (keys.CTX, keys.MSGS, keys.IDS)


def key(session: str, which: int) -> str:
    return keys_of(owner(session))[which]


def wrong_type(which: int) -> Callable[[str], None]:
    def spoil(session: str) -> None:
        client = base_redis.state()
        client.delete(key(session, which))
        client.zadd(key(session, which), {"secret words": 1})

    return spoil


def wrong_field(name: str, value: str) -> Callable[[str], None]:
    return lambda session: base_redis.state().hset(key(session, CTX), name, value) and None


def junk_at(place: str, item: bytes) -> Callable[[str], None]:
    def spoil(session: str) -> None:
        client, name = base_redis.state(), key(session, MSGS)
        client.lpush(name, item) if place == "head" else client.rpush(name, item)

    return spoil


SPOILT = {
    "ctx is no hash": wrong_type(CTX),
    "msgs is no list": wrong_type(MSGS),
    "ids is no hash": wrong_type(IDS),
    **{
        f"{name} is {value!r}": wrong_field(name, value)
        for name in ("seq", "ceiling", "opened_at")
        for value in ("x", "")
    },
    "version is no number": wrong_field("version", "x"),
    "updated_at is no number": wrong_field("updated_at", "x"),
    "folded is no number": wrong_field("folded", "x"),
    "a slot is no JSON": wrong_field("slot:other", "{broken"),
    "junk at the head": junk_at("head", b"not json"),
    "junk at the tail": junk_at("tail", b"\xff\xfe"),
    "an object at the tail": junk_at("tail", b'{"entry_id":1}'),
    "a receipt is none": lambda session: base_redis.state().hset(key(session, IDS), "given-1", "junk") and None,
}

CALLS: dict[str, Callable[[str], Any]] = {
    "append": lambda session: append(session, "c"),
    "append with ids": lambda session: put(session, make_message("c", entry_id="given-2")),
    "append and read": lambda session: services.append_messages(
        caller=ALICE, session_id=session, messages=[make_message("c")], read_last=20
    ),
    "append sync": lambda session: append(session, "c", durability="sync"),
    "repeat": lambda session: put(session, make_message("a", entry_id="given-1")),
    "read": contents,
    "read one": lambda session: contents(session, 1),
    "context": lambda session: selectors.get_context(caller=ALICE, session_id=session),
    "change": lambda session: services.change_context(caller=ALICE, session_id=session, slots={"new": 1}),
    "compact": lambda session: branching.compact(caller=ALICE, session_id=session, keep=1),
    "open": lambda session: services.open_session(caller=ALICE, session_id=session),
    "delete": lambda session: services.delete_session(caller=ALICE, session_id=session),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_whatever_is_spoilt_every_call_goes_on(spoil: str, caplog: pytest.LogCaptureFixture) -> None:
    for name, call in CALLS.items():
        session = make_session()
        services.change_context(caller=ALICE, session_id=session, intent="buy")
        put(session, make_message("a", entry_id="given-1"))
        drain()
        append(session, "b")
        SPOILT[spoil](session)
        call(session)
        if name == "delete":
            continue
        if name != "compact":
            assert contents(session)[:2] == ["a", "b"], name
        assert selectors.get_context(caller=ALICE, session_id=session).intent in ("buy", None)
        (receipt,) = append(session, "after")
        assert put(session, make_message("a", entry_id="given-1"))[0].seq == 1
        drain()
        assert [seq for seq, _ in stored(session)] == list(range(1, receipt.seq + 1)), name
    assert MessageDeadLetter.objects.count() == 0
    assert "secret" not in caplog.text
    assert run("--fix")[0] == 0
    assert run()[0] == 0


def test_it_is_told_once_and_names_the_session_by_its_key_alone(caplog: pytest.LogCaptureFixture) -> None:
    session = make_session()
    append(session, "a")
    wrong_type(MSGS)(session)
    assert contents(session, 20) == ["a"]
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert told == [f"session {owner(session).pk}: its state in Redis is damaged and is made again"]


def test_what_is_sound_of_the_context_stays() -> None:
    session = make_session()
    services.change_context(caller=ALICE, session_id=session, intent="buy", slots={"fund": "X", "amount": "1"})
    wrong_field("slot:fund", "{broken")(session)
    wrong_field("version", "x")(session)
    context = services.change_context(caller=ALICE, session_id=session, step=3)
    assert (context.intent, context.slots, context.step) == ("buy", {"amount": "1"}, 3)


def test_a_queue_that_is_no_stream_sends_appends_to_the_database() -> None:
    session = make_session()
    append(session, "a", durability="sync")
    client = base_redis.state()
    client.delete(PENDING())
    client.set(PENDING(), "secret words")
    (receipt,) = append(session, "b")
    assert receipt.state == COMMITTED
    assert contents(session, 20) == ["a", "b"]
    assert [content for _, content in stored(session)] == ["a", "b"]
    client.delete(PENDING())
    assert append(session, "c")[0].state == QUEUED
    drain()
    assert [content for _, content in stored(session)] == ["a", "b", "c"]


@pytest.mark.parametrize("spoil", [wrong_type(FENCE), wrong_type(LOCK)])
def test_a_lock_can_be_taken_all_the_same(spoil: Callable[[str], None]) -> None:
    session = make_session()
    with locks.hold(caller=ALICE, session_id=session) as first:
        pass
    spoil(session)
    with locks.hold(caller=ALICE, session_id=session, wait=1) as second:
        assert second.fence > first.fence


def test_one_spoilt_session_does_not_keep_the_others_from_catching_up() -> None:
    spoilt, other = make_session(), make_session()
    for session in (spoilt, other):
        append(session, "a")
    for session in (spoilt, other):
        append_past_redis(owner(session), prepare([make_message("past")]))
    wrong_type(CTX)(spoilt)
    assert reattach() == 2
    assert contents(spoilt, 20) == contents(other, 20) == ["a", "past"]


def test_a_session_is_opened_over_what_somebody_left_under_its_name() -> None:
    name = "chat-of-somebody-else"
    for which in (CTX, MSGS, IDS):
        base_redis.state().set(KEYS[which](agent="customer", session_id=name), "left behind")
    session = make_session(session_id=name)
    append(session, "a")
    assert contents(session, 20) == ["a"]


# --- a repeat of what was lost with the queue ---------------------------------------------------------------------


def make_older(session: str, entry_id: str, seconds: int) -> None:
    """As if the receipt had been given so long ago."""
    client, name = base_redis.state(), key(session, IDS)
    seq, at, rest = str(client.hget(name, entry_id)).split(":", 2)
    client.hset(name, entry_id, f"{seq}:{int(at) - seconds * 1_000_000}:{rest}")


def test_a_repeat_of_a_lost_message_is_queued_again_under_its_number() -> None:
    session = make_session()
    first = put(session, make_message("a", entry_id="e1"), make_message("b", entry_id="e2"))
    base_redis.state().delete(PENDING())
    append(session, "c")
    for entry_id in ("e1", "e2"):
        make_older(session, entry_id, 60)
    assert put(session, make_message("b", entry_id="e2"), make_message("d", entry_id="e3"))[0] == first[1]
    assert backlog() == 3  # c, b again, d
    drain()
    assert stored(session) == [(2, "b"), (3, "c"), (4, "d")]
    # Now it is where the receipt says, and the next repeat is told so for good.
    assert put(session, make_message("b", entry_id="e2"))[0].state == COMMITTED
    with counted_round_trips() as calls:
        assert put(session, make_message("b", entry_id="e2"))[0].state == COMMITTED
    assert len(calls) == 1
    assert put(session, make_message("a", entry_id="e1"), durability="sync")[0].state == COMMITTED
    assert [seq for seq, _ in stored(session)] == [1, 2, 3, 4]
    assert MessageDeadLetter.objects.count() == 0
    assert run()[0] == 0


def test_a_repeat_soon_after_costs_what_it_did(django_assert_num_queries: Any) -> None:
    session = make_session()
    (first,) = put(session, make_message("a", entry_id="e1"))
    with counted_round_trips() as calls, django_assert_num_queries(0):
        assert put(session, make_message("a", entry_id="e1")) == [first]
    assert len(calls) == 1


def test_a_late_repeat_of_what_still_waits_is_not_queued_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    (first,) = put(session, make_message("a", entry_id="e1"))
    make_older(session, "e1", 60)
    assert put(session, make_message("a", entry_id="e1")) == [first]
    assert backlog() == 1

    def away(*args: Any) -> Any:
        raise OperationalError(2002, "gone")

    monkeypatch.setattr(hot, "on_path", away)
    base_redis.state().delete(PENDING())
    assert put(session, make_message("a", entry_id="e1")) == [first]  # nobody can tell: as its receipt says
    with pytest.raises(DomainError) as refused:
        put(session, make_message("other", entry_id="e1"))
    assert refused.value.code == "ENTRY_CONFLICT"


# --- the queue is spoilt between two steps of one call ------------------------------------------------------------


def spoil_before(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, spoil: Callable[[], Any]) -> None:
    """Spoils something each time before this step."""
    real = getattr(where, name)

    def spoilt(*args: Any, **more: Any) -> Any:
        spoil()
        return real(*args, **more)

    monkeypatch.setattr(where, name, spoilt)


def spoil_queue() -> None:
    base_redis.state().set(PENDING(), "secret words")


def test_a_queue_spoilt_before_a_committing_append_lets_go_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    with monkeypatch.context() as patch:
        spoil_before(patch, services, "_settle", spoil_queue)
        (receipt,) = append(session, "a", durability="sync")
    assert (receipt.seq, receipt.state) == (1, COMMITTED)
    base_redis.state().delete(PENDING())
    (after,) = append(session, "b", durability="sync")
    assert contents(session, 20) == ["a", "b"]
    drain()
    assert stored(session) == [(1, "a"), (after.seq, "b")]


def test_a_queue_spoilt_before_a_repeat_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    (first,) = put(session, make_message("a", entry_id="e1"))
    with monkeypatch.context() as patch:
        spoil_before(patch, services, "_queued_before", spoil_queue)
        repeat = put(session, make_message("a", entry_id="e1"), make_message("b", entry_id="e2"), durability="sync")
    # What is in no queue that can be read is as its receipt says; what is new is committed.
    assert repeat == [first, services.Receipt("e2", first.seq + 1, COMMITTED)]
    assert [content for _, content in stored(session)] == ["b"]


def test_a_window_spoilt_before_it_is_read_does_not_double_what_was_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    append(session, "a")
    real, turns = hot._append.and_then, iter([True])

    def spoilt(client: Any, keys: Any, args: Any, command: Any) -> Any:
        reply, _ = real(client, keys, args, command)
        if next(turns, False):
            wrong_type(MSGS)(session)
            # What the server answers to the reading then.
            return reply, ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
        raise AssertionError("the append was sent again")

    monkeypatch.setattr(hot._append, "and_then", spoilt)
    appended = services.append_messages(caller=ALICE, session_id=session, messages=[make_message("b")], read_last=20)
    assert appended.messages is not None
    assert [m.content for m in appended.messages] == ["a", "b"]
    assert backlog() == 2


@pytest.mark.parametrize("durability", ["async", "sync"])
def test_a_queue_that_somebody_goes_on_spoiling_costs_no_append(durability: str) -> None:
    session = make_session()
    over = threading.Event()

    def spoiler() -> None:
        client = redis.Redis.from_url(settings.REDIS_URL)
        while not over.is_set():
            client.set(name, "secret words")
            client.delete(name)

    name, thread = PENDING(), threading.Thread(target=spoiler)
    thread.start()
    try:
        receipts = [append(session, str(n), durability=durability)[0] for n in range(60)]
    finally:
        over.set()
        thread.join()
    base_redis.state().delete(name)
    assert len({receipt.seq for receipt in receipts}) == 60
    drain()
    found = [content for _, content in stored(session)]
    assert len(found) == len(set(found))  # nothing twice; what was queued went with the queue
    committed = {str(n) for n, receipt in enumerate(receipts) if receipt.state == COMMITTED}
    assert committed <= set(found)
