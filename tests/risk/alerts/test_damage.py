"""A row of an alert or a finding that cannot be read concerns its own customer and alert alone."""

from __future__ import annotations

import json
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from config import checks
from config.base.clock import now
from config.base.errors import DomainError
from config.base.fields import DamagedObject
from memory.core.models import CoreChange
from risk.alerts import damage
from risk.alerts.escalating import sweep
from risk.alerts.evidence import evidence_hash
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.alerts.selectors import confirmed_alerts
from risk.rules.evaluating import evaluate_trade
from risk.rules.services import scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, TRADE, a_small_core, load
from tests.risk.console.make import make_client, make_officer

pytestmark = pytest.mark.django_db(transaction=True)

DAMAGES = [
    ("risk_alert_hit", "figures", "{"), ("risk_alert_hit", "figures", "[]"), ("risk_alert_hit", "figures", "null"),
    ("risk_alert_hit", "subtypes", "{"), ("risk_alert_hit", "subtypes", "null"),
    ("risk_alert_hit", "subtypes", "[1,null]"), ("risk_alert_hit", "state", "zzz"),
    ("risk_alert", "subtypes", "{"), ("risk_alert", "subtypes", "null"), ("risk_alert", "rule_ids", "{"),
    ("risk_alert", "rule_ids", "null"), ("risk_alert", "payload", "["), ("risk_alert", "payload", "null"),
    ("risk_alert", "status", "zzz"), ("risk_alert", "escalation_level", "L9"),
]  # fmt: skip
each = pytest.mark.parametrize(("table", "column", "value"), DAMAGES)


