"""HTTP, `Sessions` and `AsyncSessions` answer alike: the same values, the same codes and statuses."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions.drain import drain
from memory.sessions.models import AgentSession
from memory.sessions.owners import forget_owners
from tests.memory.sessions.doors import Refused, make_doors
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


class Alice:
    """Alice at one of the doors, with a session of hers that is like the one at the other doors."""

    def __init__(self, door: Any, bob: Any) -> None:
        self.door, self.bob = door, bob
        self.tag = uuid.uuid4().hex
        self.session = f"talk-{self.tag}"
        self.other = f"bobs-{self.tag}"
        bob.call("open", self.other)
        door.call("open", self.session, customer_id="alice")
        self.append(
            {"role": "user", "content": "我想买基金", "entry_id": "e1"},
            {"role": "assistant", "content": "price?", "entry_id": "e2", "payload": {"n": 2**70, "empty": []}},
            {"role": "tool", "content": "1.5", "entry_id": "e3"},
            {"role": "assistant", "content": "1.5 元", "entry_id": "e4"},
        )

    def on(self, verb: str, *args: Any, **given: Any) -> Any:
        return self.door.call(verb, self.session, *args, **given)

    def append(self, *messages: Any, **given: Any) -> Any:
        return self.on("append", list(messages), **given)

    def said(self, **fields: Any) -> Any:
        return self.append({"role": "user", "content": "hello", **fields})

    def told(self, value: Any) -> Any:
        """An answer without what differs from door to door: ids and times of this session."""
        text = json.dumps(value, sort_keys=True, ensure_ascii=False).replace(self.tag, "TAG")
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}", "UUID", text)
        return json.loads(re.sub(r"\d{16}-(\d+)|\d{4}-\d\d-\d\dT[0-9:.]+Z", r"T\1", text))

    def outcome(self, case: Callable[[Alice], Any]) -> Any:
        try:
            return self.told(case(self))
        except Refused as refused:
            return (refused.status, refused.code, self.told(refused.version))


HELLO = {"role": "user", "content": "hello"}
UNKNOWN = "session-of-nobody"
INVALID = (422, "INVALID_REQUEST", None)
BAD_ID = (422, "INVALID_ID", None)
NOT_OWNER = (403, "NOT_OWNER", None)
BIG = "x" * (8 * 1024 * 1024)

# name: (call, None where it is good, or what every door must say)
CASES: dict[str, tuple[Callable[[Alice], Any], Any]] = {
    # good
    "open again": (lambda a: a.on("open", customer_id="alice"), None),
    "open new": (lambda a: a.door.call("open", f"new-{a.tag}"), None),
    "open without an id": (lambda a: a.door.call("open"), None),
    "get": (lambda a: a.on("get"), None),
    "append": (lambda a: a.append(HELLO, {**HELLO, "entry_id": "e5"}), None),
    "append and commit": (lambda a: a.append(HELLO, durability="sync"), None),
    "append a repeat": (lambda a: a.append({"role": "user", "content": "我想买基金", "entry_id": "e1"}, HELLO), None),
    "append twice in one batch": (lambda a: a.append({**HELLO, "entry_id": "x"}, {**HELLO, "entry_id": "x"}), None),
    "append 200": (lambda a: a.append(*[HELLO] * 200), None),
    "append null fields": (lambda a: a.said(entry_id=None, payload=None), None),
    "append 8 MiB": (lambda a: a.said(content=BIG), None),
    "read": (lambda a: a.on("read"), None),
    "read two": (lambda a: a.on("read", limit=2), None),
    "read 200": (lambda a: a.on("read", limit=200), None),
    "read before": (lambda a: a.on("read", limit=2, before_seq=3), None),
    "read full": (lambda a: a.on("read", view="full"), None),
    "read before the end of numbers": (lambda a: a.on("read", before_seq=2**63 - 1), None),
    "context": (lambda a: a.on("context"), None),
    "change context": (
        lambda a: a.on(
            "change_context", intent="buy", step=3, slots={"金额": "100", "x": {"a": [1]}}, last_tool_result=[1.5]
        ),
        None,
    ),
    "change context, then remove": (
        lambda a: [
            a.on("change_context", slots={"a": 1, "b": 2}, step=1), a.on("change_context", slots={"a": None}, step=None)
        ],
        None,
    ),
    "change context with its version": (
        lambda a: a.on("change_context", expected=a.on("context")["version"], summary="short"), None),
    "a summary of 1200": (lambda a: a.on("change_context", summary="字" * 1200), None),
    "change nothing": (lambda a: a.on("change_context"), None),
    "fork": (lambda a: a.on("fork", entry_id="e2", new_session_id=f"fork-{a.tag}"), None),
    "fork twice": (lambda a: [a.on("fork", new_session_id=f"fork-{a.tag}") for _ in range(2)], None),
    "navigate": (lambda a: [a.on("navigate", "e2"), a.on("read")], None),
    "navigate with a summary": (lambda a: [a.on("navigate", "e1", summary="an excursion"), a.on("read")], None),
    "navigate, summarised": (lambda a: a.on("navigate", "e1", summarise=True), None),
    "compact": (lambda a: [a.on("compact", keep=1, summary="s", entry_id="c1"), a.on("read"), a.on("tree")], None),
    "compact nothing": (lambda a: a.on("compact", keep=100), None),
    "tree": (lambda a: [a.on("tree"), a.on("tree", limit=2), a.on("tree", limit=2, after_seq=2)], None),
    "delete": (lambda a: [a.on("delete"), a.on("delete")], None),
    # whose
    "append to Bob's": (lambda a: a.door.call("append", a.other, [HELLO]), NOT_OWNER),
    "append nonsense to Bob's": (lambda a: a.door.call("append", a.other, 5), NOT_OWNER),
    "read Bob's": (lambda a: a.door.call("read", a.other, limit=0), NOT_OWNER),
    "fork Bob's": (lambda a: a.door.call("fork", a.other), NOT_OWNER),
    "open Bob's": (lambda a: a.door.call("open", a.other), NOT_OWNER),
    "unknown": (lambda a: a.door.call("append", UNKNOWN, [HELLO]), (404, "SESSION_NOT_FOUND", None)),
    "get unknown": (lambda a: a.door.call("get", UNKNOWN), (404, "SESSION_NOT_FOUND", None)),
    "another customer": (lambda a: a.on("open", customer_id="carol"), (409, "SESSION_CONFLICT", None)),
    # ids
    "open a short id": (lambda a: a.door.call("open", "x" * 15), BAD_ID),
    "open digits": (lambda a: a.door.call("open", "1" * 20), BAD_ID),
    "open a number": (lambda a: a.door.call("open", 5), INVALID),
    "open a space": (lambda a: a.door.call("open", "session of alice "), BAD_ID),
    "open a customer that is no text": (lambda a: a.door.call("open", customer_id=7), INVALID),
    "open a customer with a colon": (lambda a: a.door.call("open", customer_id="a:b"), BAD_ID),
    "read a bad id": (lambda a: a.door.call("read", "a:b" * 10), BAD_ID),
    "read an id with a newline": (lambda a: a.door.call("read", a.session + "\n"), BAD_ID),
    "an entry id with a space": (lambda a: a.said(entry_id="e "), BAD_ID),
    "an empty entry id": (lambda a: a.said(entry_id=""), BAD_ID),
    "an entry id that is a number": (lambda a: a.said(entry_id=7), INVALID),
    "navigate to a number": (lambda a: a.on("navigate", 7), INVALID),
    "navigate to nothing": (lambda a: a.on("navigate", None), INVALID),
    "navigate to a bad id": (lambda a: a.on("navigate", "e:1"), BAD_ID),
    "navigate to an unknown entry": (lambda a: a.on("navigate", "e99"), (404, "ENTRY_NOT_FOUND", None)),
    "fork from a number": (lambda a: a.on("fork", entry_id=7), INVALID),
    "fork from an unknown entry": (lambda a: a.on("fork", entry_id="e99"), (404, "ENTRY_NOT_FOUND", None)),
    "fork into itself": (lambda a: a.on("fork", new_session_id=a.session), (409, "SESSION_CONFLICT", None)),
    "fork into Bob's": (lambda a: a.on("fork", new_session_id=a.other), NOT_OWNER),
    "fork into a bad id": (lambda a: a.on("fork", new_session_id="short"), BAD_ID),
    # batches and messages
    "no messages": (lambda a: a.append(), (422, "EMPTY_BATCH", None)),
    "201 messages": (lambda a: a.append(*[HELLO] * 201), (422, "BATCH_TOO_LARGE", None)),
    "a batch that is null": (lambda a: a.on("append", None), INVALID),
    "a batch that is text": (lambda a: a.on("append", "hello"), INVALID),
    "a batch that is one message": (lambda a: a.on("append", HELLO), INVALID),
    "a message that is text": (lambda a: a.append("hello"), INVALID),
    "a message that is null": (lambda a: a.append(None), INVALID),
    "no content": (lambda a: a.append({"role": "user"}), INVALID),
    "content 5": (lambda a: a.said(content=5), INVALID),
    "content null": (lambda a: a.said(content=None), INVALID),
    "content a list": (lambda a: a.said(content=["x"]), INVALID),
    "half a surrogate": (lambda a: a.said(content="\ud800"), INVALID),
    "half a surrogate in a payload": (lambda a: a.said(payload=["\udfff"]), INVALID),
    "half a surrogate in a key": (lambda a: a.said(payload={"\ud83d": 1}), INVALID),
    "half a surrogate as a role": (lambda a: a.said(role="\ud800"), INVALID),
    "NaN": (lambda a: a.said(payload=float("nan")), INVALID),
    "infinity": (lambda a: a.said(payload=[{"x": float("-inf")}]), INVALID),
    "513 deep": (lambda a: a.said(payload=json.loads("[" * 513 + "]" * 513)), INVALID),
    "a role that does not exist": (lambda a: a.said(role="robot"), INVALID),
    "a role in capitals": (lambda a: a.said(role="User"), INVALID),
    "a role that is a list": (lambda a: a.said(role=["user"]), INVALID),
    "a role that is null": (lambda a: a.said(role=None), INVALID),
    "an unknown field": (lambda a: a.said(rol="user"), INVALID),
    "a bad id before bad content": (lambda a: a.append({**HELLO, "entry_id": "a b"}, {**HELLO, "content": 5}), INVALID),
    "201 with a bad one": (lambda a: a.append(*[HELLO] * 200, {**HELLO, "content": 5}), INVALID),
    "a byte over 8 MiB": (lambda a: a.said(content=BIG + "x"), (413, "MESSAGE_TOO_LARGE", None)),
    "8 MiB and a payload": (lambda a: a.said(content=BIG, payload=1), (413, "MESSAGE_TOO_LARGE", None)),
    "another content": (lambda a: a.said(entry_id="e1"), (409, "ENTRY_CONFLICT", None)),
    "two contents in one batch": (
        lambda a: a.append({**HELLO, "entry_id": "x"}, {**HELLO, "entry_id": "x", "role": "tool"}),
        (409, "ENTRY_CONFLICT", None)),
    "an odd durability": (lambda a: a.append(HELLO, durability="maybe"), INVALID),
    "a durability that is null": (lambda a: a.append(HELLO, durability=None), INVALID),
    "a durability that is a number": (lambda a: a.append(HELLO, durability=1), INVALID),
    "an odd durability of nothing": (lambda a: a.append(durability="maybe"), INVALID),
    # reading
    "limit 0": (lambda a: a.on("read", limit=0), INVALID),
    "limit 201": (lambda a: a.on("read", limit=201), INVALID),
    "limit x": (lambda a: a.on("read", limit="x"), INVALID),
    "limit true": (lambda a: a.on("read", limit=True), INVALID),
    "limit 1.5": (lambda a: a.on("read", limit=1.5), INVALID),
    "before 0": (lambda a: a.on("read", before_seq=0), INVALID),
    "before 2**63": (lambda a: a.on("read", before_seq=2**63), INVALID),
    "before x": (lambda a: a.on("read", before_seq="x"), INVALID),
    "an odd view": (lambda a: a.on("read", view="odd"), INVALID),
    "tree 0": (lambda a: a.on("tree", limit=0), INVALID),
    "tree 201": (lambda a: a.on("tree", limit=201), INVALID),
    "tree after -1": (lambda a: a.on("tree", after_seq=-1), INVALID),
    "tree after 2**63": (lambda a: a.on("tree", after_seq=2**63), INVALID),
    "tree x": (lambda a: a.on("tree", limit="x"), INVALID),
    # context
    "slots a list": (lambda a: a.on("change_context", slots=["a"]), INVALID),
    "slots text": (lambda a: a.on("change_context", slots="a"), INVALID),
    "a slot without a name": (lambda a: a.on("change_context", slots={"": 1}), INVALID),
    "a slot name of 65": (lambda a: a.on("change_context", slots={"x" * 65: 1}), INVALID),
    "201 slots": (lambda a: a.on("change_context", slots={f"s{n}": n for n in range(201)}), INVALID),
    "a slot that is NaN": (lambda a: a.on("change_context", slots={"x": float("nan")}), INVALID),
    "a slot of 64 KiB": (lambda a: a.on("change_context", slots={"x": "x" * 65536}), INVALID),
    "a slot 513 deep": (lambda a: a.on("change_context", slots={"x": json.loads("[" * 513 + "]" * 513)}), INVALID),
    "half a surrogate in a slot": (lambda a: a.on("change_context", slots={"x": "\ud800"}), INVALID),
    "half a surrogate as a slot": (lambda a: a.on("change_context", slots={"\ud800": 1}), INVALID),
    "intent 5": (lambda a: a.on("change_context", intent=5), INVALID),
    "an intent of 1001": (lambda a: a.on("change_context", intent="x" * 1001), INVALID),
    "step true": (lambda a: a.on("change_context", step=True), INVALID),
    "step 1.5": (lambda a: a.on("change_context", step=1.5), INVALID),
    "summary 5": (lambda a: a.on("change_context", summary=5), INVALID),
    "a summary of 1201": (lambda a: a.on("change_context", summary="x" * 1201), INVALID),
    "a stale version": (
        lambda a: a.on("change_context", expected="1-1", intent="x"), (409, "VERSION_CONFLICT", "T0")),
    "a version that is none": (
        lambda a: a.on("change_context", expected="latest", intent="x"), (409, "VERSION_CONFLICT", "T0")),
    "a version that is empty": (lambda a: a.on("change_context", expected="", intent="x"), INVALID),
    # branches
    "keep -1": (lambda a: a.on("compact", keep=-1), INVALID),
    "keep 201": (lambda a: a.on("compact", keep=201), INVALID),
    "keep x": (lambda a: a.on("compact", keep="x"), INVALID),
    "keep true": (lambda a: a.on("compact", keep=True), INVALID),
    "compact with a blank summary": (lambda a: a.on("compact", keep=1, summary=" "), INVALID),
    "compact with a number": (lambda a: a.on("compact", keep=1, summary=5), INVALID),
    "compact under another entry": (lambda a: a.on("compact", keep=1, entry_id="e1"), (409, "ENTRY_CONFLICT", None)),
    "compact under a bad id": (lambda a: a.on("compact", entry_id="a b"), BAD_ID),
    "navigate with a number": (lambda a: a.on("navigate", "e1", summary=5), INVALID),
    "navigate with half a surrogate": (lambda a: a.on("navigate", "e1", summary="\ud800"), INVALID),
    "navigate, summarise 1": (lambda a: a.on("navigate", "e1", summarise=1), INVALID),
    "fork of nothing": (
        lambda a: [a.door.call("open", f"empty-{a.tag}"), a.door.call("fork", f"empty-{a.tag}")],
        (409, "EMPTY_SESSION", None)),
}  # fmt: skip

AFTER_DELETION: dict[str, Callable[[Alice], Any]] = {
    "open": lambda a: a.on("open", customer_id="alice"),
    "get": lambda a: a.on("get"),
    "append": lambda a: a.append(HELLO),
    "append and commit": lambda a: a.append(HELLO, durability="sync"),
    "read": lambda a: a.on("read"),
    "read far": lambda a: a.on("read", limit=100),
    "context": lambda a: a.on("context"),
    "change context": lambda a: a.on("change_context", intent="x"),
    "fork": lambda a: a.on("fork"),
    "navigate": lambda a: a.on("navigate", "e1"),
    "compact": lambda a: a.on("compact", keep=1),
    "tree": lambda a: a.on("tree"),
}


def at_each_door(cases: dict[str, Callable[[Alice], Any]], prepare: Callable[[Alice], Any] = id) -> Any:
    """Outcomes by case: what HTTP says, and what the others say where they differ."""
    doors, bobs = make_doors(), make_doors(actor="bob")
    outcomes = {}
    for name, case in cases.items():
        said = {}
        for door, bob in zip(doors, bobs, strict=True):
            alice = Alice(door, bob)
            prepare(alice)
            said[door.name] = alice.outcome(case)
        drain()  # who opens a session reads what is queued: 8 MiB thrice, if it were left there
        outcomes[name] = said["http"] if said["http"] == said["sync"] == said["async"] else said
    return outcomes


def test_every_call_has_one_outcome_at_every_door() -> None:
    outcomes = at_each_door({name: case for name, (case, _) in CASES.items()})
    refused = {name: expected for name, (_, expected) in CASES.items() if expected is not None}
    assert {name: outcomes[name] for name in refused} == refused
    odd = {
        name: outcome
        for name, outcome in outcomes.items()
        if name not in refused and (isinstance(outcome, tuple) or (isinstance(outcome, dict) and "http" in outcome))
    }
    assert odd == {}
    # Not alike because all are empty.
    assert [m["content"] for m in outcomes["read two"]["messages"]] == ["1.5 元"] or outcomes["read two"]["next"]
    assert outcomes["append 8 MiB"]["receipts"][0]["seq"] == 5
    assert outcomes["change context"]["slots"] == {"金额": "100", "x": {"a": [1]}}
    assert outcomes["fork"]["forked_from"] == {"session_id": "talk-TAG", "entry_id": "e2", "seq": 2}


def test_a_deleted_session_is_gone_at_every_door() -> None:
    outcomes = at_each_door(AFTER_DELETION, lambda alice: alice.on("delete"))
    assert outcomes == dict.fromkeys(AFTER_DELETION, (410, "SESSION_DELETED", None))


def test_another_tenant_and_another_agent_have_no_such_session() -> None:
    mine = Alice(*[make_doors()[0], make_doors(actor="bob")[0]])
    calls = {**AFTER_DELETION, "delete": lambda a: a.on("delete"), "open": lambda a: a.on("context")}
    for who, expected in (({"tenant": "acme"}, (404, "SESSION_NOT_FOUND", None)), ({"agent": "advisor"}, NOT_OWNER)):
        for door in make_doors(**who):
            mine.door = door
            assert {name: mine.outcome(call) for name, call in calls.items()} == dict.fromkeys(calls, expected)


@pytest.mark.parametrize("dead", ["stopped", "hanging"])
def test_an_outage_of_redis_is_told_alike(own_redis_server: RedisServer, dead: str) -> None:
    """What MySQL can do is done, committed; the context, which lives in Redis, is a 503 everywhere."""
    doors, bobs = make_doors(), make_doors(actor="bob")
    people = [Alice(door, bob) for door, bob in zip(doors, bobs, strict=True)]
    drain()
    (own_redis_server.pause if dead == "hanging" else own_redis_server.stop)()
    away = (503, "REDIS_UNAVAILABLE", None)
    calls: dict[str, tuple[Callable[[Alice], Any], Any]] = {
        "context": (lambda a: a.on("context"), away),
        "change context": (lambda a: a.on("change_context", intent="x"), away),
        "append": (lambda a: a.append(HELLO)["receipts"][0]["state"], "committed"),
        "read": (lambda a: a.on("read")["source"], "database"),
        "get": (lambda a: a.on("get")["actor_id"], "alice"),
        "open": (lambda a: a.door.call("open", f"new-{a.tag}")["created"], True),
    }
    try:
        said = {name: [alice.outcome(call) for alice in people] for name, (call, _) in calls.items()}
    finally:
        if dead == "hanging":
            own_redis_server.resume()
        base_redis.breaker.reset()
    assert said == {name: [expected] * 3 for name, (_, expected) in calls.items()}


def test_an_outage_of_the_database_is_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError
    from django.db.backends.base.base import BaseDatabaseWrapper

    doors, bobs = make_doors(), make_doors(actor="bob")
    people = [Alice(door, bob) for door, bob in zip(doors, bobs, strict=True)]
    for door in doors:  # so that the key is known
        door.call("open", f"warm-{uuid.uuid4().hex}")

    def down(*_: Any, **__: Any) -> Any:
        raise OperationalError(2002, "Can't connect")

    with monkeypatch.context() as patch:
        patch.setattr(BaseDatabaseWrapper, "cursor", down)
        said = [
            [alice.outcome(call) for alice in people]
            for call in (
                lambda a: a.on("get"),
                lambda a: a.on("read", limit=100),
                lambda a: a.on("fork"),
                lambda a: a.door.call("open"),
            )
        ]
        # The hot path asks it for nothing.
        assert [alice.outcome(lambda a: a.append(HELLO)["receipts"][0]["seq"]) for alice in people] == [5, 5, 5]
    assert said == [[(503, "DATABASE_UNAVAILABLE", None)] * 3] * 4
    assert [alice.outcome(lambda a: a.on("get")["actor_id"]) for alice in people] == ["alice"] * 3


def test_a_full_backlog_is_told_alike(settings: Any) -> None:
    doors, bobs = make_doors(), make_doors(actor="bob")
    people = [Alice(door, bob) for door, bob in zip(doors, bobs, strict=True)]
    settings.SESSION_BACKLOG_REFUSE = 1
    assert [alice.outcome(lambda a: a.append(HELLO)) for alice in people] == [(503, "BACKLOG_FULL", None)] * 3
    again = {"role": "user", "content": "我想买基金", "entry_id": "e1"}  # of what is there already: still answered
    assert [alice.outcome(lambda a: a.append(again)["receipts"][0]["seq"]) for alice in people] == [1] * 3


def test_an_erased_customer_is_gone_at_every_door() -> None:
    doors, bobs = make_doors(), make_doors(actor="bob")
    people = [Alice(door, bob) for door, bob in zip(doors, bobs, strict=True)]
    AgentSession.objects.update(erased_at=now(), deleted_at=now())
    forget_owners()
    for name, call in AFTER_DELETION.items():
        assert [alice.outcome(call) for alice in people] == [(410, "CUSTOMER_ERASED", None)] * 3, name
