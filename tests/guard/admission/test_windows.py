"""Whatever comes when: of no actor more than the limit within any span, by a model that knows nothing of rings; and of
many at once exactly as many as the limit, also where a run takes its session's fence."""

from __future__ import annotations

import copy
import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.base import redis as base_redis
from config.base.keys import prefixed
from guard.admission import keys, periods, plans, services
from guard.admission.models import Fence
from guard.admission.policy import policy
from guard.admission.services import admit, release
from guard.admission.sessions import register_session_check
from tests.guard.admission.helpers import ALICE, BOB, admitted, make_wide, new_session, together

pytestmark = pytest.mark.django_db(transaction=True)

SPAN_US = 60_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """The server's time is what the test says, in us: the script's question for it is answered from a key."""
    name = prefixed("test:now")
    asked, told = "call('TIME')", f"call('HMGET', '{name}', 's', 'us')"
    script = copy.copy(plans.ADMIT)
    assert script.source.count(asked) == 1
    script.source = script.source.replace(asked, told)
    script.sha = hashlib.sha1(script.source.encode()).hexdigest()
    for module in (plans, services):
        monkeypatch.setattr(module, "ADMIT", script)
    plans.forget_plans()
    yield lambda us: base_redis.state().hset(name, mapping={"s": us // 1_000_000, "us": us % 1_000_000}) and None
    plans.forget_plans()
    periods.clock.forget()


GAPS = st.lists(
    st.one_of(
        st.integers(0, 3),  # a burst
        st.integers(0, 5_000_000),
        st.integers(SPAN_US - 2, SPAN_US + 2),  # at the very edge
        st.integers(SPAN_US, 3 * SPAN_US),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.sampled_from([1, 2, 3, 7, 130]), gaps=GAPS)
def test_no_span_of_sixty_seconds_holds_more_than_the_limit(
    clock: Callable[[int], None], limit: int, gaps: list[int]
) -> None:
    """Hits microseconds and minutes apart. The model: all admitted times in a list, counted anew for each hit."""
    make_wide(rate=limit)
    policy()
    name, client = keys.RATE("default", actor_id="alice", agent="customer"), base_redis.state()
    client.delete(name)
    us, taken = 1_800_000_000_000_000, list[int]()
    for gap in gaps if limit < 100 else [gap // 50 for gap in gaps for _ in range(5)]:
        us += gap
        clock(us)
        # From 60 s before on, that moment included, they count: any 60 s, both ends.
        within = len(taken) - bisect_left(taken, us - SPAN_US)
        verdict = admit(ALICE, action="look", slot=False)
        client.persist(name)  # it would end by the server's own clock
        assert verdict.allowed == (within < limit), (limit, within)
        if verdict.allowed:
            taken.append(us)
            assert verdict.lefts[1] == limit - within - 1
        else:
            assert verdict.refused_by == "rate"
            # and it may come again when it is told to, not a millisecond later than it must
            again = us + round(verdict.retry_after * 1_000_000)
            assert taken[-limit] + SPAN_US < again <= taken[-limit] + SPAN_US + 2000
    for first, last in zip(taken, taken[limit:], strict=False):
        assert last - first > SPAN_US


def test_one_a_second_with_bursts(settings: Any) -> None:
    """The server's own clock: bursts of five at odd moments, never two within a second."""
    settings.ADMISSION_RATE_WINDOW_MS = 1000
    make_wide(rate=1)
    times = []
    until = time.monotonic() + 3.2
    while time.monotonic() < until:
        burst = [admit(ALICE, slot=False) for _ in range(5)]
        assert sum(verdict.allowed for verdict in burst) <= 1
        times += [verdict.now_ms for verdict in burst if verdict.allowed]
        time.sleep(0.037)
    assert len(times) in (3, 4)
    assert all(last - first >= 1000 for first, last in pairwise(times))


def test_a_refused_call_does_not_keep_the_window_closed(settings: Any) -> None:
    """Whoever knocks all the time is let in as often as whoever waits; the key's end is that of what was admitted."""
    settings.ADMISSION_RATE_WINDOW_MS = 300
    make_wide(rate=1)
    admitted(slot=False)
    name, client = keys.RATE("default", actor_id="alice", agent="customer"), base_redis.state()
    ends = []
    while not admit(ALICE, slot=False).allowed:
        ends.append(client.pttl(name))
    assert len(ends) > 3
    assert sorted(ends, reverse=True) == ends
    assert max(ends) <= 300


def test_of_sixty_four_runs_at_once_one_holds_the_session() -> None:
    from memory.sessions.owners import check_writable

    register_session_check(lambda caller, session_id: None)
    try:
        make_wide()
        session, fences = new_session(), []
        for turn in range(3):
            verdicts = together(64, lambda n, turn=turn: admit(ALICE, run=f"run-{turn}-{n}", session=session))
            allowed = [verdict for verdict in verdicts if verdict.allowed]
            assert [verdict.refused_by for verdict in verdicts].count("session") == 63
            [winner] = allowed
            fences.append(winner.fence)
            assert release(ALICE, winner)
        assert fences == sorted(set(fences))
        assert fences[-1] <= Fence.objects.get().ceiling
        assert base_redis.state().zcard(keys.TENANT_ACTIVE("default")) == 0
    finally:
        register_session_check(check_writable)


def test_of_many_sessions_at_once_as_many_runs_as_the_actor_may() -> None:
    from memory.sessions.owners import check_writable

    register_session_check(lambda caller, session_id: None)
    try:
        make_wide(user_running=7, quota=50)
        sessions = [new_session() for _ in range(64)]
        verdicts = together(64, lambda n: admit(BOB, action="run", run=f"run-{n}", session=sessions[n]))
        assert sum(verdict.allowed for verdict in verdicts) == 7
        assert {verdict.refused_by for verdict in verdicts} == {"", "user_running"}
        # the refused ones have given their call of the day back
        quota = keys.QUOTA("default", actor_id="bob", date=next(v.day for v in verdicts if v.allowed))
        assert base_redis.state().hget(quota, "used") == "7"
    finally:
        register_session_check(check_writable)
