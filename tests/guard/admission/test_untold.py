"""What Redis was not told: settled while it hung, by a process that is gone; killed between the commit and the telling;
overlapping a recovery; admitted by an answer that nobody heard. Never overspent, and nothing leaked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.db.models import Sum

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from guard.admission import budget, ending, keys, later, local, periods, policy, wires
from guard.admission.blocks import block_actor, lift_block, lift_pause, pause_agent
from guard.admission.forgetting import forget_everything
from guard.admission.models import AdmissionLimit, BudgetLedger, BudgetMonth
from guard.admission.services import admit, release, settle
from guard.admission.sessions import register_session_check
from tests.guard.admission.helpers import ALICE, BOB, admitted, empty_redis, make_wide, new_session, together
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[3]


@contextmanager
def hung(server: RedisServer) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()
        wires.client().breaker.reset()


def spent() -> Decimal:
    return BudgetLedger.objects.aggregate(sum=Sum("amount"))["sum"] or Decimal(0)


def budget_of(day: str) -> dict[str, str]:
    return base_redis.state().hgetall(keys.BUDGET("default", month=day[:7]))


def slots() -> int:
    return base_redis.state().zcard(keys.TENANT_ACTIVE("default"))


PROGRAM = """
import os, sys, django
django.setup()
from django.conf import settings
settings.REDIS_KEY_PREFIX = sys.argv[1]
from guard.access.services import Caller
from guard.admission import ending
from guard.admission.services import admit, settle
alice = Caller("default", "customer", "alice")
"""


def another_process(code: str, settings: Any) -> subprocess.Popen[str]:
    """Of this host: with this test's servers and DATA_DIR."""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "REDIS_URL": settings.REDIS_URL}
    if connection.vendor == "mysql":
        env["DATABASE_URL"] = f"{os.environ['DATABASE_URL'].rsplit('/', 1)[0]}/{connection.settings_dict['NAME']}"
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + code, settings.REDIS_KEY_PREFIX],
        cwd=PROJECT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def output_of(process: subprocess.Popen[str]) -> str:
    return process.communicate("", timeout=60)[0].strip()


# --- money ------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # a process of its own
@pytest.mark.mariadb
def test_what_another_process_settled_while_redis_hung_counts_at_once(
    own_redis_server: RedisServer, settings: Any
) -> None:
    make_wide(budget="10")
    day = admitted(estimate="0.1", slot=False).day
    with hung(own_redis_server):
        code = 'verdict = admit(alice, estimate="2.5"); settle(alice, verdict, actual="2.5"); print(verdict.local)'
        assert output_of(another_process(code, settings)) == "True"
    assert budget_of(day)["spent"] == "0"
    assert BudgetMonth.objects.get().untold_at is not None
    assert admit(BOB, estimate="9").refused_by == "budget"
    assert admitted(BOB, estimate="7.4").lefts[4] == 0
    assert (budget_of(day)["spent"], BudgetMonth.objects.get().untold_at) == ("2500000", None)


@pytest.mark.parametrize("who", ["its copy of the limits", "the sweep"])
def test_a_process_elsewhere_hears_of_it(own_redis_server: RedisServer, who: str) -> None:
    make_wide(budget="10")
    day = admitted(estimate="0.1", slot=False).day
    with hung(own_redis_server):
        settle(ALICE, admitted(estimate="2.5"), actual="2.5")
    forget_everything()  # of another host: it knows neither the settlement nor this host's mark
    if who == "the sweep":
        assert budget.tell_untold() == 1
        assert budget_of(day)["spent"] == "2500000"
        assert budget.tell_untold() == 0
    assert admit(BOB, estimate="7.5").refused_by == "budget"


@pytest.mark.slow  # a process of its own, killed
@pytest.mark.mariadb
def test_killed_between_the_commit_and_the_telling(settings: Any) -> None:
    make_wide(budget="10")
    code = """
ending._tell_redis = lambda *a, **k: os.kill(os.getpid(), 9)
settle(alice, admit(alice, estimate="1"), actual="6")
"""
    process = another_process(code, settings)
    output_of(process)
    assert (process.returncode, spent()) == (-signal.SIGKILL, 6)
    assert admit(BOB, estimate="9").refused_by == "budget"
    settle(BOB, admitted(BOB, estimate="4"), actual="4")
    assert spent() == 10


def test_a_settlement_that_overlaps_the_recovery_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wide(budget="10")
    slow = admitted(estimate="4")
    settle(ALICE, admitted(estimate="1"), actual="1")
    empty_redis()
    reached, go_on = threading.Event(), threading.Event()
    install = budget._install

    def held_up(*args: Any, **more: Any) -> None:
        reached.set()
        go_on.wait(5)
        install(*args, **more)

    monkeypatch.setattr(budget, "_install", held_up)

    def read() -> None:
        admit(BOB, action="look", estimate="0.1")
        connections.close_all()

    reader = threading.Thread(target=read)
    reader.start()
    assert reached.wait(5)
    settle(ALICE, slow, actual="4")  # number 2, while the reader holds the sum of number 1
    go_on.set()
    reader.join()
    assert budget_of(slow.day)["spent"] == "5000000"
    assert admit(BOB, estimate="8").refused_by == "budget"


