"""Money: reserved, settled in the ledger, released; never overspent by one unit; recovered after a loss."""

from __future__ import annotations

import time
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Sum

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.admission import budget, keys, later, periods
from guard.admission.budget import adjust_budget
from guard.admission.forgetting import forget_everything
from guard.admission.models import BudgetLedger, BudgetMonth
from guard.admission.services import admit, release, settle
from tests.counting import counted_round_trips
from tests.guard.admission.helpers import (
    ALICE,
    BOB,
    admitted,
    audit_rows,
    empty_redis,
    make_limit,
    make_wide,
    together,
)

pytestmark = pytest.mark.django_db(transaction=True)


def key() -> str:
    return keys.BUDGET("default", month=month())


def month() -> str:
    return periods.day_at(periods.days_around(periods.clock.now_ms()), periods.clock.now_ms())[:7]


def in_redis() -> tuple[int, int]:
    """Units spent and held."""
    spent, held = base_redis.state().hmget(key(), "spent", "held")
    return int(spent), int(held)


def left() -> Decimal:
    """What one more call would leave of the budget."""
    verdict = admitted(BOB, slot=False)
    return Decimal(verdict.lefts[4]).scaleb(-6)


def test_reserve_settle_release() -> None:
    make_wide(budget="10")
    first = admitted(estimate="2.50")
    assert (in_redis(), left()) == ((0, 2_500_000), Decimal("7.5"))
    done = settle(ALICE, first, actual="3.141593")
    assert (done.amount, done.repeated, in_redis()) == (Decimal("3.141593"), False, (3_141_593, 0))
    second = admitted(estimate="5")
    assert release(ALICE, second)
    assert (in_redis(), left()) == ((3_141_593, 0), Decimal("6.858407"))
    row = BudgetLedger.objects.get()
    assert (row.amount, row.estimate, row.actor_id, row.agent, row.action) == (
        Decimal("3.141593"), Decimal("2.5"), "alice", "customer", "chat",
    )  # fmt: skip


def test_settling_again_is_the_same_settlement() -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    first = settle(ALICE, verdict, actual="0.70")
    for again in (verdict, verdict.admission_id):
        repeated = settle(ALICE, again, actual="0.7")
        assert (repeated.number, repeated.repeated) == (first.number, True)
    with pytest.raises(DomainError) as refused:
        settle(ALICE, verdict, actual="0.71")
    assert (refused.value.code, refused.value.extra) == ("ALREADY_SETTLED", {"settled": "0.700000"})
    assert in_redis() == (700_000, 0)
    # nor does a release after it, of somebody who was cancelled late
    assert not release(ALICE, verdict, unused=True)
    assert in_redis() == (700_000, 0)
    assert together(16, lambda n: settle(ALICE, verdict, actual="0.7").repeated) == [True] * 16


def test_at_once_one_settles() -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    answers = together(16, lambda n: settle(ALICE, verdict.admission_id, actual="0.7").repeated)
    assert sorted(answers) == [False] + [True] * 15
    assert (in_redis(), BudgetLedger.objects.count()) == ((700_000, 0), 1)


def test_whose_it_is() -> None:
    verdict = admitted(estimate="1")
    day, token, mark = verdict.admission_id.split(".")
    for wrong in (f"{day}.{token}.{'0' * 16}", f"20260101.{token}.{mark}", f"{day}.{token}", "x", f"{day}.{token}.ä"):
        with pytest.raises(DomainError) as refused:
            settle(ALICE, wrong, actual=1)
        assert refused.value.code == "NOT_FOUND"
    with pytest.raises(DomainError) as refused:
        settle(BOB, verdict.admission_id, actual=1)
    assert refused.value.code == "NOT_FOUND"


