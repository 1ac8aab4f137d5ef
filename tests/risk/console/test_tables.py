"""Every other table of the admin: to look at, masked, in business time, in both languages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.urls import reverse

from guard.audit.models import AuditLog
from memory.core.models import CoreAssignment, CoreCustomer, CoreProduct, CoreTrade
from memory.profiles.models import CustomerProfileL3
from memory.sessions.models import AgentMessage, AgentSession
from tests.risk.console.make import make_alert, make_client, make_customer, make_officer, make_person

pytestmark = pytest.mark.django_db
WRITABLE = {
    "auth.user", "auth.group", "guard.agentprincipal", "guard.staffmember", "guard.admissionlimit", "guard.actorblock",
    "guard.agentpause", "memory.analyticsgrant", "risk.holiday", "risk.notifychannel", "risk.notifyrule"}  # fmt: skip


def models() -> list[Any]:
    return sorted(admin.site._registry, key=lambda model: model._meta.label_lower)


def make_session() -> AgentMessage:
    session = AgentSession.objects.create(
        session_id="s-0123456789abcdef", agent="customer", actor_id="C00017", customer_id="C00017"
    )
    return AgentMessage.objects.create(
        session_row=session, agent="customer", session_id=session.session_id, entry_id="e1", seq=1, role="user",
        content="<b>My number is 13800138000</b>", size=30, digest="d", created_at=datetime(2026, 11, 30, tzinfo=UTC),
    )  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_every_table_opens_searches_and_filters(language: str) -> None:
    make_customer()
    make_alert()
    make_session()
    root = make_client(make_person("root", superuser=True), language=language)
    for model in models():
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        assert root.get(address).status_code == 200, address
        assert root.get(address, {"q": "C00017"}).status_code == 200, address


def test_tables_of_facts_are_only_looked_at() -> None:
    make_customer()
    row = CoreTrade.objects.first()
    root = make_client(make_person("root", superuser=True))
    for model in models():
        label = model._meta.label_lower
        if label not in WRITABLE:
            assert root.get(reverse(f"admin:{label.replace('.', '_')}_add")).status_code == 403, label
    address = f"/admin/memory/coretrade/{row.pk}/"
    assert root.post(f"{address}change/", {"amount": "1"}).status_code == 403
    assert root.post(f"{address}delete/", {"post": "yes"}).status_code == 403


def test_customers_are_masked_in_the_lists() -> None:
    make_customer()
    make_session()
    CustomerProfileL3.objects.create(customer_id="C00017", payload={"risk_score": 1})
    root = make_client(make_person("root", superuser=True))
    for table in ("corecustomer", "coretrade", "coreposition", "coreassessment", "coreassignment", "agentsession",
                  "customerprofilel3"):  # fmt: skip
        text = root.get(f"/admin/memory/{table}/").content.decode().replace("T-C00017", "")
        assert "C0***7" in text, table
        assert "C00017" not in text, table
        assert "王建国" not in text, table


def test_officers_do_not_read_conversations_or_profiles() -> None:
    message = make_session()
    client = make_client(make_officer())
    for address in ("agentmessage/", f"agentmessage/{message.pk}/change/", "agentsession/", "customerprofilel1/"):
        assert client.get(f"/admin/memory/{address}").status_code == 403, address


def test_what_was_said_is_not_in_the_list_and_reading_it_is_recorded() -> None:
    message = make_session()
    root = make_client(make_person("root", superuser=True))
    found = root.get("/admin/memory/agentmessage/", {"q": message.session_id}).content.decode()
    assert message.entry_id in found
    assert "13800138000" not in found
    assert not AuditLog.objects.filter(event_type="unmask").exists()
    shown = root.get(f"/admin/memory/agentmessage/{message.pk}/change/").content.decode()
    assert "&lt;b&gt;My number is 13800138000" in shown
    row = AuditLog.objects.get(event_type="unmask")
    assert (row.actor_id, row.decision, row.object_type) == ("root", "granted", "agent_message")


def test_times_are_business_time() -> None:
    make_alert(opened_at=datetime(2026, 11, 30, 20, 30, tzinfo=UTC))
    make_session()
    client = make_client(make_person("root", superuser=True))
    assert "12-01 04:30" in client.get("/admin/risk/riskalert/?cols=opened").content.decode()
    assert "8 a.m." in client.get("/admin/memory/agentmessage/").content.decode()


@pytest.mark.parametrize(("language", "word"), [("en", "always"), ("zh-hans", "始终")])
def test_a_row_that_counts_at_any_time_says_always(language: str, word: str) -> None:
    make_customer()
    root = make_client(make_person("root", superuser=True), language=language)
    for model in (CoreCustomer, CoreProduct, CoreAssignment):
        table = f"/admin/memory/{model._meta.model_name}/"
        row = model.objects.get()
        for address in (table, f"{table}{row.pk}/change/"):
            text = root.get(address).content.decode()
            assert word in text, address
            assert "1000" not in text, address
        model.objects.update(valid_from=datetime(2025, 5, 4, 3, tzinfo=UTC))
        text = root.get(table).content.decode()
        assert "2025" in text, table
        assert word not in text, table
