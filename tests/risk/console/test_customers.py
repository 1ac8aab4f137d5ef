"""The page of one customer: three layers, versions, assets, drafts, conversations and alerts, masked by role."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.services import Caller
from guard.audit.models import AuditLog
from memory.core.models import CoreAssessment, CoreCustomer
from memory.profiles import services
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.drafts.content import Content
from memory.profiles.drafts.services import create_draft
from memory.profiles.models import CustomerProfileL2, CustomerProfileL3, ProfileVersion
from memory.profiles.snapshots.selectors import read_snapshot
from memory.sessions.models import AgentSession
from risk.alerts.models import AlertType
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_manager,
    make_officer,
    make_operator,
)

pytestmark = pytest.mark.django_db

CUSTOMER = "C00017"
ADVISOR = Caller("default", "advisor", "ADV001")
ALICE = Caller("default", "customer", CUSTOMER)
RISK = Caller("default", "risk", "R1")
SAID = "wants to pay for a school abroad"


def make_known_customer(customer_id: str = CUSTOMER, **kwargs: Any) -> None:
    """With all three layers, a snapshot, a draft, a conversation and an alert."""
    make_customer(customer_id, **kwargs)
    sync_l1_from_core(tenant="default", customer_id=customer_id)
    services.write_l1(
        caller=ALICE,
        customer_id=customer_id,
        payload={"occupation": "teacher", "experience_years": 7, "horizon_months": 60},
    )
    services.write_l2(
        caller=ADVISOR,
        customer_id=customer_id,
        advisor_id="ADV001",
        payload={"stage": "review", "notes": [{"text": SAID}]},
    )
    services.write_l3(
        caller=RISK,
        customer_id=customer_id,
        payload={
            "risk_score": 72,
            "risk_level": "high",
            "aml_rating": "B",
            "flags": [{"code": "watch", "since": "2026-01-01"}],
        },
    )
    read_snapshot(caller=ADVISOR, advisor_id="ADV001", customer_id=customer_id)
    AgentSession.objects.create(session_id="s" * 20, agent="customer", actor_id=customer_id, customer_id=customer_id)


def page_of(client: Client, *, kind: str = "alert", key: str = "") -> Any:
    return client.get(reverse("admin:customer", args=(kind, key or make_alert(CUSTOMER).pk)))


def test_the_page_shows_all_that_is_known_and_masks_who_it_is() -> None:
    make_known_customer()
    client = make_client(make_officer())
    answer = page_of(client)
    assert answer.status_code == 200
    text = answer.content.decode()
    for shown in ("王**", "C0***7", "165,000.00", "100.0 %", "F0101", ">72<", "watch", "ADV001", "7", "product above"):
        assert shown in text, shown
    for hidden in ("王建国", CUSTOMER, SAID, "teacher"):
        assert hidden not in text, hidden
    assert "no-store" in answer["Cache-Control"]
    for layer in ("l1", "l2", "l3"):
        assert f'<span class="tag">{layer}</span>' in text


def test_in_chinese_every_word_of_ours_is_chinese() -> None:
    make_known_customer()
    text = page_of(make_client(make_officer(), language="zh-hans")).content.decode()
    for english in (
        "What the customer told us",
        "Assets",
        "Versions of the profiles",
        "Risk&#x27;s view",
        "occupation",
    ):
        assert english not in text, english


def test_each_page_that_is_opened_is_one_row_without_the_customers_id() -> None:
    make_known_customer()
    page_of(make_client(make_officer()))
    [row] = AuditLog.objects.filter(event_type="alert_viewed", object_type="customer")
    assert (row.decision, row.actor_id) == ("viewed", "lin")
    assert CUSTOMER not in str(row.input_summary) + row.object_id
    assert row.customer.startswith("c_")


def test_an_officer_sees_the_customer_in_clear_for_a_reason_and_on_record() -> None:
    make_known_customer()
    client = make_client(make_officer())
    ref = ("alert", make_alert(CUSTOMER).pk)
    answer = client.post(reverse("admin:customer_unmask", args=ref), {"reason": "has to call 王建国 back today"})
    text = answer.content.decode()
    for shown in ("王建国", CUSTOMER, SAID, "teacher"):
        assert shown in text, shown
    [row] = AuditLog.objects.filter(event_type="unmask", decision="granted")
    assert "王建国" not in str(row.input_summary)
    assert CUSTOMER not in str(row.input_summary)
    assert CUSTOMER not in client.get(reverse("admin:customer", args=ref)).content.decode()
    short = client.post(reverse("admin:customer_unmask", args=ref), {"reason": "x"})
    assert short.status_code == 422
    assert CUSTOMER not in short.content.decode()


def test_a_manager_looks_at_masks_and_is_refused_more() -> None:
    make_known_customer()
    client = make_client(make_manager())
    ref = ("alert", make_alert(CUSTOMER).pk)
    page = client.get(reverse("admin:customer", args=ref))
    assert page.status_code == 200
    assert b'id="unmask"' not in page.content
    refused = client.post(reverse("admin:customer_unmask", args=ref), {"reason": "out of interest"})
    assert refused.status_code == 403
    assert CUSTOMER not in refused.content.decode()
    assert AuditLog.objects.filter(event_type="unmask", decision="refused").count() == 1


@pytest.mark.parametrize("make", [make_auditor, make_operator])
def test_who_sees_no_cases_sees_no_customers(make: Any) -> None:
    make_known_customer()
    client = make_client(make())
    ref = ("alert", make_alert(CUSTOMER).pk)
    for address in (reverse("admin:customers"), reverse("admin:customer", args=ref)):
        assert client.get(address).status_code == 403
    assert client.post(reverse("admin:customers"), {"customer_id": CUSTOMER}).status_code == 403
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden").count() == 3


def test_a_customer_of_another_tenant_does_not_exist() -> None:
    make_known_customer()
    client = make_client(make_officer("far", tenant="north"))
    assert page_of(client).status_code == 404
    assert client.post(reverse("admin:customers"), {"customer_id": CUSTOMER}).status_code == 404
    version = ProfileVersion.objects.filter(customer_id=CUSTOMER)[0]
    assert client.get(reverse("admin:customer_version", args=("l1", "1", version.pk))).status_code == 404


def test_a_customer_is_found_by_their_id_and_the_address_does_not_hold_it() -> None:
    make_customer()
    client = make_client(make_officer())
    found = client.post(reverse("admin:customers"), {"customer_id": f" {CUSTOMER} "})
    assert found.status_code == 302
    assert CUSTOMER not in found["Location"]
    assert client.get(found["Location"]).status_code == 200
    for odd in ("C00018", "", "王建国", "a b", "x" * 65, "\x00", "²"):
        answer = client.post(reverse("admin:customers"), {"customer_id": odd})
        assert answer.status_code == 404
        assert 'role="alert"' in answer.content.decode()


@pytest.mark.parametrize("key", ["0", "-1", "²", "9" * 30, "x", "l1", "%00"])
@pytest.mark.parametrize("kind", ["l1", "core", "session", "alert", "draft", "nothing"])
def test_odd_addresses_are_not_found(kind: str, key: str) -> None:
    client = make_client(make_officer())
    assert client.get(f"/admin/customers/{kind}/{key}/").status_code == 404
    assert client.get(f"/admin/customers/{kind}/{key}/versions/{'9' * 25}/").status_code == 404


def test_faults_in_the_data_lead_to_no_customer() -> None:
    make_customer()
    fault = make_alert(CUSTOMER, alert_type=AlertType.DATA_QUALITY)
    assert page_of(make_client(make_officer()), key=fault.pk).status_code == 404


def test_an_expired_assessment_is_said_so() -> None:
    make_known_customer()
    CoreAssessment.objects.update(assessed_at=now() - timedelta(days=400))
    text = page_of(make_client(make_officer())).content.decode()
    assert '<span class="tag warn" id="assessment-status">assessment: expired</span>' in text


def test_an_assessment_of_a_later_day_is_not_in_force_yet() -> None:
    make_known_customer()
    CoreAssessment.objects.update(assessed_at=now() - timedelta(days=400))
    CoreAssessment.objects.create(customer_id=CUSTOMER, assessed_at=now() + timedelta(days=30), c_level=5)
    text = page_of(make_client(make_officer())).content.decode()
    assert "assessment: expired" in text
    assert ">valid<" not in text


def test_a_customer_of_a_core_that_does_not_answer_is_an_outage_and_no_wrong_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(**_: Any) -> None:
        raise DomainError("CORE_UNAVAILABLE", "the core system does not answer")

    monkeypatch.setattr("risk.console.customers.views.customer_of", away)
    assert page_of(make_client(make_officer()), kind="core", key="1").status_code == 503


def test_a_version_tells_what_changed_and_masks_words() -> None:
    make_known_customer()
    client = make_client(make_officer())
    ref = ("alert", make_alert(CUSTOMER).pk)
    l2 = ProfileVersion.objects.filter(layer="l2").order_by("version")[0]
    text = client.get(reverse("admin:customer_version", args=(*ref, l2.pk))).content.decode()
    assert "stage" in text
    assert SAID not in text
    l3 = ProfileVersion.objects.get(layer="l3")
    text = client.get(reverse("admin:customer_version", args=(*ref, l3.pk))).content.decode()
    assert "money-laundering rating" in text
    assert l3.document_hash in text
    assert client.get(reverse("admin:customer_version", args=(*ref, l3.pk + 1000))).status_code == 404


def test_the_core_away_leaves_its_part_out(monkeypatch: pytest.MonkeyPatch) -> None:
    make_known_customer()
    ref = make_alert(CUSTOMER).pk

    def away(**_: Any) -> None:
        raise DomainError("CORE_UNAVAILABLE", "the core system does not answer")

    monkeypatch.setattr("memory.core.selectors.customer", away)
    answer = page_of(make_client(make_officer()), key=ref)
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "The core system does not answer." in text
    assert "王**" in text  # as the profile kept it


def test_the_page_costs_the_same_however_much_there_is() -> None:
    make_known_customer()
    client = make_client(make_officer())
    ref = make_alert(CUSTOMER).pk
    page_of(client, key=ref)
    with CaptureQueriesContext(connection) as few:
        page_of(client, key=ref)
    for number in range(12):
        CustomerProfileL2.objects.create(
            customer_id=CUSTOMER, advisor_id=f"ADV{number + 100}", payload={"stage": "new"}
        )
        make_alert(CUSTOMER)
        AgentSession.objects.create(
            session_id=f"session-{number:012d}", agent="advisor", actor_id="ADV001", customer_id=CUSTOMER
        )
    with CaptureQueriesContext(connection) as many:
        page_of(client, key=ref)
    assert len(many) == len(few) <= 24, [query["sql"][:90] for query in many]


def test_a_customer_that_only_the_core_knows_has_a_page() -> None:
    make_customer()
    core = CoreCustomer.objects.get(customer_id=CUSTOMER)
    answer = page_of(make_client(make_officer()), kind="core", key=str(core.pk))
    assert answer.status_code == 200
    assert "No profile yet." in answer.content.decode()


def test_a_draft_is_listed_without_its_words() -> None:
    make_known_customer()
    content = Content(kind="message", channel="app", subject="", body="A word to you.", recipient="")
    create_draft(caller=ADVISOR, customer_id=CUSTOMER, content=content)
    text = page_of(make_client(make_officer())).content.decode()
    assert "drafted" in text
    assert "A word to you." not in text


def test_an_assessment_that_nobody_could_ask_for_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    alert = make_alert(CUSTOMER)

    def away(**_: Any) -> None:
        raise DomainError("CORE_UNAVAILABLE", "the core system does not answer")

    monkeypatch.setattr("memory.core.selectors.customer", away)
    text = page_of(make_client(make_officer()), key=alert.pk).content.decode()
    assert "assessment: not known while the core is away" in text


PHONE, CARD, MAIL = "138 0013-8000", "11010519491231002X", "wang.jianguo@example.com"
TOLD = f"call 王建国 ({CUSTOMER}) on {PHONE}, card {CARD}, {MAIL}; trade TR20261130000123 of 2026-11-30, 165000.00 CNY"


@pytest.mark.parametrize("make", [make_officer, make_manager])
def test_who_has_not_unmasked_reads_risks_words_without_the_people_in_them(make: Any) -> None:
    make_known_customer()
    row = CustomerProfileL3.objects.get(customer_id=CUSTOMER)
    row.internal = {**row.internal, "reasons": [TOLD]}
    row.payload = {
        **row.payload,
        "restrictions": [{"code": "no_complex", "text": TOLD, "visibility": "risk"}],
        "reviewed_by": MAIL,
    }
    row.save()
    client = make_client(make())
    alert = make_alert(CUSTOMER)
    version = ProfileVersion.objects.filter(layer="l3").order_by("-version")[0]
    for page in (
        page_of(client, key=alert.pk),
        client.get(reverse("admin:customer_version", args=("alert", alert.pk, version.pk))),
    ):
        text = page.content.decode()
        for shown in ("call *** (***) on ***", "TR20261130000123 of 2026-11-30, 165000.00 CNY"):
            assert shown in text, shown
        for kept in ("王建国", CUSTOMER, PHONE, CARD, MAIL):
            assert kept not in text, kept


def test_risks_words_are_read_in_clear_for_a_reason_and_on_record() -> None:
    make_known_customer()
    CustomerProfileL3.objects.filter(customer_id=CUSTOMER).update(internal={"reasons": [TOLD]})
    ref = ("alert", make_alert(CUSTOMER).pk)
    answer = make_client(make_officer()).post(
        reverse("admin:customer_unmask", args=ref), {"reason": "has to call back today"}
    )
    assert TOLD in answer.content.decode()
    [row] = AuditLog.objects.filter(event_type="unmask", decision="granted")
    assert "words" in row.input_summary["fields"]
