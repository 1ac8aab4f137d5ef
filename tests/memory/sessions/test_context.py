"""The context: changed field by field, versioned, clean after its time, honest about an outage."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connections

from config.base import redis as base_redis
from config.base.errors import DomainError
from memory.sessions import selectors
from memory.sessions.services import change_context
from tests.memory.sessions.helpers import ALICE, BOB, append, let_expire, make_message, make_session, owner, put

pytestmark = pytest.mark.django_db(transaction=True)


def test_fields_are_set_merged_and_removed_one_by_one() -> None:
    session = make_session()
    clean = selectors.get_context(caller=ALICE, session_id=session)
    assert (clean.intent, clean.slots, clean.step, clean.last_tool_result) == (None, {}, None, None)
    first = change_context(caller=ALICE, session_id=session, intent="buy", slots={"fund": "000001", "amount": "100"})
    second = change_context(
        caller=ALICE, session_id=session, slots={"amount": "200", "fund": None}, step=2, last_tool_result=[{"a": []}]
    )
    assert (second.intent, second.slots, second.step, second.last_tool_result) == (
        "buy",
        {"amount": "200"},
        2,
        [{"a": []}],
    )
    assert len({clean.version, first.version, second.version}) == 3
    opened, n = second.version.split("-")
    assert n == "2"
    assert clean.version.startswith(opened)
    append(session, "a message is no change of the context")
    assert selectors.get_context(caller=ALICE, session_id=session) == second


def test_a_stale_version_changes_nothing_and_names_the_current_one() -> None:
    session = make_session()
    seen = selectors.get_context(caller=ALICE, session_id=session)
    now = change_context(caller=ALICE, session_id=session, expected=seen.version, intent="a")
    with pytest.raises(DomainError) as refused:
        change_context(caller=ALICE, session_id=session, expected=seen.version, intent="b", slots={"x": 1})
    assert (refused.value.code, refused.value.extra["version"]) == ("VERSION_CONFLICT", now.version)
    assert selectors.get_context(caller=ALICE, session_id=session) == now
    let_expire(session)
    with pytest.raises(DomainError):
        change_context(caller=ALICE, session_id=session, expected=now.version, intent="b")


def test_two_writers_of_different_slots_never_lose_one() -> None:
    session = make_session()

    def work(writer: int) -> None:
        try:
            for n in range(20):
                change_context(caller=ALICE, session_id=session, slots={f"w{writer}-{n}": n})
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context = selectors.get_context(caller=ALICE, session_id=session)
    assert len(context.slots) == 160
    assert context.version.endswith("-160")


def test_past_its_age_a_clean_context_is_opened_and_says_so(settings: Any) -> None:
    session = make_session()
    append(session, "a", "b")
    before = change_context(caller=ALICE, session_id=session, intent="buy")
    assert not selectors.get_context(caller=ALICE, session_id=session).reopened
    base_redis.state().hset(owner(session).keys[0], "opened_at", "1")
    settings.SESSION_MAX_AGE_SECONDS = 60
    after = selectors.get_context(caller=ALICE, session_id=session)
    assert (after.intent, after.reopened) == (None, True)
    assert after.version != before.version
    assert [m.content for m in selectors.read_messages(caller=ALICE, session_id=session).messages] == ["a", "b"]
    assert [r.seq for r in append(session, "c")] == [3]


def test_every_access_renews_the_time_to_live_of_all_keys(settings: Any) -> None:
    session = make_session()
    put(session, make_message("a", entry_id="e1"))  # `ids` holds given ids only
    client = base_redis.state()
    for access in (
        lambda: append(session, "b"),
        lambda: selectors.read_messages(caller=ALICE, session_id=session),
        lambda: selectors.get_context(caller=ALICE, session_id=session),
        lambda: change_context(caller=ALICE, session_id=session, intent="x"),
    ):
        for key in owner(session).keys:
            client.persist(key)  # a TTL that got lost is repaired
        access()
        for key in owner(session).keys:
            assert settings.SESSION_TTL_SECONDS - 5 <= client.ttl(key) <= settings.SESSION_TTL_SECONDS


@pytest.mark.parametrize(
    "change",
    [
        {"intent": float("nan")},
        {"intent": "\ud800"},
        {"slots": {"": 1}},
        {"slots": {"x" * 65: 1}},
        {"slots": {"a\nb": 1}},
        {"slots": {f"s{n}": n for n in range(201)}},
        {"last_tool_result": "x" * 70_000},
    ],
)
def test_bad_changes_change_nothing(change: dict[str, Any]) -> None:
    session = make_session()
    before = selectors.get_context(caller=ALICE, session_id=session)
    with pytest.raises(DomainError) as refused:
        change_context(caller=ALICE, session_id=session, **change)
    assert refused.value.code == "INVALID_REQUEST"
    assert selectors.get_context(caller=ALICE, session_id=session) == before


def test_slots_of_any_script_and_names_that_look_like_fields() -> None:
    session = make_session()
    slots = {"金额": "100 元", "seq": 999, "actor": "bob", "version": "7-7", "slot:x": {"n": 2**70}}
    assert change_context(caller=ALICE, session_id=session, slots=slots).slots == slots
    assert [r.seq for r in append(session, "still first")] == [1]
    with pytest.raises(DomainError):
        selectors.get_context(caller=BOB, session_id=session)
