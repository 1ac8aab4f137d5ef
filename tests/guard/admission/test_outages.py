"""Redis stopped, hung, restarted, emptied; the database away. Each control answers as docs/failure-matrix.md says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import Sum

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from guard.admission import keys, local
from guard.admission.blocks import block_actor, lift_block, pause_agent, sweep
from guard.admission.forgetting import forget_everything
from guard.admission.holding import hold
from guard.admission.models import BudgetLedger
from guard.admission.policy import forget_policy, policy
from guard.admission.services import admit, release, renew, settle
from guard.admission.sessions import register_session_check
from tests.guard.admission.helpers import (
    ALICE,
    BOB,
    admitted,
    audit_rows,
    make_wide,
    new_session,
    together,
)
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

DOWN = ["stopped", "hung"]


@contextmanager
def database_away() -> Iterator[None]:
    def refuse(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        raise OperationalError(2006, "MySQL server has gone away")

    with connection.execute_wrapper(refuse):
        yield


@contextmanager
def away(server: RedisServer, how: str) -> Iterator[None]:
    if how == "stopped":
        server.stop()
    else:
        server.pause()
    try:
        yield
    finally:
        if how == "stopped":
            server.start()
        else:
            server.resume()
            time.sleep(base_redis.BREAKER_SECONDS)  # this process looks again after it


@pytest.fixture(autouse=True)
def four_hosts(settings: Any) -> None:
    settings.ADMISSION_HOSTS = 4


def outcomes(count: int, **arguments: Any) -> list[str]:
    return [admit(ALICE, **arguments).refused_by for _ in range(count)]


@pytest.mark.parametrize("how", DOWN)
def test_rates_and_slots_go_on_with_this_hosts_share(own_redis_server: RedisServer, how: str) -> None:
    make_wide(rate=12)
    admitted()
    with away(own_redis_server, how):
        assert outcomes(5) == [""] * 3 + ["rate"] * 2
        verdict = admit(ALICE)
        assert (verdict.local, 59 < verdict.retry_after <= 60) == (True, True)
        assert admit(BOB).allowed
    make_wide(hourly=8, ip=4, tenant_running=None, user_running=4)
    with away(own_redis_server, how):
        local.forget_local()
        assert outcomes(3, slot=False) == ["", "", "hourly"]
        assert outcomes(2, slot=False, action="look", ip="192.0.2.1") == ["", "ip"]
        assert outcomes(2, action="walk") == ["", "user_running"]
    make_wide(tenant_running=4)
    with away(own_redis_server, how):
        local.forget_local()
        verdict = admitted(lease=0.3)
        assert admit(BOB).refused_by == "tenant_running"
        assert renew(ALICE, verdict, lease=0.3) == 0.3
        assert release(ALICE, verdict)
        admitted(lease=0.3)
        time.sleep(0.31)
        assert admit(BOB).allowed


@pytest.mark.parametrize("how", DOWN)
def test_of_many_threads_exactly_the_share(own_redis_server: RedisServer, how: str) -> None:
    make_wide(rate=100)
    policy()
    with away(own_redis_server, how):
        answers = [a for some in together(32, lambda n: outcomes(3)) for a in some]
    assert (answers.count(""), set(answers)) == (25, {"", "rate"})


@pytest.mark.parametrize("how", DOWN)
def test_quota_and_budget_are_the_ledgers_and_closed_past_it(own_redis_server: RedisServer, how: str) -> None:
    make_wide(quota=10, budget="10")
    for _ in range(2):
        settle(ALICE, admitted(estimate="1"), actual="1")
    with away(own_redis_server, how):
        # 8 calls and 8.00 are left: this process's share is 2 calls and 2.00
        first = admitted(estimate="0.5")
        settle(ALICE, first, actual="0.6")
        assert admit(ALICE, estimate="1.5").refused_by == "budget"
        admitted(estimate="1.4")
        assert admit(ALICE).refused_by == "quota"
        assert admit(BOB, estimate="0.01").refused_by == "budget"
        BudgetLedger(**{
            **{f.name: getattr(BudgetLedger.objects.first(), f.name) for f in BudgetLedger._meta.fields[1:]},
            "number": 100, "admission_id": "elsewhere", "amount": Decimal(9),
        }).save()  # fmt: skip
    from guard.admission import budget

    month = BudgetLedger.objects.values_list("month", flat=True)[0]
    assert budget.recounted("default", month).spent == 11_600_000
    with away(own_redis_server, how):
        forget_everything()
        assert admit(BOB, estimate="0.01").refused_by == "budget"


@pytest.mark.parametrize("how", DOWN)
def test_what_is_settled_meanwhile_is_known_when_redis_is_back(own_redis_server: RedisServer, how: str) -> None:
    make_wide(budget="10")
    early = admitted(estimate="1")
    with away(own_redis_server, how):
        settle(ALICE, early, actual="3")
        settle(ALICE, admitted(estimate="1"), actual="2")
    verdict = admitted(estimate="1", slot=False)
    # in force still: the reservation of `early` where Redis kept it, until its time is over
    assert verdict.lefts[4] in (4_000_000, 3_000_000)
    assert BudgetLedger.objects.aggregate(sum=Sum("amount"))["sum"] == 5
    name = keys.BUDGET("default", month=verdict.day[:7])
    assert base_redis.state().hget(name, "spent") == "5000000"


@pytest.mark.parametrize("how", DOWN)
def test_blocks_and_pauses_stay_closed(own_redis_server: RedisServer, how: str) -> None:
    make_wide()
    block_actor(tenant="default", actor_id="alice", code="INJECTION", by="officer")
    with away(own_redis_server, how):
        verdict = admit(ALICE)
        assert (verdict.refused_by, verdict.local) == ("block", True)
        assert 800 < verdict.retry_after <= 900
        block_actor(tenant="default", actor_id="bob", code="INJECTION", by="officer")
        assert admit(BOB).refused_by == "block"
        assert lift_block(tenant="default", actor_id="alice", by="officer")
        assert admit(ALICE).allowed
        pause_agent(tenant="default", agent="customer", reason="wrong", by="officer")
        assert admit(ALICE).refused_by == "pause"
    assert admit(BOB).refused_by == "block"
    sweep()
    assert admit(ALICE).refused_by == "pause"


@pytest.mark.parametrize("how", DOWN)
def test_a_run_is_closed(own_redis_server: RedisServer, how: str) -> None:
    from memory.sessions.owners import check_writable

    make_wide()
    register_session_check(lambda caller, session_id: None)
    try:
        verdict = admitted(run="run-1", session=new_session())
        with away(own_redis_server, how):
            with pytest.raises(DomainError) as refused:
                admit(ALICE, run="run-2", session=new_session())
            assert (refused.value.code, refused.value.status) == ("REDIS_UNAVAILABLE", 503)
            with pytest.raises(RedisUnavailable):
                renew(ALICE, verdict)
    finally:
        register_session_check(check_writable)


def test_a_hung_redis_costs_a_tenth_of_a_second_once(own_redis_server: RedisServer) -> None:
    make_wide()
    admitted()
    own_redis_server.pause()
    try:
        took = []
        for _ in range(30):
            began = time.monotonic()
            assert admit(ALICE, slot=False).allowed
            took.append(time.monotonic() - began)
    finally:
        own_redis_server.resume()
    assert 0.09 < max(took) < 0.2
    assert sorted(took)[-2] < 0.09  # the others were told at once


def test_impatience_here_is_no_outage_for_other_rooms(own_redis_server: RedisServer) -> None:
    make_wide()
    own_redis_server.pause()
    try:
        admit(ALICE)
        base_redis.breaker.check()
    finally:
        own_redis_server.resume()


@pytest.mark.parametrize("how", ["restart", "empty"])
def test_a_restarted_or_emptied_redis(own_redis_server: RedisServer, how: str) -> None:
    make_wide(budget="10", quota=20, user_running=5)
    for _ in range(3):
        settle(ALICE, admitted(estimate="1"), actual="0.123456")
    block_actor(tenant="default", actor_id="bob", code="INJECTION", by="officer")
    policy()
    running = admitted(estimate="2")
    getattr(own_redis_server, how)()
    verdict = admitted(slot=False)
    kept = 2_000_000 if how == "restart" else 0
    assert verdict.lefts[4] == 10_000_000 - 370_368 - kept
    assert verdict.lefts[3] == (20 - 5 if how == "restart" else 20 - 4)
    assert admit(BOB).refused_by == "block"
    if how == "restart":
        renew(ALICE, running)
    else:
        with pytest.raises(DomainError, match="LEASE_LOST"):
            renew(ALICE, running)
    settle(ALICE, running, actual="1")
    assert admitted(slot=False).lefts[4] == 10_000_000 - 1_370_368


def test_a_held_slot_outlives_a_short_outage_and_a_long_one_is_told(own_redis_server: RedisServer) -> None:
    make_wide()
    with hold(ALICE, lease=3) as held:
        own_redis_server.stop()
        time.sleep(1.2)
        own_redis_server.start()
        assert not held.wait_lost(2.5)
    told: list[str] = []

    def work() -> None:
        with hold(ALICE, lease=0.6, on_lost=lambda: told.append("lost")) as held:
            own_redis_server.stop()
            assert held.wait_lost(3)

    with pytest.raises(DomainError, match="LEASE_LOST"):
        work()
    assert told == ["lost"]


def test_refusals_are_counted_here_too(own_redis_server: RedisServer) -> None:
    make_wide(rate=0)
    with away(own_redis_server, "stopped"):
        assert set(outcomes(20)) == {"rate"}
        rows = audit_rows("admission")
    assert 1 <= len(rows) <= 2
    assert rows[0].input_summary["local"] is True


# --- the database away ------------------------------------------------------------------------------------------


def test_with_the_database_away_what_is_known_goes_on() -> None:
    make_wide(rate=3, budget="10")
    admitted()
    with database_away():
        assert outcomes(2, estimate="0.1") == ["", ""]


def test_without_any_copy_and_past_redis_it_is_closed(own_redis_server: RedisServer) -> None:
    make_wide()
    admitted()
    forget_policy()
    with database_away(), pytest.raises(DomainError) as refused:
        admit(ALICE)
    assert (refused.value.code, refused.value.status) == ("DATABASE_UNAVAILABLE", 503)
    make_wide(budget="1")
    policy()
    own_redis_server.stop()
    with database_away(), pytest.raises(DomainError, match="DATABASE_UNAVAILABLE"):
        admit(ALICE)


def test_a_settlement_waits_for_the_database() -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    with database_away(), pytest.raises(DomainError, match="DATABASE_UNAVAILABLE"):
        settle(ALICE, verdict, actual="1")
    assert settle(ALICE, verdict, actual="1").number == 1


def test_a_refusal_that_cannot_be_written_is_none() -> None:
    make_wide(rate=0)
    policy()
    with database_away(), pytest.raises(DomainError, match="DATABASE_UNAVAILABLE"):
        admit(ALICE)
    # it is told with the next row
    base_redis.state().hset(keys.REFUSED("default", actor_id="alice"), "rate", 1)
    assert admit(ALICE).refused_by == "rate"
    assert audit_rows("admission")[0].input_summary["refusals"] == 2
