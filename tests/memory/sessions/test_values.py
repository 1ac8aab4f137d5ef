"""Exactly what was put comes back, or a 422 says why not: from window, MySQL and context, at every door."""

from __future__ import annotations

import json
import time
import unicodedata
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from config.base.clock import rfc3339
from config.base.errors import DomainError
from guard.access.services import Caller
from memory.sessions import Message, NewMessage, Sessions, selectors
from memory.sessions.models import AgentMessage
from tests.memory.sessions.doors import HttpDoor, Refused, make_doors
from tests.memory.sessions.helpers import ALICE, drain_everything, let_expire, owner
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

MIB = 1024 * 1024

TEXTS = {
    "empty": "",
    "one byte": "x",
    "a space": " ",
    "only white space": " \t\r\n\v\f",
    "trailing spaces": "x  ",
    "leading spaces": "  x",
    "line ends": "a\r\nb\nc\rd",
    "other line ends": "a\u2028b\u2029c\u0085d",
    "a byte order mark": "\ufeffx\ufeff",
    "only a byte order mark": "\ufeff",
    "nul": "a\0b",
    "only nul": "\0",
    "control characters": "".join(map(chr, [*range(32), *range(127, 160)])),
    "quotes and backslashes": "'\"`\\ \\' \\\" \\0 \\Z \\n \x1a %s %(a)s {} ? ; -- /* */",
    "an escape that is text": "\\ud800 \\u0000 &#0; &amp; <b>",
    "emoji": "😀👩‍👩‍👧‍👦👍🏽🇨🇳🏴󠁧󠁢󠁥󠁮󠁧󠁿❤️",
    "CJK extension planes": "\U00020000\U0002a6d6\U0002b740\U0002ceaf\U00030000\U00031350\U000323af㐀鿿",
    "composed": unicodedata.normalize("NFC", "é Å 각 が"),
    "decomposed": unicodedata.normalize("NFD", "é Å 각 が"),
    "marks without a base": "\u0301\u0308",
    "right to left": "\u202eabc\u202c שלום \u2067مرحبا\u2069",
    "invisible": "\u200b\u200c\u200d\u2060\u00ad",
    "no characters": "\ufffe\uffff\U0001fffe\U0010ffff",
    "private": "\ue000\U000f0000\U00100000",
    "replacement": "\ufffd",
    "compatibility": "ﬁ Ⅳ ① ｱ Ａ １ 𝟙 ſ ß İ ı Σσς",
}

BIG = int("9" * 500)
PAYLOADS = {
    "false": False,
    "true": True,
    "zero": 0,
    "empty text": "",
    "empty list": [],
    "empty object": {},
    "an empty name": {"": {"": ""}},
    "names in no order": {"b": 1, "a": 2, "B": 3, "é": 4, "e\u0301": 5, "10": 6, "9": 7},
    "names alike": {"a": 1, "a ": 2, "A": 3, "ａ": 4, "a\0": 5},
    "nulls": [None, {"a": None}],
    "integers": [2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 2**64 + 1, -(2**63) - 1, BIG, -BIG, int("1" * 4300)],
    "floats": [0.1, 1.0, -0.0, 1e-320, 5e-324, 1.7976931348623157e308, 2.5, 1e16, 1e22, 123456789.123456789, -1e-7],
    "one in three ways": [1, 1.0, True],
    "texts": list(TEXTS.values()),
    "texts as names": {text: text for text in TEXTS.values()},
    "JSON in text": '{"a": [1, 2',
    "numbers in text": ["1", "NaN", "1e999", "-0"],
    "500 deep": json.loads("[" * 500 + "]" * 500),
    "512 deep": json.loads('{"a":' * 511 + "[]" + "}" * 511),
}  # fmt: skip


def make_session(session_id: str | None = None) -> str:
    return sessions().open(session_id or f"chat-{uuid.uuid4().hex}").session_id


def sessions(actor: str = "alice") -> Sessions:
    return Sessions.for_agent("customer", actor)


