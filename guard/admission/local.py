"""Admission while Redis is away: what this process and the database know.

Block and pause: closed, from the database's copy (policy.py). Rate, hourly, address and running calls: this process
admits its share, the limit divided by ADMISSION_PROCESSES, at least 1, so that all processes together stay near the
limit. Quota and budget: from the ledger in MySQL, closed past it; of what was left there when this process first asked
in this outage it gives out its share and no more, so that all together never give out more than there was. With the
database away too: closed. A run needs a fencing number that all agree on: closed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from django.conf import settings

from guard.access.services import Caller
from guard.admission import budget, periods
from guard.admission.plans import UNASKED, Plan
from guard.admission.policy import OFF

LEDGER_SECONDS = 1.0  # how old what the ledger said may be
_MOST = 20_000


@dataclass(frozen=True, slots=True)
class Local:
    """refused_by: '' when admitted. lefts: as of admit.lua. wait: seconds."""

    refused_by: str
    limit: int
    lefts: tuple[int, ...]
    wait: float = 0.0


@dataclass(slots=True)
class _Call:
    caller: Caller
    estimate: int
    month: str
    day: str
    ends: float
    expires: float  # of the reservation


@dataclass(slots=True)
class _State:
    """times: monotonic seconds of admissions, by limit and what it counts. open: local calls that were not ended.
    ledger: when it was asked, and what it said. allotted: what this process may give out in this outage."""

    times: dict[tuple[str, ...], deque[float]] = field(default_factory=dict)
    open: dict[str, _Call] = field(default_factory=dict)
    ledger: dict[tuple[str, ...], tuple[float, int]] = field(default_factory=dict)
    allotted: dict[tuple[str, ...], int] = field(default_factory=dict)


_state = _State()
_lock = threading.Lock()


def forget_local() -> None:
    global _state
    _state = _State()


def redis_is_back() -> None:
    """Called with each answer of Redis: what was allotted for an outage ends with it."""
    if _state.allotted:
        _state.allotted = {}
        _state.ledger = {}


def share(limit: int) -> int:
    """What this process may admit of `limit` by itself: at least 1, 0 of 0."""
    return min(limit, max(1, limit // settings.ADMISSION_PROCESSES))


def admit_locally(
    caller: Caller, plan: Plan, token: str, action: str, estimate: int, lease: float, life: float
) -> Local:
    """Decides and, when it admits, counts. lease: seconds of the slots, 0 for none; life: of the reservation.

    Cost: up to 2 queries, each at most once a second. Errors: the database's.
    """
    limits, now, ms = plan.limits, time.monotonic(), periods.clock.now_ms()
    day = periods.day_at(plan.days, ms)
    month = day[:7]
    spent = _spent(caller.tenant, month) if limits["budget"] >= 0 else 0
    calls = _settled(caller.tenant, caller.actor_id, day) if limits["quota"] >= 0 else 0
    who, prefix = caller.actor_id, plan.prefix
    counted: list[tuple[str, tuple[str, ...], float]] = [
        ("ip", (prefix, "ip", caller.tenant, plan.ip), 60.0),
        ("rate", (prefix, "rate", caller.tenant, who, caller.agent), settings.ADMISSION_RATE_WINDOW_MS / 1000),
        ("hourly", (prefix, "hourly", caller.tenant, who, action), 3600.0),
    ]
    with _lock:
        _prune(now)
        lefts: dict[str, int] = {}
        for name, place, span in counted:
            limit = limits[name]
            if limit < 0:
                lefts[name] = limit
                continue
            times = _state.times.get(place) or deque()
            while times and times[0] <= now - span:
                times.popleft()
            lefts[name] = share(limit) - len(times) - 1
            if lefts[name] < 0:
                return Local(name, limit, (), times[0] + span - now if times else span)
        mine = [call for call in _state.open.values() if call.caller.tenant == caller.tenant]
        places = {"quota": _day(caller.tenant, who, day), "budget": _month(caller.tenant, month)}
        for name, settled, more in (("quota", calls, 1), ("budget", spent, estimate)):
            limit = limits[name]
            lefts[name] = limit
            if limit < 0:
                continue
            room = limit - settled
            lefts[name] = min(_state.allotted.setdefault(places[name], share(max(0, room))), room) - more
            if lefts[name] < 0 or room <= 0:
                end = plan.end_of_day(ms) if name == "quota" else plan.end_of_month(ms)
                return Local(name, limit, (), (end - ms) / 1000)
        running = [c for c in mine if c.ends > now]
        for name, n in (
            ("tenant_running", len(running)),
            ("user_running", sum(c.caller.actor_id == who for c in running)),
        ):
            limit = limits[name]
            lefts[name] = UNASKED if not lease else OFF if limit < 0 else share(limit) - n - 1
            if lease and limit >= 0 and lefts[name] < 0:
                first = min((c.ends for c in running), default=now + 1)
                return Local(name, limit, (), max(0.0, first - now))
        for name, place, _span in counted:
            if limits[name] >= 0:
                _state.times.setdefault(place, deque()).append(now)
        for name, more in (("quota", 1), ("budget", estimate)):
            if limits[name] >= 0:
                _state.allotted[places[name]] -= more
        _state.open[token] = _Call(caller, estimate, month, day, now + lease, now + max(life, lease))
    order = ("ip", "rate", "hourly", "quota", "budget", "tenant_running", "user_running")
    return Local("", 0, tuple(lefts[name] for name in order))


def end_locally(token: str, actual: int | None = None, *, unused: bool = False) -> bool:
    """Whether the call was one of this process's own.

    actual: what it cost, when it was settled. unused: no work began, the day's call is given back.
    """
    with _lock:
        call = _state.open.pop(token, None)
        if call is None:
            return False
        month, day = _month(call.caller.tenant, call.month), _day(call.caller.tenant, call.caller.actor_id, call.day)
        if month in _state.allotted:
            _state.allotted[month] += call.estimate - (actual or 0)
        if unused and day in _state.allotted:
            _state.allotted[day] += 1
        return True


def settle_locally(token: str, actual: int) -> None:
    """The work goes on: its reservation is over, its slots stay."""
    with _lock:
        call = _state.open.get(token)
        if call is None:
            return
        month = _month(call.caller.tenant, call.month)
        if month in _state.allotted:
            _state.allotted[month] += call.estimate - actual
        call.estimate = 0


def _month(tenant: str, month: str) -> tuple[str, ...]:
    return ("month", tenant, month)


def _day(tenant: str, actor_id: str, day: str) -> tuple[str, ...]:
    return ("day", tenant, actor_id, day)


def renew_locally(token: str, lease: float, life: float) -> bool:
    """False where its time is over, or it is none of this process's."""
    now = time.monotonic()
    with _lock:
        call = _state.open.get(token)
        if call is None or call.ends <= now:
            return False
        call.ends, call.expires = now + lease, now + max(life, lease)
        return True