def test_settling_never_raises_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    from redis.exceptions import ResponseError

    for error in (RedisUnavailable("away"), ResponseError("ERR something else")):

        def fail(*args: Any, error: Exception = error, **more: Any) -> Any:
            raise error

        monkeypatch.setattr(ending, "_tell_redis", fail)
        assert settle(ALICE, verdict, actual="3").amount == 3
    monkeypatch.undo()
    assert admit(BOB, estimate="7.1").refused_by == "budget"


def test_a_settlement_refused_for_its_amount_reserves_nothing() -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    settle(ALICE, verdict, actual="1")
    with pytest.raises(DomainError, match="ALREADY_SETTLED"):
        settle(ALICE, verdict, actual="8")
    assert budget_of(verdict.day)["held"] == "0"
    assert admitted(BOB, estimate="9").lefts[4] == 0


# --- answers that nobody heard ----------------------------------------------------------------------------------


def test_what_redis_does_when_nobody_waits_any_more_takes_nothing(own_redis_server: RedisServer) -> None:
    make_wide(tenant_running=1, budget="10")
    release(ALICE, admitted())
    with hung(own_redis_server):
        verdict = admitted(estimate="2", lease=3600)
        assert (verdict.local, verdict.asked) == (True, True)
    assert (slots(), budget_of(verdict.day)["held"]) == (0, "0")
    assert release(ALICE, verdict)
    assert admitted(estimate="9").lefts[4] == 1_000_000


