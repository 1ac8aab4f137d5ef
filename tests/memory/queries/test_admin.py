"""The query log and the grants in the console, and the erasure of texts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from config.base.clock import now
from guard.audit.models import AuditLog
from memory.profiles.queries import services
from memory.profiles.queries.models import AnalyticsGrant, AnalyticsQueryLog, AnalyticsQueryText
from memory.profiles.queries.selectors import entries
from tests.memory.erasure.helpers import erase, found_in_database
from tests.memory.profiles.helpers import make_agent
from tests.memory.queries.helpers import ANA, EAST_ANA, ask, make_facts
from tests.risk.console.make import make_auditor, make_client, make_officer, make_operator, make_person

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/memory/analyticsquerylog/"
GRANTS = "/admin/memory/analyticsgrant/"


def check(sql: str, caller: Any = ANA) -> AnalyticsQueryLog:
    asked = services.check_query(caller=caller, sql=sql)
    return AnalyticsQueryLog.objects.get(pk=asked.query_id)


def test_the_log_is_searched_and_says_how_each_ended(monkeypatch: Any) -> None:
    make_facts()
    ask("SELECT COUNT(*) FROM core_trade")
    refused = check("SELECT name FROM core_customer WHERE name = '王建国'")
    check("SELECT COUNT(*) FROM core_product", EAST_ANA)
    client = make_client(make_auditor())
    shown = client.get(LIST).content.decode()
    assert "ana-1" in shown
    assert "ana-9" not in shown
    assert "王建国" not in shown
    only = client.get(f"{LIST}?table=core_customer").content.decode()
    assert refused.pk in only
    assert only.count("field-state") == 1
    assert client.get(f"{LIST}?q={refused.fingerprint}").content.decode().count("field-state") == 1
    assert client.get(f"{LIST}?decision__exact=allowed").content.decode().count("field-state") == 1
    assert make_client(make_officer()).get(LIST).status_code == 403


def test_a_process_that_died_is_shown_as_such() -> None:
    log = check("SELECT 1")
    started = AnalyticsQueryLog(
        query_id="q-dead", tenant="default", actor_id="ana-1", mode="run", dialect="mysql", decision="allowed",
        seconds_limit=5, at=now() - timedelta(minutes=2),
    )  # fmt: skip
    started.save(force_insert=True)
    fresh = AnalyticsQueryLog(query_id="q-new", tenant="default", mode="run", decision="allowed", seconds_limit=5)
    assert [one.state for one in entries([log, started, fresh])] == ["checked", "unfinished", "running"]
    assert "started, never finished" in make_client(make_auditor()).get(LIST).content.decode()


def test_the_text_is_masked_until_somebody_with_the_right_gives_a_reason() -> None:
    log = check("SELECT name FROM core_customer WHERE name = '王建国'")
    client = make_client(make_auditor())
    page = f"{LIST}{log.pk}/change/"
    assert "王建国" not in client.get(page).content.decode()
    for other in (make_operator(), make_officer(), make_person("root", superuser=True)):
        answer = make_client(other).post(f"{LIST}{log.pk}/unmask/", {"reason": "an audit of it"})
        assert (answer.status_code, "王建国" in answer.content.decode()) == (403, False)
    assert client.post("/admin/memory/analyticsquerytext/").status_code == 404
    shown = client.post(f"{LIST}{log.pk}/unmask/", {"reason": "an audit of it"})
    assert "王建国" in shown.content.decode()
    row = AuditLog.objects.filter(event_type="unmask", decision="granted").get()
    assert "王建国" not in str(row.input_summary)
    assert client.post(f"{LIST}{log.pk}/unmask/", {"reason": "x"}).status_code == 422


def test_a_grant_is_given_used_and_taken_away() -> None:
    make_facts()
    sql = "SELECT name FROM core_customer ORDER BY name LIMIT 1"
    agent = make_agent("analyst", "ana-1")
    assert agent.call("POST", "/analytics/queries", {"sql": sql}).json()["code"] == "SQL_PERSONAL_COLUMN"
    client = make_client(make_operator())
    form = {"actor_id": "ana-1", "columns": ["core_customer.name"], "days": "7", "reason": "complaint 7"}
    assert client.post(f"{GRANTS}add/", {**form, "days": "91"}).status_code == 200
    assert client.post(f"{GRANTS}add/", form).status_code == 302
    [grant] = AnalyticsGrant.objects.all()
    assert agent.call("POST", "/analytics/queries", {"sql": sql}).json()["rows"] == [["王0default"]]
    assert make_agent("analyst", "ana-2").call("POST", "/analytics/queries", {"sql": sql}).status_code == 403
    assert (
        make_agent("analyst", "ana-1", tenant="east").call("POST", "/analytics/queries", {"sql": sql}).status_code
        == 403
    )
    assert client.post(GRANTS, {"action": "revoke", "_selected_action": str(grant.pk)}).status_code == 302
    assert agent.call("POST", "/analytics/queries", {"sql": sql}).status_code == 403
    told = AuditLog.objects.filter(object_type="analytics_grant").order_by("id").values_list("event_type", "decision")
    assert list(told) == [("principal", "granted"), ("principal", "revoked")]


def test_an_expired_grant_is_none() -> None:
    AnalyticsGrant.objects.create(
        tenant="default", actor_id="ana-1", columns=["core_customer.name"], reason="x", granted_by="x", expires_at=now()
    )
    assert not services.check_query(caller=ANA, sql="SELECT name FROM core_customer").verdict.allowed


def test_over_http() -> None:
    make_facts()
    agent = make_agent("analyst", "ana-1")
    answer = agent.call(
        "POST", "/analytics/queries", {"sql": "SELECT status, COUNT(*) n FROM core_trade GROUP BY status"}
    )
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")
    assert answer.json()["columns"] == ["status", "n"]
    bad = agent.call("POST", "/analytics/queries", {"sql": "SELECT 1; SELECT 2"})
    assert (bad.status_code, bad.json()["code"]) == (422, "SQL_NOT_ONE_SELECT")
    checked = agent.call("POST", "/analytics/queries/check", {"sql": "SELECT SLEEP(1)"})
    assert (checked.status_code, checked.json()["allowed"], checked.json()["code"]) == (200, False, "SQL_FORBIDDEN")
    listed = agent.get("/analytics/queries?limit=2").json()
    assert [one["state"] for one in listed["items"]] == ["refused", "refused"]
    rest = agent.get(f"/analytics/queries?limit=2&before={listed['next']}").json()
    assert ([one["state"] for one in rest["items"]], rest["next"]) == (["done"], None)
    assert make_agent("analyst", "ana-2").get("/analytics/queries").json()["items"] == []
    for other in ("customer", "advisor", "risk"):
        assert make_agent(other).call("POST", "/analytics/queries", b"{not json").status_code == 403
        assert make_agent(other).get("/analytics/queries").status_code == 403


def test_texts_that_name_an_erased_customer_go_and_the_log_stays() -> None:
    make_facts(customers=2)
    theirs = [
        check("SELECT amount FROM core_trade WHERE customer_id = 'c0001'"),
        check("SELECT 1 -- 王1default"),
        check("SELEC C0001"),
    ]
    other = check("SELECT amount FROM core_trade WHERE trade_id = 'T0000'")
    assert erase("C0001")[0] == 0
    assert list(AnalyticsQueryText.objects.values_list("pk", flat=True)) == [other.pk]
    assert AnalyticsQueryLog.objects.filter(pk__in=[log.pk for log in theirs]).count() == 3
    assert [place for place in found_in_database("C0001") if not place.startswith("core_")] == []
    page = make_client(make_auditor()).get(f"{LIST}{theirs[0].pk}/change/").content.decode()
    assert "erased" in page
