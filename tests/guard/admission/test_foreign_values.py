"""Somebody has written under admission's names: another type, or what is no number. No call fails for it, what the key
stood for comes from MySQL or begins anew, and the log names no customer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.admission import keys
from guard.admission.blocks import block_actor, lift_block, lift_pause, pause_agent, sweep
from guard.admission.budget import adjust_budget
from guard.admission.models import Fence
from guard.admission.policy import policy
from guard.admission.services import admit, release, renew, settle
from guard.admission.sessions import register_session_check
from tests.guard.admission.helpers import ALICE, BOB, admitted, audit_rows, make_wide, new_session

pytestmark = pytest.mark.django_db(transaction=True)

ADDRESS = "192.0.2.7"
NARROW: dict[str, Any] = {
    "rate": 50, "hourly": 50, "ip": 50, "quota": 50, "budget": "50", "tenant_running": 50, "user_running": 50,
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_sessions() -> Iterator[None]:
    from memory.sessions.owners import check_writable

    register_session_check(lambda caller, session_id: None)
    yield
    register_session_check(check_writable)


def as_list(name: str) -> None:
    base_redis.state().delete(name)
    base_redis.state().rpush(name, "x")


def as_hash(name: str) -> None:
    base_redis.state().delete(name)
    base_redis.state().hset(name, "x", "y")


def as_text(text: str) -> Callable[[str], None]:
    return lambda name: base_redis.state().set(name, text) and None


def as_field(field: str, text: str) -> Callable[[str], None]:
    return lambda name: base_redis.state().hset(name, field, text) and None


def name_like(key: Any) -> str:
    """The one key of this kind that is there."""
    found = [
        name
        for name in base_redis.state().scan_iter(f"{base_redis.settings.REDIS_KEY_PREFIX}:*", count=1000)
        if key.matches(name.split(":", 1)[1])
    ]
    assert len(found) == 1, found
    return found[0]


def lefts() -> dict[str, int]:
    verdict = admitted(estimate="1", ip=ADDRESS)
    return {quota.name: quota.limit - quota.left for quota in verdict.quotas}


COUNTERS: list[tuple[Any, str, Callable[[str], None]]] = [
    (keys.RATE, "rate", as_list),
    (keys.RATE, "rate", as_text("seven")),
    (keys.HOURLY, "hourly", as_list),
    *((keys.HOURLY, "hourly", as_text(text)) for text in ("many", "nan", "-5", "")),
    (keys.ADDRESS, "ip", as_hash),
    (keys.ADDRESS, "ip", as_text("many")),
    (keys.TENANT_ACTIVE, "tenant_running", as_list),
    (keys.USER_ACTIVE, "user_running", as_text("5")),
]


@pytest.mark.parametrize(("key", "limit", "spoil"), COUNTERS)
def test_a_counter_begins_anew(key: Any, limit: str, spoil: Callable[[str], None], caplog: Any) -> None:
    make_wide(**NARROW)
    before = lefts()
    spoil(name_like(key))
    with caplog.at_level(logging.WARNING):
        after = lefts()
    # of the others nothing was lost, and nothing was taken twice
    assert after == {name: 1 if name == limit else value * 2 for name, value in before.items()}
    assert base_redis.state().ttl(name_like(key)) > 0
    assert key.pattern in caplog.text
    assert "alice" not in caplog.text
    assert lefts()["rate"] == after["rate"] + 1


@pytest.mark.parametrize("spoil", [as_list, as_text("5"), as_field("used", "many"), as_field("used", "-3")])
def test_the_days_calls_are_the_ledgers(spoil: Callable[[str], None], caplog: Any) -> None:
    make_wide(**NARROW)
    for _ in range(3):
        settle(ALICE, admitted(), actual="0.5")
    spoil(name_like(keys.QUOTA))
    with caplog.at_level(logging.WARNING, logger="guard.admission.mending"):
        assert lefts()["quota"] == 4
    assert "guard:quota:{actor_id}:{date}" in caplog.text
    assert "alice" not in caplog.text


@pytest.mark.parametrize(
    ("spoil", "reserved"),
    [
        (as_list, 0),
        (as_text("5"), 0),
        *((as_field(field, text), 2) for field in ("spent", "held", "next", "lost") for text in ("many", "nan", "inf")),
        *((as_field("number", text), 2) for text in ("many", "nan", "-5", "9" * 20)),
        *((as_field(field, "1.5"), 2) for field in ("spent", "held")),
        (as_field("held", "-1000000000000"), 2),
        *((as_field("r:x", text), 2) for text in ("junk", "5 junk")),
    ],
)
def test_the_months_spend_is_the_ledgers_to_the_unit(spoil: Callable[[str], None], reserved: int) -> None:
    make_wide(**NARROW)
    settle(ALICE, admitted(), actual="3.141593")
    admitted(estimate=str(reserved or 1))
    spoil(name_like(keys.BUDGET))
    settle(ALICE, admitted(), actual="1")
    assert lefts()["budget"] == 4_141_593 + (reserved + 1) * 1_000_000
    assert base_redis.state().ttl(name_like(keys.BUDGET)) > 0


@pytest.mark.parametrize("spoil", [as_list, as_hash])
def test_a_block_and_a_pause_stay_closed_and_can_be_lifted(spoil: Callable[[str], None], caplog: Any) -> None:
    make_wide()
    block, pause = keys.BLOCK("default", actor_id="alice"), keys.PAUSE("default", agent="customer")
    block_actor(tenant="default", actor_id="alice", code="INJECTION", by="officer")
    policy()
    spoil(block)
    with caplog.at_level(logging.WARNING, logger="guard.admission.mending"):
        assert admit(ALICE).refused_by == "block"
    assert base_redis.state().type(block) == "string"
    assert "guard:block:{actor_id}" in caplog.text
    assert "alice" not in caplog.text
    spoil(block)
    assert lift_block(tenant="default", actor_id="alice", by="officer")
    assert admit(ALICE).allowed
    spoil(block)  # with none in the table: nobody is blocked
    assert admit(ALICE).allowed
    pause_agent(tenant="default", agent="customer", reason="wrong", by="officer")
    spoil(pause)
    assert admit(BOB).refused_by == "pause"
    spoil(pause)
    sweep()
    assert lift_pause(tenant="default", agent="customer", by="officer")
    assert admit(BOB).allowed


def test_the_count_of_refusals_begins_anew() -> None:
    make_wide(rate=0)
    as_list(keys.REFUSED("default", actor_id="alice"))
    assert admit(ALICE).refused_by == "rate"
    base_redis.state().hset(keys.REFUSED("default", actor_id="alice"), mapping={"rate": "x", "rate:n": "y"})
    assert admit(ALICE).refused_by == "rate"
    assert len(audit_rows("admission")) == 2


@pytest.mark.parametrize("key", [keys.TENANT_ACTIVE, keys.USER_ACTIVE, keys.BUDGET])
def test_what_runs_can_end_and_is_told_of_its_lost_slot(key: Any) -> None:
    make_wide(**NARROW)
    first, second, third = (admitted(estimate="1") for _ in range(3))
    as_list(name_like(key))
    if key is keys.BUDGET:
        assert renew(ALICE, first) == 60
    else:
        with pytest.raises(DomainError, match="LEASE_LOST"):
            renew(ALICE, first)
    for verdict in (first, second):
        as_list(keys.BUDGET("default", month=verdict.day[:7]))
        assert settle(ALICE, verdict, actual="1.5").amount == 1.5
    as_text("x")(keys.TENANT_ACTIVE("default"))
    as_text("x")(keys.QUOTA("default", actor_id="alice", date=third.day))
    release(ALICE, third, unused=True)
    assert lefts()["budget"] == 4_000_000


@pytest.mark.parametrize("last", ["0", "-5", "1.5", "nan", "1"])
def test_a_fence_set_back_before_the_first_number_was_given(last: str) -> None:
    make_wide()
    session = new_session()
    first = admitted(run="run-1", session=session)
    release(ALICE, first)
    client = base_redis.state()
    # as after a new lease: no number of it was given yet
    client.hset(keys.FENCE_LEASED("default", session_id=session), mapping={"first": 101, "last": 200})
    client.hdel(keys.FENCE_LEASED("default", session_id=session), "given")
    Fence.objects.update(ceiling=200)
    client.set(keys.FENCE("default", session_id=session), last)
    assert admitted(run="run-2", session=session).fence >= 101


def test_a_slot_from_beyond_any_lease_is_none_of_ours() -> None:
    make_wide(tenant_running=1, user_running=1)
    name = keys.TENANT_ACTIVE("default")
    base_redis.state().zadd(name, {"x": 1e300})
    base_redis.state().zadd(keys.USER_ACTIVE("default", user_id="alice"), {"x": float("inf")})
    assert admit(ALICE).allowed
    assert admit(ALICE).refused_by == "tenant_running"


def test_a_call_that_fails_moves_no_counter() -> None:
    make_wide(**NARROW)
    lefts()
    as_list(keys.REFUSED("default", actor_id="alice"))
    make_wide(**{**NARROW, "budget": "1.5"})
    client = base_redis.state()
    kinds = (keys.QUOTA, keys.BUDGET, keys.ADDRESS, keys.HOURLY, keys.RATE)
    before = [client.dump(name_like(key)) for key in kinds]
    assert admit(ALICE, estimate="1", ip=ADDRESS).refused_by == "budget"
    assert [client.dump(name_like(key)) for key in kinds] == before


def test_a_correction_meets_a_spoilt_month() -> None:
    make_wide(**NARROW)
    verdict = admitted(estimate="1")
    as_list(keys.BUDGET("default", month=verdict.day[:7]))
    adjust_budget(tenant="default", amount=Decimal("2"), reason="late bill", by="officer", reference="r1")
    assert lefts()["budget"] == 3_000_000


OF_RUN: list[tuple[Any, Callable[[str], None]]] = [
    *((key, spoil) for key in (keys.FENCE, keys.FENCE_LEASED, keys.RUN, keys.RUN_OF_SESSION) for spoil in (as_list,)),
    *((keys.FENCE, as_text(text)) for text in ("many", "nan", "-7", "0", "9000000000000000")),
    *((keys.FENCE_LEASED, as_field(field, "many")) for field in ("first", "last", "given", "server")),
    *((keys.FENCE_LEASED, as_field(field, "nan")) for field in ("first", "last", "given")),
    (keys.FENCE, as_text("1.5")),
    (keys.RUN_OF_SESSION, as_text("")),
]


@pytest.mark.parametrize(("key", "spoil"), OF_RUN)
def test_fencing_numbers_only_grow(key: Any, spoil: Callable[[str], None]) -> None:
    make_wide()
    session = new_session()
    first = admitted(run="run-1", session=session)
    assert release(ALICE, first)
    second = admitted(run="run-1", session=session, lease=0.3)
    spoil(name_like(key))
    if key in (keys.RUN, keys.RUN_OF_SESSION):
        with pytest.raises(DomainError, match="LEASE_LOST"):
            renew(ALICE, second)
    time.sleep(0.31)
    third = admitted(run="run-3", session=session)
    assert third.fence > second.fence > first.fence
    assert third.fence <= Fence.objects.get().ceiling
    renew(ALICE, third)
    spoil(name_like(key))
    settle(ALICE, third, actual="1")
    assert admitted(run="run-4", session=session).fence > third.fence
