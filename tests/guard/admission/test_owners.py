"""Nobody ends, renews or settles what is not theirs, nor their own twice under another name; a run id is one run."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from config.base import redis as base_redis
from config.base.errors import DomainError
from guard.access.services import Caller
from guard.admission import keys
from guard.admission.models import BudgetLedger
from guard.admission.services import admit, release, renew, settle
from guard.admission.sessions import register_session_check
from tests.guard.admission.helpers import ALICE, BOB, admitted, make_wide, new_session, together

pytestmark = pytest.mark.django_db(transaction=True)

WEI = Caller("default", "advisor", "wei")


@pytest.fixture(autouse=True)
def own_sessions() -> Iterator[None]:
    from memory.sessions.owners import check_writable

    register_session_check(lambda caller, session_id: None)
    yield
    register_session_check(check_writable)


def refused(work: Any, *args: Any, **arguments: Any) -> str:
    with pytest.raises(DomainError) as told:
        work(*args, **arguments)
    return told.value.code


def slots(caller: Caller = ALICE) -> tuple[int, int]:
    client = base_redis.state()
    return (
        client.zcard(keys.TENANT_ACTIVE("default")),
        client.zcard(keys.USER_ACTIVE("default", user_id=caller.actor_id)),
    )


def test_an_admission_of_ones_own_ends_nobody_elses_run() -> None:
    make_wide()
    session = new_session()
    run = admitted(run="run-1", session=session)
    of_run: dict[str, Any] = {"run": "run-1", "session": session, "fence": run.fence}
    for mallory in (WEI, BOB, ALICE):  # ALICE: her other admission is another one too
        own = admitted(mallory)
        for naming in (of_run, {**of_run, "fence": run.fence + 1}, {"session": session}, {"run": "run-1"}):
            assert refused(release, mallory, own.admission_id, **naming) in ("NOT_FOUND", "INVALID_ID")
            assert refused(renew, mallory, own.admission_id, **naming) in ("NOT_FOUND", "INVALID_ID")
            assert refused(settle, mallory, own.admission_id, actual=1, **naming) in ("NOT_FOUND", "INVALID_ID")
        assert release(mallory, own.admission_id)
    # nor does the verdict of a run, held by its own process, reach the run that took its place
    release(ALICE, run)
    later = admitted(run="run-1", session=session)
    release(ALICE, run)
    assert renew(ALICE, later) == 60
    assert slots() == (1, 1)
    # its own id ends it, and only with all that it is an id of
    assert refused(release, ALICE, later.admission_id) == "NOT_FOUND"
    assert release(ALICE, later.admission_id, **{**of_run, "fence": later.fence})
    assert slots() == (0, 0)
    assert not BudgetLedger.objects.exists()


def test_a_run_id_is_one_run_of_one_holder() -> None:
    make_wide(tenant_running=3, user_running=2)
    session = new_session()
    first = admitted(run="run-1", session=session)
    for caller, place in ((BOB, new_session()), (WEI, session), (ALICE, new_session())):
        verdict = admit(caller, run="run-1", session=place)
        assert (verdict.refused_by, verdict.error().code, verdict.error().status) == ("run", "RUN_TAKEN", 409)
        assert 59 < verdict.retry_after <= 60
    assert renew(ALICE, first) == 60
    assert base_redis.state().hget(keys.RUN("default", run_id="run-1"), "user") == "alice"
    # taken up again by its holder: one slot, a higher number, and the hold before is told
    again = admitted(run="run-1", session=session)
    assert (slots(), again.fence > first.fence) == ((1, 1), True)
    assert refused(renew, ALICE, first) == "LEASE_LOST"
    release(ALICE, first)
    assert (slots(), renew(ALICE, again)) == ((1, 1), 60)
    release(ALICE, again)
    assert admitted(BOB, run="run-1", session=new_session()).fence == 1  # over: free


def test_slots_count_admissions() -> None:
    make_wide(user_running=1)
    answers = together(16, lambda n: admit(ALICE, run="run-1", session=new_session()).refused_by)
    assert answers.count("") == 1
    assert set(answers) == {"", "user_running", "run"} or set(answers) <= {"", "user_running", "run"}
    assert slots() == (1, 1)
    make_wide(user_running=1)
    session = new_session()
    holder = admitted(BOB, run="run-2", session=session)
    assert admit(BOB).refused_by == "user_running"
    assert admitted(BOB, run="run-2", session=session).fence == holder.fence + 1  # in the slot it has


def test_an_id_has_one_spelling() -> None:
    make_wide(budget="10")
    verdict = admitted(estimate="1")
    day, token, mark = verdict.admission_id.split(".")
    assert settle(ALICE, verdict.admission_id, actual="1").number == 1
    full = "".join(chr(0xFF10 + int(digit)) for digit in day[:4]) + day[4:]
    for spelling in (
        f"{full}.{token}.{mark}", f"{day[:6]}+{day[7:]}.{token}.{mark}", f"{day[:6]} {day[7:]}.{token}.{mark}",
        f"{day}.{token.upper()}.{mark}", f"{day}.{token}.{mark.upper()}", f" {verdict.admission_id}",
        f"{verdict.admission_id}\n", f"{day}_{token}_{mark}", f"{day[:4]}-{day[4:]}.{token}.{mark}", None, 7, b"x",
    ):  # fmt: skip
        if spelling == verdict.admission_id:
            continue
        assert refused(settle, ALICE, spelling, actual="2") == "NOT_FOUND"
    assert BudgetLedger.objects.count() == 1


def test_a_refusal_has_no_id() -> None:
    make_wide(rate=0)
    verdict = admit(ALICE, estimate="1")
    assert verdict.admission_id == ""
    for admission in (verdict, verdict.admission_id):
        assert refused(settle, ALICE, admission, actual="3") == "NOT_FOUND"
    assert not BudgetLedger.objects.exists()


def used(day: str) -> int:
    return int(base_redis.state().hget(keys.QUOTA("default", actor_id="alice", date=day), "used") or 0)


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("what", [{"slot": False}, {}, {"slot": False, "estimate": "1"}])
def test_a_day_s_call_is_given_back_once_and_not_after_it_was_settled(what: dict[str, Any], by_id: bool) -> None:
    make_wide(quota=10)

    def admission() -> Any:
        verdict = admitted(**what)
        return verdict.admission_id if by_id else verdict

    day = admitted().day
    first, other = admission(), admission()
    assert used(day) == 3
    assert together(8, lambda n: release(ALICE, first, unused=True)).count(True) == 1
    assert used(day) == 2
    settle(ALICE, other, actual="0.5", keep=True)
    release(ALICE, other, unused=True)
    assert used(day) == 2
    # what was no call of the day gives none back
    look = admitted(action="look")
    release(ALICE, look.admission_id if by_id else look, unused=True)
    assert used(day) == 2


@pytest.mark.parametrize(
    "amount",
    [
        "１２", "1_0", " 5 ", "5\n", "", "NaN", "sNaN", "Infinity", "0x1", "-1", Decimal("sNaN"), Decimal("NaN"), 1.5,
        True, None, b"1", 10**50, "9" * 5000, Decimal("1e-7"), f"1.{'0' * 37}1",
        Decimal(f"9007199254.740991{'0' * 21}1"),
    ],
)  # fmt: skip
def test_an_amount_has_the_digits_0_to_9(amount: Any) -> None:
    make_wide()
    verdict = admitted()
    assert refused(settle, ALICE, verdict, actual=amount) == "INVALID_REQUEST"
    if amount is not None:
        assert refused(admit, ALICE, estimate=amount) == "INVALID_REQUEST"
