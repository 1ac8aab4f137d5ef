"""A trade that turns out to be another customer's, under the number that it always had: one finding, with its owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.core.models import CoreChange
from risk.alerts.models import AlertAction, HitState, RiskAlert, RiskAlertHit
from risk.alerts.services import Findings, live_hits_of, settle_customers
from risk.rules import services
from risk.rules.evaluating import evaluate_trade
from risk.rules.hit import Hit
from risk.rules.models import RiskRule, RuleStatus, ShadowHit
from risk.rules.services import scan
from tests.memory.core.build import ASSESSMENT, CUSTOMER, PRODUCT, TRADE, load
from tests.risk.alerts.people import make_hit, make_person, settle
from tests.risk.alerts.test_officers import judge

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("c1", "c2")


def whose(tmp_path: Path, name: str, **more: str) -> None:
    """The trade is delivered, again, as this customer's."""
    load(tmp_path, trades=[{**TRADE, "customer_id": name, **more}])


@pytest.fixture(autouse=True)
def two_customers(tmp_path: Path) -> None:
    load(
        tmp_path / "both",
        customers=[{**CUSTOMER, "customer_id": name} for name in NAMES],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in NAMES],
        products=[PRODUCT],
    )


def in_one_chunk() -> None:
    report = scan()
    assert report.failed == []


def in_this_order(*names: str) -> Callable[[], None]:
    def run() -> None:
        for name in names:
            assert scan(tenant="default", customers=[name]).failed == []

    return run


def now_and_then_all() -> None:
    evaluate_trade(tenant="default", trade_id="t1")
    in_one_chunk()


WAYS = {
    "in one chunk": in_one_chunk,
    "the old one first": in_this_order("c1", "c2"),
    "the new one first": in_this_order("c2", "c1"),
    "by itself, then in bulk": now_and_then_all,
}


def stored(**where: Any) -> list[tuple[int, str, str]]:
    rows = RiskAlertHit.objects.filter(**where).order_by("rule_id", "evidence_key", "revision")
    return list(rows.values_list("revision", "customer_id", "state"))


def consistent() -> None:
    """Every alert counts the hits that it has, and nothing waits."""
    for alert in RiskAlert.objects.all():
        live = alert.hits.filter(state=HitState.LIVE)  # type: ignore[attr-defined]
        assert (alert.hit_count, set(live.values_list("customer_id", flat=True)) - {alert.customer_id}) == (
            live.count(), set(),
        )  # fmt: skip
    scan()
    before = stored()
    assert scan(everything=True).failed == []
    assert stored() == before


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("rule", "more"), [("RISK-001", {}), ("DATA-QUALITY", {"price": ""})], ids=["hit", "fault"])
def test_there_and_back(tmp_path: Path, way: Callable[[], None], rule: str, more: dict[str, str]) -> None:
    whose(tmp_path / "1", "c1", **more)
    scan()
    assert stored(rule_id=rule) == [(1, "c1", "live")]
    whose(tmp_path / "2", "c2", **more)
    way()
    assert stored(rule_id=rule) == [(1, "c1", "withdrawn"), (2, "c2", "live")]
    consistent()
    whose(tmp_path / "3", "c1", **more)
    way()
    assert stored(rule_id=rule) == [(1, "c1", "withdrawn"), (2, "c2", "withdrawn"), (3, "c1", "live")]
    consistent()
    notes = AlertAction.objects.filter(action="hit_withdrawn").order_by("id")
    assert [note.alert.customer_id for note in notes] == ["c1", "c2"]
    assert {note.text for note in notes} == {f"{rule} t1@1"}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_only_the_corrected_trade_changes_hands(tmp_path: Path, way: Callable[[], None]) -> None:
    """Both have other findings, one of them judged already: those stay as they are."""
    load(
        tmp_path / "others",
        trades=[
            {**TRADE, "customer_id": name, "trade_id": f"{name}-{n}"} for name in NAMES for n in range(2)
        ],
    )  # fmt: skip
    whose(tmp_path / "1", "c1")
    scan()
    judged = judge(RiskAlert.objects.get(customer_id="c1"), make_person("alice"), "false_positive", "F01")
    before = stored(trade_id__startswith="c")
    whose(tmp_path / "2", "c2")
    way()
    assert stored(trade_id="t1") == [(1, "c1", "withdrawn"), (2, "c2", "live")]
    assert stored(trade_id__startswith="c") == before
    assert RiskAlert.objects.get(customer_id="c2").hit_count == 3
    assert RiskAlert.objects.get(customer_id="c1").status == judged.status


