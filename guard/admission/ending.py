"""How an admission ends, or goes on: `settle`, `release`, `renew`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from redis.exceptions import ResponseError

from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id, check_session_id
from config.base.outages import outage
from config.base.redis import RedisUnavailable, Script
from guard.access.services import Caller
from guard.admission import budget, host, keys, later, local, wires
from guard.admission.amounts import from_units, to_units
from guard.admission.mending import mending
from guard.admission.verdict import Verdict, check_lease, read_id

logger = logging.getLogger(__name__)

_finish = Script.beside(__file__, "finish")
_renew = Script.beside(__file__, "renew")


@dataclass(frozen=True, slots=True)
class Settlement:
    """What the ledger has of an admission. repeated: it was settled before, with the same amount."""

    admission_id: str
    amount: Decimal
    month: str
    number: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class _Subject:
    """An admission as its own process knows it, or as its id and the caller tell."""

    caller: Caller
    admission_id: str
    token: str
    day: str
    action: str
    run: str
    session: str
    fence: int
    taken: str
    estimate: int | None

    @property
    def month(self) -> str:
        return self.day[:7]

    def asker(self, script: Script, args: list[Any], *, with_quota: bool) -> Callable[[], Any]:
        """Asks the script about this admission's keys, mended first where they are not of our making."""
        tenant, actor = self.caller.tenant, self.caller.actor_id
        found = {
            keys.BUDGET: keys.BUDGET(tenant, month=self.month),
            keys.TENANT_ACTIVE: keys.TENANT_ACTIVE(tenant),
            keys.USER_ACTIVE: keys.USER_ACTIVE(tenant, user_id=actor),
        }
        if with_quota:
            found[keys.QUOTA] = keys.QUOTA(tenant, actor_id=actor, date=self.day)
        if self.run:
            found[keys.RUN] = keys.RUN(tenant, run_id=self.run)
            found[keys.RUN_OF_SESSION] = keys.RUN_OF_SESSION(tenant, session_id=self.session)
        kinds, names = list(found), list(found.values())
        of_run = (self.run, self.fence) if self.run else ()
        return lambda: mending(kinds, names, lambda: script(wires.client(), names, [*args, *of_run]))


def _subject(caller: Caller, admission: Verdict | str, action: str, run: str, session: str, fence: int) -> _Subject:
    if isinstance(admission, Verdict):
        verdict = admission
        if not verdict.allowed or verdict.caller != caller:
            raise DomainError("NOT_FOUND", "it was not admitted for this caller")
        return _Subject(
            caller, verdict.admission_id, verdict.token, verdict.day, verdict.action, verdict.run, verdict.session,
            verdict.fence, verdict.taken, verdict.estimate,
        )  # fmt: skip
    if isinstance(fence, bool) or not isinstance(fence, int):
        raise DomainError("INVALID_REQUEST", "fence must be the whole number that the run's admission gave")
    if run or session or fence:
        check_id("run", run)
        check_session_id(session)
    if action:
        check_id("action", action)
    named = read_id(caller, admission, (run, session, fence))
    day = named.day.isoformat()
    return _Subject(caller, admission, named.token, day, action, run, session, fence, named.taken, None)


def settle(
    caller: Caller,
    admission: Verdict | str,
    *,
    actual: Decimal | int | str,
    action: str = "",
    run: str = "",
    session: str = "",
    fence: int = 0,
    keep: bool = False,
) -> Settlement:
    """What the work cost, in the ledger of the admission's month before this returns; the reservation and the slots
    are free then. Also when the reservation ran out long ago, and with Redis away.

    admission: the verdict, or its id; with an id also run, session and fence of a run, and the action for the ledger.
    keep: the slots stay, for work that goes on.
    Once: the same amount again answers the first settlement. Cost: 5 queries, 2 round trips: before the commit Redis
    reserves what it cost, so that a caller that dies after it has overspent nothing.
    Errors: ALREADY_SETTLED (409) with another amount, NOT_FOUND, INVALID_REQUEST, DATABASE_UNAVAILABLE.
    """
    units = to_units(actual, name="actual")
    subject = _subject(caller, admission, action, run, session, fence)
    entry = budget.Entry(
        tenant=caller.tenant,
        month=subject.month,
        day=date.fromisoformat(subject.day),
        admission_id=subject.admission_id,
        amount=from_units(units),
        actor_id=caller.actor_id,
        estimate=None if subject.estimate is None else from_units(subject.estimate),
        agent=caller.agent,
        action=subject.action,
        run_id=subject.run,
    )

    reserved = not units or budget.reserve(caller.tenant, subject.month, subject.token, units)

    def work() -> tuple[Any, budget.Known | None]:
        with transaction.atomic(durable=True):
            return budget.add_entry(entry, untold=not reserved)

    try:
        row, left = retry_conflicts(work, also=(IntegrityError,))
    except (OperationalError, InterfaceError) as error:
        raise outage(error) from error
    if left is None and row.amount != entry.amount:
        _after_the_commit(subject, None, units=0, end=False)  # what was reserved just now
        raise DomainError("ALREADY_SETTLED", f"it was settled with {row.amount}", settled=str(row.amount))
    _after_the_commit(subject, left, units=units, end=not keep)
    return Settlement(subject.admission_id, row.amount, row.month, row.number, left is None)