def spoil(table: str, column: str, value: str, customer: str = "c1") -> None:
    """As whoever has a database client."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s WHERE customer_id = %s", [value, customer])


def make_three(directory: Path) -> None:
    """c1, c2 and c3 with a finding each."""
    a_small_core(directory, trades=[{**TRADE, "trade_id": "t-c1"}])
    names = ("c1", "c2", "c3")
    load(
        directory,
        customers=[{**CUSTOMER, "customer_id": name} for name in names],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in names],
        trades=[{**TRADE, "trade_id": f"t-{name}", "customer_id": name} for name in names],
    )
    scan()


def new_trades(directory: Path) -> None:
    names = ("c1", "c2", "c3")
    load(directory, trades=[{**TRADE, "trade_id": f"new-{name}", "customer_id": name} for name in names])


def command(name: str, *args: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    code = 0
    try:
        call_command(name, *args, stdout=out, stderr=err)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    return code, out.getvalue(), err.getvalue()


@each
def test_the_scanner_judges_everybody_else(tmp_path: Path, table: str, column: str, value: str) -> None:
    make_three(tmp_path)
    spoil(table, column, value)
    new_trades(tmp_path)
    code, out, _err = command("scan_trades", "--all", "--only-customers", "--json")
    report = json.loads(out)
    found = set(
        RiskAlertHit.objects.filter(trade_id__startswith="new-", state="live").values_list("trade_id", flat=True)
    )
    assert {"new-c2", "new-c3"} <= found
    assert (code, report["failed"], report["customers"]) == (1, ["c1"], 2)
    with connection.cursor() as cursor:  # it is as it was
        cursor.execute(f"SELECT DISTINCT {column} FROM {table} WHERE customer_id = %s", ["c1"])
        assert (value,) in cursor.fetchall()


@each
def test_queue_and_page_show_the_rest_and_mark_the_damaged_one(
    tmp_path: Path, table: str, column: str, value: str
) -> None:
    make_three(tmp_path)
    spoil(table, column, value)
    client = make_client(make_officer())
    queue = client.get("/admin/risk/riskalert/?" + ("tab=all" if column == "status" else ""))
    assert queue.status_code == 200
    pages = {
        alert.customer_id: client.get(f"/admin/risk/riskalert/{alert.alert_id}/change/")
        for alert in RiskAlert.objects.filter(alert_type="event")
    }
    assert {page.status_code for page in pages.values()} == {200}
    marked = "Something that is stored of this alert cannot be read"
    assert [name for name, page in sorted(pages.items()) if marked in page.content.decode()] == ["c1"]
    if column != "status":
        assert queue.content.decode().count(marked) == 1


@each
def test_a_damaged_row_is_a_warning_of_readiness_doctor_and_metrics(
    client: Client, tmp_path: Path, table: str, column: str, value: str
) -> None:
    make_three(tmp_path)
    assert checks.alert_rows().warning is False
    spoil(table, column, value)
    found = checks.alert_rows()
    assert (found.ok, found.warning) == (True, True)
    assert f"({column})" in found.detail
    assert "t-c1" not in found.detail
    assert "xinghuo_alert_rows_damaged 1.0" in client.get("/metrics").content.decode()
    out = StringIO()
    with suppress(SystemExit):  # something else may be wrong with this machine
        call_command("doctor", stdout=out)
    assert table in out.getvalue()
    good = {"figures": "{}", "subtypes": "[]", "rule_ids": "[]", "payload": "{}", "state": "live", "status": "pending"}
    spoil(table, column, good.get(column, ""))
    assert checks.alert_rows().warning is False


def test_the_look_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_three(tmp_path)
    monkeypatch.setattr(damage, "WINDOW", 1)
    monkeypatch.setattr(damage, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(damage, "SECONDS", 0.0)
    monkeypatch.setattr(damage, "_looks", [damage._Look(RiskAlertHit)])
    spoil("risk_alert_hit", "figures", "{", "c1")
    found = [len(damage.damaged_rows()) for _ in range(4)]
    assert (found[0], found[-1]) == (0, 1)


def test_what_mends_a_finding(tmp_path: Path) -> None:
    make_three(tmp_path)
    spoil("risk_alert_hit", "figures", "{")
    assert scan(tenant="default", customers=["c1"]).failed == ["c1"]
    spoil("risk_alert_hit", "figures", "{}")
    CoreChange.objects.update(claimed_until=None)  # half a minute later
    assert scan().failed == []
    hit = RiskAlertHit.objects.get(customer_id="c1", state="live")
    assert (hit.revision, bool(hit.figures)) == (2, True)


def test_export_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    make_three(tmp_path)
    for column, value in (("subtypes", "{"), ("state", "zzz")):
        with connection.cursor() as cursor:
            cursor.execute("UPDATE risk_alert_hit SET state = 'live', subtypes = '[]'")
        spoil("risk_alert_hit", column, value)
        code, out, err = command("export_hits", "-")
        assert (code, [json.loads(line)["customer_id"] for line in out.splitlines()]) == (1, ["c2", "c3"])
        assert "1 stored hits cannot be read and were left out" in err


def test_a_backtest_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    make_three(tmp_path)
    for table, column, value in (("risk_alert_hit", "subtypes", "{"), ("risk_alert", "status", "zzz")):
        spoil(table, column, value)
        code, out, err = command("backtest", "--rule", "RISK-001", "--json")
        report = json.loads(out)
        assert (code, report["left_out"], report["new"]["hits"], report["hits"]["open"]["kept"]) == (3, 1, 0, 2)
        assert "1 stored hits or their alerts cannot be read" in err
        spoil("risk_alert_hit", "subtypes", "[]")


def test_an_evaluation_says_that_it_cannot_be_compared(tmp_path: Path) -> None:
    make_three(tmp_path)
    spoil("risk_alert_hit", "figures", "{")
    with pytest.raises(DomainError) as refused:
        evaluate_trade(tenant="default", trade_id="t-c1")
    assert (refused.value.code, "figures" in refused.value.detail) == ("ALERT_DAMAGED", True)
    assert evaluate_trade(tenant="default", trade_id="t-c2").hits


def test_a_damaged_value_is_saved_as_it_is_and_is_another_evidence(tmp_path: Path) -> None:
    make_three(tmp_path)
    alert = RiskAlert.objects.get(customer_id="c1")
    before = evidence_hash(alert)
    spoil("risk_alert_hit", "figures", "{")
    hit: Any = RiskAlertHit.objects.get(customer_id="c1")
    assert isinstance(hit.figures, DamagedObject)
    assert evidence_hash(alert) != before
    hit.save()
    with connection.cursor() as cursor:
        cursor.execute("SELECT figures FROM risk_alert_hit WHERE customer_id = 'c1'")
        assert cursor.fetchone() == ("{",)


@each
def test_the_sweep_goes_on(tmp_path: Path, table: str, column: str, value: str) -> None:
    make_three(tmp_path)
    RiskAlert.objects.update(score=95)
    spoil(table, column, value)
    result = sweep()
    risen = RiskAlert.objects.exclude(escalation_level__in=["", "L9"]).values_list("customer_id", flat=True)
    assert {"c2", "c3"} <= set(risen)
    assert result.failed == (1 if table == "risk_alert" and column != "status" else 0)


def test_what_follows_from_an_alert_of_unknown_rules_stays_with_risk(tmp_path: Path) -> None:
    make_three(tmp_path)
    RiskAlert.objects.update(status="confirmed", confirmed_at=now())
    assert confirmed_alerts(tenant="default", customer_id="c1").told
    spoil("risk_alert", "rule_ids", "{")
    found = confirmed_alerts(tenant="default", customer_id="c1")
    assert (found.there, found.told) == (True, False)