def test_who_takes_it_has_its_former_owner_looked_at_again(tmp_path: Path) -> None:
    """Facts read before the correction may take it back: a mark on the other side is what ends that."""
    whose(tmp_path / "1", "c1")
    scan()
    whose(tmp_path / "2", "c2")
    CoreChange.objects.all().delete()
    evaluate_trade(tenant="default", trade_id="t1")
    assert set(CoreChange.objects.values_list("customer_id", flat=True)) == {"c1", "c2"}
    settle(make_hit("t1", customer="c1"))  # by someone slow
    assert stored(rule_id="RISK-001", state="live") == [(3, "c1", "live")]
    scan()
    assert stored(rule_id="RISK-001", state="live") == [(4, "c2", "live")]
    consistent()


def test_a_key_that_two_customers_share_stops_neither_and_no_scan_goes_in_circles() -> None:
    """No id that is imported makes such a key; a core of the firm's own may."""
    for name, trade_id in (("c1", "a"), ("c2", "b"), ("c1", "a")):
        settle(make_hit(trade_id, customer=name, evidence="c:plan:2026-03"))
        assert [row[1] for row in stored(state="live")] == [name]
    CoreChange.objects.all().delete()
    settle(make_hit("b", customer="c2", evidence="c:plan:2026-03"))
    assert not CoreChange.objects.exists()
    found = [Findings(name, [make_hit(name, customer=name, evidence="d:2026-03")], {}, "a" * 32) for name in NAMES]
    results = settle_customers(tenant="default", findings=found)
    assert not [one for one in results.values() if isinstance(one, Exception)]
    assert [row[2] for row in stored(evidence_key="d:2026-03")] == ["withdrawn", "live"]


def test_new_keys_cost_what_they_did() -> None:
    """Whether a key is somebody else's is asked where the database refuses it, and not of every finding."""

    def cost(found: list[Findings]) -> int:
        with CaptureQueriesContext(connection) as seen:
            settle_customers(tenant="default", findings=found)
        return sum(1 for query in seen if "risk_alert_hit" in query["sql"] and query["sql"].startswith("SELECT"))

    def findings(trade_id: str) -> list[Findings]:
        live = live_hits_of(tenant="default", customer_ids=NAMES)

        def hits(name: str) -> list[Hit]:
            return [make_hit(f"{name}-{trade_id}", customer=name)]

        return [Findings(name, hits(name), {}, "a" * 32, live.get(name, [])) for name in NAMES]

    assert cost(findings("1")) == 1
    assert cost(findings("2")) == 1


@pytest.mark.parametrize("names", [("c1", "c2"), ("c2", "c1")])
def test_a_version_in_shadow_follows_too(tmp_path: Path, names: tuple[str, str]) -> None:
    RiskRule.objects.create(rule_id="RISK-001", version=1, status=RuleStatus.ACTIVE, active_slot="RISK-001")
    shadow = RiskRule.objects.create(
        rule_id="RISK-001", version=2, status=RuleStatus.SHADOW, shadow_slot="RISK-001", params={}
    )
    whose(tmp_path / "1", "c1")
    scan()
    assert [row.customer_id for row in ShadowHit.objects.all()] == ["c1"]
    whose(tmp_path / "2", "c2")
    for name in names:
        services.scan(tenant="default", customers=[name])
    assert list(ShadowHit.objects.values_list("customer_id", "state")) == [("c2", "live")]
    shadow.refresh_from_db()
    assert shadow.shadow_failures == 0
