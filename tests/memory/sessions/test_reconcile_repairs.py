"""Faults that `reconcile --fix` mends beside all else that runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.base import redis as base_redis
from config.base.clock import now
from memory.sessions import selectors
from memory.sessions.drain import backlog, drain
from memory.sessions.keys import PENDING
from memory.sessions.models import AgentSession
from tests.memory.sessions.helpers import (
    ALICE,
    append,
    make_session,
    owner,
    stored,
)
from tests.memory.sessions.reconciling import kinds, run

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_ceiling_below_used_numbers_is_raised() -> None:
    session = make_session()
    append(session, "a", "b")
    drain()
    AgentSession.objects.update(seq_ceiling=1, lease_to=1)  # a database put back from an old copy
    code, report = run()
    assert (code, kinds(report)) == (1, {"ceiling_low"})
    assert run("--fix")[0] == 0
    assert run()[0] == 0
    assert append(session, "c")[0].seq > 1000


def test_outdated_state_is_taken_out_of_use() -> None:
    session, other, gone, lonely = (make_session() for _ in range(4))
    for one in (session, other, gone, lonely):
        append(one, "a", "b")
    drain()
    client = base_redis.state()
    client.delete(owner(session).keys[1])
    client.hset(owner(other).keys[0], "seq", "1")
    AgentSession.objects.filter(session_id=gone).update(deleted_at=now())
    AgentSession.objects.filter(session_id=lonely).update(detached_at=now() - timedelta(minutes=5))
    code, report = run()
    assert code == 1
    assert {(f["kind"], f["session_id"]) for f in report["findings"]} == {
        ("stale_state", session),
        ("stale_state", other),
        ("deleted_open", gone),
        ("detached", lonely),
    }
    assert run("--fix")[0] == 0
    assert run()[0] == 0
    assert len(selectors.read_messages(caller=ALICE, session_id=session).messages) == 2
    assert [r.seq for r in append(other, "c")] == [3]
    assert client.hget(owner(gone).keys[0], "deleted") == "1"


def test_fix_drains_what_a_dead_drain_holds() -> None:
    session = make_session()
    append(session, "a")
    client = base_redis.state()
    client.xgroup_create(PENDING(), "persist", "0")
    client.xreadgroup("persist", "somebody", {PENDING(): ">"}, count=1)
    code, report = run("--fix")
    assert (code, report["queued"], backlog()) == (0, 0, 0)
    assert stored(session) == [(1, "a")]
