"""The context: changed field by field, versioned, clean after its time, honest about an outage."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connections

from config.base import redis as base_redis
from config.base.clock import to_micros
from config.base.errors import DomainError
from memory.sessions import selectors
from memory.sessions.locks import hold
from memory.sessions.models import AgentSession
from memory.sessions.services import change_context
from tests.memory.sessions.doors import HttpDoor
from tests.memory.sessions.helpers import (
    ALICE,
    BOB,
    append,
    drain_everything,
    let_expire,
    make_message,
    make_session,
    owner,
    put,
)

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


def test_fifty_writers_of_different_slots_lose_none() -> None:
    session = make_session()
    start = threading.Barrier(50)

    def work(writer: int) -> None:
        try:
            start.wait(30)
            for n in range(3):
                change_context(caller=ALICE, session_id=session, slots={f"w{writer}-{n}": [writer, n]})
            change_context(caller=ALICE, session_id=session, slots={f"w{writer}-0": None})
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context = selectors.get_context(caller=ALICE, session_id=session)
    assert context.slots == {f"w{writer}-{n}": [writer, n] for writer in range(50) for n in (1, 2)}
    assert context.version.endswith("-200")


def test_of_those_who_name_one_version_one_wins_and_the_others_are_told_the_next() -> None:
    session = make_session()
    seen = selectors.get_context(caller=ALICE, session_id=session).version
    start = threading.Barrier(16)
    outcomes: list[tuple[str, str]] = []

    def work(writer: int) -> None:
        try:
            start.wait(30)
            context = change_context(caller=ALICE, session_id=session, expected=seen, slots={"winner": writer})
            outcomes.append(("won", context.version))
        except DomainError as refused:
            outcomes.append((refused.code, refused.extra["version"]))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = selectors.get_context(caller=ALICE, session_id=session).version
    assert sorted(outcomes) == sorted([("VERSION_CONFLICT", now)] * 15 + [("won", now)])


def test_silence_ends_a_context_and_the_next_says_so_once(settings: Any) -> None:
    """Idle time is the server's to keep: the keys are gone by themselves. The window comes back from MySQL."""
    session = make_session()
    append(session, "a", "b")
    drain_everything()
    append(session, "c")
    before = change_context(caller=ALICE, session_id=session, intent="buy", slots={"x": 1}, step=2)
    settings.SESSION_TTL_SECONDS = 1
    client, (ctx, msgs, _) = base_redis.state(), owner(session).keys
    client.persist(ctx)  # as if it had lost its time to live: repaired with the next access
    assert not selectors.get_context(caller=ALICE, session_id=session).reopened
    give_up = time.monotonic() + 10
    while client.exists(ctx, msgs):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    settings.SESSION_TTL_SECONDS = 7200
    after = selectors.get_context(caller=ALICE, session_id=session)
    assert (after.intent, after.slots, after.step, after.last_tool_result) == (None, {}, None, None)
    assert after.reopened
    assert after.opened_at > before.opened_at
    assert not selectors.get_context(caller=ALICE, session_id=session).reopened
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert ([m.content for m in page.messages], page.source) == (["a", "b", "c"], "window")
    with pytest.raises(DomainError, match="VERSION_CONFLICT"):
        change_context(caller=ALICE, session_id=session, expected=before.version, intent="sell")


@pytest.mark.parametrize("first", ["append", "read", "lock", "change"])
def test_whatever_call_reopened_it_the_first_look_at_the_context_is_told(first: str) -> None:
    session = make_session()
    assert not selectors.get_context(caller=ALICE, session_id=session).reopened
    append(session, "a")
    change_context(caller=ALICE, session_id=session, intent="buy")
    let_expire(session)
    if first == "append":
        append(session, "b")
    elif first == "read":
        selectors.read_messages(caller=ALICE, session_id=session)
    elif first == "lock":
        with hold(caller=ALICE, session_id=session):
            pass
    else:
        assert change_context(caller=ALICE, session_id=session, step=1).reopened
    looks = [selectors.get_context(caller=ALICE, session_id=session).reopened for _ in range(2)]
    assert looks == [first != "change", False]