def exact(value: Any) -> str:
    """Tells 1 from 1.0 and from True, and 0.0 from -0.0. Objects have no order."""
    if isinstance(value, dict):
        return "{%s}" % ",".join(f"{name!r}:{exact(inner)}" for name, inner in sorted(value.items()))  # noqa: UP031
    if isinstance(value, list):
        return "[%s]" % ",".join(exact(inner) for inner in value)  # noqa: UP031
    return repr(value)


@contextmanager
def deep_stack_allowed() -> Iterator[None]:
    """`exact` walks 512 levels with two frames each."""
    import sys

    before = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def everywhere(session: str) -> dict[str, list[dict[str, Any]]]:
    """The conversation as each door reads it: as HTTP words it."""
    return {
        door.name: read_all(door, session)
        for door in make_doors()
    }  # fmt: skip


def read_all(door: Any, session: str) -> list[dict[str, Any]]:
    pages, before = [], None
    while True:
        page = door.call("read", session, limit=20, before_seq=before)
        pages.insert(0, page["messages"])
        if (before := page["next"]) is None:
            return [message for page in pages for message in page]


def put_all(door: Any, session: str, durability: str) -> list[dict[str, Any]]:
    """All texts and all payloads, as messages; what was put."""
    put = [{"role": "user", "content": text, "payload": None} for text in TEXTS.values()]
    put += [{"role": "tool", "content": name, "payload": payload} for name, payload in PAYLOADS.items()]
    put[-1]["role"] = "assistant"
    for start in range(0, len(put), 10):
        door.call("append", session, put[start : start + 10], durability=durability)
    return put


@pytest.mark.parametrize("way", ["async", "sync"])
@pytest.mark.parametrize("index", [0, 1, 2], ids=["http", "python", "python async"])
def test_what_was_put_comes_back_from_everywhere(way: str, index: int) -> None:
    door, session = make_doors()[index], make_session()
    put = put_all(door, session, way)
    seen = {"at once": everywhere(session)}
    drain_everything()
    seen["drained"] = everywhere(session)
    let_expire(session)
    seen["expired"] = everywhere(session)
    with deep_stack_allowed():
        wanted = [(one["role"], one["content"], exact(one["payload"])) for one in put]
        for stage, by_door in seen.items():
            for name, messages in by_door.items():
                got = [(one["role"], one["content"], exact(one["payload"])) for one in messages]
                assert got == wanted, (stage, name)
    # Not only equal values: the same instant, to the microsecond, from the window, from MySQL, over HTTP.
    times = [[one["created_at"] for one in messages] for by_door in seen.values() for messages in by_door.values()]
    rows = AgentMessage.objects.order_by("seq").values_list("created_at", flat=True)
    assert times == [[rfc3339(at) for at in rows]] * 9


def test_what_was_put_past_redis_comes_back(own_redis_server: RedisServer) -> None:
    session = make_session()
    own_redis_server.stop()
    put = put_all(make_doors()[0], session, "async")
    away = everywhere(session)
    own_redis_server.start()
    back = everywhere(session)
    with deep_stack_allowed():
        wanted = [(one["content"], exact(one["payload"])) for one in put]
        for messages in (*away.values(), *back.values()):
            assert [(one["content"], exact(one["payload"])) for one in messages] == wanted
    times = {json.dumps([one["created_at"] for one in messages]) for messages in (*away.values(), *back.values())}
    assert len(times) == 1


def test_what_the_context_was_given_comes_back() -> None:
    for door in make_doors():
        session = make_session()
        with deep_stack_allowed():
            for text in TEXTS.values():
                door.call("change_context", session, intent=text, step=text, summary=text, last_tool_result=text)
                seen = [other.call("context", session) for other in make_doors()]
                for one in seen:
                    assert [one[name] for name in ("intent", "step", "summary", "last_tool_result")] == [text] * 4
            for payload in PAYLOADS.values():
                door.call("change_context", session, slots={"金额 x": payload}, last_tool_result=payload)
                for other in make_doors():
                    one = other.call("context", session)
                    assert exact(one["slots"]) == exact({"金额 x": payload})
                    assert exact(one["last_tool_result"]) == exact(payload)
        door.call("change_context", session, step=10**400)
        assert door.call("context", session)["step"] == 10**400


