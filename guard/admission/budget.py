"""The ledger of budgets, and what Redis is told of it.

What a call cost is a row of `budget_ledger`, committed before `settle` answers; Redis holds the sum over a month's rows
and what open reservations take. Rows are numbered under the lock of the month's row, and each settlement tells Redis
the number and the sum that it committed: the highest number wins, so that answers may come late, twice or never.
What never came is read when the caller's reservation runs out, when Redis was restarted or emptied, and with the next
settlement. Until then the reservation stands for it: before a settlement is committed it is raised to what the call
cost (reserve.lua). Where Redis could not be told that either, the month's row says so (`untold_at`), in the transaction
of the settlement, and whoever sees it tells Redis before it asks for an admission of that tenant: the process itself,
the others of its host (host.mark), each process with its copy of the limits, and the sweep.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Sum
from redis.exceptions import ResponseError

from config.base import clock
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.redis import RUN_ID, RedisUnavailable, Script
from config.base.trace import current_trace_id
from guard.access.people import By, admit_staff
from guard.admission import host, keys, periods, wires
from guard.admission.amounts import MOST_UNITS, from_units, to_units
from guard.admission.mending import mending
from guard.admission.models import BudgetLedger, BudgetMonth
from guard.admission.policy import Policy
from guard.audit import triggers
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

_budget = Script.beside(__file__, "budget")
_reserve = Script.beside(__file__, "reserve")

BUDGET_KEPT = timedelta(days=7)  # after the month's end
_TOLD_AT_ONCE = 500
ADJUST = "guard.change_budgetledger"  # whoever only runs the system writes no money into it


@dataclass(frozen=True, slots=True)
class Known:
    """A month's ledger: number of its newest row, and the sum over all, in the smallest unit (below 0 after
    corrections)."""

    number: int
    spent: int
    untold: bool = field(default=False, compare=False)  # Redis may not know some of it


@dataclass(frozen=True, slots=True)
class Entry:
    """A row to be added."""

    tenant: str
    month: str
    day: date
    admission_id: str
    amount: Decimal
    actor_id: str
    estimate: Decimal | None = None
    agent: str = ""
    action: str = ""
    run_id: str = ""
    reason: str = ""
    kind: str = BudgetLedger.Kind.CALL


def _units(amount: Decimal) -> int:
    return int(amount.scaleb(6))


def known(tenant: str, month: str) -> Known:
    """As committed. Cost: 1 query."""
    rows = BudgetMonth.objects.filter(tenant=tenant, month=month).order_by()
    row = rows.values_list("number", "spent", "untold_at").first()
    return Known(row[0], _units(row[1]), row[2] is not None) if row else Known(0, 0)


def recounted(tenant: str, month: str) -> Known:
    """From the ledger itself, row by row, under the month's lock; mends the month's row if that said otherwise.

    For when Redis knows nothing any more. Cost: 3 queries, one of them over all of the month's rows.
    """

    def work() -> Known:
        with transaction.atomic():
            month_row = _locked(tenant, month)
            rows = BudgetLedger.objects.filter(tenant=tenant, month=month).aggregate(n=Count("pk"), sum=Sum("amount"))
            number, spent = rows["n"], rows["sum"] or Decimal(0)
            if (number, spent) != (month_row.number, month_row.spent):
                # Numbers only grow, here too: what was said of number n stays true.
                month_row.number, month_row.spent = max(number, month_row.number), spent
                month_row.save(update_fields=["number", "spent"])
            return Known(month_row.number, _units(month_row.spent), month_row.untold_at is not None)

    return retry_conflicts(work, also=(IntegrityError,))


def _locked(tenant: str, month: str) -> BudgetMonth:
    rows = BudgetMonth.objects.select_for_update().order_by()
    row = rows.filter(tenant=tenant, month=month).first()
    if row is None:
        # Two firsts of a month: one of them meets the unique key and starts over.
        BudgetMonth.objects.create(tenant=tenant, month=month)
        row = rows.get(tenant=tenant, month=month)
    return row


def add_entry(entry: Entry, *, untold: bool) -> tuple[BudgetLedger, Known | None]:
    """Adds a row unless the admission has one, and returns it with the month's ledger as this commit left it (None
    where the row was there). In the caller's transaction. Cost: 4 queries.

    untold: Redis counts no reservation of it, so that it must be told before it decides again."""
    month_row = _locked(entry.tenant, entry.month)
    there = BudgetLedger.objects.filter(tenant=entry.tenant, admission_id=entry.admission_id).order_by().first()
    if there is not None:
        return there, None
    month_row.number += 1
    month_row.spent += entry.amount
    if not abs(_units(month_row.spent)) <= MOST_UNITS:
        raise DomainError("INVALID_REQUEST", f"the month's sum would be over {from_units(MOST_UNITS)}")
    if untold and month_row.untold_at is None:
        month_row.untold_at = clock.now()
    month_row.save(update_fields=["number", "spent", "untold_at"])
    row = BudgetLedger(
        number=month_row.number, trace_id=current_trace_id(), **{name: getattr(entry, name) for name in Entry.__slots__}
    )
    row.save(force_insert=True)
    return row, Known(month_row.number, _units(month_row.spent), month_row.untold_at is not None)


def adjust_budget(*, tenant: str, amount: Decimal, reason: str, by: By, reference: str) -> BudgetLedger:
    """A correction of the present month: more spent when positive, less when negative.

    by: a person of the tenant who holds ADJUST by role or by grant, or a name.
    reference: names the correction; the same one twice is one row. Audited.
    Errors: FORBIDDEN (one audit row), INVALID_REQUEST.
    """
    who = admit_staff(by, ADJUST, action="adjust", object_type="budget_ledger", tenant=tenant, by_role=True)
    units = to_units(abs(amount))
    if not reason.strip() or not units:
        raise DomainError("INVALID_REQUEST", "a correction needs an amount and a reason")
    day = clock.business_date(clock.now())

    def work() -> tuple[BudgetLedger, Known | None]:
        with transaction.atomic():
            row, left = add_entry(
                Entry(
                    tenant=tenant,
                    month=periods.month_of(day),
                    day=day,
                    admission_id=f"adjustment.{reference}"[:64],
                    amount=from_units(units if amount > 0 else -units),
                    actor_id=who[:64],
                    reason=reason[:200],
                    kind=BudgetLedger.Kind.ADJUSTMENT,
                ),
                untold=True,
            )
            if left is not None:
                record(
                    tenant=tenant,
                    event_type=EventType.BUDGET,
                    decision=Decision.ADJUSTED,
                    actor_type=ActorType.STAFF,
                    actor_id=who,
                    object_type="budget_ledger",
                    object_id=str(row.pk),
                    input_summary={"amount": str(row.amount), "month": row.month, "reason": reason[:200]},
                )
            return row, left

    row, left = retry_conflicts(work, also=(IntegrityError,))
    if left is not None:
        tell(tenant, row.month, left)
    return row


# --- what Redis is told -----------------------------------------------------------------------------------------

# (prefix, tenant, month) whose newest rows Redis may not have heard of, as far as this process knows.
untold: set[tuple[str, str, str]] = set()
heeded = host.mark()  # as it was when `untold` was last compared with the tables
_read_at = 0.0  # of the copy of the limits that was last compared
_bringing: dict[tuple[str, str], threading.Lock] = {}
_bringing_lock = threading.Lock()


def any_untold(prefix: str, tenant: str, months: Sequence[str]) -> bool:
    """Whether Redis must be told a month's sum before it is asked."""
    return any((prefix, tenant, month) in untold for month in months)


