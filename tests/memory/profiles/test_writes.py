"""Versions, races of writers, and the audit row that goes with each write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import of as pseudonym_of
from memory.profiles import selectors, services
from memory.profiles.models import CustomerProfileL1, ProfileChange
from tests.memory.profiles.helpers import ALICE, make_caller

pytestmark = pytest.mark.django_db(transaction=True)


def write(occupation: str, if_version: int | None = None) -> services.Written:
    return services.write_l1(
        caller=make_caller("customer"), customer_id=ALICE, payload={"occupation": occupation}, if_version=if_version
    )


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """`work(0..count-1)` in threads that start together; results and exceptions in order."""
    barrier, results = threading.Barrier(count), [None] * count

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_each_write_is_a_version_and_one_audit_row() -> None:
    assert (write("teacher").version, write("judge").version) == (1, 2)
    rows = list(AuditLog.objects.order_by("id"))
    name = pseudonym_of("default", ALICE)
    assert [
        (row.event_type, row.decision, row.actor_type, row.actor_id, row.object_type, row.object_id) for row in rows
    ] == [("profile_write", "written", "customer", name, "profile_l1", name)] * 2
    assert [row.input_summary["version"] for row in rows] == [1, 2]
    row = CustomerProfileL1.objects.get()
    assert (row.updated_by, row.trace_id) == (ALICE, rows[1].trace_id)
    assert "judge" not in str([entry.input_summary for entry in rows])


def test_a_write_that_names_a_stale_version_changes_nothing_and_says_what_is_there() -> None:
    write("teacher")
    write("judge", if_version=1)
    with pytest.raises(DomainError) as conflict:
        write("pilot", if_version=1)
    assert (conflict.value.code, conflict.value.extra["current_version"]) == ("VERSION_CONFLICT", 2)
    with pytest.raises(DomainError) as conflict:
        write("pilot", if_version=0)
    assert conflict.value.code == "VERSION_CONFLICT"
    assert selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)["occupation"] == "judge"
    assert AuditLog.objects.count() == 2
    with pytest.raises(DomainError) as conflict:
        services.write_l1(caller=make_caller("customer", "cust-new"), customer_id="cust-new", payload={}, if_version=3)
    assert conflict.value.extra["current_version"] == 0


def test_of_two_writers_with_the_same_version_one_wins() -> None:
    write("teacher")
    results = at_once(6, lambda number: write(f"job {number}", if_version=1))
    won = [result for result in results if isinstance(result, services.Written)]
    lost = [result.code for result in results if isinstance(result, DomainError)]
    assert (len(won), lost) == (1, ["VERSION_CONFLICT"] * 5), results


def test_writers_who_create_the_same_profile_at_once_all_succeed_on_one_row() -> None:
    results = at_once(6, lambda number: write(f"job {number}"))
    assert sorted(result.version for result in results) == [1, 2, 3, 4, 5, 6]
    assert [result.created for result in results].count(True) == 1
    assert CustomerProfileL1.objects.get().version == 6
    assert AuditLog.objects.count() == 6
    assert ProfileChange.objects.count() == 6


def test_without_its_audit_row_a_write_does_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("no audit")

    write("teacher")
    monkeypatch.setattr(services, "record", broken)
    with pytest.raises(RuntimeError):
        write("judge")
    assert selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)["occupation"] == "teacher"


def test_no_read_is_older_than_a_save_whose_call_had_returned() -> None:
    """Readers and writers at once; each writer notes the version once its call has returned."""
    write("start")
    floor = [1]
    stale: list[tuple[int, int]] = []

    def work(number: int) -> None:
        caller = make_caller("customer")
        for step in range(25):
            if number < 2:
                version = write(f"{number}-{step}").version
                floor[0] = max(floor[0], version)
            else:
                expected = floor[0]
                seen = selectors.read_l1(caller=caller, customer_id=ALICE)["version"]
                if seen < expected:
                    stale.append((seen, expected))

    assert at_once(5, work) == [None] * 5
    assert stale == []
