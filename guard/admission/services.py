"""One call that decides before work starts, and the three that end or keep what it took.

With Redis away: see local.py. A run is closed then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError
from redis.exceptions import ResponseError

from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.outages import outage
from config.base.redis import Client, RedisUnavailable
from guard.access.services import Caller
from guard.admission import blocks, budget, ending, fences, host, keys, later, local, periods, refusals, wires
from guard.admission.amounts import to_units
from guard.admission.counting import count
from guard.admission.ending import release, renew, settle
from guard.admission.mending import mend
from guard.admission.plans import ADMIT, KINDS, KINDS_OF_RUN, UNASKED, Plan, plan_for
from guard.admission.policy import policy
from guard.admission.sessions import check_session
from guard.admission.tuning import tuning
from guard.admission.verdict import Verdict, check_lease

__all__ = ["admit", "release", "renew", "settle"]


T = TypeVar("T")

_ATTEMPTS = 12
_BROKEN: list[Any] = ["BROKEN", 0]


def admit(
    caller: Caller,
    *,
    action: str = "chat",
    ip: str | None = None,
    estimate: Decimal | int | str | None = None,
    run: str | None = None,
    session: str | None = None,
    node: str = "",
    lease: float | None = None,
    slot: bool = True,
) -> Verdict:
    """Whether `action` of this actor may start; when it may, everything is taken, else nothing.

    In this order: 1 block, 2 pause, 3 address, 4 calls a minute (no 60 s hold more than the limit), 5 calls an hour
    (a fixed window), 6 AI calls of the business day, 7 the month's budget, 8 running calls of the tenant, 9 of the
    actor, 10 for runs the session's lease and fencing number. The first that says no is named.

    ip: of the person at the other end; without one no address is counted.
    estimate: money, at most six places, kept from the tenant's month until `settle`, `release` or
        ADMISSION_RESERVATION_SECONDS; AI actions (ADMISSION_AI_ACTIONS) meet a used-up budget without one too.
    run, session, node: of a run, which holds its session alone.
    lease: seconds until its slots are free again unless renewed (ADMISSION_LEASE_SECONDS).
    slot: False for work that runs in no slot.
    Cost: 1 round trip, no query beyond the policy's (at most one look in 4 s); a few more once a month and tenant, for
    each 100th run of a session, after Redis was restarted or emptied, and when a reservation's caller has died.
    Errors: INVALID_ID, INVALID_REQUEST (422), those of the session (run); REDIS_UNAVAILABLE (503, run only),
    DATABASE_UNAVAILABLE (503). Refusals are no errors: see Verdict.
    """
    fixed = tuning()
    seconds = 0.0 if not slot else fixed.lease_seconds if lease is None else check_lease(lease)
    ai = action in fixed.ai_actions
    units = 0 if estimate is None else to_units(estimate, name="estimate")
    of_run: tuple[str, ...] = ()
    if run is not None or session is not None:
        of_run = _of_run(caller, run, session, node, slot)
    try:
        copy = policy()
    except (OperationalError, InterfaceError) as error:
        raise outage(error) from error
    plan = plan_for(caller, action, ip, copy, ai, ai or estimate is not None)
    if copy.untold:
        budget.heed(copy)
    if host.mark() != budget.heeded and plan.limits["budget"] != UNASKED:
        _database(budget.look)
    token = os.urandom(16).hex()
    try:
        if not (of_run or budget.untold):
            # Nearly every call: one question, one answer.
            try:
                reply = plan.call(
                    wires.client(), token, plan.marks, units, int(seconds * 1000), "", 0, wires.deadline()
                )
            except ResponseError:  # a key of another type
                reply = _BROKEN
            if reply[0] == "OK":
                count("", False)
                _, now_ms, day, _, fence, *lefts, rate_wait, hourly_wait = reply
                periods.clock.learn(now_ms)
                return Verdict(
                    True, caller, plan, token, plan.days.names[day - 1], action, lefts, (rate_wait, hourly_wait),
                    "", 0, 0, 0.0, fence, seconds, units, "", "", False, now_ms,
                )  # fmt: skip
            return _go_on(_Call(caller, plan, action, ip, token, units, seconds, of_run), reply)
        return _go_on(_Call(caller, plan, action, ip, token, units, seconds, of_run), None)
    except RedisUnavailable as error:
        call = _Call(caller, plan, action, ip, token, units, seconds, of_run)
        if of_run:
            if wires.may_be_done(error):
                _taken_unheard(call)
            raise DomainError("REDIS_UNAVAILABLE", "a run needs a lease and a fencing number") from error
        asked = wires.may_be_done(error)
    try:
        return _ask_here(call, asked=asked)
    except (OperationalError, InterfaceError, RedisUnavailable) as error:
        if asked:
            _taken_unheard(call)
        raise outage(error) from error


def _taken_unheard(call: _Call) -> None:
    """Nobody will be told that it may start: if Redis has admitted it all the same, nothing of it stays."""
    run, session = call.run[:2] if call.run else ("", "")
    day = periods.day_at(call.plan.days, periods.clock.now_ms())
    counted = call.plan.limits["quota"] != UNASKED
    later.tell_later(call.token, ending.unheard(call.caller, day, call.token, run, session, counted=counted))


def _of_run(caller: Caller, run: str | None, session: str | None, node: str, slot: bool) -> tuple[str, ...]:
    """Arguments 27 to 32 of admit.lua."""
    if run is None or session is None or not slot:
        raise DomainError("INVALID_REQUEST", "a run needs its id, its session's, and a slot")
    check_id("run", run)
    if node:
        check_id("node", node)
    check_session(caller, session)
    return run, session, caller.tenant, caller.actor_id, node, caller.agent


class _Call(NamedTuple):
    caller: Caller
    plan: Plan
    action: str
    ip: str | None
    token: str
    units: int
    lease: float
    run: tuple[str, ...]

    def ask(self, client: Client, marks: int, calls: str, bring: int) -> list[Any]:
        """The answer of admit.lua."""
        plan = self.plan
        rest = (self.token, marks, self.units, int(self.lease * 1000), calls, bring, wires.deadline())
        if not self.run:
            return plan.call(client, *rest)  # type: ignore[no-any-return]
        call = ADMIT.prepare(self.names(), plan.args, 8 + len(self.run))
        return call(client, *rest, *self.run)  # type: ignore[no-any-return]

    def names(self) -> tuple[str, ...]:
        if not self.run:
            return self.plan.keys
        tenant, (run, session, *_) = self.caller.tenant, self.run
        return (
            *self.plan.keys,
            keys.FENCE(tenant, session_id=session),
            keys.FENCE_LEASED(tenant, session_id=session),
            keys.RUN(tenant, run_id=run),
            keys.RUN_OF_SESSION(tenant, session_id=session),
        )


def _go_on(call: _Call, reply: list[Any] | None) -> Verdict:
    """Brings what Redis lacks, and asks again. reply: what it has said. Errors: RedisUnavailable, DomainError."""
    client, tenant = wires.client(), call.caller.tenant
    marks, calls, mended = call.plan.marks, "", False
    for _ in range(_ATTEMPTS):
        plan = call.plan
        if reply is None:
            bring = int(budget.any_untold(plan.prefix, tenant, plan.months.names))
            try:
                reply = call.ask(client, marks, calls, bring)
            except ResponseError:
                if mended:
                    raise
                reply = _BROKEN
        kind, now_ms = reply[0], reply[1]
        if kind == "BROKEN":
            calls = _mend(call, calls)
            mended, reply = True, None
            continue
        periods.clock.learn(now_ms)
        if kind == "NO" and reply[4] == "block" and not plan.marks & 1 and _lifted(call):
            reply = None
            continue
        if kind in ("OK", "NO"):
            count("" if kind == "OK" else reply[4], False)
            return _admitted(call, reply) if kind == "OK" else _refused(call, reply)
        if kind == "LATE":
            pass  # it did not know the server's time; with this answer it does
        elif kind == "CLOCK":
            call = _plan_again(call)
        elif kind == "ASK":
            _database(blocks.put_back, call.caller)
            marks = 0
        elif kind == "BUDGET":
            _bring_budget(call, plan.months.names[reply[2] - 1], bool(reply[3]), reply[4])
        elif kind == "QUOTA":
            day = plan.days.names[reply[2] - 1]
            calls = str(_database(budget.settled_calls, tenant, call.caller.actor_id, day))
        else:
            _database(fences.lease, tenant, call.run[1], reply[2], reply[3])
        reply = None
    raise RedisUnavailable("what admission brings to Redis does not stay there")


def _lifted(call: _Call) -> bool:
    """See blocks.is_lifted. Closed while the tables cannot be asked."""
    try:
        return blocks.is_lifted(call.caller)
    except (OperationalError, InterfaceError):
        return False


def _database(ask: Callable[..., T], *args: Any) -> T:
    """Closed: what cannot be asked is not guessed. Errors: DATABASE_UNAVAILABLE."""
    try:
        return ask(*args)
    except (OperationalError, InterfaceError) as error:
        raise outage(error) from error


def _mend(call: _Call, calls: str) -> str:
    """Removes what is not of our making; what it stood for comes from the tables. calls: as asked next."""
    found = mend(KINDS + KINDS_OF_RUN, call.names())
    if keys.BLOCK in found or keys.PAUSE in found:
        _database(blocks.put_back, call.caller)
    if keys.QUOTA in found:
        day = periods.day_at(call.plan.days, periods.clock.now_ms())
        return str(_database(budget.settled_calls, call.caller.tenant, call.caller.actor_id, day))
    return calls


def _plan_again(call: _Call) -> _Call:
    """With the periods around the server's time, which is known now."""
    limits = call.plan.limits
    ai, money = limits["quota"] != UNASKED, limits["budget"] != UNASKED
    return call._replace(plan=plan_for(call.caller, call.action, call.ip, policy(), ai, money))


