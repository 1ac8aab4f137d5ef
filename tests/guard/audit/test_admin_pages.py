"""The audit log in the admin: searched, read, never changed."""

from __future__ import annotations

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from guard.audit.models import AuditLog
from guard.audit.services import record
from guard.audit.words import DECISIONS, EVENTS
from tests.risk.console.make import make_auditor, make_client, make_manager, make_officer, make_person

pytestmark = pytest.mark.django_db
LOG = "/admin/guard/auditlog/"


def make_row(**fields: object) -> AuditLog:
    return record(
        **{
            "tenant": "default", "event_type": "authz", "decision": "forbidden", "actor_id": "ADV001",
            "object_type": "profile_l1", "object_id": "X-1", "trace_id": "a" * 32, "code": "NOT_OWNER", **fields,
        }  # type: ignore[arg-type]
    )  # fmt: skip


def held(client: object, **query: str) -> set[int]:
    return {row.pk for row in client.get(LOG, query).context["cl"].result_list}  # type: ignore[attr-defined]


def test_the_auditor_finds_rows_by_trace_actor_object_and_event() -> None:
    first = make_row()
    second = make_row(actor_id="lin", object_id="X-2", trace_id="b" * 32, event_type="alert_viewed", decision="viewed")
    client = make_client(make_auditor())
    assert held(client) == {first.pk, second.pk}
    assert held(client, q="a" * 32) == {first.pk}
    assert held(client, q="lin") == {second.pk}
    assert held(client, q="X-1") == {first.pk}
    assert held(client, q="X-") == set()
    assert held(client, event="alert_viewed") == {second.pk}
    assert "NOT_OWNER" in client.get(f"{LOG}{first.pk}/change/").content.decode()


def test_another_tenants_rows_are_not_there() -> None:
    row = make_row(tenant="east")
    client = make_client(make_auditor())
    assert held(client) == set()
    assert client.get(f"{LOG}{row.pk}/change/").status_code == 302


@pytest.mark.parametrize("make", [make_officer, make_manager])
def test_others_have_no_audit(make: object) -> None:
    assert make_client(make()).get(LOG).status_code == 403  # type: ignore[operator]


def test_nobody_changes_it_not_even_a_superuser() -> None:
    row = make_row()
    root = make_client(make_person("root", superuser=True))
    assert root.get(f"{LOG}add/").status_code == 403
    assert root.post(f"{LOG}{row.pk}/change/", {"code": "X"}).status_code == 403
    assert root.post(f"{LOG}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    root.post(LOG, {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"})
    assert AuditLog.objects.get(pk=row.pk).code == "NOT_OWNER"


def test_every_word_of_the_vocabulary_has_words_for_people() -> None:
    from guard.audit.models import Decision, EventType

    assert set(EVENTS) == set(EventType.values)
    assert set(DECISIONS) == set(Decision.values)


def test_the_filter_offers_the_events_that_the_tenants_log_holds() -> None:
    make_row()
    make_row(event_type="alert_viewed", decision="viewed")
    make_row(event_type="erasure", decision="requested", tenant="east")
    client = make_client(make_auditor())
    with CaptureQueriesContext(connection) as queries:
        text = client.get(LOG).content.decode()
    assert set(re.findall(r"\?event=([a-z_]+)", text)) == {"authz", "alert_viewed"}
    assert sum("EXISTS" in query["sql"].upper() for query in queries) == 1
