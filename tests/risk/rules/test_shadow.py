"""A version in shadow is judged beside the one in force, keeps what it would have found, and touches nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.core.models import CoreChange
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert, RiskAlertHit
from risk.rules import shadow as room
from risk.rules import versions
from risk.rules.models import RiskRule, ShadowHit
from risk.rules.services import scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, POSITION, PRODUCT, TRADE, load, load_just_under
from tests.risk.alerts.people import make_manager

pytestmark = pytest.mark.django_db
WHY = "fewer alerts of small sums"
# beside 600,000 of something else: 36.8 %, 42.9 %, 57.1 %
AMOUNTS = {"c1": "350000", "c2": "450000", "c3": "800000"}


def make_core(directory: Path, amounts: dict[str, str] = AMOUNTS, **trade: str) -> None:
    base = {**TRADE, "product_id": "p3", "price": "1", **trade}
    load(
        directory,
        customers=[{**CUSTOMER, "customer_id": name} for name in amounts],
        products=[{**PRODUCT, "product_id": "p3", "risk_level": "R3"}],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in amounts],
        positions=[{**POSITION, "customer_id": name, "product_id": "q", "market_value": "600000"} for name in amounts],
        trades=[
            {**base, "trade_id": f"t-{name}", "customer_id": name, "amount": amount} for name, amount in amounts.items()
        ],
    )


def make_shadow(rule: str = "RISK-002", **params: Any) -> RiskRule:
    from django.contrib.auth.models import User

    mei = User.objects.filter(username="mei").first() or make_manager("mei")
    row = versions.draft_version(tenant="default", rule_id=rule, params=params, reason=WHY, by=mei)
    return versions.put_in_shadow(tenant="default", pk=row.pk, revision=1, by=mei)


def rows() -> list[tuple[str, str, str]]:
    return list(ShadowHit.objects.order_by("customer_id", "id").values_list("customer_id", "side", "state"))


def what_is_real() -> list[Any]:
    kinds = (RiskAlert, RiskAlertHit, AlertOutbox, AlertAction)
    return [list(kind.objects.order_by("pk").values()) for kind in kinds]


def test_it_sees_past_trades_and_tells_who_finds_what(tmp_path: Path) -> None:
    make_core(tmp_path)
    scan()
    real, log = what_is_real(), AuditLog.objects.count()
    lower = make_shadow(product_limit="0.35")
    assert AuditLog.objects.count() == log + 2, "drafted, shadowed"
    assert CoreChange.objects.count() == 3
    scan()
    assert rows() == [("c1", "shadow", "live"), ("c2", "both", "live"), ("c3", "both", "live")]
    assert what_is_real() == real
    one = ShadowHit.objects.get(customer_id="c2")
    assert (one.figures["limit"], one.found_by, one.evidence_key) == ("0.350000", "RISK-002", "t-c2@1")
    versions.drop(tenant="default", pk=lower.pk, revision=1, by=lower.created_by)
    ShadowHit.objects.all().delete()
    make_shadow(product_limit="0.5")
    scan()
    assert rows() == [("c2", "active", "live"), ("c3", "both", "live")]
    assert what_is_real() == real


def test_scanned_again_nothing_changes_and_a_correction_is_followed(tmp_path: Path) -> None:
    make_core(tmp_path)
    make_shadow(product_limit="0.35")
    scan()
    before = list(ShadowHit.objects.order_by("id").values())
    scan(everything=True)
    assert list(ShadowHit.objects.order_by("id").values()) == before
    make_core(tmp_path / "v2", {"c1": "300000"}, version="2")  # a third is no hit any more
    make_core(tmp_path / "v3", {"c2": "450000"}, version="2", status="cancelled")
    scan()
    assert rows() == [("c1", "shadow", "withdrawn"), ("c2", "both", "withdrawn"), ("c3", "both", "live")]
    make_core(tmp_path / "v4", {"c2": "460000"}, version="3")
    scan()
    assert rows()[1:3] == [("c2", "both", "withdrawn"), ("c2", "both", "live")]
    assert (
        ShadowHit.objects.filter(customer_id="c2", state="live").values_list("evidence_key", flat=True)[0] == "t-c2@3"
    )


def test_what_is_true_again_is_live_again(tmp_path: Path) -> None:
    make_core(tmp_path)
    make_shadow(product_limit="0.35")
    scan()
    ShadowHit.objects.filter(customer_id="c2").update(state="withdrawn", score=1)
    scan(everything=True)
    assert rows()[1] == ("c2", "both", "live")
    assert ShadowHit.objects.get(customer_id="c2").score != 1


def test_an_activation_changes_what_it_is_compared_with(tmp_path: Path) -> None:
    make_core(tmp_path)
    row = make_shadow(product_limit="0.35")
    scan()
    bo = make_manager("bo")
    rival = versions.draft_version(
        tenant="default", rule_id="RISK-002", params={"product_limit": "0.36"}, reason=WHY, by=row.created_by
    )  # fmt: skip
    versions.activate(tenant="default", pk=rival.pk, revision=1, seen_version=1, by=bo)
    scan()
    assert [one[1] for one in rows()] == ["both"] * 3
    versions.activate(tenant="default", pk=row.pk, revision=1, seen_version=3, by=bo)
    row.refresh_from_db()
    assert (row.status, row.shadow_slot) == ("active", None)
    before = list(ShadowHit.objects.order_by("id").values())
    scan()
    assert list(ShadowHit.objects.order_by("id").values()) == before, "its trial is over"


@pytest.mark.parametrize("error", [ZeroDivisionError, DatabaseError])
def test_a_shadow_that_fails_disturbs_nothing(tmp_path: Path, monkeypatch: Any, error: type[Exception]) -> None:
    make_core(tmp_path)
    row = make_shadow(product_limit="0.35")
    broken = "Facts" if error is ZeroDivisionError else "_write"

    def fail(*_args: Any) -> Any:
        raise error

    monkeypatch.setattr(room, broken, fail)
    report = scan()
    assert (report.customers, report.failed) == (3, [])
    assert RiskAlertHit.objects.filter(state="live", rule_id="RISK-002").count() == 2
    assert not CoreChange.objects.exists()
    row.refresh_from_db()
    assert (row.shadow_failures, ShadowHit.objects.count()) == (3, 0)


def test_figures_that_no_service_let_in_stop_nobody(tmp_path: Path) -> None:
    make_core(tmp_path)
    RiskRule.objects.create(rule_id="RISK-002", version=9, status="shadow", params={"product_limit": "1e999999999"})
    assert scan().failed == []
    assert RiskAlertHit.objects.filter(state="live", rule_id="RISK-002").count() == 2


def test_one_version_of_a_rule_is_in_shadow_at_a_time() -> None:
    row = make_shadow(product_limit="0.35")
    with pytest.raises(DomainError) as caught:
        make_shadow(product_limit="0.36")
    assert (caught.value.code, "version 2 is in shadow" in caught.value.detail) == ("RULE_STATUS", True)
    with pytest.raises(DomainError) as caught:
        versions.edit_draft(
            tenant="default", pk=row.pk, revision=1, params={"base": 51}, reason=WHY, by=row.created_by
        )  # fmt: skip
    assert caught.value.code == "RULE_STATUS", "its figures stand still while it is on trial"
    assert make_shadow("RISK-001", missing=71).version == 2, "another rule has a place of its own"


def test_limits_of_003_in_shadow_move_004_with_them(tmp_path: Path) -> None:
    load_just_under(tmp_path)
    make_shadow("RISK-003", cash_cny=40_000)
    scan()
    found = ShadowHit.objects.order_by("occurred_at", "found_by").values_list("found_by", "side")
    assert list(found) == [
        ("RISK-003", "shadow"), ("RISK-003", "shadow"), ("RISK-003", "shadow"), ("RISK-004", "active"),
    ]  # fmt: skip


def test_a_shadow_costs_a_query_a_customer_where_nothing_changes(tmp_path: Path) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    make_core(tmp_path)
    scan()

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            scan(everything=True)
        return len(queries)

    without = cost()
    make_shadow(product_limit="0.35")
    scan()
    assert cost() == without + 3


def test_conduct_has_a_shadow_too() -> None:
    from risk.conduct.services import scan_conduct
    from tests.risk.conduct.make import make_probing

    make_probing()
    scan_conduct()
    real = what_is_real()
    make_shadow("RISK-008", probing_refusals=50)
    scan_conduct()
    scan_conduct(everything=True)
    assert list(ShadowHit.objects.values_list("found_by", "side", "state")) == [("RISK-008", "active", "live")]
    assert what_is_real() == real


def test_a_rule_that_is_off_is_tried_in_shadow(tmp_path: Path) -> None:
    make_core(tmp_path)
    RiskRule.objects.create(rule_id="RISK-002", version=2, status="retired")
    row = make_shadow(product_limit="0.35")
    assert row.version == 3
    scan()
    assert rows() == [("c1", "shadow", "live"), ("c2", "shadow", "live"), ("c3", "shadow", "live")]
    assert not RiskAlertHit.objects.filter(rule_id="RISK-002").exists()