def test_composed_and_decomposed_text_are_two_texts() -> None:
    session = make_session()
    composed, decomposed = TEXTS["composed"], TEXTS["decomposed"]
    assert composed != decomposed
    alice = sessions()
    alice.append(session, [NewMessage("user", composed, entry_id="e")])
    for again in (composed, decomposed):
        drain_everything()
        let_expire(session)
        if again == composed:
            assert alice.append(session, [NewMessage("user", again, entry_id="e")]).receipts[0].seq == 1
        else:
            with pytest.raises(DomainError, match="ENTRY_CONFLICT"):
                alice.append(session, [NewMessage("user", again, entry_id="e")])
    alice.change_context(session, slots={composed: 1, decomposed: 2})
    assert alice.context(session).slots == {composed: 1, decomposed: 2}


def test_what_was_written_in_place_of_a_branch_comes_back() -> None:
    doors, session = make_doors(), make_session()
    sessions().append(session, [NewMessage("user", "a", entry_id="a")])
    written = {}
    for number, (name, text) in enumerate(TEXTS.items()):
        door = doors[number % 3]
        if not text.strip():
            with pytest.raises(Refused) as refused:
                door.call("navigate", session, "a", summary=text or " ")
            assert (refused.value.status, refused.value.code) == (422, "INVALID_REQUEST")
            continue
        answer = door.call("navigate", session, "a", summary=text)
        written[name] = text
        assert answer["branch_summary"]["content"] == text
        for other in doors:
            assert [m["content"] for m in other.call("read", session)["messages"]] == ["a", text], (name, other.name)
    let_expire(session)
    assert doors[0].call("read", session)["messages"][-1]["content"] == list(written.values())[-1]
    rows = AgentMessage.objects.filter(entry_type="branch_summary").order_by("seq")
    assert list(rows.values_list("content", flat=True)) == list(written.values())


# --- raw bodies ---------------------------------------------------------------------------------------------------

RAW: dict[str, tuple[str, int, str]] = {
    "NaN": ("NaN", 422, "INVALID_REQUEST"),
    "infinity": ("Infinity", 422, "INVALID_REQUEST"),
    "minus infinity": ("[-Infinity]", 422, "INVALID_REQUEST"),
    "1e999": ("1e999", 422, "INVALID_REQUEST"),
    "-1E+999": ('{"x": -1E+999}', 422, "INVALID_REQUEST"),
    "4301 digits": ("9" * 4301, 422, "INVALID_REQUEST"),
    "a million digits": ("[-" + "9" * 1_000_000 + "]", 422, "INVALID_REQUEST"),
    "a name twice": ('{"a": 1, "a": 2}', 422, "INVALID_REQUEST"),
    "a name twice, escaped": ('{"a": 1, "\\u0061": 1}', 422, "INVALID_REQUEST"),
    "a name twice, deep": ('[{"x": {"a": 1, "b": 2, "a": 1}}]', 422, "INVALID_REQUEST"),
    "half a pair": ('"\\ud800"', 422, "INVALID_REQUEST"),
    "the other half": ('"x\\uDFFFx"', 422, "INVALID_REQUEST"),
    "a pair the wrong way": ('"\\ude00\\ud83d"', 422, "INVALID_REQUEST"),
    "half a pair as a name": ('{"\\uD83D": 1}', 422, "INVALID_REQUEST"),
    "513 deep": ("[" * 513 + "]" * 513, 422, "INVALID_REQUEST"),
    "900 deep": ('{"a":' * 900 + "1" + "}" * 900, 422, "INVALID_REQUEST"),
    "100,000 deep": ("[" * 100_000 + "]" * 100_000, 422, "INVALID_REQUEST"),
    "100,000 deep objects": ('{"a":' * 100_000 + "1" + "}" * 100_000, 422, "INVALID_REQUEST"),
    "nan": ("nan", 400, "INVALID_JSON"),
    "a comma too many": ("[1,]", 400, "INVALID_JSON"),
    "a leading zero": ("01", 400, "INVALID_JSON"),
    "a control character": ('"a\tb"', 400, "INVALID_JSON"),
    "single quotes": ("'a'", 400, "INVALID_JSON"),
    "Arabic digits": ("\u0661\u0662", 400, "INVALID_JSON"),
}


