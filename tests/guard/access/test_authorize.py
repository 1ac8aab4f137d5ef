"""One question, `authorize`: what the matrix says, whose it is, and what a refusal leaves behind."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.base.errors import DomainError
from guard.access import services
from guard.access.matrix import MATRIX, Resource
from guard.access.models import Agent
from guard.access.services import Caller, authorize
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import of as pseudonym_of

pytestmark = pytest.mark.django_db(transaction=True)


def caller(agent: str, actor_id: str = "me") -> Caller:
    return Caller("default", agent, actor_id)


def test_what_is_not_written_in_the_matrix_is_forbidden() -> None:
    for agent in Agent.values:
        for resource in Resource:
            for action in ("read", "write"):
                if action in MATRIX[agent].get(resource, {}):
                    continue
                with pytest.raises(DomainError) as refusal:
                    authorize(caller(agent), resource, action, owner_id="me", customer_id="me")  # type: ignore[arg-type]
                assert refusal.value.code == "AUTH_403_SCOPE"
    with pytest.raises(DomainError):
        authorize(caller("nobody-knows-it"), Resource.SESSION, "read", owner_id="me")


def test_own_means_the_actors_own_byte_by_byte() -> None:
    authorize(caller("customer", "alice"), Resource.SESSION, "read", owner_id="alice")
    for other in ("Alice", "alice.", "bob", ""):
        with pytest.raises(DomainError) as refusal:
            authorize(caller("customer", "alice"), Resource.SESSION, "read", owner_id=other)
        assert refusal.value.code == "NOT_OWNER"


def test_a_customers_own_session_about_another_customer_is_not_its_own() -> None:
    with pytest.raises(DomainError) as refusal:
        authorize(caller("customer", "alice"), Resource.SESSION, "write", owner_id="alice", customer_id="bob")
    assert refusal.value.code == "NOT_OWNER"
    authorize(caller("advisor", "wei"), Resource.SESSION, "write", owner_id="wei", customer_id="prospect")


def test_own_with_nothing_to_compare_with_is_a_fault_and_never_a_yes() -> None:
    with pytest.raises(ValueError, match="needs owner_id or customer_id"):
        authorize(caller("customer"), Resource.L1, "read")


def test_without_anybody_who_knows_assignments_nobody_is_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_assignment_resolver", None)
    with pytest.raises(DomainError) as refusal:
        authorize(caller("advisor"), Resource.L1, "read", customer_id="alice")
    assert refusal.value.code == "NOT_ASSIGNED"


def test_an_assignment_is_asked_once_a_request_and_again_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    clock = [100.0]

    def resolver(tenant: str, advisor_id: str, customer_id: str, at: object) -> bool:
        asked.append(customer_id)
        return customer_id == "alice"

    monkeypatch.setattr(services, "_assignment_resolver", resolver)
    monkeypatch.setattr(services.time, "monotonic", lambda: clock[0])
    wei = caller("advisor", "wei")
    for _ in range(2):
        authorize(wei, Resource.L1, "read", customer_id="alice")
    assert asked == ["alice"]
    for _ in range(2):  # a no is never remembered
        with pytest.raises(DomainError):
            authorize(wei, Resource.L1, "read", customer_id="bob")
    assert asked == ["alice", "bob", "bob"]
    clock[0] += 1.1
    authorize(wei, Resource.L1, "read", customer_id="alice")
    authorize(caller("advisor", "wei"), Resource.L1, "read", customer_id="alice")
    assert asked[3:] == ["alice", "alice"]


def test_a_refusal_is_one_committed_row_with_what_risk_008_looks_for() -> None:
    with pytest.raises(DomainError):
        authorize(
            caller("advisor", "wei"), Resource.L2, "write", owner_id="lin", customer_id="alice", object_id="alice"
        )
    [row] = AuditLog.objects.all()
    assert (row.event_type, row.decision, row.code, row.actor_type, row.actor_id) == (
        "authz", "forbidden", "NOT_OWNER", "agent", "wei",
    )  # fmt: skip
    name = pseudonym_of("default", "alice")
    assert row.input_summary == {"code": "NOT_OWNER", "action": "write", "target": name, "customer_id": name}
    assert (row.object_id, row.customer) == (name, name)
    assert len(row.trace_id) == 32
    assert not connection.in_atomic_block


def test_passing_costs_no_query_where_own_or_any_decides() -> None:
    with CaptureQueriesContext(connection) as queries:
        authorize(caller("customer", "alice"), Resource.L1, "write", customer_id="alice")
        authorize(caller("risk"), Resource.L3, "write", customer_id="alice")
    assert len(queries) == 0
