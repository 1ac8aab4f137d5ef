"""The scanner: from a change in the core to a live hit, once, whatever happens in between."""

from __future__ import annotations

import json
import threading
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from config.base.clock import now
from guard.audit.models import AuditLog
from memory.core.models import CoreChange
from memory.core.selectors import customers_facts
from risk.alerts import settlement
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.rules import services, tasks
from risk.rules.engine import MODULES, default_rules, evaluate
from risk.rules.models import RiskRule, RuleStatus
from risk.rules.services import scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, POSITION, PRODUCT, TRADE, a_small_core, load

pytestmark = pytest.mark.django_db


def live() -> list[tuple[str, str, int]]:
    hits = RiskAlertHit.objects.filter(state=HitState.LIVE).order_by("rule_id", "evidence_key")
    return list(hits.values_list("rule_id", "evidence_key", "score"))


def states(evidence_key: str) -> list[tuple[int, str]]:
    rows = RiskAlertHit.objects.filter(evidence_key=evidence_key).order_by("revision")
    return list(rows.values_list("revision", "state"))


def command(name: str, *args: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    code = 0
    try:
        call_command(name, *args, stdout=out, stderr=err)
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    return code, out.getvalue(), err.getvalue()


def test_an_imported_violation_is_found_by_the_next_scan_and_a_second_scan_changes_nothing(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    assert scan().as_json() == {"customers": 1, "hits": 1, "data_quality": 0, "failed": [], "left": 0}
    assert live() == [("RISK-001", "t1@1", 70)]
    assert not CoreChange.objects.exists()
    before = (RiskAlert.objects.count(), AlertOutbox.objects.count(), AuditLog.objects.count())
    assert scan().customers == 0
    assert scan(everything=True).hits == 1
    assert (RiskAlert.objects.count(), AlertOutbox.objects.count(), AuditLog.objects.count()) == before
    assert states("t1@1") == [(1, "live")]


def test_each_customers_evaluation_has_a_trace_of_its_own(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    load(
        tmp_path,
        customers=[{**CUSTOMER, "customer_id": "c2"}],
        trades=[{**TRADE, "trade_id": "t9", "customer_id": "c2"}],
    )
    scan()
    traces = dict(RiskAlert.objects.values_list("customer_id", "trace_id"))
    assert len(traces) == 2
    assert len(set(traces.values())) == 2
    for customer_id, trace_id in traces.items():
        assert set(RiskAlertHit.objects.filter(customer_id=customer_id).values_list("trace_id", flat=True)) == {
            trace_id
        }
        assert AuditLog.objects.filter(event_type="alert_opened", trace_id=trace_id).count() == 1


def test_an_idle_tick_is_one_query(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert tasks.scan() == 0


def test_a_late_trade_re_evaluates_the_later_ones(tmp_path: Path) -> None:
    """200,000 beside 600,000 is fine until an earlier purchase of the same product arrives."""
    base = {**TRADE, "price": "1", "traded_at": "2026-06-15T12:00:00Z", "amount": "200000"}
    a_small_core(
        tmp_path,
        products=[{**PRODUCT, "risk_level": "R3"}],
        positions=[{**POSITION, "product_id": "other", "market_value": "600000"}],
        trades=[{**base, "trade_id": "later"}],
    )
    scan()
    assert live() == []
    load(tmp_path / "late", trades=[{**base, "trade_id": "earlier", "traded_at": "2026-06-10T12:00:00Z"}])
    scan()
    # 400,000 of 1,000,000 is exactly 40 %: still fine
    assert live() == []
    load(tmp_path / "late", trades=[{**base, "trade_id": "first", "traded_at": "2026-06-09T12:00:00Z", "amount": "1"}])
    scan()
    assert live() == [("RISK-002", "later@1", 50)]
    load(tmp_path / "late", trades=[{**base, "trade_id": "first", "version": "2", "status": "cancelled",
                                     "traded_at": "2026-06-09T12:00:00Z", "amount": "1"}])  # fmt: skip
    scan()
    assert live() == []
    assert states("later@1") == [(1, "withdrawn")]


def test_corrected_and_cancelled_trades(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    scan()
    load(tmp_path / "v2", trades=[{**TRADE, "version": "2", "solicited": "true"}])
    scan()
    assert live() == [("RISK-001", "t1@2", 80)]
    assert states("t1@1") == [(1, "superseded")]
    load(tmp_path / "v3", trades=[{**TRADE, "version": "3", "status": "cancelled"}])
    scan()
    assert live() == []
    assert states("t1@2") == [(1, "cancelled")]


def test_other_figures_make_a_revision_that_supersedes(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    scan()
    load(tmp_path / "c", assessments=[{**ASSESSMENT, "c_level": "C2"}])
    scan()
    assert live() == [("RISK-001", "t1@1", 80)]
    assert states("t1@1") == [(1, "superseded"), (2, "live")]


def test_a_missing_product_is_data_quality_until_it_arrives(tmp_path: Path) -> None:
    load(tmp_path, customers=[CUSTOMER], assessments=[ASSESSMENT], trades=[TRADE])
    assert scan().data_quality == 1
    assert [hit[0] for hit in live()] == ["DATA-QUALITY"]
    load(tmp_path / "p", products=[PRODUCT])
    scan()
    assert live() == [("RISK-001", "t1@1", 70)]


def test_a_customer_that_fails_stops_nobody_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_small_core(
        tmp_path,
        customers=[CUSTOMER, {**CUSTOMER, "customer_id": "c2"}],
        trades=[TRADE, {**TRADE, "trade_id": "t2", "customer_id": "c2"}],
    )
    real = settlement.place

    def fails_for_c1(cases: Any, hit: Any, *args: Any) -> Any:
        if hit.customer_id == "c1":
            raise RuntimeError("bad luck")
        return real(cases, hit, *args)

    with monkeypatch.context() as patch:
        patch.setattr(settlement, "place", fails_for_c1)
        code, out, _err = command("scan_trades", "--json")
    assert (code, json.loads(out)["failed"]) == (1, ["c1"])
    assert AuditLog.objects.get(event_type="rule_scan").decision == "partial"
    assert [hit[1] for hit in live()] == ["t2@1"]
    # Its row waits until the claim has expired.
    assert set(CoreChange.objects.values_list("customer_id", flat=True)) == {"c1"}
    assert scan().customers == 0
    CoreChange.objects.update(claimed_until=now() - timedelta(seconds=1))
    assert scan().customers == 1
    assert len(live()) == 2


def test_a_change_that_commits_during_a_scan_is_scanned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_small_core(tmp_path)
    real = services.settle_customers
    calls = []

    def and_meanwhile_a_correction_arrives(**kwargs: Any) -> Any:
        if not calls:
            load(tmp_path / "more", trades=[{**TRADE, "version": "2", "status": "cancelled"}])
        calls.extend(found.customer_id for found in kwargs["findings"])
        return real(**kwargs)

    monkeypatch.setattr(services, "settle_customers", and_meanwhile_a_correction_arrives)
    scan()
    assert calls == ["c1", "c1"]
    assert live() == []


def test_a_scanner_that_lost_its_claim_marks_the_customer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower than its claim lasts: another scanner may have settled newer facts, so the last word must be new."""
    a_small_core(tmp_path)
    real = services.settle_customers
    calls = []

    def slowly(**kwargs: Any) -> Any:
        if not calls:
            CoreChange.objects.all().delete()  # the other scanner is through
        calls.append(1)
        return real(**kwargs)

    monkeypatch.setattr(services, "settle_customers", slowly)
    scan()
    assert len(calls) == 2
    assert not CoreChange.objects.exists()


def test_a_customer_with_another_scanner_is_left_to_it(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    CoreChange.objects.update(claim="somebody", claimed_until=now() + timedelta(minutes=1))
    load(tmp_path / "more", trades=[{**TRADE, "trade_id": "t2"}])
    assert CoreChange.objects.filter(claim=None).exists()
    assert scan().customers == 0
    assert scan(tenant="default", customers=["c1"]).customers == 0
    assert CoreChange.objects.filter(claim="somebody").count() == 4
    assert not CoreChange.objects.exclude(claim="somebody").exclude(claim=None).exists()


def test_a_patient_scan_waits_for_another_scanners_claim_to_end(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    CoreChange.objects.update(claim="somebody", claimed_until=now() + timedelta(seconds=60))
    assert scan(patience=0.3).left == 1
    CoreChange.objects.update(claimed_until=now() + timedelta(seconds=0.5))
    report = scan(patience=5)
    assert (report.customers, report.left) == (1, 0)


def test_a_slow_scanner_keeps_its_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(tmp_path, trades=[{**TRADE, "trade_id": f"t{n}", "customer_id": f"c{n}"} for n in range(3)])
    monkeypatch.setattr(services, "CLAIM_SECONDS", 0.6)
    until: list[Any] = []
    real = services.evaluate

    def slowly(*args: Any) -> Any:
        until.append(CoreChange.objects.order_by("-claimed_until")[0].claimed_until)
        time.sleep(0.25)
        return real(*args)

    monkeypatch.setattr(services, "evaluate", slowly)
    assert scan().customers == 3
    assert len(until) == 3
    assert until[2] > until[0]


def test_changes_go_before_rescans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trades = [{**TRADE, "trade_id": f"t{n}", "customer_id": f"c{n}"} for n in range(1, 5)]
    load(tmp_path, trades=trades)
    CoreChange.objects.all().delete()
    services.mark(tenant="default", customer_ids=["c1", "c2", "c3"], priority=1)
    services.mark(tenant="default", customer_ids=["c4"])
    order: list[str] = []
    real = services.evaluate

    def noted(rows: Any, *args: Any) -> Any:
        order.append(rows.customer_id)
        return real(rows, *args)

    monkeypatch.setattr(services, "evaluate", noted)
    monkeypatch.setattr(services, "CHUNK", 1)
    scan()
    assert order == ["c4", "c1", "c2", "c3"]


def test_bulk_and_single_scans_end_with_the_same_live_hits(tmp_path: Path) -> None:
    trades = [
        {**TRADE, "trade_id": f"t{n}", "customer_id": f"c{n % 5}", "traded_at": f"2026-06-{10 + n:02d}T12:00:00Z",
         "amount": str(10_000 * n)}
        for n in range(15)
    ]  # fmt: skip
    customers = [{**CUSTOMER, "customer_id": f"c{n}"} for n in range(5)]
    positions = [{**POSITION, "customer_id": f"c{n}", "product_id": "x", "market_value": "60000"} for n in range(5)]
    everything = {"customers": customers, "positions": positions}
    for tenant_dir, parts in (("bulk", [trades]), ("single", [[trade] for trade in trades])):
        load(tmp_path / tenant_dir, products=[PRODUCT], **everything)
        for part in parts:
            load(tmp_path / f"{tenant_dir}-trades", trades=part)
            scan()
        if tenant_dir == "bulk":
            bulk = live()
            RiskAlertHit.objects.all().delete()
            from memory.core.models import CoreTrade

            CoreTrade.objects.all().delete()
    assert bulk
    assert live() == bulk


# --- rule versions ----------------------------------------------------------------------------------------------------


def test_the_active_version_decides_and_a_retired_rule_is_off(tmp_path: Path) -> None:
    def in_force() -> dict[str, int]:
        return {rule.rule_id: rule.version for rule in services.active_rules(tenant="default")}

    assert in_force() == dict.fromkeys(MODULES, 1)
    RiskRule.objects.create(rule_id="RISK-001", version=2, status=RuleStatus.DRAFT, params={"mismatch_base": 1})
    assert services.active_rules(tenant="default")[0].version == 1
    RiskRule.objects.create(
        rule_id="RISK-001", version=3, status=RuleStatus.ACTIVE, active_slot="RISK-001", params={"mismatch_base": 10}
    )
    RiskRule.objects.create(rule_id="RISK-002", version=2, status=RuleStatus.RETIRED)
    assert in_force() == {**dict.fromkeys(MODULES.keys() - {"RISK-002"}, 1), "RISK-001": 3}
    assert len(services.active_rules(tenant="other")) == len(MODULES)
    a_small_core(tmp_path)
    scan()
    assert live() == [("RISK-001", "t1@1", 30)]


def test_a_rule_that_is_off_leaves_its_old_hits_alone(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    scan()
    RiskRule.objects.create(rule_id="RISK-001", version=1, status=RuleStatus.RETIRED)
    scan(everything=True)
    assert live() == [("RISK-001", "t1@1", 70)]


# --- commands ---------------------------------------------------------------------------------------------------------


def test_scan_trades_says_what_it_did(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    code, out, _err = command("scan_trades")
    assert (code, out.strip()) == (
        0,
        "1 customers evaluated: 1 live hits, 0 trades with missing facts, 0 customers failed",
    )
    assert AuditLog.objects.get(event_type="rule_scan").decision == "completed"
    command("scan_trades")
    assert AuditLog.objects.filter(event_type="rule_scan").count() == 1
    code, out, _err = command("scan_trades", "--customer", "c1", "--json")
    assert (code, json.loads(out)["customers"]) == (0, 1)
    assert command("scan_trades", "--customer", "a:b")[0] == 2


def test_export_hits_writes_live_hits_in_order_without_data_quality(tmp_path: Path) -> None:
    a_small_core(
        tmp_path,
        trades=[{**TRADE, "trade_id": "b"}, {**TRADE, "trade_id": "B"}, {**TRADE, "trade_id": "c", "price": ""}],
    )
    scan()
    target = tmp_path / "hits.jsonl"
    assert command("export_hits", str(target))[0] == 0
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["evidence_key"] for row in rows] == ["B@1", "b@1"]
    assert rows[0] == {
        "rule": "RISK-001", "evidence_key": "B@1", "customer_id": "c1", "trade_id": "B", "score": 70,
        "subtypes": ["suitability_mismatch"],
    }  # fmt: skip
    _code, out, _err = command("export_hits", "-", "--data-quality")
    assert [json.loads(line)["rule"] for line in out.splitlines()] == ["DATA-QUALITY", "RISK-001", "RISK-001"]
    assert command("export_hits", str(tmp_path / "nowhere" / "hits"))[0] == 2


def test_a_customers_evaluation_is_the_scan_of_it(tmp_path: Path) -> None:
    a_small_core(tmp_path)
    scan()
    rows = customers_facts(tenant="default", customer_ids=["c1"])["c1"]
    found = [(hit.rule_id, hit.evidence_key, hit.score) for hit in evaluate(rows, default_rules()).hits]
    assert found == live()


@pytest.mark.django_db(transaction=True)
def test_two_scanners_at_once_end_with_one_live_hit_each(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(12)]
    a_small_core(
        tmp_path,
        customers=[{**CUSTOMER, "customer_id": name} for name in names],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in names],
        trades=[{**TRADE, "trade_id": f"t-{name}", "customer_id": name} for name in names],
    )
    reports: list[services.ScanReport] = []

    def work() -> None:
        try:
            reports.append(scan(everything=True))
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scan()
    assert len(reports) == 3
    assert not any(report.failed for report in reports)
    assert [key for _rule, key, _score in live()] == sorted(f"t-{name}@1" for name in names)
    assert RiskAlertHit.objects.count() == RiskAlert.objects.count() == len(names)
    assert not CoreChange.objects.exists()
