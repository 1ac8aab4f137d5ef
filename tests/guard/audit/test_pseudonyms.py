"""Customers in the log: under a name that stays while they do, and that nobody can trace once they are erased."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from config.base.errors import DomainError
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize, issue_key
from guard.audit import pseudonyms
from guard.audit.models import AuditLog, CustomerPseudonym
from memory.erasure.services import erase_customer
from tests.guard.audit.sealing import make_row, make_sealed, seal, verify

pytestmark = pytest.mark.django_db(transaction=True)
CUSTOMER = "cust-0007"


def raw_log() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM audit_log ORDER BY id")
        return str(cursor.fetchall())


def test_a_pseudonym_is_stable_and_differs_by_tenant_and_customer() -> None:
    name = pseudonyms.of("default", CUSTOMER)
    assert pseudonyms.is_pseudonym(name)
    pseudonyms.forget_pseudonyms()
    assert pseudonyms.of("default", CUSTOMER) == name
    assert len({name, pseudonyms.of("east", CUSTOMER), pseudonyms.of("default", "cust-0008")}) == 3
    assert CUSTOMER not in str(list(CustomerPseudonym.objects.values()))


def test_finding_makes_none() -> None:
    name = pseudonyms.of("default", CUSTOMER)
    assert pseudonyms.find("default", [CUSTOMER, "cust-0008"]) == {CUSTOMER: name}
    assert CustomerPseudonym.objects.count() == 1


@pytest.mark.parametrize("fields", [
    {"actor_type": "customer", "actor_id": CUSTOMER},
    {"agent": "customer", "on_behalf_of": CUSTOMER},
    {"object_type": "profile_l1", "object_id": CUSTOMER},
    {"object_type": "actor", "agent": "customer", "object_id": CUSTOMER},
    {"input_summary": {"customer_id": CUSTOMER, "target": CUSTOMER, "action": "read"}},
    {"customer_id": CUSTOMER, "object_id": CUSTOMER},
    {"customer_id": CUSTOMER, "input_summary": {"key": f"{CUSTOMER}:RISK-001:2026-11-30", "in": [{CUSTOMER: 1}]}},
    {"customer_id": CUSTOMER, "on_behalf_of": CUSTOMER, "object_id": f"x:{CUSTOMER}"},
])  # fmt: skip
def test_wherever_a_customer_stands_the_row_has_the_pseudonym(fields: dict[str, Any]) -> None:
    row = make_row(**fields)
    name = pseudonyms.of("default", CUSTOMER)
    assert row.customer == name
    assert CUSTOMER not in raw_log()
    assert raw_log().count(name) >= 2
    seal()
    assert verify()["exit"] == 3


def test_others_who_are_named_in_a_row_are_renamed_too() -> None:
    row = make_row(customer_id=CUSTOMER, customers=["cust-0008"], input_summary={"both": [CUSTOMER, "cust-0008"]})
    assert row.customer == pseudonyms.of("default", CUSTOMER)
    assert "cust-000" not in raw_log()


def test_people_and_words_of_ours_keep_their_names_also_where_a_customer_is_called_so() -> None:
    row = make_row(actor_id="lin", customer_id="lin", input_summary={"code": "lin", "action": "lin", "who": "lin"})
    assert (row.actor_id, row.input_summary["code"], row.input_summary["action"]) == ("lin", "lin", "lin")
    assert row.input_summary["who"] == row.customer
    part = make_row(customer_id="cust", input_summary={"text": "cust-0007 customer cust"}).input_summary["text"]
    assert part == f"cust-0007 customer {pseudonyms.of('default', 'cust')}"


def test_refusals_and_bound_keys_name_customers_by_pseudonym() -> None:
    issue_key(agent="customer", actor_id=CUSTOMER)
    for caller, resource in (
        (Caller("default", "customer", CUSTOMER), Resource.L2),
        (Caller("default", "advisor", "wei"), Resource.L1),
    ):
        with pytest.raises(DomainError):
            authorize(caller, resource, "read", object_id=CUSTOMER, customer_id=CUSTOMER)
    assert CUSTOMER not in raw_log()
    assert set(AuditLog.objects.values_list("customer", flat=True)) == {pseudonyms.of("default", CUSTOMER)}


def test_what_a_known_customer_costs() -> None:
    make_row(customer_id=CUSTOMER)
    with CaptureQueriesContext(connection) as queries:
        make_row(customer_id=CUSTOMER)
    assert [query["sql"].split()[0] for query in queries if "SAVEPOINT" not in query["sql"]] == ["INSERT"]


def test_a_name_made_in_a_transaction_that_is_rolled_back_is_not_remembered() -> None:
    with transaction.atomic():
        gone = pseudonyms.of("default", CUSTOMER)
        assert pseudonyms.of("default", CUSTOMER) == gone
        transaction.set_rollback(True)
    name = pseudonyms.of("default", CUSTOMER)
    assert name != gone
    pseudonyms.forget_pseudonyms()
    assert pseudonyms.of("default", CUSTOMER) == name


def test_many_first_rows_at_once_agree_on_one_name() -> None:
    names: list[str] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        try:
            barrier.wait()
            names.append(pseudonyms.of("default", CUSTOMER))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 8
    assert len(set(names)) == 1


def test_an_erasure_destroys_the_key_and_leaves_the_log_whole_and_verifiable() -> None:
    make_row(customer_id=CUSTOMER, object_id=CUSTOMER)
    make_sealed(1)
    name = pseudonyms.of("default", CUSTOMER)
    before = list(AuditLog.objects.order_by("id").values())
    receipt = erase_customer(customer_id=CUSTOMER, by="an")
    assert receipt.removed["guard.audit"] == {"pseudonym_keys": 1}
    assert pseudonyms.find("default", [CUSTOMER]) == {}
    assert not CustomerPseudonym.objects.exists()
    assert list(AuditLog.objects.order_by("id").values())[: len(before)] == before
    seal()
    assert verify()["exit"] == 3
    again = pseudonyms.of("default", CUSTOMER)
    assert again != name, "met again, the customer has another name"
    assert erase_customer(customer_id=CUSTOMER, by="an").removed["guard.audit"] == {"pseudonym_keys": 2}


def test_another_process_forgets_the_name_within_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(pseudonyms.time, "monotonic", lambda: clock[0])
    name = pseudonyms.of("default", CUSTOMER)
    CustomerPseudonym.objects.all().delete()  # what the other process does
    assert pseudonyms.of("default", CUSTOMER) == name
    clock[0] += pseudonyms.CACHE_SECONDS + 0.1
    assert pseudonyms.of("default", CUSTOMER) != name


def test_the_name_stays_when_the_secret_key_is_changed(settings: Any) -> None:
    name = pseudonyms.of("default", CUSTOMER)
    pseudonyms.forget_pseudonyms()
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another"
    assert pseudonyms.of("default", CUSTOMER) == name
    assert pseudonyms.destroy("default", CUSTOMER) == 1


def test_all_of_a_tenant_are_destroyed_and_no_others() -> None:
    for tenant in ("default", "east"):
        pseudonyms.of(tenant, CUSTOMER)
    assert pseudonyms.destroy("east") == 1
    assert list(CustomerPseudonym.objects.values_list("tenant", flat=True)) == ["default"]
