"""The drain's next batch by a command of its own, where a count alone cannot make it too large."""

from __future__ import annotations

from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.redis import Script
from memory.sessions import drain as drain_room
from memory.sessions import persist
from memory.sessions.drain import Drained, backlog, drain
from memory.sessions.keys import GROUP, PENDING
from tests.memory.sessions.helpers import append, make_session, owner, stored
from tests.memory.sessions.test_drain_ahead import Clock
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def by_count(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each batch that was taken ahead, whether a command of its own read it."""
    asked: list[bool] = []
    real = Script.ahead

    def ahead(self: Script, client: Any, keys: Any, args: Any = (), command: tuple[Any, ...] = ()) -> Any:
        asked.append(bool(command))
        return real(self, client, keys, args, command)

    monkeypatch.setattr(Script, "ahead", ahead)
    return asked


def test_whole_batches_of_a_small_stream_are_read_by_count(by_count: list[bool]) -> None:
    session = make_session()
    append(session, *[f"m{n}" for n in range(23)])
    assert drain(entries=5).stored == 23
    assert by_count == [True, True, True, False]
    assert stored(session) == [(n + 1, f"m{n}") for n in range(23)]


def test_what_may_be_large_is_read_step_by_step(by_count: list[bool]) -> None:
    session = make_session()
    append(session, *["x" * 600] * 40)
    total = Drained()
    drain_room._empty(drain_room._Queue(5, 1000, 2000), total, lambda: False)
    assert total.stored == 40
    assert not any(by_count)


def test_beside_another_drain_nothing_is_read_by_count(by_count: list[bool]) -> None:
    session = make_session()
    append(session, *[f"m{n}" for n in range(40)])
    theirs = drain_room._Queue(5).take()
    assert drain(entries=5).stored == 35
    assert by_count
    assert not any(by_count)
    assert backlog() == len(theirs.ids) == 5


def test_after_a_slow_insert_nothing_is_read_by_count(by_count: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """What came into the stream since it was measured may be of any size."""
    session, clock, real = make_session(), Clock(), persist.insert_entries
    append(session, *[f"m{n}" for n in range(23)])

    def slowly(entries: Any) -> None:
        clock.at += drain_room.MEASURED_SECONDS
        real(entries)

    monkeypatch.setattr(drain_room, "time", clock)
    monkeypatch.setattr(persist, "insert_entries", slowly)
    assert drain(entries=5).stored == 23
    assert by_count == [True, False, False, False]  # nothing had been slow before the first


def test_an_account_that_may_not_measure_reads_step_by_step(
    by_count: list[bool], own_redis_server: RedisServer
) -> None:
    own_redis_server.client().execute_command("ACL", "SETUSER", "default", "-memory")
    session = make_session()
    append(session, *[f"m{n}" for n in range(23)])
    assert drain(entries=5).stored == 23
    assert by_count
    assert not any(by_count)


def test_a_group_that_is_lost_meanwhile_doubles_nothing(by_count: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    session, real = make_session(), persist.insert_entries
    append(session, *[f"m{n}" for n in range(23)])

    def loses_it(entries: Any) -> None:
        real(entries)
        base_redis.state().xgroup_destroy(PENDING(), GROUP)

    monkeypatch.setattr(persist, "insert_entries", loses_it)
    done = drain(entries=5)
    assert (done.stored, done.known, done.dead) == (23, 0, 0)
    assert any(by_count)
    assert backlog() == 0


def test_poison_that_is_read_by_count(by_count: list[bool]) -> None:
    session = make_session()
    ident, client = owner(session).ident, base_redis.state()
    body = '{"entry_id":"%s","role":"user","content":"x","seq":%s,"at":1}'
    append(session, "a", "b", "c")
    client.xadd(PENDING(), {"nonsense": "1"})
    client.xadd(PENDING(), {"k": ident, "g": "d", "x": "t", "m": "{", "p": ""})
    client.xadd(PENDING(), {b"k": ident.encode(), b"g": b"d", b"x": b"t", b"m": b"\xff\xfe", b"p": b""})
    client.xadd(PENDING(), {"p": "c", "m": body % ("other-order", 8), "x": "t", "g": "d", "k": ident})
    append(session, "d", "e", "f", "g")
    done = drain(entries=2)
    assert by_count[:4] == [True] * 4
    assert (done.stored, done.dead) == (8, 3)
    assert [seq for seq, _ in stored(session)] == [1, 2, 3, 4, 5, 6, 7, 8]
