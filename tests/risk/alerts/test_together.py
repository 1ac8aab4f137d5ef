"""Many customers' findings in one transaction: the same rows as one by one, whoever else is at work meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from guard.audit.models import AuditLog
from risk.alerts import settlement, settling
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert, RiskAlertHit
from risk.alerts.services import Findings, SettleResult, live_hits_of, settle_customer, settle_customers
from risk.rules.hit import Hit
from tests.risk.alerts.people import make_hit, make_person
from tests.risk.alerts.test_officers import judge

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = [f"C{n:03d}" for n in range(6)]
TRACE = "a" * 32


def hits_of(name: str, *, score: int = 60, trades: int = 2) -> list[Hit]:
    first = [make_hit(f"{name}-{n}", customer=name, score=score + n) for n in range(trades)]
    return [*first, make_hit(f"{name}-r", customer=name, rule="RISK-003", subtypes=("large_amount",))]


def findings(names: Sequence[str] = NAMES, *, tenant: str = "default", **more: Any) -> list[Findings]:
    live = live_hits_of(tenant=tenant, customer_ids=names)
    return [Findings(name, hits_of(name, **more), {}, TRACE, live.get(name, [])) for name in names]


def together(found: Sequence[Findings], tenant: str = "default") -> dict[str, SettleResult | Exception]:
    return settle_customers(tenant=tenant, findings=found)


def alone(found: Sequence[Findings], tenant: str) -> dict[str, SettleResult | Exception]:
    return {
        one.customer_id: settle_customer(
            tenant=tenant,
            customer_id=one.customer_id,
            hits=one.hits,
            final_trades=one.final_trades,
            trace_id=one.trace_id,
        )[0]
        for one in found
    }


def stored(tenant: str) -> dict[str, list[Any]]:
    """All that is stored, but for ids, moments and the order between customers."""
    kinds = {alert.pk: f"{alert.customer_id} {alert.alert_type}" for alert in RiskAlert.objects.filter(tenant=tenant)}
    hits = RiskAlertHit.objects.filter(tenant=tenant).values_list(
        "alert_id", "rule_id", "evidence_key", "revision", "live_key", "anchor", "state", "after_disposition",
        "alert_version", "score", "trace_id",
    )  # fmt: skip
    alerts = RiskAlert.objects.filter(tenant=tenant).values_list(
        "customer_id", "alert_type", "status", "version", "merge_slot", "score", "hit_count", "escalation_level",
        "rule_ids", "subtypes", "trace_id",
    )  # fmt: skip
    actions = AlertAction.objects.filter(alert__tenant=tenant).values_list(
        "alert_id", "action", "alert_version", "text", "trace_id"
    )
    events = AlertOutbox.objects.filter(tenant=tenant).order_by("id").values_list("alert_id", "kind", "event")
    audit = (
        AuditLog.objects.filter(tenant=tenant)
        .exclude(event_type="alert_status")
        .values_list("object_id", "event_type", "decision", "code", "risk_score", "trace_id", "customer")
    )
    pseudonyms: dict[str, str] = {}

    def named(row: Sequence[Any]) -> list[Any]:
        told = [kinds.get(one, one) if isinstance(one, str) else one for one in row]
        told = [
            {**one, "alert_id": kinds[one["alert_id"]], "assignee": bool(one.get("assignee"))}
            if isinstance(one, dict)
            else one
            for one in told
        ]
        return [pseudonyms.setdefault(one, kinds[row[0]][:4]) if str(one).startswith("c_") else one for one in told]

    of_alert: dict[str, list[Any]] = {}
    for row in events:
        of_alert.setdefault(kinds[row[0]], []).append(named(row))
    tables = {"hits": hits, "alerts": alerts, "actions": actions, "audit": audit}
    found = {name: sorted((named(row) for row in rows), key=repr) for name, rows in tables.items()}
    return {**found, "events": sorted(of_alert.items())}


STEPS: list[dict[str, int]] = [
    {},
    {"trades": 3},
    {"score": 75, "trades": 3},
    {"score": 75, "trades": 1},
    {"score": 95, "trades": 4},
]


def test_together_leaves_the_rows_that_one_by_one_leaves() -> None:
    """Openings, merges, revisions, findings that go, levels: step by step."""
    both = []
    for settle, tenant in ((together, "one"), (alone, "two")):
        officer = make_person(f"officer-{tenant}", tenant=tenant)
        seen = []
        for number, step in enumerate(STEPS):
            results = settle(findings(tenant=tenant, **step), tenant)
            assert all(isinstance(result, SettleResult) for result in results.values()), results
            if number == 1:
                alert = RiskAlert.objects.get(tenant=tenant, customer_id="C001", alert_type="event")
                judge(alert, officer, "false_positive", "F01")
            seen.append((results, stored(tenant)))
        both.append(seen)
    for (results, rows), (expected_results, expected) in zip(*both, strict=True):
        assert results == expected_results
        for name in expected:
            assert rows[name] == expected[name], name


def test_many_customers_cost_what_a_few_do() -> None:
    costs = []
    for names in (NAMES[:2], [f"D{n:03d}" for n in range(30)]):
        found = findings(names)
        with CaptureQueriesContext(connection) as seen:
            together(found)
        costs.append(len(seen))
    # SQLite takes a thousand values a statement.
    assert costs[1] <= costs[0] + (8 if connection.vendor == "sqlite" else 0)
    assert costs[0] <= 16


def test_a_customer_who_fails_is_told_of_and_the_others_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    real = settlement.place

    def fails(cases_: Any, hit: Hit, *rest: Any) -> Any:
        if hit.customer_id == "C002":
            raise ZeroDivisionError
        return real(cases_, hit, *rest)

    monkeypatch.setattr(settlement, "place", fails)
    results = together(findings())
    assert isinstance(results.pop("C002"), ZeroDivisionError)
    assert {result.new for result in results.values() if isinstance(result, SettleResult)} == {3}
    assert set(RiskAlert.objects.values_list("customer_id", flat=True)) == set(NAMES) - {"C002"}
    assert AuditLog.objects.filter(event_type="alert_opened").count() == 2 * 5
    stranger = Findings("C009", [make_hit(customer="C010")], {}, TRACE)
    results = together([stranger, *findings(["C003"])])
    assert isinstance(results["C009"], ValueError)
    assert results["C003"] == SettleResult(unchanged=3)


def test_an_officer_who_was_first_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """She closes one customer's alert after it was read and before it is written: what came is `after disposition`."""
    together(findings())
    officer = make_person("alice")
    alert = RiskAlert.objects.get(customer_id="C001", alert_type="event")
    done: list[bool] = []

    def closing() -> None:
        try:
            judge(alert, officer, "false_positive", "F01")
        finally:
            connection.close()

    # Before the transaction begins: SQLite has one writer at a time.
    worked = settlement.Settlement.work_out

    def then_the_officer(self: Any, cases_: Any) -> Any:
        found = worked(self, cases_)
        if self.customer_id == NAMES[-1] and not done:
            done.append(True)
            thread = threading.Thread(target=closing)
            thread.start()
            thread.join(30)
        return found

    monkeypatch.setattr(settlement.Settlement, "work_out", then_the_officer)
    results = together(findings(trades=3))
    assert done
    assert all(isinstance(result, SettleResult) and result.new == 1 for result in results.values())
    alert.refresh_from_db()
    assert (alert.status, alert.hit_count) == ("false_positive", 2)
    late = RiskAlertHit.objects.get(evidence_key="C001-2@1")
    assert (late.alert_id, late.after_disposition, late.alert_version) == (alert.pk, True, None)
    assert RiskAlert.objects.filter(alert_type="event", hit_count=3).count() == 5


def test_a_deadlock_is_tried_again_and_then_each_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = settling.write_all, []

    def deadlocked(changes: Sequence[Any]) -> None:
        tried.append(len(changes))
        raise OperationalError(1213, "Deadlock found")

    monkeypatch.setattr(settling, "write_all", deadlocked)
    results = together(findings())
    assert tried == [6, 6]
    assert all(isinstance(result, SettleResult) and result.new == 3 for result in results.values())
    assert RiskAlert.objects.count() == 12
    monkeypatch.setattr(settling, "write_all", real)
    assert all(result == SettleResult(unchanged=3) for result in together(findings()).values())


def test_two_scanners_with_the_same_customers_end_with_one_of_each() -> None:
    found, results, start = findings(), [], threading.Barrier(2)

    def work(turn: Sequence[Findings]) -> None:
        try:
            start.wait(30)
            results.append(together(turn))
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(turn,)) for turn in (found, found[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 2
    assert not [one for result in results for one in result.values() if isinstance(one, Exception)]
    assert RiskAlert.objects.count() == 12
    assert RiskAlertHit.objects.count() == 18
    assert AuditLog.objects.filter(event_type="alert_opened").count() == 12
    assert AlertOutbox.objects.count() == 18