def _bring_budget(call: _Call, month: str, known_there: bool, mark: str) -> None:
    tenant = call.caller.tenant
    with budget.bringing(tenant, month) as first:
        # Whoever waited here asks Redis before it reads the ledger itself.
        if first:
            _database(budget.bring, tenant, month, known_there, mark)


def _admitted(call: _Call, reply: list[Any]) -> Verdict:
    caller, plan, action, _ip, token, units, lease, run = call
    _ok, now_ms, day, _month, fence, *lefts, rate_wait, hourly_wait = reply
    of_run, session = run[:2] if run else ("", "")
    verdict = Verdict(
        True, caller, plan, token, plan.days.names[day - 1], action, lefts, (rate_wait, hourly_wait),
        "", 0, 0, 0.0, fence, lease, units, of_run, session, False, now_ms,
    )  # fmt: skip
    if run:
        _issue(verdict)
    return verdict


def _issue(verdict: Verdict) -> None:
    """From here on no earlier holder of the session writes. Closed: a run that cannot be sure of it does not begin."""
    try:
        newest = fences.note_issued(verdict.caller.tenant, verdict.session, verdict.fence)
    except BaseException as error:
        ending.undo(verdict)
        if isinstance(error, OperationalError | InterfaceError):
            raise outage(error) from error
        raise
    if not newest:
        ending.undo(verdict)
        raise DomainError("LEASE_LOST", "another run of the session was admitted meanwhile")


