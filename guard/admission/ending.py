"""How an admission ends, or goes on: `settle`, `release`, `renew`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import IntegrityError, InterfaceError, OperationalError, transaction

from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id, check_session_id
from config.base.outages import outage
from config.base.redis import RUN_ID, RedisUnavailable, Script
from guard.access.services import Caller
from guard.admission import budget, keys, local, wires
from guard.admission.amounts import from_units, to_units
from guard.admission.mending import mending
from guard.admission.verdict import Verdict, check_lease, read_id

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
    estimate: int | None

    @property
    def month(self) -> str:
        return self.day[:7]

    def ask(self, script: Script, args: list[Any], *, with_quota: bool) -> Any:
        """The script's answer for this admission's keys, mended first where they are not of our making."""
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
        names = list(found.values())
        return mending(list(found), names, lambda: script(wires.client(), names, [*args, *self.of_run]))

    @property
    def of_run(self) -> tuple[str, ...]:
        return (self.run, str(self.fence)) if self.run else ()


def _subject(caller: Caller, admission: Verdict | str, action: str, run: str, session: str, fence: int) -> _Subject:
    if isinstance(admission, Verdict):
        verdict = admission
        if not verdict.allowed or verdict.caller != caller:
            raise DomainError("NOT_FOUND", "it was not admitted for this caller")
        return _Subject(
            caller, verdict.admission_id, verdict.token, verdict.day, verdict.action, verdict.run, verdict.session,
            verdict.fence, verdict.estimate,
        )  # fmt: skip
    named = read_id(caller, admission)
    if run or session or fence:
        check_id("run", run)
        check_session_id(session)
    if action:
        check_id("action", action)
    return _Subject(caller, admission, named.token, named.day.isoformat(), action, run, session, fence, None)


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
    Once: the same amount again answers the first settlement. Cost: 5 queries, 1 round trip.
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

    def work() -> tuple[Any, budget.Known | None]:
        with transaction.atomic(durable=True):
            return budget.add_entry(entry)

    try:
        row, left = retry_conflicts(work, also=(IntegrityError,))
    except (OperationalError, InterfaceError) as error:
        raise outage(error) from error
    if left is None and row.amount != entry.amount:
        raise DomainError("ALREADY_SETTLED", f"it was settled with {row.amount}", settled=str(row.amount))
    prefix = wires.prefix()
    if keep:
        local.settle_locally(subject.token, units)
    else:
        local.end_locally(subject.token, units)
    local.forget_ledger(caller.tenant, subject.month, caller.actor_id, subject.day)
    try:
        _tell_redis(subject, left, unused=False, end=not keep)
    except RedisUnavailable:
        budget.note_untold(prefix, caller.tenant, subject.month)
    return Settlement(subject.admission_id, row.amount, row.month, row.number, left is None)


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
    Redis away: False; what was taken ends by itself. Cost: 1 round trip.
    """
    subject = _subject(caller, admission, "", run, session, fence)
    if local.end_locally(subject.token, unused=unused):
        return True
    try:
        open_there, held = _tell_redis(subject, None, unused=unused, end=True)
    except RedisUnavailable:
        return False
    return bool(open_there or held)


def _tell_redis(subject: _Subject, left: budget.Known | None, *, unused: bool, end: bool) -> tuple[int, int]:
    number, spent = (left.number, left.spent) if left is not None else ("", "")
    member = subject.token
    reply = subject.ask(_finish, [RUN_ID, member, number, spent, int(unused), int(end)], with_quota=True)
    return reply[0], reply[1]


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
    kept, _now = subject.ask(_renew, [subject.token, int(seconds * 1000), life * 1000], with_quota=False)
    if not kept:
        raise DomainError("LEASE_LOST", "its time was over, or somebody else has it; stop")
    return seconds
