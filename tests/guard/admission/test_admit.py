"""One call decides everything: what it takes, what it says, what it costs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.admission import keys, limits, periods
from guard.admission.policy import forget_policy
from guard.admission.services import admit, release, renew
from tests.counting import counted_round_trips
from tests.guard.admission.helpers import (
    ALICE,
    BOB,
    admitted,
    audit_rows,
    make_limit,
    make_wide,
    together,
)

pytestmark = pytest.mark.django_db(transaction=True)


def hourly_key(action: str = "chat") -> str:
    return keys.HOURLY("default", actor_id="alice", action=action)


def test_everything_at_once_in_one_round_trip(django_assert_num_queries: Any) -> None:
    make_wide(budget="10", rate=60)
    admitted(estimate="0.10", ip="192.0.2.7")
    with counted_round_trips() as calls, django_assert_num_queries(0):
        verdict = admit(ALICE, estimate="0.10", ip="192.0.2.7")
    assert len(calls) == 1
    assert verdict.allowed
    assert {quota.name: quota.left for quota in verdict.quotas} == {"rate": 58, "budget": 9_800_000}


def test_the_limits_without_rows_are_those_of_the_settings(settings: Any) -> None:
    verdict = admitted(ip="192.0.2.7")
    left = {quota.name: quota.limit - quota.left for quota in verdict.quotas}
    assert left == {"ip": 1, "rate": 1, "hourly": 1, "quota": 1, "tenant_running": 1, "user_running": 1}


LIMITED = ["rate", "hourly", "ip", "quota", "budget", "tenant_running", "user_running"]


@pytest.mark.parametrize("kind", LIMITED)
def test_of_sixty_four_at_once_exactly_as_many_as_allowed(kind: str) -> None:
    make_wide(**{kind: "0.37" if kind == "budget" else 37})

    def work(n: int) -> list[str]:
        verdicts = [admit(ALICE, ip="2001:db8::1", estimate="0.01") for _ in range(4)]
        return ["" if verdict.allowed else verdict.refused_by for verdict in verdicts]

    answers = [answer for some in together(64, work) for answer in some]
    assert answers.count("") == 37
    assert set(answers) == {"", kind}


def test_a_refusal_takes_nothing() -> None:
    make_wide(rate=1)
    admitted()
    before = snapshot()
    assert admit(ALICE, estimate="1", ip="192.0.2.7").refused_by == "rate"
    assert snapshot() == before


def snapshot() -> dict[str, Any]:
    client, found = base_redis.state(), {}
    from config.base.keys import prefixed

    for name in client.scan_iter(prefixed("*"), count=1000):
        if ":refused:" not in name:
            found[name] = client.dump(name) if client.type(name) != "zset" else client.zrange(name, 0, -1)
    return found


def test_it_names_the_limit_what_remains_and_when_to_come_again() -> None:
    make_wide(rate=2, hourly=100)
    admitted()
    admitted()
    verdict = admit(ALICE)
    assert (verdict.refused_by, verdict.limit, verdict.remaining) == ("rate", 2, 0)
    assert 59 < verdict.retry_after <= 60.01
    with pytest.raises(DomainError) as refused:
        verdict.or_raise()
    assert (refused.value.code, refused.value.status) == ("RATE_LIMITED", 429)
    assert admit(BOB).allowed
    make_limit("hourly", 2)
    forget_policy()
    make_limit("rate", None)
    verdict = admit(ALICE)
    assert verdict.refused_by == "hourly"
    assert 3590 < verdict.retry_after <= 3600


def test_most_specific_limit_wins() -> None:
    make_wide(rate=5)
    make_limit("rate", 4, agent="customer")
    make_limit("rate", 1, actor_id="alice")
    admitted()
    assert admit(ALICE).limit == 1
    assert [admit(BOB).allowed for _ in range(5)] == [True] * 4 + [False]
    found = limits.AdmissionLimit.objects.get(kind="rate", actor_id="alice")
    limits.retire_limit(limit_id=found.pk, tenant="default", by="officer")
    assert admit(ALICE).allowed
    assert [row.decision for row in audit_rows("limit_change")][-1] == "retired"


def test_windows_end(settings: Any) -> None:
    settings.ADMISSION_RATE_WINDOW_MS = 200
    make_wide(rate=3)
    assert [admit(ALICE).allowed for _ in range(4)] == [True, True, True, False]
    time.sleep(admit(ALICE).retry_after + 0.005)
    assert admit(ALICE).allowed


@pytest.mark.parametrize("limit", [1, 5, 128, 129, 400])
def test_no_span_holds_more_than_the_limit(settings: Any, limit: int) -> None:
    """Also with bursts, at a limit of one, and where the ring is too long to be written whole."""
    settings.ADMISSION_RATE_WINDOW_MS = span = 150
    make_wide(rate=limit)
    admit(BOB)
    times: list[int] = []
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        verdict = admit(ALICE, slot=False)
        if verdict.allowed:
            times.append(verdict.now_ms)
    assert len(times) > limit
    for first, last in zip(times, times[limit:], strict=False):
        assert last - first >= span  # of whole milliseconds: more than the span has passed
    # and it is not stricter than it says: each span but the last is used up
    assert len(times) >= limit * 5 or limit > 5


def test_a_counter_without_an_end_gets_one() -> None:
    """As after a crash between INCR and EXPIRE."""
    make_wide(hourly=5, rate=5, quota=5, tenant_running=5, user_running=5, budget=5)
    verdict = admitted(ip="192.0.2.7")
    client = base_redis.state()
    names = [name for name in client.scan_iter(f"{base_redis.settings.REDIS_KEY_PREFIX}:*") if ":refused:" not in name]
    assert len(names) == 7
    for name in names:
        client.persist(name)
    admitted(ip="192.0.2.7", estimate="0.1")
    renew(ALICE, verdict)
    assert {name for name in names if client.ttl(name) == -1} == set()
    for name in names:
        client.persist(name)
    for _ in range(8):
        last = admit(ALICE, ip="192.0.2.7")
    assert not last.allowed
    release(ALICE, verdict)
    refusing = {"hourly": hourly_key(), "rate": keys.RATE("default", actor_id="alice", agent="customer")}
    assert client.ttl(refusing[last.refused_by]) > 0


def test_hits_do_not_push_the_end_of_a_fixed_window() -> None:
    make_wide(hourly=100, quota=100)
    admitted()
    client = base_redis.state()
    client.pexpire(hourly_key(), 1500)
    day = periods.days_around(periods.clock.now_ms())
    quota = [
        name for name in (keys.QUOTA("default", actor_id="alice", date=d) for d in day.names) if client.exists(name)
    ]
    end = client.pexpiretime(quota[0]) if hasattr(client, "pexpiretime") else None
    for _ in range(3):
        admitted()
    assert client.pttl(hourly_key()) <= 1500
    assert end is None or client.pexpiretime(quota[0]) == end


@pytest.mark.parametrize("minutes", [-2, 2, 3 * 24 * 60, -40 * 24 * 60])
def test_a_clock_that_is_wrong_changes_nothing(minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wide(ip=2, quota=5)
    real = time.time
    monkeypatch.setattr(periods.time, "time", lambda: real() + minutes * 60)
    first = admitted(ip="192.0.2.7")
    with counted_round_trips() as calls:
        second = admitted(ip="192.0.2.7")
    assert len(calls) == 1
    assert first.day == second.day == periods.day_at(periods.days_around(int(real() * 1000)), int(real() * 1000))
    assert admit(ALICE, ip="192.0.2.7").refused_by == "ip"


def test_first_requests_of_an_unknown_actor_at_once() -> None:
    make_wide(quota=100, budget="1")
    answers = together(32, lambda n: admit(BOB, estimate="0.01").allowed)
    assert answers == [True] * 32
    assert admitted(BOB, estimate="0.01").lefts[3] == 67


def test_refusals_are_told_once_a_minute_with_their_number() -> None:
    make_wide(rate=1, hourly=100)
    admitted()
    for _ in range(20):
        admit(ALICE)
    rows = audit_rows("admission")
    # a minute may have ended in between
    assert 1 <= len(rows) <= 2
    assert (rows[0].decision, rows[0].code, rows[0].input_summary["refusals"]) == ("throttled", "RATE_LIMITED", 1)
    key = keys.REFUSED("default", actor_id="alice")
    assert base_redis.state().hset(key, "rate", 1) == 0
    admit(ALICE)
    assert sum(row.input_summary["refusals"] for row in audit_rows("admission")) == 21


def test_slots_end_with_their_lease_and_are_given_back() -> None:
    make_wide(user_running=2, tenant_running=3)
    first = admitted()
    admitted(lease=0.2)
    verdict = admit(ALICE)
    assert (verdict.refused_by, verdict.error().code) == ("user_running", "TOO_MANY_RUNNING")
    assert 0 < verdict.retry_after <= 0.21
    time.sleep(0.21)
    admitted(lease=0.2)
    assert release(ALICE, first)
    assert not release(ALICE, first)
    admitted()
    assert admit(BOB, action="look", slot=False).allowed


@pytest.mark.parametrize(
    "wrong",
    [
        {"estimate": 0.1},
        {"estimate": "-1"},
        {"estimate": "0.0000001"},
        {"estimate": "NaN"},
        {"estimate": str(2**53)},
        {"estimate": "9007199254.740992"},
        {"ip": "nowhere"},
        {"lease": 0},
        {"lease": 3601},
        {"action": "a:b"},
        {"run": "run-1"},
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_taken(wrong: dict[str, Any]) -> None:
    with pytest.raises(DomainError) as refused:
        admit(ALICE, **wrong)
    assert refused.value.status == 422


def test_the_largest_amount_is_exact() -> None:
    make_wide(budget="9007199254.740991")
    verdict = admitted(estimate="9007199254.740990")
    assert verdict.lefts[4] == 1
    assert admit(ALICE, estimate="0.000002").refused_by == "budget"
    assert admitted(estimate="0.000001").lefts[4] == 0
