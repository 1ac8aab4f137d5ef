"""Operators are told of figures that cannot be read."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from config import checks
from risk.rules.models import RiskRule

pytestmark = pytest.mark.django_db(transaction=True)


def test_damaged_figures_are_a_warning_of_readiness_doctor_and_metrics(client: Client) -> None:
    def told() -> Any:
        return client.get("/health/ready").json()["checks"]["rule_figures"]["detail"]

    assert checks.rule_figures().warning is False
    assert told() == "the figures of all rules can be read"
    RiskRule.objects.create(rule_id="RISK-002", version=2, status="active", active_slot="RISK-002", params=[1])
    RiskRule.objects.create(rule_id="RISK-003", version=2, status="retired", params="{")
    RiskRule.objects.create(rule_id="RISK-001", version=2, status="retired", params="{")
    RiskRule.objects.create(rule_id="RISK-005", version=2, status="draft", params="{")
    found = checks.rule_figures()
    assert (found.ok, found.warning) == (True, True)
    assert "2 versions" in told()
    assert "RISK-002 version 2 (active) of default, RISK-003 version 2 (retired) of default" in told()
    assert "xinghuo_rule_versions_damaged 2.0" in client.get("/metrics").content.decode()
    out = StringIO()
    with suppress(SystemExit):  # something else may be wrong with this machine
        call_command("doctor", stdout=out)
    assert "scan_trades --all" in out.getvalue()