def _after_the_commit(subject: _Subject, left: budget.Known | None, *, units: int, end: bool) -> None:
    """Nothing here raises: it is settled."""
    tenant, month = subject.caller.tenant, subject.month
    if left is not None and left.untold:
        host.set_mark()
    if left is not None or end:
        with contextlib.suppress(RedisUnavailable):
            local.end_locally(subject.token, units, keep=not end)
    local.forget_ledger(tenant, month, subject.caller.actor_id, subject.day)
    try:
        _tell_redis(subject, left, unused="", end=end)
        if left is not None:
            budget.is_told(tenant, month, left)
    except (RedisUnavailable, ResponseError) as error:
        if not isinstance(error, RedisUnavailable):
            logger.exception("a settlement cannot be told to Redis")
        budget.note_untold(wires.prefix(), tenant, month)
    except (OperationalError, InterfaceError):
        logger.warning("that Redis was told of a month is not noted: it is told again")


def release(
    caller: Caller,
    admission: Verdict | str,
    *,
    unused: bool = False,
    run: str = "",
    session: str = "",
    fence: int = 0,
) -> bool:
    """Gives back what was reserved and the slots, without a cost: the work failed, or was cancelled.

    unused: no work began, so the day's call is given back too; the minute's and the hour's are not, they count
    attempts. Once: a second release, or one after a settlement, gives nothing back. Returns whether something was.
    Redis away: False, and it is told when it is back. Cost: 1 round trip; with `unused` 1 query.
    """
    subject = _subject(caller, admission, "", run, session, fence)
    back = subject.taken if unused and not _is_settled(subject) else ""
    here = False
    try:
        ended = local.end_locally(subject.token, unused=bool(back))
        here = ended.here
        if here and not ended.asked:
            return True
    except RedisUnavailable:
        pass  # what this host counts cannot be had: the call's time ends it there
    try:
        return any(_tell_redis(subject, None, unused=back, end=True)) or here
    except RedisUnavailable:
        return here


def undo(verdict: Verdict) -> None:
    """It was admitted and cannot begin: nothing of it stays. Cost: 1 round trip, no query."""
    subject = _subject(verdict.caller, verdict, "", "", "", 0)
    with contextlib.suppress(RedisUnavailable):
        _tell_redis(subject, None, unused=subject.taken, end=True)


def unheard(caller: Caller, day: str, token: str, run: str, session: str, *, counted: bool) -> Callable[[], object]:
    """For `later`: nobody was told that it may start. If Redis has admitted it all the same, nothing of it stays.

    counted: it was a call of the day."""
    subject = _Subject(caller, "", token, day, "", run, session, 0, "", None)
    # `held`: what shows that it was admitted is given back, and only that
    return subject.asker(_finish, [token, "", "", "held" if counted else "", 1], with_quota=True)


def _is_settled(subject: _Subject) -> bool:
    """Work was begun, whatever its caller says. With the database away nobody can tell: nothing is given back."""
    try:
        return budget.is_settled(subject.caller.tenant, subject.admission_id)
    except (OperationalError, InterfaceError):
        return True


def _tell_redis(subject: _Subject, left: budget.Known | None, *, unused: str, end: bool) -> list[int]:
    """What finish.lua answers. Errors: RedisUnavailable; then it is told when Redis is back."""
    number, spent = (left.number, left.spent) if left is not None else ("", "")
    tell = subject.asker(_finish, [subject.token, number, spent, unused, int(end)], with_quota=True)
    try:
        return list(tell())
    except RedisUnavailable:
        later.tell_later(subject.token, tell)
        raise


def renew(
    caller: Caller,
    admission: Verdict | str,
    *,
    lease: float | None = None,
    run: str = "",
    session: str = "",
    fence: int = 0,
) -> float:
    """Keeps the slots, the reservation and a run's lease for `lease` seconds from now, which are returned.

    Cost: 1 round trip. Errors: LEASE_LOST (409): its time was over, or somebody else has it; stop.
    RedisUnavailable (503): try again; it is lost when its time is over.
    """
    seconds = check_lease(settings.ADMISSION_LEASE_SECONDS if lease is None else lease)
    subject = _subject(caller, admission, "", run, session, fence)
    life = settings.ADMISSION_RESERVATION_SECONDS
    if local.renew_locally(subject.token, seconds, life):
        return seconds
    kept, _now = subject.asker(_renew, [subject.token, int(seconds * 1000), life * 1000], with_quota=False)()
    if not kept:
        raise DomainError("LEASE_LOST", "its time was over, or somebody else has it; stop")
    return seconds
