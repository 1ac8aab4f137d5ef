"""The hot path's shortcuts: what it leaves out must not be missed."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.fields import canonical_json
from memory.sessions import hot, persist, selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import COMMITTED, QUEUED, made_entry_id, may_be_made, read_entry, read_items
from memory.sessions.models import AgentMessage
from tests.memory.sessions.helpers import ALICE, append, let_expire, make_message, make_session, owner, put, stored
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.binary(min_size=8, max_size=8).map(lambda raw: struct.unpack("d", raw)[0]).filter(lambda x: abs(x) < 1e308)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def spelled(value: Any) -> str:
    """Tells 1 from 1.0 and from True, and 0.0 from -0.0, which == does not."""
    return repr(value)


@settings(max_examples=300, deadline=None)
@given(JSON)
def test_items_are_read_as_json_reads_them(value: Any) -> None:
    payload = canonical_json(value)
    item = f'{{"id":"e","role":"user","content":"x","payload":{payload},"seq":1,"at":2}}'
    (message,) = read_items([item.encode()], 1000)
    assert spelled(message.payload) == spelled(json.loads(payload))
    assert (message.entry_id, message.seq, message.at_us, message.cut) == ("e", 1, 1002, 0)


def test_our_ids_are_version_7_and_known_again() -> None:
    ids = [made_entry_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert all(one[14] == "7" and one[19] in "89ab" and may_be_made(one) for one in ids)
    others = [f"{one[:-1]}{'0' if one[-1] != '0' else '1'}" for one in ids]
    assert not any(may_be_made(other) for other in [*others, "e1", "", "x" * 36])


@pytest.mark.parametrize("place", ["queued", "drained", "expired"])
def test_an_id_of_ours_given_back_is_a_repeat(place: str) -> None:
    """Its receipt was never in Redis: the stream and the database are asked."""
    session = make_session()
    first, second = append(session, "a", "b")
    assert base_redis.state().exists(owner(session).keys[2]) == 0
    if place != "queued":
        drain()
    if place == "expired":
        let_expire(session)
    (again,) = put(session, make_message("a", entry_id=first.entry_id))
    assert (again.seq, again.state) == (first.seq, QUEUED if place == "queued" else COMMITTED)
    with pytest.raises(DomainError) as refused:
        put(session, make_message("new", entry_id="e9"), make_message("other", entry_id=second.entry_id))
    assert refused.value.code == "ENTRY_CONFLICT"
    # One that only looks like ours is new, and a repeat afterwards.
    alike = made_entry_id()
    once = put(session, make_message("c", entry_id=alike))
    assert once[0].seq == 3
    assert put(session, make_message("c", entry_id=alike)) == once
    drain()
    assert stored(session) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_sync_repeat_of_an_id_of_ours_commits_it() -> None:
    session = make_session()
    (queued,) = append(session, "a")
    (committed,) = put(session, make_message("a", entry_id=queued.entry_id), durability="sync")
    assert (committed.seq, committed.state) == (1, COMMITTED)
    assert stored(session) == [(1, "a")]
    assert drain().known == 1


def test_an_append_answers_with_the_newest_in_the_same_round_trip() -> None:
    session = make_session()
    append(session, *[f"m{n}" for n in range(30)])
    appended = services.append_messages(
        caller=ALICE, session_id=session, messages=[make_message("last")], read_last=500
    )
    assert appended.messages is not None
    assert [m.content for m in appended.messages] == [*[f"m{n}" for n in range(11, 30)], "last"]
    assert appended.messages == selectors.read_messages(caller=ALICE, session_id=session).messages


@pytest.mark.parametrize("loss", ["expired", "deleted"])
def test_what_goes_between_the_script_and_the_reading_is_not_shown_as_empty(
    monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    session = make_session()
    append(session, "a")
    real = base_redis.Script.and_then
    lost: list[str] = []

    def and_then(self: base_redis.Script, client: Any, keys: Any, args: Any, command: Any) -> Any:
        reply, items = real(self, client, keys, args, command)
        if lost:
            return reply, items
        lost.append(loss)
        if loss == "deleted":
            services.delete_session(caller=ALICE, session_id=session)
        else:
            let_expire(session)
        return reply, []

    monkeypatch.setattr(base_redis.Script, "and_then", and_then)
    if loss == "deleted":
        with pytest.raises(DomainError) as refused:
            hot.window_in_redis(owner(session), 20)
        assert refused.value.code == "SESSION_DELETED"
        return
    appended = services.append_messages(caller=ALICE, session_id=session, messages=[make_message("b")], read_last=20)
    assert [m.content for m in appended.messages or []] == ["a", "b"]


def test_a_window_that_is_gone_alone_is_made_anew() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    append(session, "c")
    base_redis.state().delete(owner(session).keys[1])
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert ([m.content for m in page.messages], page.source) == (["a", "b", "c"], "window")
    assert [r.seq for r in append(session, "d")] == [4]


def test_an_append_after_the_window_alone_is_gone_makes_it_anew() -> None:
    session = make_session()
    append(session, "a", "b")
    base_redis.state().delete(owner(session).keys[1])
    assert [r.seq for r in append(session, "c")] == [3]
    page = selectors.read_messages(caller=ALICE, session_id=session)
    assert ([m.content for m in page.messages], page.source) == (["a", "b", "c"], "window")


@pytest.mark.parametrize("drained", [False, True])
def test_a_repeat_after_the_receipts_alone_are_gone_keeps_its_first_number(drained: bool) -> None:
    session = make_session()
    first = services.append_messages(caller=ALICE, session_id=session, messages=[make_message("a", entry_id="first")])
    append(session, "b")
    if drained:
        drain()
    base_redis.state().delete(owner(session).keys[2])
    again = services.append_messages(caller=ALICE, session_id=session, messages=[make_message("a", entry_id="first")])
    assert again.receipts[0].seq == first.receipts[0].seq == 1
    assert [r.seq for r in append(session, "c")] == [3]
    with pytest.raises(DomainError) as refused:
        services.append_messages(caller=ALICE, session_id=session, messages=[make_message("other", entry_id="first")])
    assert refused.value.code == "ENTRY_CONFLICT"
    drain()
    assert [content for _, content in stored(session)] == ["a", "b", "c"]


def test_a_restarted_server_closes_no_connection_under_an_append(own_redis_server: RedisServer) -> None:
    """The lane notices before it sends: no append goes past Redis because of a connection that is gone."""
    session = make_session()
    append(session, "a")
    own_redis_server.restart()
    assert append(session, "b")[0].state == QUEUED
    drain()
    assert [content for _, content in stored(session)] == ["a", "b"]


def test_a_refused_command_leaves_the_connection_in_order(own_redis_server: RedisServer) -> None:
    session = make_session()
    append(session, "a")
    msgs = owner(session).keys[1]
    client = base_redis.state()
    client.delete(msgs)
    client.set(msgs, "not a list")
    from redis.exceptions import ResponseError

    reply, items = hot._window.and_then(
        client, owner(session).keys, hot._common(owner(session)), ("LRANGE", msgs, -1, -1)
    )
    # What the script did is done, whatever the command says.
    assert reply[0] == "OK"
    assert isinstance(items, ResponseError)
    client.script_flush()
    append(session, "b")
    assert [m.content for m in selectors.read_messages(caller=ALICE, session_id=session).messages] == ["a", "b"]


def test_the_drains_own_insert_fills_every_column_as_the_model_would() -> None:
    columns = {field.column for field in AgentMessage._meta.concrete_fields if not field.primary_key}
    assert {*persist._NUMBERS, *persist._NAMES, *persist._TEXTS} == columns
    session = make_session()
    put(session, make_message("'\"\\%s\0\n😀", "tool", payload={"a": ["%s", "'"]}), make_message("b"))
    newest = selectors.read_messages(caller=ALICE, session_id=session).messages
    drain()
    rows = list(AgentMessage.objects.order_by("seq"))
    twins = [AgentMessage(**{f.attname: getattr(row, f.attname) for f in row._meta.concrete_fields}) for row in rows]
    for twin in twins:
        twin.pk, twin.session_row_id = None, 10**12
    AgentMessage.objects.bulk_create(twins)
    as_model = list(AgentMessage.objects.filter(session_row_id=10**12).order_by("seq"))
    skipped = {"id", "session_row_id"}
    names = [field.attname for field in AgentMessage._meta.concrete_fields if field.attname not in skipped]
    assert [[getattr(row, name) for name in names] for row in rows] == [
        [getattr(row, name) for name in names] for row in as_model
    ]
    assert [(row.content, row.payload, row.created_at) for row in rows] == [
        (message.content, message.payload, message.created_at) for message in newest
    ]


@pytest.mark.parametrize(
    "body",
    [
        '{"entry_id":"e","role":"user","content":"x","seq":1}',
        '{"entry_id":"e","role":"user","content":"x","seq":1,"at":0}',
        '{"entry_id":"e","role":"user","content":"x","seq":true,"at":2}',
        '{"entry_id":"e","role":"user","content":"x","seq":1.5,"at":2}',
        '{"entry_id":"e","role":"user","content":null,"seq":1,"at":2}',
        '{"entry_id":"e","role":"user","content":"\\ud800","seq":1,"at":2}',
        "{",
    ],
)
def test_what_is_no_message_in_the_stream_is_refused_not_repaired(body: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_entry("1-1", {"k": "1 default customer s", "g": "", "x": "", "m": body})