def test_sixty_four_callers_never_overspend_by_a_unit() -> None:
    make_wide(budget="0.001000")

    def work(n: int) -> int:
        spent = 0
        for _ in range(4):
            verdict = admit(ALICE, estimate="0.000007", slot=False)
            if not verdict.allowed:
                continue
            if n % 3 == 0:
                release(ALICE, verdict)
            else:
                settle(ALICE, verdict, actual="0.000007" if n % 2 else "0.000003")
                spent += 7 if n % 2 else 3
        return spent

    spent = sum(together(64, work))
    assert 0 < spent <= 1000
    while not later.tell_now():  # a machine that is too busy to answer within a tenth of a second
        time.sleep(0.1)
    assert in_redis() == (spent, 0)
    assert BudgetLedger.objects.aggregate(sum=Sum("amount"))["sum"] == Decimal(spent).scaleb(-6)


def test_exactly_the_limit_fits() -> None:
    make_wide(budget="1")
    verdicts = together(64, lambda n: admit(ALICE, estimate="0.03", slot=False).allowed)
    assert verdicts.count(True) == 33
    assert admit(ALICE, estimate="0.010001", slot=False).refused_by == "budget"
    assert admitted(estimate="0.01").lefts[4] == 0
    refused = admit(ALICE, action="chat")
    assert (refused.refused_by, refused.error().status, refused.error().code) == ("budget", 402, "BUDGET_EXCEEDED")
    assert admit(ALICE, action="look").allowed  # no money in it
    assert [row.decision for row in audit_rows("budget")] == ["refused"]


@pytest.mark.parametrize("how", ["emptied", "the budget's key alone", "another server"])
def test_after_a_loss_the_spend_is_the_ledgers(how: str, django_assert_num_queries: Any) -> None:
    make_wide(budget="100", quota=10)
    for n in range(7):
        settle(ALICE, admitted(estimate="1"), actual=f"0.33333{n}")
    open_one = admitted(estimate="1")
    total = Decimal("2.333331")
    if how == "emptied":
        empty_redis()
    elif how == "another server":
        base_redis.state().hset(key(), mapping={"server": "0" * 40, "spent": "1", "number": 3})
    else:
        base_redis.state().delete(key())
    assert left() == Decimal(100) - total - (1 if how == "another server" else 0)
    assert Decimal(in_redis()[0]).scaleb(-6) == BudgetLedger.objects.aggregate(sum=Sum("amount"))["sum"] == total
    # the call whose reservation was lost is settled all the same, and its day's calls are not forgotten
    settle(ALICE, open_one, actual="1.5")
    assert Decimal(in_redis()[0]).scaleb(-6) == total + Decimal("1.5")
    verdict = admitted()
    assert verdict.lefts[3] == 1
    with counted_round_trips() as calls, django_assert_num_queries(0):
        admitted()
    assert len(calls) == 1


def test_a_crashed_callers_reservation_frees_itself(settings: Any) -> None:
    settings.ADMISSION_RESERVATION_SECONDS = 1
    make_wide(budget="1")
    admitted(estimate="1")
    refused = admit(ALICE, estimate="0.5")
    assert refused.refused_by == "budget"
    time.sleep(2.1)  # whole seconds
    assert admitted(estimate="1").lefts[4] == 0
    assert in_redis() == (0, 1_000_000)


