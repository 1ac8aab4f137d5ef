"""A real MariaDB killed or held up: what each part of admission answers, as docs/failure-matrix.md says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connections
from django.test import Client

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.access.services import Caller, issue_key
from guard.admission import keys, policy
from guard.admission.blocks import block_actor, lift_block, pause_agent, sweep
from guard.admission.fences import fenced
from guard.admission.forgetting import forget_everything
from guard.admission.models import ActorBlock, BudgetLedger, Fence
from guard.admission.services import admit, release, renew, settle
from guard.admission.sessions import register_session_check
from tests.guard.admission.helpers import ALICE, BOB, admitted, audit_rows, empty_redis, make_wide, new_session
from tests.services import MariaDB, RedisServer

pytestmark = [pytest.mark.mariadb, pytest.mark.slow]  # a server of its own, killed

HOW = ["killed", "hung"]


@contextmanager
def away(server: MariaDB, how: str = "killed") -> Iterator[None]:
    if how == "killed":
        server.kill()
    else:
        server.pause()
    try:
        yield
    finally:
        if how == "killed":
            server.start()
        else:
            server.resume()
        connections.close_all()  # as at the end of a request


@contextmanager
def unavailable() -> Iterator[None]:
    with pytest.raises(DomainError) as refused:
        yield
    assert (refused.value.code, refused.value.status) == ("DATABASE_UNAVAILABLE", 503)


@pytest.fixture
def own_sessions() -> Iterator[None]:
    from memory.sessions.owners import check_writable

    register_session_check(lambda caller, session_id: None)
    yield
    register_session_check(check_writable)


@pytest.mark.parametrize("how", HOW)
def test_what_is_known_goes_on(own_database_server: MariaDB, how: str, monkeypatch: Any) -> None:
    make_wide(rate=5, hourly=50, ip=50, quota=50, budget="10", tenant_running=50, user_running=50)
    running = admitted(estimate="0.1", ip="192.0.2.7")
    with away(own_database_server, how):
        for _ in range(3):
            assert admit(ALICE, estimate="0.1", ip="192.0.2.7").allowed
        # also when the copy of the limits is older than it should be
        monkeypatch.setattr(policy, "FRESH_SECONDS", 0.0)
        assert admit(ALICE, estimate="0.1", ip="192.0.2.7").lefts[4] == 9_500_000
        monkeypatch.undo()
        assert renew(ALICE, running) == 60
        assert release(ALICE, running)
    assert admit(ALICE).refused_by == "rate"


def test_a_process_that_knows_nothing_yet_is_closed(own_database_server: MariaDB) -> None:
    make_wide()
    with away(own_database_server):
        forget_everything()
        with unavailable():
            admit(ALICE)
    assert admit(ALICE).allowed


def test_over_http_it_is_503_and_then_as_before(own_database_server: MariaDB) -> None:
    make_wide()
    headers = {"Authorization": f"Bearer {issue_key(agent='customer').key}", "X-Actor-Id": "alice"}

    def ask() -> Any:
        return Client().post("/api/v1/admissions", "{}", content_type="application/json", headers=headers)

    assert ask().status_code == 201
    with away(own_database_server):
        assert ask().status_code == 201
        forget_everything()
        answer = ask()
        assert (answer.status_code, json.loads(answer.content)["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert ask().status_code == 201


@pytest.mark.parametrize("how", HOW)
def test_a_month_or_a_day_that_redis_lost_is_closed(own_database_server: MariaDB, how: str) -> None:
    make_wide(budget="10", quota=10)
    settle(ALICE, admitted(estimate="1"), actual="4")
    with away(own_database_server, how):
        assert admitted(slot=False).lefts[4] == 6_000_000
        empty_redis()
        with unavailable():
            admit(ALICE, estimate="1")
    assert admitted(estimate="1").lefts[3:5] == [8, 5_000_000]


def test_with_both_away_it_is_closed_where_money_is_asked_for(
    own_database_server: MariaDB, own_redis_server: RedisServer
) -> None:
    make_wide(budget="10")
    admitted()
    own_redis_server.stop()
    with away(own_database_server):
        with unavailable():
            admit(ALICE, estimate="1")
        assert admit(ALICE, action="look").local


@pytest.mark.parametrize("how", HOW)
def test_blocks_and_pauses_stay_closed(own_database_server: MariaDB, how: str) -> None:
    make_wide()
    block_actor(tenant="default", actor_id="alice", code="INJECTION", by="officer")
    assert admit(ALICE).refused_by == "block"
    pause_agent(tenant="default", agent="advisor", reason="wrong", by="officer")
    wei = Caller("default", "advisor", "wei")
    assert admit(wei).refused_by == "pause"
    admitted(BOB)
    with away(own_database_server, how):
        verdict = admit(ALICE)
        assert verdict.refused_by == "block"  # the row of this minute was written before
        assert admit(BOB).allowed
        empty_redis()
        with unavailable():  # Redis has lost what the copy knows: nobody is let through
            admit(ALICE)
        with unavailable():
            admit(wei)
        assert admit(BOB, action="look").allowed
        with pytest.raises(OperationalError):
            block_actor(tenant="default", actor_id="bob", code="INJECTION", by="officer")
        with pytest.raises(OperationalError):
            lift_block(tenant="default", actor_id="alice", by="officer")
        with pytest.raises(OperationalError):
            sweep()
    assert admit(wei).refused_by == "pause"
    assert admit(ALICE).refused_by == "block"
    assert admit(BOB).allowed
    assert ActorBlock.objects.count() == 1


@pytest.mark.parametrize("how", HOW)
def test_a_settlement_waits_for_the_database_and_is_one(own_database_server: MariaDB, how: str) -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    with away(own_database_server, how), unavailable():
        settle(ALICE, verdict, actual="1.25")
    # nothing was given back meanwhile: it may have been committed, so what it costs stands in its place
    assert admitted(slot=False).lefts[4] == 8_750_000
    assert settle(ALICE, verdict, actual="1.25").number == 1
    assert (BudgetLedger.objects.count(), admitted(slot=False).lefts[4]) == (1, 8_750_000)


def test_what_was_settled_before_the_kill_is_there(own_database_server: MariaDB) -> None:
    make_wide(budget="10")
    for _ in range(5):
        settle(ALICE, admitted(estimate="1"), actual="0.25")
    with away(own_database_server):
        pass
    empty_redis()
    forget_everything()
    assert admitted(slot=False).lefts[4] == 8_750_000


@pytest.mark.usefixtures("own_sessions")
def test_a_run_that_is_under_way_is_kept_and_none_begins(own_database_server: MariaDB) -> None:
    make_wide(quota=10)
    session = new_session()
    verdict = admitted(run="run-1", session=session)
    with away(own_database_server):
        assert renew(ALICE, verdict) == 60
        with pytest.raises(OperationalError), fenced(caller=ALICE, session_id=session, fence=verdict.fence):
            raise AssertionError("what is fenced is not written")
        release(ALICE, verdict)
        for n in range(3):  # nobody could tell the holder before that it is stale
            with unavailable():
                admit(ALICE, run=f"run-{n}", session=session)
        with unavailable():
            admit(ALICE, run="run-1", session=new_session())
    # the refused ones took nothing but their numbers
    after = admitted(run="run-9", session=session)
    assert (after.fence, after.lefts[3]) == (5, 8)
    assert Fence.objects.get(session_id=session).issued == 5


@pytest.mark.parametrize("how", HOW)
def test_a_refusal_that_cannot_be_written_is_none_and_told_with_the_next(
    own_database_server: MariaDB, how: str
) -> None:
    make_wide(rate=0)
    policy.policy()
    began = time.time()
    with away(own_database_server, how), unavailable():
        admit(ALICE)
    name = keys.REFUSED("default", actor_id="alice")
    base_redis.state().hset(name, "rate", int(began // 60) - 1)
    assert admit(ALICE).refused_by == "rate"
    assert [row.input_summary["refusals"] for row in audit_rows("admission")] == [2]


def test_what_is_settled_while_redis_is_away_survives_a_kill_of_the_database(
    own_database_server: MariaDB, own_redis_server: RedisServer
) -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    own_redis_server.stop()
    settle(ALICE, verdict, actual="3")
    with away(own_database_server):
        own_redis_server.start()
        with unavailable():  # Redis must hear of it first
            admit(ALICE, estimate="1")
    assert admitted(estimate="1", slot=False).lefts[4] in (6_000_000, 5_000_000)
