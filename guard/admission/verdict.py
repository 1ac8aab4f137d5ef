"""What `admit` answers."""

from __future__ import annotations

import hmac
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings

from config.base.errors import DomainError
from guard.access.services import Caller
from guard.admission.amounts import from_units
from guard.admission.keys import MAX_LEASE_SECONDS

if TYPE_CHECKING:
    from guard.admission.plans import Plan

# The place of each limit in what the script answers, its code when it refuses, and what it says.
LEFTS = ("ip", "rate", "hourly", "quota", "budget", "tenant_running", "user_running")
CODES: dict[str, tuple[str, str]] = {
    "block": ("ACTOR_BLOCKED", "the actor is blocked"),
    "pause": ("AGENT_PAUSED", "an officer has paused this agent"),
    "ip": ("RATE_LIMITED", "too many calls from this address in this minute (a fixed window)"),
    "rate": ("RATE_LIMITED", "too many calls of this actor in the last minute"),
    "hourly": ("RATE_LIMITED", "too many calls of this action in this hour (a fixed window)"),
    "quota": ("QUOTA_EXCEEDED", "the actor's AI calls of this business day are used up"),
    "budget": ("BUDGET_EXCEEDED", "the tenant's budget of this month does not cover the estimate"),
    "tenant_running": ("TOO_MANY_RUNNING", "too many calls of this tenant are running"),
    "user_running": ("TOO_MANY_RUNNING", "too many calls of this actor are running"),
    "session": ("RUN_ACTIVE", "another run of this session is active"),
    "run": ("RUN_TAKEN", "the run id is at work for another actor or session"),
}
_WINDOWS = {"ip": 60, "rate": 60, "hourly": 3600, "quota": 86400}  # seconds, of those that have a fixed length


@dataclass(frozen=True, slots=True)
class Quota:
    """One limit of a call. left: what remains after it. reset: seconds until there is more, where known."""

    name: str
    limit: int
    left: int
    reset: int | None
    window: int | None


@dataclass(slots=True)
class Verdict:
    """allowed: whether the work may start; then `settle` or `release` ends it, or the lease's time.

    refused_by: the limit that said no ('' when allowed), with limit, remaining and retry_after (seconds).
    fence: of runs, the fencing number; 0 otherwise. lease: seconds until the slot is free again unless renewed.
    local: decided without Redis, by what this host and the database know. asked: Redis may have decided too, and the
    answer was lost.
    """

    allowed: bool
    caller: Caller
    plan: Plan
    token: str
    day: str
    action: str
    lefts: Sequence[int] = ()
    waits: tuple[int, int] = (0, 0)  # ms until there is more of rate and hourly
    refused_by: str = ""
    limit: int = 0
    remaining: int = 0
    retry_after: float = 0.0
    fence: int = 0
    lease: float = 0.0
    estimate: int = 0
    run: str = ""
    session: str = ""
    local: bool = False
    now_ms: int = 0
    asked: bool = False

    @property
    def admission_id(self) -> str:
        """By what `settle`, `release` and `renew` know it: the business day, a random part, and a mark that only this
        installation can make for this actor and, of a run, for its run, session and fence. '' of a refusal."""
        if not self.allowed:
            return ""
        mark = _mark(self.caller, self.day, self.token, self.of_run, self.taken)
        return f"{self.day.replace('-', '')}.{self.token}.{mark}"

    @property
    def of_run(self) -> OfRun:
        return (self.run, self.session, self.fence)

    @property
    def taken(self) -> str:
        """What of a day's call can be given back, see _TAKEN."""
        if self.plan.limits["quota"] == _UNASKED:
            return ""
        return "held" if self.lease or self.estimate else "bare"

    @property
    def quotas(self) -> list[Quota]:
        """Those that bind this call, in the order they are looked at. Money in the smallest unit."""
        found = []
        for name, left in zip(LEFTS, self.lefts, strict=False):  # refused: there are none
            if left < 0:
                continue
            found.append(Quota(name, self.plan.limits[name], left, self._reset(name), _WINDOWS.get(name)))
        return found

    def _reset(self, name: str) -> int | None:
        plan, at = self.plan, self.now_ms
        milliseconds = {
            "ip": lambda: 60_000 - at % 60_000,
            "rate": lambda: self.waits[0],
            "hourly": lambda: self.waits[1],
            "quota": lambda: plan.end_of_day(at) - at,
            "budget": lambda: plan.end_of_month(at) - at,
        }.get(name)
        return None if milliseconds is None else max(1, math.ceil(milliseconds() / 1000))

    def error(self) -> DomainError:
        """The refusal, to be raised."""
        code, why = CODES[self.refused_by]
        money = self.refused_by == "budget"
        shown: dict[str, Any] = {
            "limit": self.refused_by,
            "allowed": str(from_units(self.limit)) if money else self.limit,
            "remaining": str(from_units(self.remaining)) if money else self.remaining,
            "retry_after": self.seconds_to_wait,
        }
        return DomainError(code, f"{why}; try again in {self.seconds_to_wait} s", **shown)

    @property
    def window(self) -> int | None:
        """Seconds of the window of the limit that refused, where it has a fixed length."""
        return _WINDOWS.get(self.refused_by)

    @property
    def seconds_to_wait(self) -> int:
        """Whole seconds, at least 1, for Retry-After."""
        return max(1, math.ceil(self.retry_after))

    def or_raise(self) -> Verdict:
        """Itself when allowed. Errors: those of CODES."""
        if not self.allowed:
            raise self.error()
        return self


