"""A legal hold: while it is in force nothing is removed, whenever it was placed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.erasure import running
from memory.erasure.holds import place_hold, release_hold
from memory.erasure.models import CustomerTombstone, ErasureReceipt, LegalHold
from memory.erasure.services import erase_customer, finish_open
from memory.sessions import selectors
from memory.sessions.models import AgentMessage
from tests.memory.erasure.helpers import (
    ALICE,
    ALICE_ID,
    BOB,
    BOB_ID,
    Thread,
    command,
    erase,
    found_in_database,
    left_of,
    make_profiles,
    make_session,
    say,
)

pytestmark = pytest.mark.django_db(transaction=True)


def words() -> list[str]:
    rows = AuditLog.objects.filter(event_type__in=("erasure", "legal_hold")).order_by("id")
    return [f"{row.event_type} {row.decision}" for row in rows]


def test_held_nothing_is_removed_and_released_everything() -> None:
    session = make_session()
    say(session, durability="sync")
    code, hold = command("legal_hold", "place", ALICE_ID, "--reason", "case 7", "--by", "counsel")
    assert code == 0

    code, answer = erase()
    assert (code, answer["code"]) == (1, "LEGAL_HOLD")
    assert AgentMessage.objects.count() == 1
    assert not CustomerTombstone.objects.filter(at__isnull=False).exists()
    assert not ErasureReceipt.objects.exists()
    say(session)  # whoever is not erased goes on
    assert erase(ALICE_ID, "--dry-run")[0] == 1

    assert command("legal_hold", "list")[1][0]["hold"] == hold["hold"]
    assert command("legal_hold", "release", str(hold["hold"]), "--by", "counsel")[0] == 0
    assert command("legal_hold", "list")[1] == []
    code, receipt = erase()
    assert (code, receipt["state"]) == (0, "done")
    assert left_of(ALICE_ID) == []
    assert LegalHold.objects.get().customer_id.startswith("erased-")
    assert words() == [
        "legal_hold set", "erasure refused", "legal_hold lifted", "erasure requested", "erasure completed",
    ]  # fmt: skip


def test_of_two_holds_both_must_go() -> None:
    first = place_hold(customer_id=ALICE_ID, by="counsel", reason="a")
    second = place_hold(customer_id=ALICE_ID, by="counsel", reason="b")
    release_hold(hold_id=first.pk, by="counsel")
    assert erase()[0] == 1
    release_hold(hold_id=second.pk, by="counsel")
    release_hold(hold_id=second.pk, by="somebody else")
    assert LegalHold.objects.get(pk=second.pk).released_by == "counsel"
    assert erase()[0] == 0


def test_another_customers_hold_is_no_hold() -> None:
    place_hold(customer_id=BOB_ID, by="counsel", reason="a")
    place_hold(customer_id=ALICE_ID, by="counsel", reason="a", tenant="other")
    assert erase()[0] == 0


def test_placed_while_an_erasure_runs_it_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.sessions.erasing.ROWS_A_STEP", 2)
    session = make_session()
    for n in range(9):
        say(session, f"text {n}", durability="sync")
    make_profiles()
    real = running.Erasing.step
    reached, go_on = threading.Event(), threading.Event()

    def step(job: Any, work: Any) -> Any:
        answer = real(job, work)
        if AgentMessage.objects.count() <= 5 and not reached.is_set():
            reached.set()
            assert go_on.wait(20)
        return answer

    monkeypatch.setattr(running.Erasing, "step", step)
    eraser = Thread(lambda: erase_customer(customer_id=ALICE_ID, by="dpo"))
    assert reached.wait(10)
    hold = place_hold(customer_id=ALICE_ID, by="counsel", reason="just now")
    left = AgentMessage.objects.count()
    go_on.set()
    eraser.end()
    assert isinstance(eraser.error, DomainError)
    assert eraser.error.code == "LEGAL_HOLD"
    assert 0 < AgentMessage.objects.count() == left  # after the hold was placed nothing more went
    assert found_in_database(ALICE_ID) != []
    assert ErasureReceipt.objects.get().state == "held"
    assert finish_open() == 0
    with pytest.raises(DomainError):  # what is left is kept, and nothing is added
        say(session)

    release_hold(hold_id=hold.pk, by="counsel")
    code, receipt = erase()
    assert (code, receipt["state"]) == (0, "done")
    assert receipt["removed"]["memory.sessions"]["messages"] == 9
    assert left_of(ALICE_ID) == []


@pytest.mark.mariadb
def test_hold_and_erasure_at_once_one_of_them_is_first() -> None:
    """Ten times both at the same moment: held means that all is there, erased means that nothing is."""
    outcomes = set()
    for n in range(10):
        customer_id = f"{ALICE_ID}-{n}"
        caller = type(ALICE)("default", "customer", customer_id)
        session = make_session(caller, customer_id)
        say(session, caller=caller, durability="sync")
        gun = threading.Barrier(2)

        def erase_now(customer_id: str = customer_id, gun: threading.Barrier = gun) -> str:
            gun.wait()
            try:
                return erase_customer(customer_id=customer_id, by="dpo").state
            except DomainError as error:
                return error.code

        def hold_now(customer_id: str = customer_id, gun: threading.Barrier = gun) -> str:
            gun.wait()
            try:
                place_hold(customer_id=customer_id, by="counsel", reason="a")
            except DomainError as error:
                return error.code
            return "held"

        eraser, holder = Thread(erase_now), Thread(hold_now)
        answers = (eraser.end().answer, holder.end().answer)
        outcomes.add(answers)
        if answers == ("done", "CUSTOMER_ERASED"):
            assert left_of(customer_id) == []
        else:
            assert answers == ("LEGAL_HOLD", "held"), (eraser.error, holder.error)
    assert outcomes


def test_who_is_erased_cannot_be_held() -> None:
    erase()
    assert command("legal_hold", "place", ALICE_ID, "--reason", "late")[0] == 1
    assert words()[-1] == "legal_hold refused"
    assert not LegalHold.objects.exists()


def test_wrong_arguments() -> None:
    assert command("legal_hold", "place", "bad id", "--reason", "x")[0] == 2
    assert command("legal_hold", "place", ALICE_ID, "--reason", " ")[0] == 2
    assert command("legal_hold", "release", "12345")[0] == 1


def test_bobs_messages_stay_where_alice_is_held() -> None:
    place_hold(customer_id=ALICE_ID, by="counsel", reason="a")
    bobs = make_session(BOB, BOB_ID)
    say(bobs, "bob's", caller=BOB)
    assert len(selectors.read_messages(caller=BOB, session_id=bobs).messages) == 1
