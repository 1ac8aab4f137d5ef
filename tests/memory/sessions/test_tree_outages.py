"""A conversation's path is changed while a real Redis is killed, hangs and comes back: done or refused, never half."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from memory.sessions import branching, reopen, restructuring
from memory.sessions.models import SessionBranch
from memory.sessions.reopen import ensure_attached
from tests.memory.sessions.helpers import ALICE, append, drain_everything, let_expire, make_message, put
from tests.memory.sessions.talks import all_pages, answers_lost, assert_clean, make_talk, parents, said
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def impatient(own_redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_TIMEOUT = 0.3
    base_redis.forget_clients()


def go_away(server: RedisServer, how: str) -> None:
    server.kill() if how == "killed" else server.pause()


def come_back(server: RedisServer, how: str) -> None:
    server.start() if how == "killed" else server.resume()
    base_redis.breaker.reset()
    ensure_attached()


def move(session: str, entry_id: str, summary: str | None = None) -> branching.Moved:
    return branching.navigate(caller=ALICE, session_id=session, entry_id=entry_id, summary=summary)


def condense(session: str, keep: int) -> branching.Compacted:
    return branching.compact(caller=ALICE, session_id=session, keep=keep)


def fork(session: str, entry_id: str | None = None) -> branching.Forked:
    return branching.fork(caller=ALICE, session_id=session, entry_id=entry_id)


@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_with_redis_away_what_the_database_has_can_be_changed_and_the_rest_is_refused(
    own_redis_server: RedisServer, how: str
) -> None:
    session, (a, b, _c) = make_talk("a", "b", "c")
    drain_everything()
    (d,) = append(session, "d")
    go_away(own_redis_server, how)
    for refused in (
        lambda: move(session, d.entry_id),
        lambda: fork(session, d.entry_id),
        lambda: condense(session, 0),  # d would be hidden, and is in no summary
    ):
        with pytest.raises(RedisUnavailable):
            refused()
    move(session, b)
    append(session, "e")
    assert said(session) == ["a", "b", "e"]
    done = condense(session, 1)
    assert done.covered == 2
    new = fork(session, a).owner.session_id
    append(new, "f")
    come_back(own_redis_server, how)
    assert done.entry is not None
    assert said(session) == [done.entry.content, "e"]
    assert said(new) == ["a", "f"]
    move(session, d.entry_id)  # the branch that was left while it was queued
    assert said(session) == ["a", "b", "c", "d"]
    append(session, "g")
    followed = parents(session)
    assert (followed["d"], followed["e"], followed["g"]) == ("c", "b", "d")
    let_expire(session)
    assert said(session, limit=50) == ["a", "b", "c", "d", "g"]
    assert_clean(session, new)


def test_moving_to_what_is_the_last_in_the_database_leaves_behind_what_is_queued(
    own_redis_server: RedisServer,
) -> None:
    session, (_a, b) = make_talk("a", "b")
    drain_everything()
    append(session, "queued")
    own_redis_server.kill()
    assert move(session, b).entry_id == b
    come_back(own_redis_server, "killed")
    assert said(session) == ["a", "b"]
    append(session, "c")
    assert parents(session) == {"a": "", "b": "a", "queued": "b", "c": "b"}
    assert said(session, limit=50) == ["a", "b", "c"]
    assert_clean(session)


def test_a_repeated_move_leaves_behind_what_is_queued_too(own_redis_server: RedisServer) -> None:
    session, (_a, b, _c) = make_talk("a", "b", "c")
    first = move(session, b, "left")
    append(session, "queued")
    own_redis_server.kill()
    assert move(session, b, "left").entry_id == first.entry_id
    come_back(own_redis_server, "killed")
    assert said(session) == ["a", "b", "left"]
    assert_clean(session)


def test_a_fork_has_what_was_queued_between_what_it_shares(own_redis_server: RedisServer) -> None:
    session, _ = make_talk("a")
    drain_everything()
    append(session, "queued", "x" * 20_000)
    own_redis_server.kill()
    append(session, "past")
    new = fork(session).owner.session_id
    own_redis_server.start()
    base_redis.breaker.reset()
    for view, limit in (("active", None), ("active", 50), ("full", 50)):
        assert said(new, view, limit) == ["a", "queued", "x" * 20_000, "past"], (view, limit)
    assert [m.content for m in all_pages(new, 1)][:2] == ["a", "queued"]
    append(new, "mine")
    drain_everything()
    assert said(new) == ["a", "queued", "x" * 20_000, "past", "mine"]
    let_expire(new)
    assert said(new) == ["a", "queued", "x" * 20_000, "past", "mine"]
    assert_clean(session, new)


def test_what_is_queued_may_be_moved_to_in_a_fork_that_shares_it(own_redis_server: RedisServer) -> None:
    session, _ = make_talk("a")
    drain_everything()
    (queued,) = append(session, "queued")
    own_redis_server.kill()
    append(session, "past")
    new = fork(session).owner.session_id
    come_back(own_redis_server, "killed")
    move(new, queued.entry_id)
    append(new, "mine")
    assert said(new) == ["a", "queued", "mine"]
    assert parents(new) == {"mine": "queued"}
    assert_clean(session, new)


def test_what_was_queued_before_the_first_in_the_database_is_on_the_first_page(own_redis_server: RedisServer) -> None:
    session, _ = make_talk("a")
    (b,) = append(session, "b", durability="sync")
    append(session, "c", durability="sync")
    own_redis_server.kill()
    move(session, b.entry_id)
    come_back(own_redis_server, "killed")
    assert [m.content for m in all_pages(session, 1)] == ["a", "b"]
    assert [m.content for m in all_pages(session, 1, "full")] == ["a", "b"]
    assert_clean(session)


def test_a_message_that_came_two_ways_is_shown_where_the_database_has_it(own_redis_server: RedisServer) -> None:
    session, _ = make_talk("a")
    with answers_lost():
        (x, y) = put(session, make_message("x", entry_id="x1"), make_message("y"))
    assert said(session, limit=50) == ["a", "x", "y"]
    move(session, x.entry_id)
    assert said(session) == said(session, limit=50) == said(session, "full") == ["a", "x"]
    append(session, "z")
    assert said(session, limit=50) == ["a", "x", "z"]
    move(session, y.entry_id)
    assert said(session, "full", 50) == ["a", "x", "y"]
    assert_clean(session)


def test_a_fork_shows_its_queued_message_beside_one_of_the_same_id_that_it_does_not_share() -> None:
    session, _ = make_talk("a")
    append(session, "first")
    new = fork(session).owner.session_id
    put(session, make_message("elsewhere", entry_id="e1"))
    drain_everything()
    put(new, make_message("second", entry_id="e1"))
    for view in ("active", "full"):
        assert said(new, view, 50) == ["a", "first", "second"]


STEPS = [
    (restructuring, "observe"), (restructuring, "_hold"), (restructuring, "_commit_queued"),
    (restructuring, "tree_of"), (restructuring, "reopen"), (reopen, "_open"),
]  # fmt: skip


@pytest.mark.parametrize("how", ["killed", "hangs"])
@pytest.mark.parametrize("step", range(len(STEPS)))
@pytest.mark.parametrize("what", ["move", "compact"])
def test_redis_goes_within_a_change(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, how: str, step: int, what: str
) -> None:
    session, (_a, b, _c) = make_talk("a", "b", "c")
    drain_everything()
    append(session, "d", durability="sync")
    append(session, "queued")
    place, name = STEPS[step]
    real = getattr(place, name)
    gone: list[bool] = []

    def going(*args: Any) -> Any:
        if not gone:
            gone.append(True)
            go_away(own_redis_server, how)
        return real(*args)

    work: Callable[[], Any] = (lambda: move(session, b)) if what == "move" else (lambda: condense(session, 2))
    with monkeypatch.context() as patch:
        patch.setattr(place, name, going)
        try:
            work()
            done = True
        except RedisUnavailable:
            done = False
    assert gone
    come_back(own_redis_server, how)
    turns = SessionBranch.objects.count()
    assert turns == int(done)
    everything = ["a", "b", "c", "d", "queued"]
    if what == "move":
        assert said(session) == (["a", "b"] if done else everything)
    else:
        shown = said(session)
        assert (shown[1:] if done else shown) in (everything[-3:], everything[-2:], everything)
        assert [text for text in said(session, "full", 50) if text in everything] == everything
    append(session, "next")
    assert said(session)[-1] == "next"
    shown = said(session)
    drain_everything()
    let_expire(session)
    assert said(session) == said(session, limit=50) == shown
    assert_clean(session)