def note_untold(prefix: str, tenant: str, month: str) -> None:
    untold.add((prefix, tenant, month))


def forget_untold() -> None:
    global heeded
    untold.clear()
    heeded = host.mark()


def look() -> None:
    """A process of this host has settled what Redis was not told: which months? Cost: 1 query."""
    global heeded
    seen = host.mark()
    _note_all(BudgetMonth.objects.filter(untold_at__isnull=False).order_by().values_list("tenant", "month"))
    heeded = seen


def heed(copy: Policy) -> None:
    """What this process's copy of the tables says, once each copy."""
    global _read_at
    if copy.read_at != _read_at:
        _read_at = copy.read_at
        _note_all(copy.untold)


def _note_all(months: Iterable[tuple[str, str]]) -> None:
    prefix = wires.prefix()
    untold.update((prefix, tenant, month) for tenant, month in months)


def tell_untold() -> int:
    """Tells Redis each month that it was not told, and returns how many. From beat. Cost: 1 query; each month 3 more.

    Errors: RedisUnavailable: then there is nobody to be told."""
    rows = BudgetMonth.objects.filter(untold_at__isnull=False).order_by("untold_at").values_list("tenant", "month")
    done = 0
    for tenant, month in list(rows[:_TOLD_AT_ONCE]):
        left = known(tenant, month)
        _install(tenant, month, left, stale="", lost=False)
        is_told(tenant, month, left)
        done += 1
    return done


