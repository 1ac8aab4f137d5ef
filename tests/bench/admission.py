"""What an admission costs: beside a script that does nothing with the same keys and arguments, and beside the same
decisions put together from others' parts.

A thousand actors in turn, sixty calls a minute each, so that every ring is as long as it is in use. Every part of the
decision is asked for: block, pause, address, minute, hour, day, budget, both kinds of slots.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from config.base import redis as base_redis
from config.base.redis import Script
from guard.access.services import Caller
from guard.admission import limits, services, wires
from guard.admission.policy import policy
from guard.admission.services import admit
from tests.bench.rates import Slice, sync_slice

TENANT = "benchmark"
ACTORS = 1000
LIMITS = {"rate": 60, "hourly": 100_000, "ip": 1_000_000, "quota": 100_000, "budget": 1_000_000}
SLOTS = {"tenant_running": 10_000_000, "user_running": 10_000_000}
nothing = Script.beside(__file__, "nothing")


def make_limits() -> None:
    for kind, value in {**LIMITS, **SLOTS}.items():
        limits.set_limit(tenant=TENANT, kind=kind, value=value, by="benchmark")
    policy()


def callers() -> Callable[[], Caller]:
    names = itertools.cycle([Caller(TENANT, "customer", f"actor-{n}") for n in range(ACTORS)])
    return names.__next__


def forget() -> None:
    """Between two rounds: the minute begins anew for everybody."""
    client = base_redis.state()
    for pattern in (f"{TENANT}:*", f"*:{TENANT}*", "LIMITS*", "bench-lock*"):
        names = list(client.scan_iter(pattern, count=5000))
        for at in range(0, len(names), 1000):
            client.unlink(*names[at : at + 1000])
    admit(Caller(TENANT, "customer", "first"), estimate="0.01")


def admission_slices() -> dict[str, Slice]:
    make_limits()
    own, same, plain = callers(), callers(), callers()
    client = wires.client()
    stock = base_redis.redis.Redis.from_url(base_redis.settings.REDIS_URL, decode_responses=True)
    stock.script_load(nothing.source)

    def request(caller: Caller) -> tuple[Any, list[Any]]:
        plan = services.plan_for(caller, "chat", "192.0.2.1", policy(), True, True)
        return plan.keys, [*plan.args, "0" * 40, "0" * 32, 0, 10_000, 60_000, "", 0, wires.deadline()]

    ready = {f"actor-{n}": request(Caller(TENANT, "customer", f"actor-{n}")) for n in range(ACTORS)}

    def admitting() -> None:
        assert admit(own(), ip="192.0.2.1", estimate="0.01").allowed

    def script() -> None:
        nothing(client, *ready[same().actor_id])

    def evalsha() -> None:
        names, args = ready[plain().actor_id]
        stock.evalsha(nothing.sha, len(names), *names, *args)

    return {
        "admission": sync_slice(admitting),
        "nothing, by our call": sync_slice(script),
        "nothing, by redis-py": sync_slice(evalsha),
    }


def composed_slice() -> Slice:
    """The minute by limits' exact window, hour and day by its fixed ones, and the slot by redis-py's Lock."""
    from limits import RateLimitItemPerDay, RateLimitItemPerHour, RateLimitItemPerMinute
    from limits.storage import RedisStorage
    from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

    url = base_redis.settings.REDIS_URL
    storage = RedisStorage(url)
    exact, fixed = MovingWindowRateLimiter(storage), FixedWindowRateLimiter(storage)
    minute, hour, day = (
        RateLimitItemPerMinute(LIMITS["rate"]),
        RateLimitItemPerHour(LIMITS["hourly"]),
        RateLimitItemPerDay(LIMITS["quota"]),
    )
    client = base_redis.redis.Redis.from_url(url)
    own, numbers = callers(), itertools.count()
    started = time.time_ns()

    def work() -> None:
        actor = own().actor_id
        assert exact.hit(minute, actor, "customer")
        assert fixed.hit(hour, actor, "chat")
        assert fixed.hit(day, actor)
        assert client.lock(f"bench-lock:{started}:{next(numbers)}", timeout=60).acquire(blocking=False)

    work()
    return sync_slice(work)