def _refused(call: _Call, reply: list[Any]) -> Verdict:
    plan = call.plan
    verdict = Verdict(
        False,
        call.caller,
        plan,
        call.token,
        plan.days.names[reply[2] - 1],
        call.action,
        refused_by=reply[4],
        limit=reply[5],
        remaining=reply[6],
        retry_after=reply[7] / 1000,
        now_ms=reply[1],
    )
    if reply[8]:
        try:
            refusals.tell(verdict, reply[8])
        except (OperationalError, InterfaceError) as error:
            refusals.put_back(verdict, reply[8])
            raise outage(error) from error
    return verdict


def _ask_here(call: _Call, *, asked: bool) -> Verdict:
    """Redis is away: what this host and the database know. asked: see Verdict. Errors: the database's;
    RedisUnavailable where the host knows nothing either."""
    plan, caller = call.plan, call.caller
    life = settings.ADMISSION_RESERVATION_SECONDS
    day = periods.day_at(plan.days, periods.clock.now_ms())
    marks = plan.marks
    if marks:
        # The copy is at most 5 s old, and lifting counts at once: the database is asked.
        refused_by, seconds = blocks.in_force(caller)
        found = local.Local(refused_by, 0, (), seconds)
    if not marks or not refused_by:
        found = local.admit_locally(caller, plan, call.token, call.action, call.units, call.lease, life, asked=asked)
    count(found.refused_by, True)
    if not found.refused_by:
        return Verdict(
            True,
            caller,
            plan,
            call.token,
            day,
            call.action,
            lefts=found.lefts,
            waits=found.waits,
            lease=call.lease,
            estimate=call.units,
            local=True,
            now_ms=periods.clock.now_ms(),
            asked=asked,
        )
    if asked:
        _taken_unheard(call)
    verdict = Verdict(
        False,
        caller,
        plan,
        call.token,
        day,
        call.action,
        refused_by=found.refused_by,
        limit=found.limit,
        retry_after=found.wait,
        local=True,
        now_ms=periods.clock.now_ms(),
    )
    refusals.tell_locally(verdict)
    return verdict
