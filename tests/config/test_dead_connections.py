"""A program that uses the database for hours gets over a connection that the server has closed."""

from __future__ import annotations

import threading

import pytest
from django.db import OperationalError, connection, connections, transaction

from config.base.errors import DomainError
from guard.access.services import Caller
from guard.admission import admit, settle
from guard.admission.limits import set_limit
from guard.admission.policy import forget_policy

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.mariadb]
ALICE = Caller("default", "customer", "alice")


def number() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        return int(cursor.fetchone()[0])


def kill(which: int) -> None:
    """By another connection, as an operator or a restart of the server does it."""

    def work() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"KILL {which}")
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_the_call_that_meets_it_fails_and_the_next_one_works() -> None:
    first = number()
    kill(first)
    with pytest.raises(OperationalError):
        number()
    assert number() != first


def test_a_transaction_begins_on_a_living_connection() -> None:
    kill(number())
    with pytest.raises(OperationalError):
        number()
    with transaction.atomic():
        assert number()


def test_within_a_transaction_nothing_is_opened_anew() -> None:
    """Its first half is gone: to go on with the second half alone would be half a transaction."""

    def halves() -> None:
        with transaction.atomic():
            kill(number())
            with pytest.raises(OperationalError):
                number()
            number()

    with pytest.raises(OperationalError):
        halves()
    assert number()


def test_a_caller_of_admission_learns_of_new_limits_and_settles_all_the_same() -> None:
    done = admit(ALICE, estimate=1)
    kill(number())
    with pytest.raises(DomainError, match="DATABASE_UNAVAILABLE"):
        settle(ALICE, done, actual=1)
    settle(ALICE, done, actual=1)
    kill(number())
    other = threading.Thread(
        target=lambda: (
            set_limit(tenant="default", kind="hourly", value=0, by="lin"),
            connections.close_all(),
        )
    )
    other.start()
    other.join()
    forget_policy()
    with pytest.raises(DomainError):
        admit(ALICE, estimate=1)  # nothing is known, and the connection is dead
    assert not admit(ALICE, estimate=1).allowed
