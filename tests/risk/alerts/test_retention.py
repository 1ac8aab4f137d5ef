"""Alerts go whole, when nothing can find them again; and a hold that is being placed comes first or waits."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command

from config import pruning
from config.base.clock import now
from memory.core.models import CoreTrade
from memory.erasure.holds import place_hold
from risk.alerts.models import AlertAction, AlertStatus, RiskAlert, RiskAlertHit
from risk.rules.models import Backtest, RiskRule, ShadowHit
from tests.memory.erasure.helpers import Thread
from tests.memory.profiles.helpers import make_alert
from tests.pruning import prune_table

pytestmark = pytest.mark.django_db(transaction=True)
ANCIENT = datetime(2001, 1, 1, tzinfo=UTC)
ALICE, BOB = "cust-alice-0001", "cust-bob-0002"


def make_case(customer_id: str = ALICE, *, trade_id: str = "T-1", **fields: Any) -> RiskAlert:
    """An alert that was disposed of, with a hit and an act."""
    alert = make_alert(customer_id, **fields)
    RiskAlert.objects.filter(pk=alert.pk).update(disposed_at=now())
    RiskAlertHit.objects.create(
        alert=alert, rule_id="RISK-001", rule_version=1, evidence_key=f"{trade_id}-{alert.pk}", customer_id=customer_id,
        trade_id=trade_id, trade_version=1, occurred_at=now(), score=80,
    )  # fmt: skip
    AlertAction.objects.create(alert=alert, action="dispose", alert_version=2)
    return alert


def alerts() -> set[str]:
    return set(RiskAlert.objects.values_list("pk", flat=True))


def test_an_alert_goes_with_its_evidence_and_its_acts() -> None:
    make_case()
    result = prune_table("risk_alert")
    assert (result.removed, result.also) == (1, {"risk_alert_hit": 1, "alert_action": 1})
    assert not RiskAlertHit.objects.exists()
    assert not AlertAction.objects.exists()


def test_the_command_tells_in_json_what_went_with_an_alert(capsys: Any) -> None:
    make_case()
    RiskAlert.objects.update(disposed_at=ANCIENT, updated_at=ANCIENT, opened_at=ANCIENT)
    RiskAlertHit.objects.update(detected_at=ANCIENT)
    call_command("prune", "--json", "--table", "risk_alert")
    (told,) = json.loads(capsys.readouterr().out)["tables"]
    assert (told["removed"], told["also"]) == (1, {"risk_alert_hit": 1, "alert_action": 1})
    assert not alerts()


def test_what_is_open_or_still_of_use_stays() -> None:
    waiting = make_case(status=AlertStatus.PENDING)
    conduct = make_case(alert_type="pattern")
    late = make_case()
    RiskAlertHit.objects.filter(alert=late).update(detected_at=now() + timedelta(days=400))
    assert prune_table("risk_alert", at=now() + timedelta(days=7306)).removed == 0
    assert alerts() == {waiting.pk, conduct.pk, late.pk}


def test_a_follow_up_keeps_the_case_it_came_of_and_then_both_go() -> None:
    first = make_case()
    follow_up = make_case()
    RiskAlert.objects.filter(pk=follow_up.pk).update(parent=first, status=AlertStatus.PENDING)
    assert prune_table("risk_alert").removed == 0
    RiskAlert.objects.filter(pk=follow_up.pk).update(status=AlertStatus.CLOSED)
    assert prune_table("risk_alert").removed == 2


def test_an_alert_whose_trade_the_core_still_has_waits_for_it() -> None:
    make_case(trade_id="T-1")
    trade = CoreTrade.objects.create(
        trade_id="T-1", version=1, customer_id=ALICE, trade_type="buy", traded_at=now(), amount=1, status="executed"
    )
    result = prune_table("risk_alert")
    assert (result.removed, result.spared) == (0, 1)
    trade.delete()
    assert prune_table("risk_alert").removed == 1


def test_a_hold_that_is_being_placed_waits_for_the_batch_and_what_it_found_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(6):
        make_case(ALICE)
    bobs = [make_case(BOB).pk for _ in range(2)]
    reached, go_on = threading.Event(), threading.Event()
    real = pruning._tell

    def stops(*arguments: Any) -> None:
        real(*arguments)
        if not reached.is_set():
            reached.set()
            assert go_on.wait(20)

    monkeypatch.setattr(pruning, "_tell", stops)
    pruner = Thread(lambda: prune_table("risk_alert", batch=2))
    assert reached.wait(20)  # two are removed, not committed
    placing = Thread(lambda: place_hold(customer_id=ALICE, by="manage.py legal_hold", reason="a complaint"))
    placing.join(0.3)
    assert placing.is_alive()  # it waits
    go_on.set()
    placing.end()
    assert placing.error is None, placing.error
    held = set(RiskAlert.objects.filter(customer_id=ALICE).values_list("pk", flat=True))
    pruner.end()
    assert pruner.error is None, pruner.error
    assert alerts() == held  # nothing of hers went after the hold was in force; Bob's went
    assert not alerts() & set(bobs)


def test_trials_of_rules_go_when_the_version_is_no_longer_in_shadow() -> None:
    rule = RiskRule.objects.create(rule_id="RISK-001", version=2, status="shadow")
    ShadowHit.objects.create(
        rule=rule, found_by="RISK-001", evidence_key="e", customer_id=ALICE, trade_id="T", trade_version=1,
        occurred_at=now(), score=50, side="both",
    )  # fmt: skip
    assert prune_table("risk_shadow_hit").removed == 0
    RiskRule.objects.update(status="retired")
    assert prune_table("risk_shadow_hit", at=now() + timedelta(days=399)).removed == 0
    assert prune_table("risk_shadow_hit").removed == 1
    assert not Backtest.objects.exists()
