"""Locks that others hold while a scan wants them: each statement of it is tried again, a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from memory.core.models import CoreChange
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.rules import services
from risk.rules.services import ScanReport, scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, TRADE, a_small_core, load

pytestmark = pytest.mark.django_db(transaction=True)

LOCK_WAIT = (1205, "Lock wait timeout exceeded; try restarting transaction")


def make_changes(directory: Path) -> None:
    names = ("c1", "c2")
    a_small_core(directory, trades=[{**TRADE, "trade_id": "t-c1"}])
    load(
        directory,
        customers=[{**CUSTOMER, "customer_id": name} for name in names],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in names],
        trades=[{**TRADE, "trade_id": f"t-{name}", "customer_id": name} for name in names],
    )


def failing(which: Callable[[int, str], bool], work: Callable[[], ScanReport]) -> tuple[ScanReport, int]:
    """`work`, while the database gives up on the locks of some of the statements that write, by number and text."""
    writes = 0

    def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal writes
        if sql.startswith(("UPDATE", "DELETE", "INSERT")) or "FOR UPDATE" in sql:
            writes += 1
            if which(writes, sql):
                raise OperationalError(*LOCK_WAIT)
        return run(sql, params, many, context)

    with connection.execute_wrapper(execute):
        return work(), writes


def test_each_statement_that_writes_is_tried_again(tmp_path: Path) -> None:
    make_changes(tmp_path)
    waiting = list(CoreChange.objects.values("tenant", "customer_id", "priority"))
    _report, writes = failing(lambda number, sql: False, lambda: scan(everything=True))
    assert writes > 5
    for number in range(1, writes + 1):
        CoreChange.objects.all().delete()
        CoreChange.objects.bulk_create(CoreChange(**row) for row in waiting)
        RiskAlertHit.objects.all().delete()
        RiskAlert.objects.update(merge_slot=None, status="closed")
        report, _ = failing(lambda at, sql, number=number: at == number, lambda: scan(everything=True))
        assert (report.customers, report.failed) == (2, []), number
        assert RiskAlertHit.objects.filter(state="live").count() == 2, number
        assert not CoreChange.objects.exists(), number


def test_a_claim_that_cannot_be_given_back_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_changes(tmp_path)
    monkeypatch.setattr(services, "LOCK_SECONDS", 0.0)
    report, _ = failing(lambda at, sql: sql.startswith("DELETE") and "core_change" in sql, scan)
    assert (report.customers, report.failed) == (2, [])
    assert RiskAlertHit.objects.filter(state="live").count() == 2
    assert CoreChange.objects.exclude(claimed_until=None).count() == CoreChange.objects.count() > 0
    CoreChange.objects.update(claimed_until=None)
    assert scan().customers == 2
    assert not CoreChange.objects.exists()


def test_customers_that_cannot_be_claimed_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_changes(tmp_path)
    monkeypatch.setattr(services, "LOCK_SECONDS", 0.0)
    report, _ = failing(lambda at, sql: sql.startswith("UPDATE") and "core_change" in sql, scan)
    assert (report.customers, report.failed) == (0, [])
    assert scan().customers == 2
