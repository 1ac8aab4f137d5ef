"""An advisor's alert on the console: each pattern in a sentence to be checked, the refused accesses, no controls for a
manager."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.utils import translation

from guard.audit.models import AuditLog
from memory.core.models import CoreProduct
from risk.alerts.models import RiskAlert, RiskAlertHit
from risk.conduct.services import scan_conduct
from risk.console.sentences import sentence
from tests.risk.conduct.make import (
    MINUTE,
    NOON,
    clock_at,
    make_probing,
    make_product_refusal,
    make_refusal,
    make_request,
    make_trade,
)
from tests.risk.console.make import make_client, make_manager, make_officer, make_operator

pytestmark = pytest.mark.django_db


def said() -> list[str]:
    with translation.override("en"):
        return [sentence(hit) for hit in RiskAlertHit.objects.order_by("id")]


def page_of(alert: RiskAlert, client: object) -> str:
    answer = client.get(f"/admin/risk/riskalert/{alert.pk}/change/")  # type: ignore[attr-defined]
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_probing_in_a_sentence() -> None:
    make_probing()
    scan_conduct()
    assert said() == [
        "The advisor was refused access 5 times on 3 targets from 2026-06-15 12:00:00 to 2026-06-15 12:08:00; "
        "5 refusals on 3 targets within 60 minutes are the limit."
    ]


def test_probe_then_trade_in_a_sentence() -> None:
    make_refusal("c9", NOON)
    make_trade("t1", NOON + 60 * MINUTE, "c9")
    make_request("t1", NOON + 61 * MINUTE)
    scan_conduct()
    assert said() == [
        "The advisor was refused a customer at 2026-06-15 12:00:00, and that customer's trade t1 was made at "
        "2026-06-15 13:00:00: within 24 hours, and without an assignment begun in between."
    ]


def test_three_refusals_about_a_product_in_a_sentence() -> None:
    for index in range(3):
        make_product_refusal("p5", NOON + index * 2 * MINUTE)
    make_trade("t1", NOON + 60 * MINUTE, "c9")
    make_request("t1", NOON + 61 * MINUTE)
    scan_conduct()
    assert said() == [
        "The advisor was refused 3 times about p5, last at 2026-06-15 12:04:00, and traded it (t1) at "
        "2026-06-15 13:00:00; 3 refusals within 24 hours before a trade are the limit."
    ]


def test_a_burst_in_a_sentence() -> None:
    for index in range(10):
        make_refusal(f"c{index % 2}", NOON + timedelta(hours=9) + index * 2 * MINUTE)
    scan_conduct()
    assert said() == [
        "10 refusals and requests of the advisor from 2026-06-15 21:00:00 to 2026-06-15 21:18:00, outside working "
        "time (08:00 to 20:00 of working days); 10 within 30 minutes are the limit."
    ]


def test_a_push_in_a_sentence() -> None:
    CoreProduct.objects.create(product_id="p5", risk_level=4)
    for index in range(8):
        make_trade(f"t{index}", NOON + index * MINUTE, f"c{index}", amount=Decimal(5))
        make_request(f"t{index}", NOON + index * MINUTE)
    for index in range(2):
        make_request(f"x{index}", NOON - MINUTE)
    with clock_at(NOON + 60 * MINUTE):  # the core may still bring those two
        scan_conduct()
    assert said() == [
        "The advisor asked for purchases of p5 (R4) for 8 customers within 5 days, 8 of 10 own requests (80 %); the "
        "limits are 8 customers and 50 %."
    ]


def test_the_page_shows_the_refused_accesses_and_no_customers_sections() -> None:
    make_probing()
    scan_conduct()
    alert = RiskAlert.objects.get()
    page = page_of(alert, make_client(make_officer()))
    assert "Refused accesses" in page
    assert page.count("outside what the AI agent may do") == 5
    assert "probing for access" in page
    assert "wei" in page
    assert "Suitability evidence" not in page
    assert AuditLog.objects.filter(event_type="authz")[0].input_summary["target"] in page
    assert "/claim/" in page
    managers = page_of(alert, make_client(make_manager()))
    assert "Refused accesses" in managers
    assert "/claim/" not in managers


def test_a_reported_trade_that_is_nowhere_is_the_operators() -> None:
    make_request("t1", NOON)
    with clock_at(NOON + timedelta(days=1)):
        scan_conduct()
    alert = RiskAlert.objects.get()
    page = page_of(alert, make_client(make_operator()))
    assert "wei" in page
    assert "an advisor had reported it" in page.replace("&#x27;", "'")
    answer = make_client(make_officer()).get(f"/admin/risk/riskalert/{alert.pk}/change/")
    assert answer.status_code in (302, 403, 404)
