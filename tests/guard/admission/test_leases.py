"""Slots and runs are held by renewal, told when lost, freed on death, and leaked by nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.admission import fences, holding, keys
from guard.admission.fences import fenced, fenced_update
from guard.admission.holding import hold
from guard.admission.models import AdmissionLimit, Fence
from guard.admission.services import admit, release, renew, settle
from guard.admission.sessions import register_session_check
from guard.audit.models import AuditLog
from tests.counting import counted_round_trips
from tests.guard.admission.helpers import (
    ALICE,
    BOB,
    admitted,
    audit_rows,
    empty_redis,
    make_wide,
    new_session,
    together,
)

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def own_sessions() -> Any:
    """Whose a session is, is not what these are about."""
    from memory.sessions.owners import check_writable

    register_session_check(lambda caller, session_id: None)
    yield
    register_session_check(check_writable)


def running(caller: Any = ALICE) -> tuple[int, int]:
    """Members of the tenant's set and of the actor's, as they are in Redis."""
    client = base_redis.state()
    return (
        client.zcard(keys.TENANT_ACTIVE("default")),
        client.zcard(keys.USER_ACTIVE("default", user_id=caller.actor_id)),
    )


def lose_slot(token: str) -> None:
    base_redis.state().zrem(keys.USER_ACTIVE("default", user_id="alice"), token)


def test_a_block_keeps_its_slot_and_gives_it_back() -> None:
    make_wide(user_running=1)
    with hold(ALICE, lease=0.3) as held:
        for _ in range(5):
            time.sleep(0.15)
            held.check()
            assert admit(ALICE).refused_by == "user_running"
    assert running() == (0, 0)


def test_settled_or_failed_nothing_stays() -> None:
    make_wide(budget="1", quota=10)
    with hold(ALICE, estimate="0.5") as held:
        held.settle("0.25")
    with pytest.raises(ZeroDivisionError), hold(ALICE, estimate="0.5"):
        raise ZeroDivisionError
    with pytest.raises(DomainError, match="budget"), hold(ALICE, estimate="0.76"):
        pass
    verdict = admitted(estimate="0.75", slot=False)
    assert (running(), verdict.lefts[4], verdict.lefts[3]) == ((0, 0), 0, 7)


def test_a_lost_lease_is_told() -> None:
    told: list[str] = []

    def work() -> None:
        with hold(ALICE, lease=0.3, on_lost=lambda: told.append("lost")) as held:
            lose_slot(held.verdict.token)
            assert held.wait_lost(2)
            with pytest.raises(DomainError):
                held.check()

    with pytest.raises(DomainError) as refused:
        work()
    assert (refused.value.code, told) == ("LEASE_LOST", ["lost"])


def test_a_renewal_that_dies_silently_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding.Held, "_keep", lambda self: None)
    make_wide(user_running=1)

    def work() -> None:
        with hold(ALICE, lease=0.3) as held:
            assert not held.lost
            time.sleep(0.31)
            with counted_round_trips() as calls:
                assert held.lost
            assert len(calls) == 0
            admitted()  # the slot is another's by now

    with pytest.raises(DomainError, match="LEASE_LOST"):
        work()
    assert running() == (1, 1)


def test_renewing_what_is_over_does_not_revive_it() -> None:
    verdict = admitted(lease=0.1)
    assert renew(ALICE, verdict.admission_id, lease=0.1) == 0.1
    time.sleep(0.11)
    with pytest.raises(DomainError) as refused:
        renew(ALICE, verdict.admission_id, lease=60)
    assert refused.value.code == "LEASE_LOST"
    empty_redis()
    with pytest.raises(DomainError, match="LEASE_LOST"):
        renew(ALICE, admitted_then_emptied(), lease=60)


def admitted_then_emptied() -> Any:
    verdict = admitted()
    empty_redis()
    return verdict


def test_renewing_keeps_the_reservation(settings: Any) -> None:
    settings.ADMISSION_RESERVATION_SECONDS = 1
    make_wide(budget="1")
    verdict = admitted(estimate="1", lease=30)
    for _ in range(4):
        time.sleep(0.6)
        renew(ALICE, verdict, lease=30)
    assert admit(BOB, estimate="0.1").refused_by == "budget"


DIES = """
import os, signal, sys, django
django.setup()
from django.conf import settings
settings.REDIS_KEY_PREFIX = sys.argv[1]
from guard.access.services import Caller
from guard.admission.holding import hold
with hold(Caller("default", "customer", "alice"), lease=0.5):
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_death_frees_the_slot(settings: Any) -> None:
    make_wide(user_running=1)
    name = connection.settings_dict["NAME"]
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
    if connection.vendor == "mysql":
        env["DATABASE_URL"] = f"{os.environ['DATABASE_URL'].rsplit('/', 1)[0]}/{name}"
    else:
        env["DATABASE_URL"] = f"sqlite://{Path(str(name)).absolute()}"
    arguments = [sys.executable, "-c", DIES, settings.REDIS_KEY_PREFIX]
    done = subprocess.run(arguments, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("held", -signal.SIGKILL), done.stderr
    assert running() == (1, 1)  # nobody gave it back
    verdict = admit(ALICE)
    if not verdict.allowed:
        assert verdict.refused_by == "user_running"
        time.sleep(0.5)
        admitted()


async def test_cancelled_while_it_is_admitted_or_within_leaks_nothing() -> None:
    from asgiref.sync import sync_to_async

    await sync_to_async(make_wide)(user_running=1000, budget="100", quota=1000)

    async def work() -> None:
        async with hold(ALICE, estimate="1"):
            await asyncio.sleep(10)

    for n in range(30):
        task = asyncio.create_task(work())
        await asyncio.sleep(n / 5000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await sync_to_async(running)() == (0, 0)
    verdict = await sync_to_async(lambda: admitted(estimate="100", slot=False))()
    assert verdict.lefts[4] == 0


def test_a_timeout_leaks_nothing() -> None:
    """As where a caller's own time is over: whatever ends the block gives back."""
    make_wide(user_running=1)

    async def work() -> None:
        async with asyncio.timeout(0.1), hold(ALICE):
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        asyncio.run(work())
    assert running() == (0, 0)


# --- runs and their fences --------------------------------------------------------------------------------------


def run_of(session: str, run: str = "run-1", **more: Any) -> Any:
    return admitted(action="run", run=run, session=session, node="node-a", **more)


def test_a_run_holds_its_session_alone() -> None:
    make_wide()
    session, client = new_session(), base_redis.state()
    verdict = run_of(session)
    assert client.hgetall(keys.RUN("default", run_id="run-1")).items() >= {
        "run": "run-1", "session": session, "tenant": "default", "user": "alice", "node": "node-a", "fence": "1",
    }.items()  # fmt: skip
    assert client.get(keys.RUN_OF_SESSION("default", session_id=session)) == "run-1"
    refused = admit(ALICE, action="run", run="run-2", session=session)
    assert (refused.refused_by, refused.error().code, refused.error().status) == ("session", "RUN_ACTIVE", 409)
    assert 59 < refused.retry_after <= 60
    assert running() == (1, 1)
    settle(ALICE, verdict, actual="0.1")
    assert running() == (0, 0)
    assert run_of(session, "run-2").fence == verdict.fence + 1


def test_a_run_costs_one_round_trip_too(django_assert_num_queries: Any) -> None:
    make_wide()
    session = new_session()
    release(ALICE, run_of(session))
    # the one query tells MySQL the newest number, so that no earlier holder writes from here on
    with counted_round_trips() as calls, django_assert_num_queries(1):
        verdict = run_of(session)
    assert len(calls) == 1
    with counted_round_trips() as calls:
        renew(ALICE, verdict)
        release(ALICE, verdict)
    assert len(calls) == 2


def test_numbers_only_grow_whatever_happens_to_redis() -> None:
    make_wide()
    session, given = new_session(), []
    client = base_redis.state()
    for loss in ("", "", "flush", "", "fence", "server", "older", ""):
        if loss == "flush":
            empty_redis()
        elif loss == "fence":
            client.delete(keys.FENCE("default", session_id=session))
        elif loss == "server":
            client.hset(keys.FENCE_LEASED("default", session_id=session), "server", "0" * 40)
            client.set(keys.FENCE("default", session_id=session), 1)
        elif loss == "older":
            client.delete(keys.FENCE_LEASED("default", session_id=session))
            client.set(keys.FENCE("default", session_id=session), 2)
        verdict = run_of(session)
        given.append(verdict.fence)
        release(ALICE, verdict)
    assert given == sorted(set(given))
    for name in (keys.FENCE, keys.FENCE_LEASED):
        assert 0 < client.ttl(name("default", session_id=session)) <= 30 * 86400


def test_numbers_go_on_past_what_was_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wide()
    monkeypatch.setattr(fences, "LEASED_AT_ONCE", 3)
    session, given = new_session(), []
    for _ in range(10):
        verdict = run_of(session)
        given.append(verdict.fence)
        release(ALICE, verdict)
    assert given == list(range(1, 11))


def test_first_runs_of_a_session_at_once_one_holds_it() -> None:
    make_wide()
    session = new_session()
    answers = together(16, lambda n: admit(ALICE, action="run", run=f"run-{n}", session=session))
    assert sorted(a.refused_by for a in answers) == [""] + ["session"] * 15
    assert running() == (1, 1)


def test_runs_keep_a_floor_that_another_room_knows() -> None:
    make_wide()
    fences.register_fence_floor(lambda tenant, session_id: 500)
    try:
        assert run_of(new_session()).fence == 501
    finally:
        fences._floor_of = None


def test_the_same_run_taken_up_elsewhere_ends_the_first_hold() -> None:
    make_wide()
    session = new_session()
    first = run_of(session)
    second = run_of(session)
    assert second.fence > first.fence
    assert running() == (1, 1)
    with pytest.raises(DomainError, match="LEASE_LOST"):
        renew(ALICE, first)
    release(ALICE, first)
    assert running() == (1, 1)
    renew(ALICE, second)


def test_a_stale_holder_writes_nothing() -> None:
    make_wide()
    session = new_session()
    first = run_of(session, lease=0.1)
    fenced_update(limit_rows(), caller=ALICE, session_id=session, fence=first.fence, reason="first")
    time.sleep(0.11)
    second = run_of(session, "run-2")
    # stale from here on, although the later one has written nothing yet
    with pytest.raises(DomainError, match="STALE_FENCE"):
        fenced_update(limit_rows(), caller=ALICE, session_id=session, fence=first.fence, reason="first again")
    assert limit_rows().get().reason == "first"
    assert fenced_update(limit_rows(), caller=ALICE, session_id=session, fence=second.fence, reason="second") == 1
    with pytest.raises(DomainError) as refused:
        fenced_update(limit_rows(), caller=ALICE, session_id=session, fence=first.fence, reason="stale")
    assert (refused.value.code, refused.value.status) == ("STALE_FENCE", 409)
    assert limit_rows().get().reason == "second"
    row = audit_rows("fence")[0]
    assert (row.decision, row.object_id, row.input_summary) == (
        "stale_rejected", session, {"fence": first.fence, "newest": second.fence},
    )  # fmt: skip


def limit_rows() -> Any:
    return AdmissionLimit.objects.filter(kind="ip")


def test_an_insert_is_fenced_too_and_a_number_never_leased_writes_nothing() -> None:
    session = new_session()
    Fence.objects.create(tenant="default", session_id=session, ceiling=100, issued=7)
    for number in (1, 6, 8, 50, 10**12):  # 8 and 50 are leased to Redis, and no run was admitted with them
        with pytest.raises(DomainError, match="STALE_FENCE"), fenced(caller=ALICE, session_id=session, fence=number):
            raise AssertionError("the block must not run")
    for nonsense in (None, "7", 7.0, True, 0, -1, 2**70):
        with (
            pytest.raises(DomainError, match="INVALID_REQUEST"),
            fenced(
                caller=ALICE,
                session_id=session,
                fence=nonsense,  # type: ignore[arg-type]
            ),
        ):
            raise AssertionError("the block must not run")
    with fenced(caller=ALICE, session_id=session, fence=7):
        AuditLog.objects.count()
    assert Fence.objects.get().seen == 7


@pytest.mark.mariadb
def test_of_two_holders_that_write_at_once_the_later_wins() -> None:
    """A run is not told that it is admitted while the holder before is in the middle of a write."""
    session = new_session()
    first = run_of(session)
    release(ALICE, first)
    inside, go_on = threading.Event(), threading.Event()
    outcome: list[str] = []

    def work(n: int) -> None:
        if n == 0:
            with fenced(caller=ALICE, session_id=session, fence=first.fence):
                inside.set()
                go_on.wait(5)
                outcome.append("earlier wrote")
            return
        inside.wait(5)
        threading.Timer(0.2, go_on.set).start()
        second = run_of(session, "run-2")
        outcome.append("admitted")
        with fenced(caller=ALICE, session_id=session, fence=second.fence):
            outcome.append("later wrote")
        try:
            with fenced(caller=ALICE, session_id=session, fence=first.fence):
                outcome.append("stale wrote")
        except DomainError as refused:
            outcome.append(refused.code)

    together(2, work)
    assert outcome == ["earlier wrote", "admitted", "later wrote", "STALE_FENCE"]


def test_a_session_of_another_is_no_place_for_a_run() -> None:
    from memory.sessions.owners import check_writable
    from tests.memory.sessions.helpers import make_session

    register_session_check(check_writable)
    session = make_session()
    assert run_of(session).fence == 1
    with pytest.raises(DomainError, match="NOT_OWNER"):
        admit(BOB, run="run-2", session=session)
    with pytest.raises(DomainError, match="SESSION_NOT_FOUND"):
        admit(BOB, run="run-2", session=new_session())
