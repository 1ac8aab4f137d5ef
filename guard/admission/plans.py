"""The part of a call that is the same for the next one: names of keys, limits, boundaries of periods.

Made once for an actor, agent, action and address, and used until the policy changes or a period's middle is passed.
"""

from __future__ import annotations

import ipaddress
import threading
from dataclasses import dataclass

from django.conf import settings

from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.redis import Prepared, Script
from guard.access.services import Caller
from guard.admission import keys, periods
from guard.admission.models import LimitKind
from guard.admission.policy import Policy
from guard.admission.tuning import tuning

ADMIT = Script.beside(__file__, "admit")

UNASKED = -2
# What admit.lua's keys are; those of runs come after the others.
KINDS = (
    keys.BLOCK, keys.PAUSE, keys.RATE, keys.HOURLY, keys.QUOTA, keys.QUOTA, keys.BUDGET, keys.BUDGET,
    keys.TENANT_ACTIVE, keys.USER_ACTIVE, keys.REFUSED, keys.ADDRESS, keys.ADDRESS,
)  # fmt: skip
KINDS_OF_RUN = (keys.FENCE, keys.FENCE_LEASED, keys.RUN, keys.RUN_OF_SESSION)
_MOST_PLANS = 20_000


@dataclass(frozen=True, slots=True)
class Plan:
    """keys, args: of admit.lua, without what differs from call to call; call: the two packed once for all of these.
    marks: what the database's copy knows."""

    generation: int
    prefix: str
    begin_ms: int
    until_ms: int
    keys: tuple[str, ...]
    args: tuple[str, ...]  # 1 to 18
    call: Prepared
    marks: int
    limits: dict[str, int]
    days: periods.Pair
    months: periods.Pair
    ip: str

    def end_of_day(self, at_ms: int) -> int:
        return self.days.bounds[1] if at_ms < self.days.bounds[1] else self.days.bounds[2]

    def end_of_month(self, at_ms: int) -> int:
        return self.months.bounds[1] if at_ms < self.months.bounds[1] else self.months.bounds[2]


def address(ip: str) -> str:
    """An address as lower-case hex digits: 8 of IPv4, 32 of IPv6. Of IPv6 the /64: one household has all of it.

    Errors: INVALID_REQUEST.
    """
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        raise DomainError("INVALID_REQUEST", "ip is no IP address") from None
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return parsed.ipv4_mapped.packed.hex()
        return (parsed.packed[:8] + bytes(8)).hex()
    return parsed.packed.hex()


_plans: dict[tuple[str, str, str, str, str | None, bool, bool], Plan] = {}
_making = threading.Lock()


def forget_plans() -> None:
    _plans.clear()


def plan_for(caller: Caller, action: str, ip: str | None, policy: Policy, ai: bool, money: bool) -> Plan:
    """The plan that is valid now. Cost: a look-up; about 30 us when it must be made."""
    name = (caller.tenant, caller.agent, caller.actor_id, action, ip, ai, money)
    at = periods.clock.now_ms()
    plan = _plans.get(name)
    if (
        plan is not None
        and plan.begin_ms <= at < plan.until_ms
        and plan.generation == policy.generation
        and plan.prefix == tuning().prefix
    ):
        return plan
    plan = _make(caller, action, ip, policy, at, ai, money)
    with _making:
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[name] = plan
    return plan


def _make(caller: Caller, action: str, ip: str | None, policy: Policy, at: int, ai: bool, money: bool) -> Plan:
    tenant, agent, actor = caller.tenant, caller.agent, caller.actor_id
    check_id("action", action)
    hex_ip = address(ip) if ip else ""
    days, months, minutes = periods.days_around(at), periods.months_around(at), periods.minutes_around(at)
    limits = {
        str(kind): policy.limit(kind, tenant=tenant, agent=agent, actor_id=actor, action=action) for kind in LimitKind
    }
    if not ip:
        limits["ip"] = UNASKED
    if not ai:
        limits["quota"] = UNASKED
    if not money:
        limits["budget"] = UNASKED
    names = [
        keys.BLOCK(tenant, actor_id=actor),
        keys.PAUSE(tenant, agent=agent),
        keys.RATE(tenant, actor_id=actor, agent=agent),
        keys.HOURLY(tenant, actor_id=actor, action=action),
        *(keys.QUOTA(tenant, actor_id=actor, date=day) for day in days.names),
        *(keys.BUDGET(tenant, month=month) for month in months.names),
        keys.TENANT_ACTIVE(tenant),
        keys.USER_ACTIVE(tenant, user_id=actor),
        keys.REFUSED(tenant, actor_id=actor),
        # Both are there also without an address: those of runs come after them.
        *(keys.ADDRESS(tenant, ip=hex_ip or "0", minute=minute) for minute in minutes.names),
    ]
    pairs = [days, months, *([minutes] if ip else [])]
    numbers = (
        limits["rate"],
        settings.ADMISSION_RATE_WINDOW_MS * 1000,
        limits["hourly"],
        limits["ip"],
        limits["quota"],
        *days.bounds,
        max(pair.bounds[0] for pair in pairs),
        *months.bounds[1:],
        min(pair.bounds[2] for pair in pairs),
        *minutes.bounds[1:],
        limits["budget"],
        settings.ADMISSION_RESERVATION_SECONDS * 1000,
        limits["tenant_running"],
        limits["user_running"],
    )
    args = tuple(map(str, numbers))
    return Plan(
        generation=policy.generation,
        prefix=tuning().prefix,
        begin_ms=at - 1000,
        until_ms=min(pair.until_ms for pair in pairs),
        keys=tuple(names),
        args=args,
        call=ADMIT.prepare(names, args, 8),
        marks=((tenant, actor) in policy.blocked) + 2 * ((tenant, agent) in policy.paused),
        limits=limits,
        days=days,
        months=months,
        ip=hex_ip,
    )
