"""Whose customer it is comes from the core: at this instant, in this tenant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from config.base.clock import now
from config.base.errors import DomainError
from guard.access import services
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize
from memory.core.models import CoreAssignment

pytestmark = pytest.mark.django_db


def make(**fields: Any) -> CoreAssignment:
    return CoreAssignment.objects.create(**{"tenant": "default", "customer_id": "alice", "advisor_id": "lin", **fields})


def may(advisor_id: str = "lin", tenant: str = "default", customer_id: str = "alice") -> bool:
    try:
        authorize(Caller(tenant, "advisor", advisor_id), Resource.L1, "read", customer_id=customer_id)
    except DomainError as refusal:
        return {"NOT_ASSIGNED": False}[refusal.code]
    return True


def test_an_assignment_holds_from_its_first_instant_to_before_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    noon = now().replace(hour=4, minute=0, second=0, microsecond=0)  # 12:00 in Shanghai
    make(valid_from=noon, valid_to=noon + timedelta(hours=3))
    for at, expected in (
        (noon - timedelta(microseconds=1), False),
        (noon, True),
        (noon + timedelta(hours=3) - timedelta(microseconds=1), True),
        (noon + timedelta(hours=3), False),  # ended today: from that instant on, not at midnight
    ):
        monkeypatch.setattr(services, "now", lambda at=at: at)
        assert may() is expected, at


def test_a_hand_over_leaves_one_in_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    at = now()
    make(valid_from=at - timedelta(days=9), valid_to=at)
    make(advisor_id="wei", valid_from=at)
    monkeypatch.setattr(services, "now", lambda: at)
    assert (may("lin"), may("wei")) == (False, True)


def test_the_same_names_in_another_tenant_are_others() -> None:
    make(tenant="east")
    assert (may(), may(tenant="east")) == (False, True)


def test_names_are_compared_byte_by_byte() -> None:
    make()
    assert [may(name) for name in ("lin", "Lin", "LIN", "lín", "lin.")] == [True, False, False, False, False]
    assert not may(customer_id="Alice")


def test_an_end_counts_a_second_later_for_a_caller_that_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    row, caller, clock = make(), Caller("default", "advisor", "lin"), [100.0]
    monkeypatch.setattr(services.time, "monotonic", lambda: clock[0])
    authorize(caller, Resource.L1, "read", customer_id="alice")
    row.delete()
    clock[0] += services.ASSIGNMENT_MEMO_SECONDS
    with pytest.raises(DomainError) as refusal:
        authorize(caller, Resource.L1, "read", customer_id="alice")
    assert refusal.value.code == "NOT_ASSIGNED"
    assert not may()  # and another caller, that is the next request, at once