OfRun = tuple[str, str, int]  # run, session, fence; empty and 0 where it is none
# Whether the admission was a call of the day, and if it was, whether there is a slot or a reservation that shows, while
# it is there, that it has not ended yet. In the mark, so that an id says it too.
_TAKEN = ("held", "", "bare")
_UNASKED = -2
_ID = re.compile(r"([0-9]{8})\.([0-9a-f]{32})\.([0-9a-f]{16})")


@lru_cache(maxsize=8)
def _secret(key: str) -> bytes:
    return hmac.digest(key.encode(), b"guard.admission.verdict", "sha256")


def _mark(caller: Caller, day: str, token: str, of_run: OfRun, taken: str, key: str | None = None) -> str:
    # No part holds a ':'.
    run, session, fence = of_run
    text = f"{caller.tenant}:{caller.agent}:{caller.actor_id}:{day}:{token}:{run}:{session}:{fence}:{taken}"
    return hmac.digest(_secret(key or settings.SECRET_KEY), text.encode(), "sha256").hex()[:16]


@dataclass(frozen=True, slots=True)
class Named:
    """What an admission's id says. taken: see Verdict.taken."""

    token: str
    day: date
    taken: str


def read_id(caller: Caller, admission_id: str, of_run: OfRun) -> Named:
    """Errors: NOT_FOUND (404) for what is no id of an admission of this actor, or one of another run.

    An id has one spelling: what is known by it in the ledger could be settled again under each other one."""
    found = _ID.fullmatch(admission_id) if isinstance(admission_id, str) else None
    if found is None:
        raise _unknown()
    day, token, mark = found.groups()
    try:
        when = date(int(day[:4]), int(day[4:6]), int(day[6:8]))
    except ValueError:
        raise _unknown() from None
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        for taken in _TAKEN:
            if hmac.compare_digest(mark, _mark(caller, when.isoformat(), token, of_run, taken, key)):
                return Named(token, when, taken)
    raise _unknown()


def _unknown() -> DomainError:
    return DomainError(
        "NOT_FOUND",
        "no admission of this actor has this id; of a run, its run, session and fence are named as its admission said",
    )


def check_lease(seconds: float) -> float:
    """Errors: INVALID_REQUEST."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0.1 <= seconds <= MAX_LEASE_SECONDS:
        raise DomainError("INVALID_REQUEST", f"a lease is 0.1 to {MAX_LEASE_SECONDS} s")
    return float(seconds)
