"""Profiles while the core system is away: what it never said is not known, and nothing says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.utils import OperationalError

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from memory.profiles import cache, core_sync, selectors, services
from memory.profiles.cache import Part, Slot
from memory.profiles.models import CustomerProfileL1, CustomerProfileL3
from tests.memory.profiles.helpers import ALICE, make_agent, make_assessment, make_caller, make_core_customer

pytestmark = pytest.mark.django_db(transaction=True)

Away = Callable[[bool], list[str]]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    """Switches the core off and on; gives whom it was asked about meanwhile."""
    asked: list[str] = []
    ask = core_sync.customer
    gone = [False]

    def customer(*, tenant: str, customer_id: str) -> Any:
        asked.append(customer_id)
        if gone[0]:
            raise OperationalError(2003, "cannot connect to the core")
        return ask(tenant=tenant, customer_id=customer_id)

    monkeypatch.setattr(core_sync, "customer", customer)

    def switch(to: bool) -> list[str]:
        gone[0] = to
        asked.clear()
        return asked

    return switch


def code_of(read: Callable[[], Any]) -> str:
    with pytest.raises(DomainError) as refusal:
        read()
    return refusal.value.code


def read_l1() -> Any:
    return selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)


def read_l3() -> Any:
    return selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)


def test_a_customer_who_has_no_l1_yet_is_503_and_found_at_once_when_the_core_is_back(away: Away) -> None:
    make_core_customer()
    away(True)
    answer = make_agent("customer").get(f"/profiles/l1/{ALICE}")
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")
    away(False)
    assert read_l1()["name"] == "王小明"


def test_the_customers_part_of_l3_is_not_made_up(away: Away) -> None:
    make_core_customer()
    make_assessment()
    away(True)
    assert code_of(read_l3) == "CORE_UNAVAILABLE"  # with a row of l3 and without one alike
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"schema_version": 1, "risk_score": 1})
    assert code_of(read_l3) == "CORE_UNAVAILABLE"
    # Whoever needs nothing of the core is answered.
    assert selectors.read_l3(caller=make_caller("risk"), customer_id=ALICE)["risk_score"] == 1
    away(False)
    assert (read_l3()["assessment_status"], read_l3()["required_steps"]) == ("valid", [])


def test_an_l1_that_was_written_meanwhile_is_not_cached_as_one_without_assessment(away: Away) -> None:
    make_core_customer()
    make_assessment()
    away(True)
    CustomerProfileL3.objects.create(customer_id=ALICE)
    services.write_l1(caller=make_caller("customer"), customer_id=ALICE, payload={"occupation": "cook"})
    for read in (read_l1, read_l3, read_l1):
        assert code_of(read) == "CORE_UNAVAILABLE"
    # Nor is the question about a moment ago answered with what nobody knows.
    moment = now()
    for path in (f"/profiles/l1/{ALICE}", f"/profiles/l3/{ALICE}"):
        assert make_agent("customer").get(f"{path}?as_of={rfc3339(moment)}").status_code == 503
    assert cache.read([Slot("default", "l1", ALICE)])[0].part is Part.LOAD
    cache.drop([Slot("default", "l1", ALICE)])
    away(False)
    assert (read_l1()["assessment_status"], read_l1()["occupation"]) == ("valid", "cook")
    assert read_l3()["assessment_status"] == "valid"


def test_what_the_core_said_before_is_shown_and_not_kept(away: Away) -> None:
    make_core_customer()
    read_l1()
    CustomerProfileL1.objects.update(core_synced_at=now() - timedelta(days=2))
    cache.drop([Slot("default", "l1", ALICE)])
    asked = away(True)
    assert [read_l1()["name"], read_l1()["name"]] == ["王小明"] * 2
    assert len(asked) == 2  # each reader asks again (the window's breaker bounds what that costs)
    make_assessment()
    away(False)
    assert read_l1()["assessment_status"] == "valid"


def test_a_customer_whom_the_core_does_not_know_is_asked_about_once_a_day(away: Away) -> None:
    services.write_l1(caller=make_caller("customer"), customer_id=ALICE, payload={"occupation": "cook"})
    asked = away(False)
    for _ in range(3):
        cache.drop([Slot("default", "l1", ALICE)])
        assert (read_l1()["assessment_status"], read_l1()["version"]) == ("missing", 1)
    assert asked == [ALICE]
    # Known since, and the core away: it is "missing" no longer than the last look counts.
    away(True)
    assert read_l1()["assessment_status"] == "missing"
