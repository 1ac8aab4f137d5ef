"""Each page's number of queries is written in tests/query_counts.json and is the same with 1 alert and with 50."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from guard.access.services import issue_key
from guard.audit.services import record
from risk.alerts import services
from tests.risk.console.make import make_alert, make_client, make_customer, make_hit, make_officer, make_person
from tests.risk.console.test_alert_case import make_talk

pytestmark = pytest.mark.django_db
FILE = Path(__file__).parents[2] / "query_counts.json"
BUDGET: dict[str, int] = json.loads(FILE.read_text())
QUEUE = "/admin/risk/riskalert/"


def count(client: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    return len(queries)


def addresses(alert: Any) -> dict[str, str]:
    return {
        "overview": "/admin/",
        "queue": QUEUE,
        "queue_search": f"{QUEUE}?q={alert.customer_id}",
        "queue_rows": f"{QUEUE}rows/?id={alert.pk}",
        "alert": f"{QUEUE}{alert.pk}/change/",
    }


@pytest.mark.parametrize("alerts", [1, 50])
def test_pages_of_the_officers_hold_their_budget(alerts: int) -> None:
    make_customer("C00000")
    made = [make_alert("C00000" if n % 2 else f"C{n:05d}") for n in range(alerts)]
    for number in range(2, alerts + 1):
        make_hit(made[0], number=number)
    client = make_client(make_officer())
    client.get(QUEUE)  # content types and the like are read once a process
    found = {name: count(client, address) for name, address in addresses(made[0]).items()}
    assert found == {name: BUDGET[name] for name in found}


@pytest.mark.parametrize("much", [1, 30])
def test_the_page_of_an_alert_holds_its_budget_whatever_there_is_of_it(much: int) -> None:
    """Messages, refusals, acts, revisions, earlier and related alerts: of a customer's, a report and an advisor's."""
    make_customer("C00000")
    officer = make_officer()
    found: dict[str, int] = {}
    client = make_client(officer)
    client.get(QUEUE)
    for kind, name in (("event", "alert_full"), ("report", "alert_report"), ("pattern", "alert_conduct")):
        customer_id = "" if kind == "pattern" else "C00000"
        alert = make_alert(customer_id, alert_type=kind, trace_id="ab" * 16)
        for number in range(much):
            make_hit(alert, number=number + 2, revision=number + 1, trace_id=f"{number:032x}")
            make_alert("C00000" if number % 2 else f"C1{number:04d}", alert_type=kind, trace_id="ab" * 16)
            make_alert(customer_id, alert_type=kind, parent=alert)
            services.add_note(alert_id=alert.pk, officer=officer, text="seen")
            make_talk(f"{customer_id}", number=number + len(found) * 100, said=("a", "b") * number, trace="ab" * 16)
            record(
                tenant="default", event_type="authz", decision="forbidden", actor_type="agent", actor_id="ADV001",
                object_type="profile_l1", object_id="C00000", code="NOT_ASSIGNED", customer_id="C00000",
                input_summary={"code": "NOT_ASSIGNED"}, trace_id="ab" * 16,
            )  # fmt: skip
        make_talk(customer_id, number=9000 + len(found), trace="ab" * 16)
        found[name] = count(client, f"{QUEUE}{alert.pk}/change/")
    assert found == {name: BUDGET[name] for name in found}


@pytest.mark.parametrize("rows", [1, 50])
def test_tables_hold_their_budget(rows: int) -> None:
    for number in range(rows):
        make_customer(f"C{number:05d}")
        issue_key(agent="risk", note=str(number))
    root = make_client(make_person("root", superuser=True))
    root.get("/admin/")
    tables = {
        "audit_log": "/admin/guard/auditlog/",
        "agent_keys": "/admin/guard/agentprincipal/",
        "core_trades": "/admin/memory/coretrade/",
        "messages": "/admin/memory/agentmessage/",
        "sessions": "/admin/memory/agentsession/",
        "rules": "/admin/risk/riskrule/",
        "people": "/admin/auth/user/",
    }
    found = {name: count(root, address) for name, address in tables.items()}
    assert found == {name: BUDGET[name] for name in found}