@pytest.mark.parametrize("place", ["payload", "slots", "last_tool_result"])
def test_what_cannot_be_kept_is_refused_as_it_is_written(place: str) -> None:
    alice, session = HttpDoor(), make_session()
    for name, (raw, status, code) in RAW.items():
        if place == "payload":
            body = '{"messages": [{"role": "user", "content": "x", "payload": %s}]}'
            method, path = "POST", "messages"
        else:
            body = '{"slots": {"x": %s}}' if place == "slots" else '{"last_tool_result": %s}'
            method, path = "PATCH", "context"
        began = time.monotonic()
        response = alice.send(method, f"/sessions/{session}/{path}", raw=(body % raw).encode())
        assert (response.status_code, response.json()["code"]) == (status, code), (name, response.content[:300])
        assert len(response.json()["detail"]) > 15
        assert "a million" not in name or time.monotonic() - began < 5
    assert read_all(alice, session) == []
    assert alice.call("context", session)["version"].endswith("-0")


def test_what_is_only_spelled_another_way_is_taken() -> None:
    alice, session = HttpDoor(), make_session()
    for raw, value in (
        ('"\\ud83d\\ude00\\u0000\\/"', "😀\0/"),
        ("1E2", 100.0),
        ("-0", 0),
        ("-0.0", -0.0),
        ("1e-999", 0.0),  # as every reader of doubles reads it
        (' { "b" : 1 ,\n"a":[ ] } ', {"a": [], "b": 1}),
        ("9" * 4300, int("9" * 4300)),
    ):
        body = '{"messages": [{"role": "user", "content": "x", "payload": %s}]}' % raw  # noqa: UP031
        assert alice.send("POST", f"/sessions/{session}/messages", raw=body.encode()).status_code == 200
        drain_everything()
        assert exact(read_all(alice, session)[-1]["payload"]) == exact(value)


def test_the_same_in_python_is_refused_and_quickly() -> None:
    session, alice = make_session(), sessions()
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for payload in (float("nan"), float("inf"), [1e308 * 10], 10**4300, -(10**4300), deep, {"a": deep}, "\ud800"):
        for call in (
            lambda: alice.append(session, [NewMessage("user", "x", payload=payload)]),  # noqa: B023
            lambda: alice.append(session, [{"role": "user", "content": "x", "payload": payload}]),  # noqa: B023
            lambda: alice.change_context(session, slots={"x": payload}),  # noqa: B023
            lambda: alice.change_context(session, last_tool_result=payload),  # noqa: B023
        ):
            began = time.monotonic()
            with pytest.raises(DomainError) as refused:
                call()
            assert (refused.value.code, refused.value.status) == ("INVALID_REQUEST", 422)
            assert len(refused.value.detail) < 250
            assert time.monotonic() - began < 5
    assert alice.read(session).messages == []


# --- large --------------------------------------------------------------------------------------------------------

LARGE = {
    "emoji": "😀" * (2 * MIB),
    "what SQL and JSON escape": "\\\"'\0\x1a\n\r\x01" * MIB,
    "nul": "\0" * (8 * MIB),
}


