"""The window: so many of the newest messages, a tool call never without its results, and what left it in `summary`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.errors import DomainError
from memory.sessions import branching, selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import Message, NewMessage
from memory.sessions.summaries import extractive
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import (
    ALICE,
    append,
    let_expire,
    make_message,
    make_session,
    owner,
    put,
)

pytestmark = pytest.mark.django_db(transaction=True)


def read(session: str, limit: int | None = None, before: int | None = None) -> list[str]:
    page = selectors.read_messages(caller=ALICE, session_id=session, limit=limit, before_seq=before)
    return [message.content for message in page.messages]


def summary(session: str) -> Any:
    return selectors.get_context(caller=ALICE, session_id=session).summary


def make_call(name: str, results: int) -> list[NewMessage]:
    calls = [{"id": f"{name}-{n}", "function": {"name": "quote"}} for n in range(results)]
    answers = [make_message(f"{name}={n}", "tool", payload={"tool_call_id": f"{name}-{n}"}) for n in range(results)]
    return [make_message(f"{name}?", "assistant", payload={"tool_calls": calls}), *answers]


def test_the_window_holds_the_newest_twenty() -> None:
    session = make_session()
    for n in range(30):
        append(session, f"m{n}")
    assert read(session) == [f"m{n}" for n in range(10, 30)]
    assert base_redis.state().llen(owner(session).keys[1]) == 20


@pytest.mark.parametrize("expired", [False, True])
def test_a_tool_call_stays_with_its_results(expired: bool) -> None:
    session = make_session()
    append(session, *(f"m{n}" for n in range(10)))
    put(session, *make_call("price", 4))
    append(session, *(f"n{n}" for n in range(17)))
    # Twenty would begin with price=1; the call and all its results stay instead.
    if expired:
        let_expire(session)
    assert read(session) == ["price?", *(f"price={n}" for n in range(4)), *(f"n{n}" for n in range(17))]
    append(session, "n17", "n18", "n19")
    assert read(session) == [f"n{n}" for n in range(20)]


def test_more_results_than_a_window_holds_stay_together() -> None:
    session = make_session()
    append(session, "before")
    put(session, *make_call("many", 35))
    assert read(session) == ["many?", *(f"many={n}" for n in range(35))]
    let_expire(session)
    assert read(session) == ["many?", *(f"many={n}" for n in range(35))]


def test_results_that_answer_nothing_are_ordinary_messages() -> None:
    session = make_session()
    put(session, make_message("stray", "tool"), *(make_message(f"m{n}") for n in range(19)))
    assert read(session)[0] == "stray"
    append(session, "one more")
    assert len(read(session)) == 20
    assert read(session)[0] == "m0"


@pytest.mark.parametrize("stored", [False, True])
def test_a_page_does_not_begin_within_the_results_of_a_call(stored: bool) -> None:
    session = make_session()
    append(session, "a")
    put(session, *make_call("price", 3))
    append(session, "b", "c")
    if stored:
        drain()
    assert read(session, 4) == ["b", "c"]
    assert read(session, 6) == ["price?", "price=0", "price=1", "price=2", "b", "c"]
    page = selectors.read_messages(caller=ALICE, session_id=session, limit=4)
    assert page.next == 6
    assert read(session, 4, page.next) == ["price?", "price=0", "price=1", "price=2"]
    # Nothing else would be on this page.
    assert read(session, 2, 5) == ["price=0", "price=1"] if stored else True
    everything = []
    before = None
    while True:
        page = selectors.read_messages(caller=ALICE, session_id=session, limit=3, before_seq=before)
        everything = [*(m.content for m in page.messages), *everything]
        if (before := page.next) is None:
            break
    assert everything == ["a", "price?", "price=0", "price=1", "price=2", "b", "c"]


def test_a_queued_message_is_on_its_page_though_a_call_s_results_are_cut_from_it() -> None:
    session = make_session()
    put(session, *make_call("price", 25))
    drain()
    append(session, "queued")
    append(session, "committed", durability="sync")
    for limit in (21, 24):
        assert read(session, limit) == ["queued", "committed"]
    everything = [*(message.content for message in make_call("price", 25)), "queued", "committed"]
    assert read(session, 30) == everything


def test_a_page_does_not_begin_within_a_call_s_results_where_those_before_it_are_queued() -> None:
    session = make_session()
    append(session, "a")
    drain()
    call, *results = make_call("price", 25)
    put(session, call, *results[:10])
    put(session, *results[10:], make_message("b"), durability="sync")
    assert read(session, 30)[0] == "a"
    assert read(session, 10, 29) == ["b"]
    assert read(session, 16, 29) == ["b"]


def test_a_result_behind_a_queued_message_does_not_answer_the_call_before_that() -> None:
    session = make_session()
    put(session, make_message("price?", "assistant"), make_message("price=1", "tool"))
    drain()
    append(session, "queued")
    put(session, make_message("loose", "tool"), *(make_message(f"m{n}") for n in range(21)), durability="sync")
    assert read(session, 22) == ["loose", *(f"m{n}" for n in range(21))]
    assert read(session, 23)[:2] == ["queued", "loose"]


def make_linked(call: str, *results: str) -> tuple[NewMessage, ...]:
    """Messages of one call, apart: the call, then its results."""
    asked = make_message(call, "assistant", payload={"tool_calls": [{"id": name} for name in results]})
    return (asked, *(make_message(name, "tool", payload={"tool_call_id": name}) for name in results))


@pytest.mark.parametrize("expired", [False, True])
def test_a_call_and_its_result_stay_together_with_others_between_them(expired: bool) -> None:
    session = make_session()
    append(session, "before")
    call, result = make_linked("call", "r1")
    put(session, call)
    append(session, "hurry up please")
    put(session, result)
    append(session, *(f"m{n}" for n in range(18)))
    if expired:
        drain()
        let_expire(session)
    assert read(session) == ["call", "hurry up please", "r1", *(f"m{n}" for n in range(18))]
    assert read(session, 19) == [f"m{n}" for n in range(18)]
    append(session, "m18", "m19")
    assert read(session) == [f"m{n}" for n in range(20)]


@pytest.mark.parametrize("expired", [False, True])
def test_results_of_two_agents_calls_are_told_apart(expired: bool) -> None:
    session = make_session()
    (a, _), (b, rb) = make_linked("A", "rA"), make_linked("B", "rB")
    put(session, a)
    put(session, b)
    put(session, make_message("x" * 40_000, "tool", payload={"tool_call_id": "rA"}))
    put(session, rb)
    append(session, *(f"m{n}" for n in range(17)))
    if expired:
        let_expire(session)
    assert [text[:2] for text in read(session)[:4]] == ["A", "B", "xx", "rB"]
    append(session, "m17")
    assert [text[:2] for text in read(session)[:4]] == ["A", "B", "xx", "rB"]
    append(session, "m18", "m19")
    assert read(session)[0] == "m0"


def test_condensing_keeps_the_call_of_a_result_that_is_kept() -> None:
    session = make_session()
    append(session, "q")
    call, result = make_linked("call", "r1")
    put(session, call, make_message("a note", "system"), result)
    append(session, "a", "b")
    branching.compact(caller=ALICE, session_id=session, keep=3, summary="S")
    assert read(session) == ["S", "call", "a note", "r1", "a", "b"]


def test_each_agent_has_a_window_of_its_own(settings: Any) -> None:
    settings.SESSION_WINDOWS = {"customer": 5, "advisor": 40, "analyst": 20, "risk": 20}
    session = make_session()
    append(session, *(f"m{n}" for n in range(9)))
    assert read(session) == [f"m{n}" for n in range(4, 9)]
    assert read(session, 8) == [f"m{n}" for n in range(1, 9)]


def test_what_left_the_window_is_in_the_summary() -> None:
    session = make_session()
    append(session, "我叫王芳，想买 30 万元的 F008 基金，不要高风险。", "好的。")
    assert summary(session) is None
    append(session, *(f"闲聊 {n}" for n in range(18)))
    assert summary(session) is None
    append(session, "下一句")
    assert summary(session) == "user: 我叫王芳，想买 30 万元的 F008 基金，不要高风险。"
    append(session, *(f"再说 {n}" for n in range(200)))
    text = summary(session)
    assert text.startswith("user: 我叫王芳，想买 30 万元的 F008 基金，不要高风险。")
    assert len(text) <= 1200
    # Made again from MySQL it still knows what mattered of what it reads.
    drain()
    let_expire(session)
    assert summary(session)
    assert len(summary(session)) <= 1200


def test_a_summary_costs_nothing_until_something_has_left(django_assert_num_queries: Any) -> None:
    session = make_session()
    append(session, *(f"m{n} is 5" for n in range(25)))
    drain()
    with counted_round_trips() as calls, django_assert_num_queries(3):
        first = summary(session)
    assert len(calls) == 3
    append(session, "m25 is 5")
    drain()
    with counted_round_trips() as calls, django_assert_num_queries(2):
        first = summary(session)
    assert len(calls) == 3
    with counted_round_trips() as calls, django_assert_num_queries(0):
        assert summary(session) == first
    assert len(calls) == 1


def test_an_agents_own_summary_stands_and_grows() -> None:
    session = make_session()
    append(session, *(f"old {n}" for n in range(25)))
    services.change_context(caller=ALICE, session_id=session, summary="客户要买债券，金额未定")
    assert summary(session) == "客户要买债券，金额未定"
    append(session, "金额 20 万", *(f"new {n}" for n in range(20)))
    lines = summary(session).split("\n")
    assert lines[0] == "客户要买债券，金额未定"
    assert "user: 金额 20 万" in lines
    assert not any("old 3" in line for line in lines)
    services.change_context(caller=ALICE, session_id=session, summary=None)
    assert "user: old 0" in summary(session).split("\n")
    with pytest.raises(DomainError, match="summary is int"):
        services.change_context(caller=ALICE, session_id=session, summary=5)


def test_an_agents_own_summary_is_bounded_and_told(settings: Any) -> None:
    session = make_session()
    limit = settings.SESSION_SUMMARY_CHARS
    with pytest.raises(DomainError, match=rf"summary is {limit + 1} characters; the limit is {limit}$") as caught:
        services.change_context(caller=ALICE, session_id=session, summary="字" * (limit + 1))
    assert caught.value.code == "INVALID_REQUEST"
    mine = "字" * (limit * 3 // 4)
    services.change_context(caller=ALICE, session_id=session, summary=mine)
    append(session, *(f"金额 {n} 万" for n in range(60)))
    first, *lines = summary(session).split("\n")
    assert first == mine  # three quarters of the room are its own
    assert lines
    assert "user: 金额 39 万" in lines
    services.change_context(caller=ALICE, session_id=session, summary="字" * limit)
    append(session, "金额 99 万", *(f"more {n}" for n in range(20)))
    first, *lines = summary(session).split("\n")
    assert first == mine[:-1] + "…"
    assert "user: 金额 99 万" in lines


def test_a_version_changes_with_an_agents_summary_and_not_with_ours() -> None:
    session = make_session()
    before = selectors.get_context(caller=ALICE, session_id=session).version
    append(session, *(f"m{n} 1" for n in range(25)))
    assert summary(session)
    assert selectors.get_context(caller=ALICE, session_id=session).version == before
    after = services.change_context(caller=ALICE, session_id=session, expected=before, summary="x")
    assert after.version != before


def failing(previous: str, messages: Sequence[Message], limit: int) -> str:
    raise ConnectionError("no model today")


def shouting(previous: str, messages: Sequence[Message], limit: int) -> str:
    return "x" * (limit + 500)


def test_a_summariser_that_fails_or_runs_over_does_no_harm(settings: Any) -> None:
    session = make_session()
    append(session, *(f"m{n} 1" for n in range(25)))
    settings.SESSION_SUMMARISER = f"{__name__}.failing"
    assert selectors.get_context(caller=ALICE, session_id=session).summary in ("", None)
    append(session, "more 1")
    settings.SESSION_SUMMARISER = f"{__name__}.shouting"
    assert len(summary(session)) == settings.SESSION_SUMMARY_CHARS


def make_line(content: str, role: str = "user", seq: int = 1) -> Message:
    return Message("e", seq, role, content)


def test_the_summary_is_deterministic_bounded_and_keeps_what_matters() -> None:
    talk = [make_line(f"今天天气不错，随便聊聊第{'一二三四五六七八九'[n % 9]}次") for n in range(100)]
    talk.insert(3, make_line("我决定赎回 F001 的 25.5 万元，2026-12-01 之前到账。"))
    talk.insert(60, make_line("I do not want more than 10% in stocks. Anything else is fine."))
    once = extractive("", talk, 600)
    assert once == extractive("", talk, 600)
    assert len(once) <= 600
    assert "user: 我决定赎回 F001 的 25.5 万元，2026-12-01 之前到账。" in once.split("\n")
    assert "user: I do not want more than 10% in stocks." in once
    in_parts = extractive(extractive("", talk[:50], 600), talk[50:], 600)
    assert "F001" in in_parts
    assert "10%" in in_parts
    assert extractive("", [make_line("好的"), make_line("谢谢！")], 600) == ""
    assert len(extractive("", [make_line("九" * 5000 + "1")], 100)) <= 100
    assert len(extractive("x" * 5000, talk, 300)) <= 300