def is_told(tenant: str, month: str, left: Known) -> None:
    """Unless more was settled meanwhile."""
    if left.untold:
        BudgetMonth.objects.filter(tenant=tenant, month=month, number=left.number).update(untold_at=None)


def reserve(tenant: str, month: str, token: str, units: int) -> bool:
    """Before a settlement is committed: see reserve.lua. False where Redis is away, or did not say so in time.

    Cost: 1 round trip."""
    names = [keys.BUDGET(tenant, month=month)]
    life = settings.ADMISSION_RESERVATION_SECONDS * 1000

    def ask() -> bool:
        for _ in range(2):  # the first answer tells a process the server's time
            done, now_ms = _reserve(wires.client(), names, [wires.deadline(), token, units, life])
            periods.clock.learn(now_ms)
            if done:
                return True
        return False

    try:
        return mending([keys.BUDGET], names, ask)
    except (RedisUnavailable, ResponseError):
        return False


def tell(tenant: str, month: str, left: Known, *, stale: str = "", lost: bool = False) -> None:
    """Brings Redis a month's sum; with Redis away it is remembered that it must be told."""
    prefix = wires.prefix()
    try:
        _install(tenant, month, left, stale=stale, lost=lost)
        is_told(tenant, month, left)
    except RedisUnavailable:
        note_untold(prefix, tenant, month)
        host.set_mark()


def _install(tenant: str, month: str, left: Known, *, stale: str, lost: bool) -> None:
    year, number = int(month[:4]), int(month[5:])
    first_of_next = date(year + number // 12, number % 12 + 1, 1)
    ends = clock.to_micros(clock.business_day_bounds(first_of_next)[0] + BUDGET_KEPT) // 1000
    names = [keys.BUDGET(tenant, month=month)]
    args = [RUN_ID, left.number, left.spent, ends, stale, int(lost)]
    mending([keys.BUDGET], names, lambda: _budget(wires.client(), names, args))


def bring(tenant: str, month: str, known_there: bool, stale: str) -> None:
    """Reads a month's sum and gives it to Redis, since a caller was told that Redis does not know it.

    known_there: whether Redis has some sum; without one the ledger is counted row by row.
    Errors: RedisUnavailable, and the database's.
    """
    place = (wires.prefix(), tenant, month)
    untold.discard(place)  # before the reading: what is noted later is read later
    try:
        left = known(tenant, month) if known_there else recounted(tenant, month)
        _install(tenant, month, left, stale=stale, lost=not known_there and left.number > 0)
        is_told(tenant, month, left)
    except BaseException:
        untold.add(place)
        raise


@contextmanager
def bringing(tenant: str, month: str) -> Iterator[bool]:
    """Of callers of this process that bring a month's sum one does it (True), and the others wait for it (False)."""
    with _bringing_lock:
        lock = _bringing.setdefault((tenant, month), threading.Lock())
    first = lock.acquire(blocking=False)
    if not first:
        lock.acquire()
    try:
        yield first
    finally:
        lock.release()


def is_settled(tenant: str, admission_id: str) -> bool:
    """Cost: 1 query."""
    return BudgetLedger.objects.filter(tenant=tenant, admission_id=admission_id).order_by().exists()


def settled_calls(tenant: str, actor_id: str, day: str) -> int:
    """Calls of an actor's business day that the ledger has. Cost: 1 query."""
    rows = BudgetLedger.objects.filter(
        tenant=tenant, actor_id=actor_id, day=date.fromisoformat(day), kind=BudgetLedger.Kind.CALL
    )
    return rows.order_by().count()


def protect_ledger() -> None:
    """The ledger gets the triggers of the audit log."""
    triggers.protect(
        "budget_ledger",
        key="id",
        unique=(("tenant", "admission_id"), ("tenant", "month", "number")),
        probe=lambda: BudgetLedger(
            tenant="default",
            month="2000-01",
            number=0,
            admission_id="doctor",
            amount=0,
            actor_id="doctor",
            day=date(2000, 1, 1),
        ),
    )