@pytest.mark.parametrize("end", ["release", "settle"])
@pytest.mark.parametrize("when", ["back", "away"])
def test_what_redis_took_and_nobody_heard_ends_with_the_call(
    own_redis_server: RedisServer, end: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wide(tenant_running=5, budget="10")
    release(ALICE, admitted())
    prepared = type(admitted(slot=False).plan.call)
    answer = prepared.__call__

    def lost(self: Any, *args: Any) -> Any:
        answer(self, *args)
        raise RedisUnavailable("the answer was lost") from OSError()

    monkeypatch.setattr(prepared, "__call__", lost)
    verdict = admitted(estimate="2", lease=3600)
    monkeypatch.undo()
    assert (verdict.local, slots(), budget_of(verdict.day)["held"]) == (True, 1, "2000000")
    monkeypatch.setattr(later, "RETRY_SECONDS", 3600.0)

    def work() -> None:
        if end == "release":
            assert release(ALICE, verdict)
        else:
            settle(ALICE, verdict, actual="1")

    if when == "back":
        work()
    else:
        with hung(own_redis_server):
            work()
        assert later.tell_now()
    assert (slots(), budget_of(verdict.day)["held"]) == (0, "0")
    assert admit(BOB, estimate="10").refused_by == ("" if end == "release" else "budget")


def test_a_refusal_after_a_lost_answer_leaves_nothing_either(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wide(user_running=1)
    prepared = type(admitted(slot=False).plan.call)
    answer = prepared.__call__

    def lost(self: Any, *args: Any) -> Any:
        answer(self, *args)
        raise RedisUnavailable("the answer was lost") from OSError()

    def full(*args: Any, **more: Any) -> Any:
        return local.Local("user_running", 1, (), 5.0)

    monkeypatch.setattr(prepared, "__call__", lost)
    monkeypatch.setattr(local, "admit_locally", full)
    assert admit(ALICE).refused_by == "user_running"
    monkeypatch.undo()
    later.tell_now()
    assert slots() == 0


def test_a_run_that_cannot_be_told_to_the_database_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    from guard.admission import fences
    from memory.sessions.owners import check_writable

    def fail(*args: Any) -> bool:
        raise OperationalError(2006, "MySQL server has gone away")

    make_wide(quota=5)
    register_session_check(lambda caller, session_id: None)
    try:
        session = new_session()
        monkeypatch.setattr(fences, "note_issued", fail)
        with pytest.raises(DomainError, match="DATABASE_UNAVAILABLE"):
            admit(ALICE, run="run-1", session=session)
        monkeypatch.undo()
        assert slots() == 0
        verdict = admitted(run="run-2", session=session)
        assert (verdict.fence, verdict.lefts[3]) == (2, 4)
    finally:
        register_session_check(check_writable)


# --- one host, several processes --------------------------------------------------------------------------------


@pytest.mark.slow  # processes of their own, forked from one that has started Django
@pytest.mark.mariadb
@pytest.mark.parametrize(("limit", "value"), [("quota", 1), ("budget", 3), ("user_running", 2), ("rate", 5)])
def test_the_processes_of_a_host_admit_a_limit_once(
    own_redis_server: RedisServer, settings: Any, limit: str, value: int
) -> None:
    make_wide(**{limit: value})
    own_redis_server.stop()
    code = """
import multiprocessing
fork = multiprocessing.get_context("fork")
together = fork.Barrier(4)

def admit_ten(n):
    together.wait(30)  # so each process takes one part, at the same moment
    verdicts = [admit(alice, estimate="1") for _ in range(10)]
    for verdict in verdicts:
        if verdict.allowed:
            settle(alice, verdict, actual="1", keep=True)
    return sum(verdict.allowed for verdict in verdicts)

with fork.Pool(4) as pool:
    print(sum(pool.map(admit_ten, range(4), chunksize=1)))
"""
    assert output_of(another_process(code, settings)) == str(value)
    assert BudgetLedger.objects.count() == value


def test_hosts_share_a_limit_to_the_last_call(settings: Any) -> None:
    settings.ADMISSION_HOSTS = 4
    for limit in (0, 1, 2, 3, 4, 7, 1000):
        shares = []
        for settings.ADMISSION_HOST_NUMBER in range(4):
            shares.append(local.share(limit))
        assert sum(shares) == limit


def test_what_cannot_be_counted_is_closed(
    own_redis_server: RedisServer, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wide()
    admitted()
    own_redis_server.stop()
    (tmp_path / "admission").write_text("a file where a folder should be")
    settings.DATA_DIR = tmp_path
    with pytest.raises(DomainError, match="REDIS_UNAVAILABLE"):
        admit(ALICE)


# --- moments and waits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1])
def test_a_refused_budget_says_its_months_end(at: int, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """at: whether the present month is the first or the second of the two that are sent along."""
    now = int(time.time() * 1000)
    ends = periods.months_around(now)
    this = 0 if now < ends.bounds[1] else 1
    if this != at:  # the same month as the other one of a pair
        starts, names = periods._months(*map(int, ends.names[this].split("-")), settings.BUSINESS_TIME_ZONE)
        first = 1 if at == 0 else 0
        pair = periods.Pair(
            (names[first], names[first + 1]), (starts[first], starts[first + 1], starts[first + 2]), now + 10**9
        )
        monkeypatch.setattr(periods, "months_around", lambda now_ms: pair)
        ends = pair
    forget_everything()
    make_wide(budget="1")
    settle(ALICE, admitted(estimate="1"), actual="1")
    verdict = admit(ALICE, estimate="1")
    assert verdict.refused_by == "budget"
    end = ends.bounds[at + 1]
    assert verdict.retry_after == pytest.approx((end - verdict.now_ms) / 1000, abs=0.002)
    assert verdict.error().extra["retry_after"] == verdict.seconds_to_wait
    client, name = base_redis.state(), keys.BUDGET("default", month=verdict.day[:7])
    kept = end + 7 * 86400 * 1000
    client.persist(name)
    admit(ALICE, estimate="1")
    assert client.pttl(name) == pytest.approx(kept - time.time() * 1000, abs=5000)


@pytest.mark.parametrize("where", ["redis", "here"])
def test_the_first_call_says_when_the_minute_is_over(own_redis_server: RedisServer, where: str) -> None:
    make_wide(rate=3)
    policy.policy()
    if where == "here":
        own_redis_server.stop()
    (rate,) = (quota for quota in admitted().quotas if quota.name == "rate")
    assert (rate.left, rate.reset) == (2, 60)


def test_a_database_that_hangs_holds_up_one_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wide()
    known = policy.policy()
    asked, go_on = threading.Event(), threading.Event()
    looks: list[int] = []

    def hang(old: Any, began: float) -> Any:
        from django.db import OperationalError

        looks.append(1)
        asked.set()
        go_on.wait(5)
        raise OperationalError(2013, "Lost connection")

    monkeypatch.setattr(policy, "_read", hang)
    monkeypatch.setattr(policy, "FRESH_SECONDS", -1.0)
    first = threading.Thread(target=policy.policy)
    first.start()
    assert asked.wait(5)
    began = time.monotonic()
    assert all(copy is known for copy in together(16, lambda n: policy.policy()))
    assert time.monotonic() - began < 1
    monkeypatch.setattr(policy, "FRESH_SECONDS", 4.0)
    go_on.set()
    first.join()
    # the look that failed counts from its end: the next is in FRESH_SECONDS
    policy.policy()
    assert looks == [1]


def test_officers_wait_a_tenth_of_a_second_for_a_hung_redis(own_redis_server: RedisServer) -> None:
    make_wide()
    block_actor(tenant="default", actor_id="alice", code="X", by="officer")
    with hung(own_redis_server):
        for work in (
            lambda: block_actor(tenant="default", actor_id="bob", code="X", by="officer"),
            lambda: lift_block(tenant="default", actor_id="alice", by="officer"),
            lambda: pause_agent(tenant="default", agent="advisor", reason="wrong", by="officer"),
            lambda: lift_pause(tenant="default", agent="advisor", by="officer"),
        ):
            wires.client().breaker.reset()
            began = time.monotonic()
            work()
            assert time.monotonic() - began < 0.5  # 2 s before; the rest is the database's
    policy.forget_policy()
    assert admit(ALICE).allowed
    assert admit(BOB).refused_by == "block"
    assert AdmissionLimit.objects.exists()