def _prune(now: float) -> None:
    over = [token for token, call in _state.open.items() if call.expires <= now and call.ends <= now]
    for token in over:
        del _state.open[token]
    if len(_state.times) > _MOST:
        # Whoever brings so many names: those heard of least lately are forgotten first.
        for place in sorted(_state.times, key=lambda p: _state.times[p][-1] if _state.times[p] else 0.0)[: _MOST // 2]:
            del _state.times[place]
    if len(_state.ledger) > _MOST:
        _state.ledger.clear()


def _spent(tenant: str, month: str) -> int:
    return _remembered(_month(tenant, month), lambda: budget.known(tenant, month).spent)


def _settled(tenant: str, actor_id: str, day: str) -> int:
    return _remembered(_day(tenant, actor_id, day), lambda: budget.settled_calls(tenant, actor_id, day))


def _remembered(place: tuple[str, ...], ask: Callable[[], int]) -> int:
    seen = _state.ledger.get(place)
    now = time.monotonic()
    if seen is not None and now - seen[0] < LEDGER_SECONDS:
        return seen[1]
    value = ask()
    _state.ledger[place] = (now, value)
    return value


def forget_ledger(tenant: str, month: str, actor_id: str, day: str) -> None:
    """Something was settled: the next call asks again."""
    _state.ledger.pop(_month(tenant, month), None)
    _state.ledger.pop(_day(tenant, actor_id, day), None)
