"""The drain has stopped: past one backlog appends commit by themselves, past another they are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from config.base.errors import DomainError
from guard.access.services import issue_key
from memory.sessions import services
from memory.sessions.drain import backlog, drain
from memory.sessions.entries import COMMITTED, QUEUED
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import (
    append,
    let_expire,
    make_message,
    make_session,
    put,
    stored,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def small_backlog(settings: Any) -> None:
    settings.SESSION_BACKLOG_SYNC = 4
    settings.SESSION_BACKLOG_REFUSE = 8


def test_past_the_first_bound_appends_commit_and_the_queue_stops_growing() -> None:
    busy, other = make_session(), make_session()
    assert {r.state for r in append(busy, "1", "2", "3", "4")} == {QUEUED}
    for n in range(20):
        assert [r.state for r in append(other, f"a{n}", f"b{n}")] == [COMMITTED, COMMITTED]
    assert backlog() == 4
    assert len(stored(other)) == 40
    drain()
    assert append(other, "c")[0].state == QUEUED
    drain()
    assert [seq for seq, _ in stored(other)] == list(range(1, 42))


def test_past_the_second_bound_nothing_new_is_taken_and_repeats_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    old = put(session, make_message("old", entry_id="e0"), durability="sync")

    def away(*args: Any) -> Any:
        raise OperationalError(2002, "gone")

    monkeypatch.setattr(services, "persist", away)
    # The database is away: what was to commit stays queued, and says so, until there is no more room.
    receipts = [put(session, make_message(f"m{n}", entry_id=f"e{n}")) for n in range(1, 9)]
    assert {r.state for batch in receipts for r in batch} == {QUEUED}
    for durability in ("async", "sync"):
        with pytest.raises(DomainError) as refused:
            append(session, "one too many", durability=durability)
        assert (refused.value.code, refused.value.status) == ("BACKLOG_FULL", 503)
    with pytest.raises(DomainError):
        put(session, make_message("m1", entry_id="e1"), make_message("new", entry_id="e99"))
    assert put(session, make_message("m1", entry_id="e1")) == receipts[0]
    assert put(session, make_message("old", entry_id="e0")) == old
    assert backlog() == 8
    let_expire(session)
    assert put(session, make_message("m3", entry_id="e3")) == receipts[2]
    monkeypatch.undo()
    drain()
    assert append(session, "again")[0].seq == 10
    drain()
    assert [content for _, content in stored(session)] == ["old", *[f"m{n}" for n in range(1, 9)], "again"]


def test_it_costs_no_round_trip(django_assert_num_queries: Any) -> None:
    session = make_session()
    append(session, "warm")
    with counted_round_trips() as calls, django_assert_num_queries(0):
        append(session, "a")
    assert len(calls) == 1
    append(session, "b", "c")
    with counted_round_trips() as calls, django_assert_num_queries(2 + 2):  # and BEGIN, COMMIT
        assert append(session, "committed")[0].state == COMMITTED
    assert len(calls) == 2


def test_the_api_says_when_to_come_back(settings: Any) -> None:
    settings.SESSION_BACKLOG_SYNC, settings.SESSION_BACKLOG_REFUSE = 0, 1
    key = issue_key(agent="customer").key
    headers: dict[str, Any] = {"HTTP_AUTHORIZATION": f"Bearer {key}", "HTTP_X_ACTOR_ID": "alice"}
    client = Client()
    body = {"session_id": "a-session-of-alices"}
    client.post("/api/v1/sessions", json.dumps(body), content_type="application/json", **headers)
    address = "/api/v1/sessions/a-session-of-alices/messages"
    message = json.dumps({"messages": [{"role": "user", "content": "x"}]})
    first = client.post(address, message, content_type="application/json", **headers)
    assert first.json()["receipts"][0]["state"] == "committed"
    append(make_session(), "fills the queue")
    settings.SESSION_BACKLOG_SYNC = 100
    settings.SESSION_BACKLOG_REFUSE = 101
    assert append(make_session(), "queued")[0].state == QUEUED
    settings.SESSION_BACKLOG_REFUSE = 1
    full = client.post(address, message, content_type="application/json", **headers)
    assert (full.status_code, full.json()["code"], full["Retry-After"]) == (503, "BACKLOG_FULL", "5")
    drain()
    assert client.post(address, message, content_type="application/json", **headers).status_code in (200, 201)