def test_who_died_between_the_ledger_and_redis_is_found_by_the_reservation(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ADMISSION_RESERVATION_SECONDS = 1
    make_wide(budget="1")
    verdict = admitted(estimate="0.1")
    from guard.admission import ending

    monkeypatch.setattr(ending, "_tell_redis", lambda *a, **k: (1, 1))
    settle(ALICE, verdict, actual="0.9")
    assert in_redis() == (0, 900_000)  # what it costs stands there from before the commit on
    time.sleep(2.1)
    assert admit(ALICE, estimate="0.2").refused_by == "budget"
    assert in_redis() == (900_000, 0)


def test_a_late_settlement_goes_to_the_ledger(settings: Any) -> None:
    settings.ADMISSION_RESERVATION_SECONDS = 1
    make_wide(budget="10")
    verdict = admitted(estimate="1", lease=0.2)
    time.sleep(2.1)
    assert left() == 10
    settle(ALICE, verdict.admission_id, actual="4", action="chat")
    assert (left(), in_redis()) == (Decimal(6), (4_000_000, 0))


def test_answers_that_come_in_another_order() -> None:
    make_wide(budget="10")
    first, second = admitted(estimate="1"), admitted(estimate="1")
    from guard.admission import ending

    late: list[Any] = []
    original = ending._tell_redis
    try:
        ending._tell_redis = lambda *a, **k: late.append((a, k)) or (1, 1)  # type: ignore[assignment]
        settle(ALICE, first, actual="2")
    finally:
        ending._tell_redis = original
    settle(ALICE, second, actual="3")
    assert in_redis()[0] == 5_000_000
    for a, k in late:
        original(*a, **k)
    assert in_redis() == (5_000_000, 0)


def test_a_cancelled_call_is_refunded_once() -> None:
    make_wide(budget="1", quota=1)
    verdict = admitted(estimate="1")
    assert admit(ALICE).refused_by == "quota"
    assert together(16, lambda n: release(ALICE, verdict.admission_id, unused=True)).count(True) == 1
    assert in_redis() == (0, 0)
    assert admitted(estimate="1").lefts[3] == 0


def test_the_ledger_takes_rows_and_gives_none_back() -> None:
    settle(ALICE, admitted(estimate="1"), actual="1")
    row = BudgetLedger.objects.get()
    for work in (
        row.delete,
        lambda: BudgetLedger.objects.all().delete(),
        lambda: BudgetLedger.objects.update(amount=0),
        lambda: BudgetLedger(**{f.name: getattr(row, f.name) for f in row._meta.fields}).save(force_update=True),
    ):
        with pytest.raises(DatabaseError, match="INSERT only"), transaction.atomic():
            work()
    columns = [f.column for f in BudgetLedger._meta.fields if f.column != "id"]
    names = ", ".join(columns)
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"REPLACE INTO budget_ledger ({names}) SELECT {names} FROM budget_ledger")
    assert BudgetLedger.objects.get() == row
    assert BudgetLedger.objects.get().amount == 1


def test_corrections_are_rows_too() -> None:
    make_wide(budget="10")
    settle(ALICE, admitted(estimate="1"), actual="4")
    adjust_budget(tenant="default", amount=Decimal("-1.5"), reason="billed twice", by="officer", reference="r1")
    adjust_budget(tenant="default", amount=Decimal("-1.5"), reason="billed twice", by="officer", reference="r1")
    assert left() == Decimal("7.5")
    assert [row.decision for row in audit_rows("budget")] == ["adjusted"]
    empty_redis()
    assert left() == Decimal("7.5")


def test_months_and_tenants_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from guard.access.services import Caller

    make_wide(budget="1")
    make_limit("budget", "1", tenant="other")
    settle(ALICE, admitted(estimate="1"), actual="1")
    assert admit(ALICE, estimate="0.1").refused_by == "budget"
    assert admit(Caller("other", "customer", "alice"), estimate="0.1").allowed
    budget.tell("default", "2026-01", budget.Known(0, 0))
    assert base_redis.state().exists(key())


def test_calendar_months_of_the_business_zone(settings: Any) -> None:
    settings.BUSINESS_TIME_ZONE = "Asia/Shanghai"
    last_second = 1_798_732_799_000  # 2026-12-31T15:59:59Z
    pair = periods.months_around(last_second)
    assert pair.names == ("2026-12", "2027-01")
    assert pair.bounds[1] == 1_798_732_800_000
    assert periods.days_around(last_second + 1000).names[1] == "2027-01-01"
    settings.BUSINESS_TIME_ZONE = "America/New_York"  # a day of 23 hours
    day = periods.days_around(1_772_971_200_000)
    assert day.names[0 if day.names[0] == "2026-03-08" else 1] == "2026-03-08"
    spans = {day.bounds[1] - day.bounds[0], day.bounds[2] - day.bounds[1]}
    assert 23 * 3_600_000 in spans


def test_the_months_sum_is_the_ledgers_whatever_happened_to_it() -> None:
    make_wide(budget="10")
    settle(ALICE, admitted(estimate="1"), actual="4")
    BudgetMonth.objects.update(spent=1, number=1)
    empty_redis()
    forget_everything()
    assert left() == 6
    assert BudgetMonth.objects.get().spent == 4
    assert date.fromisoformat(f"{month()}-01")