def test_a_session_that_redis_never_saw_is_not_called_reopened() -> None:
    session = make_session()
    let_expire(session)
    AgentSession.objects.update(opened_at=None)  # as where it was opened while Redis was away
    assert not selectors.get_context(caller=ALICE, session_id=session).reopened


def test_activity_does_not_put_off_the_end_by_age(settings: Any) -> None:
    session = make_session()
    opened = selectors.get_context(caller=ALICE, session_id=session).opened_at
    for _ in range(3):
        append(session, "x")
        context = change_context(caller=ALICE, session_id=session, step=1)
    assert context.opened_at == opened
    ctx = owner(session).keys[0]
    four_hours_ago = to_micros(opened) - settings.SESSION_MAX_AGE_SECONDS * 1_000_000 - 1_000_000
    base_redis.state().hset(ctx, "opened_at", four_hours_ago)
    append(session, "x")  # its time to live is renewed to the full, its age is not
    after = selectors.get_context(caller=ALICE, session_id=session)
    assert (after.step, after.reopened) == (None, True)
    assert after.opened_at > opened
    assert [m.seq for m in selectors.read_messages(caller=ALICE, session_id=session).messages] == [1, 2, 3, 4]


# --- ETag and If-Match --------------------------------------------------------------------------------------------


def test_if_match_in_every_form() -> None:
    alice, session = HttpDoor(), make_session()
    path = f"/sessions/{session}/context"

    def change(condition: str) -> tuple[int, str]:
        response = alice.send("PATCH", path, {"intent": "x"}, **{"If-Match": condition})
        body = response.json()
        return response.status_code, body.get("code", "")

    def current() -> str:
        response = alice.send("GET", path)
        assert response["ETag"] == f'"{response.json()["version"]}"'
        return str(response.json()["version"])

    for form in ('"{}"', 'W/"{}"', "{}", ' "{}" ', '"1-1", "{}"', '"{}","1-1"', 'W/"1-1" , W/"{}"', '"x", "{}"'):
        before = current()
        assert change(form.format(before)) == (200, ""), form
        assert change(form.format(before)) == (409, "VERSION_CONFLICT"), form
    assert change("*") == (200, "")
    assert change(" * ") == (200, "")
    now = current()
    for form in ('"1-1"', "latest", '"1-1", W/"2-2"', f'"{now}0"', f'"x{now}"', f'"{now} "'.replace(" ", "~")):
        assert change(form) == (409, "VERSION_CONFLICT"), form
    for form in ("", " ", '""', 'W/""', '"', f'"{now}', f'"{now}" "1-1"', f'"{now}",', ",", f"*, {now}", f'w/"{now}"'):
        assert change(form) == (422, "INVALID_REQUEST"), form
    assert current() == now
    stale = alice.send("PATCH", path, {"intent": "y"}, **{"If-Match": '"1-1"'})
    assert (stale.status_code, stale.json()["version"]) == (409, now)


def test_a_condition_where_there_is_no_version_is_not_dropped() -> None:
    alice, session = HttpDoor(), make_session()
    entry = put(session, make_message("a"))[0].entry_id
    condition = {"If-Match": '"1-1"'}
    for method, place, body in (
        ("POST", "/messages", {"messages": [{"role": "user", "content": "x"}]}),
        ("POST", "/fork", {}),
        ("POST", "/navigate", {"entry_id": entry}),
        ("POST", "/compact", {}),
        ("DELETE", "", None),
    ):
        response = alice.send(method, f"/sessions/{session}{place}", body, **condition)
        assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST"), (method, place)
    # What only reads pays no heed to it.
    for place in ("", "/messages", "/context", "/tree"):
        assert alice.send("GET", f"/sessions/{session}{place}", **condition).status_code == 200
    assert [m.content for m in selectors.read_messages(caller=ALICE, session_id=session).messages] == ["a"]


def test_a_version_may_be_one_of_several_and_never_nothing() -> None:
    session = make_session()
    now = selectors.get_context(caller=ALICE, session_id=session).version
    for nothing in ("", [], [""], [5]):
        with pytest.raises(DomainError, match="INVALID_REQUEST"):
            change_context(caller=ALICE, session_id=session, expected=nothing, intent="x")  # type: ignore[arg-type]
    assert change_context(caller=ALICE, session_id=session, expected=["1-1", now], intent="x").version != now