def whole(session: str) -> Message:
    """The one message of a session, as Alice reads it."""
    (message,) = selectors.read_messages(caller=ALICE, session_id=session).messages
    return message


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("way", ["async", "sync"])
def test_exactly_8_mib_is_taken_and_a_byte_more_is_not(way: str, kind: str) -> None:
    text, session, alice = LARGE[kind], make_session(), sessions()
    for content, payload in ((text + "x", None), (text, 1), (text[:-1] + "é" * 3, None)):
        with pytest.raises(DomainError, match="MESSAGE_TOO_LARGE") as refused:
            alice.append(session, [NewMessage("user", content, payload=payload)], durability=way)
        assert refused.value.status == 413
    alice.append(session, [NewMessage("user", text)], durability=way)
    assert whole(session).content == text
    drain_everything()
    assert whole(session).content == text
    let_expire(session)
    assert whole(session).content == text
    assert AgentMessage.objects.get().size == 8 * MIB


@pytest.mark.parametrize("kind", LARGE)
def test_8_mib_past_redis(own_redis_server: RedisServer, kind: str) -> None:
    session = make_session()
    own_redis_server.stop()
    (receipt,) = sessions().append(session, [NewMessage("user", LARGE[kind])]).receipts
    assert receipt.state == "committed"
    assert whole(session).content == LARGE[kind]
    own_redis_server.start()
    assert whole(session).content == LARGE[kind]


@pytest.mark.parametrize("way", ["async", "sync"])
def test_8_mib_of_payload(way: str) -> None:
    payload = {"a": LARGE["emoji"][: MIB - 100], "b": "\\" * (MIB - 100), "c": [0] * (MIB - 100)}
    spare = 8 * MIB - len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()) - len(',"d":""')
    payload["d"] = "x" * spare
    session, alice = make_session(), sessions()
    with pytest.raises(DomainError, match="MESSAGE_TOO_LARGE"):
        alice.append(session, [NewMessage("user", "x", payload=payload)], durability=way)
    alice.append(session, [NewMessage("user", "", payload=payload)], durability=way)
    assert whole(session).payload == payload
    drain_everything()
    let_expire(session)
    assert whole(session).payload == payload
    assert AgentMessage.objects.get().size == 8 * MIB


