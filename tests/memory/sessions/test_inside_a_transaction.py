"""Every write commits by itself; inside the caller's transaction it is refused at once, and nothing was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from config.base import redis as base_redis
from memory.sessions import Sessions, branching, locks, selectors, services
from memory.sessions.drain import backlog, drain
from memory.sessions.models import AgentSession
from tests.memory.sessions.helpers import ALICE, append, contents, let_expire, make_message, make_session, owner

pytestmark = pytest.mark.django_db(transaction=True)

AGENT = Sessions.for_agent("customer", "alice")
WRITES: dict[str, Callable[[str, str], Any]] = {
    "append_messages": lambda session, entry: append(session, "c"),
    "change_context": lambda session, entry: services.change_context(caller=ALICE, session_id=session, step=2),
    "open_session": lambda session, entry: services.open_session(caller=ALICE, session_id="another-session-of-hers"),
    "delete_session": lambda session, entry: services.delete_session(caller=ALICE, session_id=session),
    "fork": lambda session, entry: branching.fork(caller=ALICE, session_id=session),
    "navigate": lambda session, entry: branching.navigate(caller=ALICE, session_id=session, entry_id=entry),
    "compact": lambda session, entry: branching.compact(caller=ALICE, session_id=session, keep=1),
    "taking a session's lock": lambda session, entry: locks.acquire(caller=ALICE, session_id=session),
}
DOORS: dict[str, Callable[[str, str], Any]] = {
    "append_messages": lambda session, entry: AGENT.append(session, [make_message("c")]),
    "change_context": lambda session, entry: AGENT.change_context(session, step=2),
    "open_session": lambda session, entry: AGENT.open("another-session-of-hers"),
    "delete_session": lambda session, entry: AGENT.delete(session),
    "fork": lambda session, entry: AGENT.fork(session),
    "navigate": lambda session, entry: AGENT.navigate(session, entry),
    "compact": lambda session, entry: AGENT.compact(session, keep=1),
    "taking a session's lock": lambda session, entry: AGENT.lock(session).__enter__(),
}


@pytest.mark.parametrize("calls", [WRITES, DOORS])
@pytest.mark.parametrize("name", WRITES)
def test_it_is_refused_in_words_and_nothing_was_done(calls: dict[str, Callable[[str, str], Any]], name: str) -> None:
    session = make_session()
    first, _ = append(session, "a", "b")
    drain()
    before = [base_redis.state().dump(key) for key in owner(session).keys]
    with transaction.atomic():
        with pytest.raises(RuntimeError) as refused:
            calls[name](session, first.entry_id)
        assert str(refused.value).startswith(f"{name} cannot be called inside transaction.atomic()")
        assert "before or after the block, or with transaction.on_commit()" in str(refused.value)
    assert [base_redis.state().dump(key) for key in owner(session).keys] == before
    assert (backlog(), AgentSession.objects.count()) == (0, 1)
    assert contents(session, 20) == ["a", "b"]


def test_after_the_commit_it_may() -> None:
    session = make_session()
    with transaction.atomic():
        transaction.on_commit(lambda: append(session, "a") and None)
    assert contents(session, 20) == ["a"]


def test_reading_may_unless_the_session_must_be_opened() -> None:
    session = make_session()
    append(session, "a")
    with transaction.atomic():
        assert contents(session, 20) == ["a"]
        let_expire(session)
        with pytest.raises(RuntimeError, match="opens a session in Redis cannot be called inside"):
            selectors.get_context(caller=ALICE, session_id=session)
