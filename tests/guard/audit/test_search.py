"""An examiner's work in the admin: search by everything, page without counting, export on the record."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from guard.audit import pseudonyms
from guard.audit.models import AuditLog
from guard.audit.selectors import as_csv
from tests.guard.audit.sealing import make_row
from tests.risk.console.make import make_auditor, make_client, make_manager, make_officer, make_operator, make_person

pytestmark = pytest.mark.django_db
LOG = "/admin/guard/auditlog/"


def held(client: Client, **query: Any) -> list[int]:
    return [row.pk for row in client.get(LOG, query).context["cl"].result_list]


def exported(client: Client, kind: str, **query: Any) -> str:
    answer = client.get(f"{LOG}export/{kind}/", query)
    assert answer.status_code == 200
    return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]


def test_each_part_of_the_search_finds_its_rows_and_all_must_hold() -> None:
    one = make_row(trace_id="a" * 32, object_type="session", object_id="s-1").pk
    two = make_row(event_type="alert_viewed", decision="viewed", actor_type="staff", actor_id="lin", code="").pk
    three = make_row(actor_type="customer", actor_id="cust-7", on_behalf_of="wei", code="X").pk
    client = make_client(make_auditor())
    assert held(client) == [three, two, one]
    assert held(client, event="alert_viewed") == [two]
    assert held(client, decision="forbidden") == [three, one]
    assert held(client, actor="wei") == [three, one]
    assert held(client, actor="cust-7") == [three]
    assert held(client, object="s-1") == [one]
    assert held(client, code="X") == [three]
    assert held(client, trace="a" * 32) == [one]
    assert held(client, actor="wei", code="X") == [three]
    assert held(client, actor_type__exact="staff") == [two]
    assert held(client, q="cust-7") == [three]
    assert held(client, q="nobody") == []


def test_a_customer_is_found_under_the_pseudonym_wherever_the_row_is_about_them() -> None:
    rows = [
        make_row(object_type="profile_l1", object_id="cust-7").pk,
        make_row(input_summary={"customer_id": "cust-7"}).pk,
        make_row(customer_id="cust-7", object_type="session", object_id="s-1").pk,
    ]
    make_row(customer_id="cust-8")
    client = make_client(make_auditor())
    assert held(client, customer="cust-7") == rows[::-1]
    assert held(client, customer="cust-9") == []
    assert "cust-7" not in str(list(AuditLog.objects.values()))


def test_times_are_the_business_zones_and_a_day_is_whole() -> None:
    row = make_row()
    client = make_client(make_auditor())
    day = client.get(LOG).context["cl"].model_admin.at_exact(row)[:10]
    assert held(client, since=day, until=day) == [row.pk]
    assert held(client, since=f"{day} 00:00", until="2020-01-01") == []
    assert held(client, since="2999-01-01") == []
    wrong = client.get(LOG, {"since": "yesterday"})
    assert wrong.context["cl"].result_list == []
    assert "2026-11-30 08:15" in wrong.content.decode()


def test_pages_by_id_without_a_count_and_without_offset() -> None:
    ids = [make_row().pk for _ in range(120)][::-1]
    client = make_client(make_auditor())
    seen: list[int] = []
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(LOG, {"actor": "wei"})
        while True:
            listing = answer.context["cl"]
            seen += [row.pk for row in listing.result_list]
            if not listing.older_link:
                break
            assert "actor=wei" in listing.older_link
            answer = client.get(f"{LOG}{listing.older_link}")
    assert seen == ids
    of_the_log = [query["sql"].upper() for query in queries if "AUDIT_LOG" in query["sql"].upper()]
    assert not [sql for sql in of_the_log if "COUNT(" in sql or "OFFSET" in sql]
    assert held(client, before="x") == ids[:50], "what is no id turns no page"


def test_rows_of_one_moment_turn_the_page_too() -> None:
    moment = now()
    alike = {"tenant": "default", "event_type": "authz", "decision": "forbidden", "on_behalf_of": "lin", "at": moment}
    AuditLog.objects.bulk_create(AuditLog(**alike, actor_id="wei" if n % 2 else "lin") for n in range(120))
    ids = list(AuditLog.objects.order_by("-id").values_list("id", flat=True))
    client, seen, query = make_client(make_auditor()), [], "?actor=lin"
    while query:
        listing = client.get(f"{LOG}{query}").context["cl"]
        seen += [row.pk for row in listing.result_list]
        query = listing.older_link
    assert seen == ids


def test_an_export_has_what_the_search_found_and_is_on_the_record_first() -> None:
    rows = [
        make_row(customer_id="cust-7", code="=1+1", input_summary={"customer_id": "cust-7", "n": 1}) for _ in range(3)
    ]
    make_row(code="OTHER")
    client = make_client(make_auditor())
    text = exported(client, "csv", customer="cust-7")
    table = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))
    assert [int(line["id"]) for line in table] == [row.pk for row in rows]
    assert {line["code"] for line in table} == {"'=1+1"}, "no formula for a spreadsheet"
    assert "cust-7" not in text
    lines = [
        json.loads(line) for line in exported(client, "jsonl", customer="cust-7", decision="forbidden").splitlines()
    ]
    assert [line["input_summary"]["n"] for line in lines] == [1, 1, 1]
    told = list(AuditLog.objects.filter(event_type="evidence_exported").order_by("id"))
    assert [(row.decision, row.actor_id, row.input_summary["format"]) for row in told] == [
        ("exported", "an", "csv"), ("exported", "an", "jsonl"),
    ]  # fmt: skip
    name = pseudonyms.of("default", "cust-7")
    assert told[1].input_summary["search"] == {"customer": name, "decision": "forbidden"}


def test_without_the_record_there_is_no_export(monkeypatch: pytest.MonkeyPatch) -> None:
    make_row()
    client = make_client(make_auditor())

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(AuditLog, "save", fail)
    assert client.get(f"{LOG}export/csv/").status_code == 503


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_holds_one_tenant_and_few_rows_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from guard.audit import selectors

    monkeypatch.setattr(selectors, "PAGE", 3)
    own = [make_row().pk for _ in range(7)]
    make_row(tenant="east", actor_id="secret-east")
    text = exported(make_client(make_auditor()), kind)
    assert "secret-east" not in text
    assert len(text.splitlines()) == (kind == "csv") + len(own) + 1, "its own record is in it"


@pytest.mark.parametrize("make", [make_officer, make_manager])
def test_others_neither_see_nor_export(make: Any) -> None:
    client = make_client(make())
    assert client.get(LOG).status_code == 403
    assert client.get(f"{LOG}export/csv/").status_code == 403


def test_who_audits_and_who_runs_the_system_may_both() -> None:
    make_row()
    for person in (make_auditor(), make_operator()):
        client = make_client(person)
        assert held(client)
        assert exported(client, "jsonl")
    assert make_client(make_person("stranger")).get(f"{LOG}export/csv/").status_code in (302, 403)
    assert Client().get(f"{LOG}export/csv/").status_code == 302


def test_what_is_no_format_or_no_search_leads_back() -> None:
    client = make_client(make_auditor())
    assert client.get(f"{LOG}export/exe/").status_code == 302
    assert client.get(f"{LOG}export/csv/", {"since": "yesterday"}).status_code == 302
    assert not AuditLog.objects.filter(event_type="evidence_exported").exists()


@pytest.mark.parametrize("cell", [
    "=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", "\n\n=1", " =1", "\u3000=1", "\ufeff=1", "\u200b=1", "\x00=1",
    "\uff1d1+1", "\uff0b1", "\uff0d1", "\uff20x", "\n\uff1d1", "\u22121", "\ufe66x", "\x0b=1", "\u2028=1", "\nplain",
])  # fmt: skip
def test_a_cell_that_a_spreadsheet_would_reckon_with_is_text(cell: str) -> None:
    row = AuditLog(pk=1, tenant="default", at=now(), event_type="authz", decision="forbidden", actor_id="a", code=cell)
    [table] = csv.DictReader(io.StringIO("".join(as_csv(iter([row]))).removeprefix("\ufeff"), newline=""))
    assert table["code"] == f"'{cell}"


@pytest.mark.parametrize("cell", ["", "NOT_OWNER", "a=1", "1-1", "甲=乙"])
def test_any_other_cell_is_as_it_is(cell: str) -> None:
    row = AuditLog(pk=1, tenant="default", at=now(), event_type="authz", decision="forbidden", actor_id="a", code=cell)
    [table] = csv.DictReader(io.StringIO("".join(as_csv(iter([row]))).removeprefix("\ufeff"), newline=""))
    assert table["code"] == cell