def test_8_mib_over_http() -> None:
    alice = HttpDoor()
    for text in (LARGE["emoji"], '"\\' * (4 * MIB), "字" * (8 * MIB // 3)):
        session = make_session()
        path = f"/sessions/{session}/messages"
        for ascii_only in (True, False):
            body = {"messages": [{"role": "user", "content": text, "entry_id": "e"}]}
            raw = json.dumps(body, ensure_ascii=ascii_only).encode()
            assert alice.send("POST", path, raw=raw).status_code == 200
        (message,) = alice.call("read", session)["messages"]
        assert message["content"] == text
        drain_everything()
    # A body of 8 MiB of control characters is over the limit of bodies: a 413 that says so.
    with pytest.raises(Refused) as refused:
        alice.call("append", make_session(), [{"role": "user", "content": LARGE["nul"]}])
    assert (refused.value.status, refused.value.code) == (413, "BODY_TOO_LARGE")


# --- identifiers --------------------------------------------------------------------------------------------------

REFUSED_IDS = [
    "talk-with-alice ",
    " talk-with-alice",
    "talk-with-alice\n",
    "\ntalk-with-alice",
    "talk-with-alice\0",
    "talk-with-alicé1",
    "talk-with-alice\u0301",
    "ｔalk-with-alice1",
    "talk-with-alice１",
    "talk-with-alice\u0661",
    "talk-with-alice²",
    "talk-with-alice\u200b",
    "talk/with/alice/1",
    "talk:with:alice:1",
    "a" * 65,
    "١" * 20,
]


@pytest.mark.parametrize("value", [*REFUSED_IDS, "x" * 15, "1" * 16, "1" * 64])
def test_odd_session_ids_are_refused(value: str) -> None:
    for door in make_doors():
        for verb in ("open", "read", "context"):
            if door.name == "http" and verb != "open" and "/" in value:
                continue  # is another route
            with pytest.raises(Refused) as refused:
                door.call(verb, value)
            assert (refused.value.status, refused.value.code) == (422, "INVALID_ID"), (door.name, verb)


@pytest.mark.parametrize("value", [*REFUSED_IDS, ""])
def test_odd_ids_of_entries_customers_and_actors_are_refused(value: str) -> None:
    session = make_session()
    for door in make_doors():
        for call in (
            lambda: door.call("append", session, [{"role": "user", "content": "x", "entry_id": value}]),  # noqa: B023
            lambda: door.call("open", customer_id=value),  # noqa: B023
            lambda: door.call("navigate", session, value),  # noqa: B023
            lambda: door.call("compact", session, entry_id=value),  # noqa: B023
            lambda: door.call("fork", session, entry_id=value),  # noqa: B023
        ):
            with pytest.raises(Refused) as refused:
                call()
            assert (refused.value.status, refused.value.code) == (422, "INVALID_ID"), door.name
    if value and "\n" not in value:  # no header holds it, or it is one that is missing
        response = HttpDoor(actor=value).send("GET", f"/sessions/{session}")
        assert (response.status_code, response.json()["code"]) == (422, "INVALID_ID")


def test_ids_at_the_edges_are_taken_and_kept_apart() -> None:
    """Ids that differ in case alone, in every place, through Redis and MySQL."""
    lower, upper = f"talk-{'x' * 59}", f"TALK-{'X' * 59}"
    assert len(lower) == 64
    for session_id in (lower, upper, lower[:16], upper[:16], "_._-.__-.-..--__", "0" * 15 + "x"):
        for door in make_doors():
            assert door.call("open", session_id)["session_id"] == session_id
    for session_id in (lower, upper):
        entries = [
            ("e" * 64, "low"),
            ("E" * 64, "up"),
            (".", "dot"),
            ("-", "dash"),
            ("_", "line"),
            ("1", "one"),
            ("01", "two"),
        ]
        batch = [NewMessage("user", f"{session_id[0]} {said}", entry_id=entry) for entry, said in entries]
        sessions().append(session_id, batch)
    drain_everything()
    for session_id in (lower, upper):
        let_expire(session_id)
        assert [m.content.split()[0] for m in sessions().read(session_id).messages] == [session_id[0]] * 7
        assert [m.seq for m in sessions().read(session_id).messages] == list(range(1, 8))
    shouting = sessions("ALICE")
    with pytest.raises(DomainError, match="NOT_OWNER"):
        shouting.read(lower)
    customer = sessions().open(customer_id="alice").session_id
    with pytest.raises(DomainError, match=r"NOT_OWNER|SESSION_CONFLICT"):
        sessions().open(customer, customer_id="Alice")
    with pytest.raises(DomainError, match="SESSION_NOT_FOUND"):
        Sessions(Caller("DEFAULT", "customer", "alice")).read(lower)
    assert owner(lower).session_id == lower


@pytest.mark.parametrize(
    "query", ["limit=%EF%BC%95", "limit=%D9%A5", "limit=%C2%B2", "limit=5%00", "limit=", "before_seq=1e3"]
)
def test_numbers_in_a_query_are_ascii_digits(query: str) -> None:
    response = HttpDoor().send("GET", f"/sessions/{make_session()}/messages?{query}")
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST")


def test_roles_are_four_words() -> None:
    session, alice = make_session(), sessions()
    roles = ["user", "assistant", "system", "tool"]
    alice.append(session, [NewMessage(role, role) for role in roles])
    drain_everything()
    let_expire(session)
    assert [m.role for m in alice.read(session).messages] == roles
    for role in ("", "User", "user ", "ｕser", "user\0", "developer", "function", "\ud800"):
        with pytest.raises(DomainError, match="INVALID_REQUEST"):
            alice.append(session, [NewMessage(role, "x")])
