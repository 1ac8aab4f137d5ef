"""One trade evaluated now, over HTTP and by the task: the same findings as a scan's, in few queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from guard.access.services import issue_key
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import forget_pseudonyms
from memory.core.models import CoreChange
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.rules import tasks
from risk.rules.evaluating import evaluate_trade
from risk.rules.services import scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, PRODUCT, TRADE, a_small_core, load

pytestmark = pytest.mark.django_db(transaction=True)

_CONTROL = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE", "SET ", "START")


def call(method: str, path: str, agent: str = "risk", actor: str = "rita", **headers: str) -> Any:
    key = issue_key(agent=agent).key
    sent = {"Authorization": f"Bearer {key}", "X-Actor-Id": actor, **headers}
    return Client().generic(method, f"/api/v1{path}", headers=sent)


def post(trade_id: str, **more: Any) -> Any:
    return call("POST", f"/trades/{trade_id}/evaluate", **more)


def written() -> tuple[int, ...]:
    """Rows of what was found and told, the keys of callers aside."""
    rows = AuditLog.objects.exclude(event_type="principal")
    return RiskAlertHit.objects.count(), AlertOutbox.objects.count(), rows.count()


def cost(trade_id: str) -> int:
    """Queries of one evaluation, with nothing remembered of the customer."""
    forget_pseudonyms()
    with CaptureQueriesContext(
        connection,
    ) as seen:
        evaluate_trade(tenant="default", trade_id=trade_id)
    return sum(1 for query in seen if not query["sql"].lstrip().upper().startswith(_CONTROL))


def test_a_violation_is_found_at_once_and_told_to_the_risk_agent(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    answer = post("t1")
    assert answer.status_code == 200, answer.content
    told = answer.json()
    alert = RiskAlert.objects.get()
    hit = told["hits"][0]
    assert (hit["rule"], hit["evidence_key"], hit["score"], hit["subtypes"], hit["alert_id"]) == (
        "RISK-001", "t1@1", 70, ["suitability_mismatch"], alert.alert_id,
    )  # fmt: skip
    assert hit["figures"]["tolerance_level"]
    assert (told["customers"], told["data_quality"], told["version"], told["status"]) == (["c1"], [], 1, "executed")
    assert (told["changed"]["new"], told["changed"]["alerts_opened"]) == (1, 1)
    assert alert.trace_id == told["trace_id"] == answer["X-Trace-Id"]
    before = written()
    again = post("t1").json()
    assert again["hits"] == told["hits"]
    assert not any(again["changed"].values())
    scan()  # what the mark asks for finds the same
    assert not CoreChange.objects.exists()
    assert written() == before


def test_who_writes_without_a_claim_leaves_the_last_word_to_a_scanner(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    CoreChange.objects.all().delete()
    post("t1")
    assert list(CoreChange.objects.values_list("customer_id", "claim")) == [("c1", None)]
    CoreChange.objects.all().delete()
    post("t1")  # nothing written, nothing to be judged again
    assert not CoreChange.objects.exists()


def test_another_agent_is_told_nothing(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    for agent in ("customer", "advisor", "analyst"):
        for answer in (post("t1", agent=agent, actor="c1"), call("GET", "/alerts", agent=agent, actor="c1")):
            assert (answer.status_code, answer.json()["code"]) == (403, "AUTH_403_SCOPE")
    assert not RiskAlert.objects.exists()
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden").count() == 6


def test_a_trade_that_nobody_knows(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    answer = post("t2")
    assert (answer.status_code, answer.json()["code"]) == (404, "TRADE_NOT_FOUND")
    assert "t2" in answer.json()["detail"]
    assert post("a%20b").json()["code"] == "INVALID_ID"


@pytest.mark.parametrize(
    ("tables", "missing", "limits_only"),
    [
        ({"customers": []}, ["missing_customer"], False),
        ({"products": []}, ["missing_product"], False),
        ({"trades": [{**TRADE, "price": ""}]}, ["missing_price"], False),
        ({"trades": [{**TRADE, "fx_cny": ""}]}, ["missing_rate"], False),
        ({"trades": [{**TRADE, "currency": ""}]}, ["missing_currency"], True),
        ({"customers": [], "products": [], "trades": [{**TRADE, "price": "", "fx_cny": ""}]},
         ["missing_customer", "missing_product", "missing_price", "missing_rate"], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("way", ["now", "in bulk first"])
def test_what_is_missing_is_a_finding_and_no_crash(
    tmp_path: Path, tables: dict[str, Any], missing: list[str], limits_only: bool, way: str
) -> None:
    core = {"customers": [CUSTOMER], "products": [PRODUCT], "assessments": [ASSESSMENT], "trades": [TRADE], **tables}
    load(tmp_path, **core)
    if way != "now":
        report = scan()
        assert (report.data_quality, report.failed) == (1, [])
    told = post("t1").json()
    assert [(lack["missing"], lack["limits_only"]) for lack in told["data_quality"]] == [(missing, limits_only)]
    assert bool(told["hits"]) == limits_only  # other rules judge a trade that only limits lack something of
    load(tmp_path / "mended", customers=[CUSTOMER], products=[PRODUCT], trades=[{**TRADE, "version": "2"}])
    told = post("t1").json()
    assert (told["data_quality"], [hit["evidence_key"] for hit in told["hits"]]) == ([], ["t1@2"])


def test_a_corrected_a_moved_and_a_cancelled_trade(tmp_path: Path) -> None:
    a_small_core(tmp_path, customers=[CUSTOMER, {**CUSTOMER, "customer_id": "c2"}])
    post("t1")
    load(tmp_path / "moved", trades=[{**TRADE, "version": "2", "customer_id": "c2"}])
    told = post("t1").json()
    assert (told["customers"], told["version"], told["changed"]["superseded"]) == (["c1", "c2"], 2, 1)
    assert [(hit["customer_id"], hit["evidence_key"]) for hit in told["hits"]] == [("c2", "t1@2")]
    load(tmp_path / "gone", trades=[{**TRADE, "version": "3", "customer_id": "c2", "status": "cancelled"}])
    told = post("t1").json()
    assert (told["status"], told["hits"], told["changed"]["cancelled"]) == ("cancelled", [], 1)


def test_the_costs_that_the_docstring_names(tmp_path: Path) -> None:
    second = {**TRADE, "trade_id": "t2", "traded_at": "2026-06-17T12:00:00Z"}
    a_small_core(tmp_path, trades=[{**TRADE, "trade_type": "sell", "trade_id": "t0"}])
    assert cost("t0") == 4  # no hit
    load(tmp_path / "first", trades=[TRADE])
    assert cost("t1") <= 12  # opens an alert, and the audit has never met the customer
    assert RiskAlert.objects.count() == 1
    assert cost("t1") == 4  # again
    load(tmp_path / "second", trades=[second])
    assert cost("t2") <= 12  # joins it
    assert RiskAlert.objects.get().hit_count == 2
    load(tmp_path / "corrected", trades=[{**second, "version": "2", "solicited": "true"}])
    assert cost("t2") <= 13  # one finding goes, one comes
    assert RiskAlertHit.objects.filter(state=HitState.LIVE).count() == 2


def test_the_agents_list_of_alerts_in_pages(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(5)]
    a_small_core(
        tmp_path,
        customers=[{**CUSTOMER, "customer_id": name} for name in names],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in names],
        trades=[{**TRADE, "trade_id": f"t-{name}", "customer_id": name} for name in names]
        + [{**TRADE, "trade_id": "lacks", "price": "", "customer_id": "c1"}],
    )
    scan()
    seen, before = [], ""
    while True:
        page = call("GET", f"/alerts?limit=2&before={before}").json()
        seen += page["items"]
        if not page["next"]:
            break
        before = page["next"]
    assert sorted(item["customer_id"] for item in seen) == names
    assert [item["opened_at"] for item in seen] == sorted((item["opened_at"] for item in seen), reverse=True)
    assert [item["alert_type"] for item in call("GET", "/alerts?alert_type=data_quality").json()["items"]] == [
        "data_quality"
    ]
    assert len(call("GET", "/alerts?customer_id=c3&status=pending&min_score=70").json()["items"]) == 1
    assert call("GET", "/alerts?min_score=71").json() == {"items": [], "next": None}
    for wrong in ("before=nonsense", "limit=0", "limit=201", "status=odd"):
        assert call("GET", f"/alerts?{wrong}").status_code == 422


def test_the_task_evaluates_one_trade_and_repeating_it_changes_nothing(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    task = tasks.evaluate
    assert task.apply(args=("default", "t1")).get() == 1
    before = written()
    assert RiskAlert.objects.count() == 1
    assert task.apply(args=("default", "t1")).get() == 1
    assert written() == before
    missing = task.apply(args=("default", "no-such-trade"))
    assert missing.failed()
    assert "TRADE_NOT_FOUND" in str(missing.result)
    assert written() == before


@pytest.mark.skipif(connection.vendor != "mysql", reason="MariaDB counts the rows that it reads")
def test_an_evaluation_reads_as_many_rows_beside_ten_times_the_history_of_others(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    post("t1")
    reads = []
    for many in (20, 200):
        others = [f"o{number:03d}" for number in range(many)]
        load(
            tmp_path / str(many),
            customers=[{**CUSTOMER, "customer_id": name} for name in others],
            assessments=[{**ASSESSMENT, "customer_id": name} for name in others],
            trades=[{**TRADE, "trade_id": f"{name}-{n}", "customer_id": name} for name in others for n in range(5)],
        )
        with connection.cursor() as cursor:
            for table in ("core_trade", "core_customer", "core_assessment", "risk_alert_hit"):
                cursor.execute(f"ANALYZE TABLE {table}")
                cursor.fetchall()
        evaluate_trade(tenant="default", trade_id="t1")
        began = rows_read()
        evaluate_trade(tenant="default", trade_id="t1")
        reads.append(rows_read() - began)
    assert 0 < reads[1] <= reads[0] + 2, reads


def rows_read() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        # `tmp`: of the tables that the server makes for an answer, this one's too.
        return sum(int(value) for name, value in cursor.fetchall() if "tmp" not in name.lower())
