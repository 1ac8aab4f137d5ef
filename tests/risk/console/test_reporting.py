"""What the console says of large amounts and structuring: figure, limit, version and law; and nobody else hears it."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from memory.profiles.wording import tips_off
from risk.alerts.models import AlertType, RiskAlert, RiskAlertHit
from risk.alerts.services import settle_customer
from risk.console.sentences import findings_of, sentence
from risk.console.words import LIMITS_LACK, RULES, SUBTYPES
from risk.rules.hit import FinalTrade, Hit
from tests.risk.console.make import make_client, make_customer, make_officer, make_operator
from tests.risk.rules.build import found
from tests.risk.rules.moving import ABROAD, CASH, USD, moved

pytestmark = pytest.mark.django_db
QUEUE = "/admin/risk/riskalert/"


def stored(*hits: Hit) -> list[RiskAlertHit]:
    settle_customer(tenant="default", customer_id="c1", hits=hits, final_trades={}, trace_id="a" * 32)
    return list(RiskAlertHit.objects.order_by("id"))


def large(*trades: Any) -> RiskAlertHit:
    return stored(*found("RISK-003", trades)[-1:])[-1]


def test_a_large_amount_is_told_with_sum_limit_and_law() -> None:
    hit = large(moved(30_000, "09:00:00", **CASH), moved("20000.5", "10:00:00", **CASH, trade_id="t"))
    [finding] = findings_of([hit])
    assert finding.text == "On 2026-06-15 cash in came to ¥50,000.50; the reporting limit is ¥50,000.00 a day."
    assert finding.basis.startswith("Measures on Financial Institutions' Reporting of Large-Value and Suspicious")
    assert finding.basis.endswith("(PBOC Order 2016 No. 3), art. 5, 6")
    assert (finding.rule_id, finding.rule_version, finding.trade_id) == ("RISK-003", 1, "t")
    assert dict(finding.figures) == {
        "what moved": "cash in", "kind of customer": "natural person", "day": "2026-06-15",
        "sum / limit": "¥50,000.50 / ¥50,000.00", "trades so far that day": "2", "this trade": "20,000.50 CNY",
    }  # fmt: skip


def test_dollars_are_told_in_dollars_and_a_converted_sum_in_both() -> None:
    hit = large(moved(10_000, **USD, **ABROAD, trade_type="sell"))
    assert sentence(hit) == (
        "On 2026-06-15 cross-border transfers out came to US$10,000.00; the reporting limit is US$10,000.00 a day."
    )
    hit = large(moved(400_000, "09:00:00"), moved(20_000, "10:00:00", **USD))
    assert sentence(hit) == (
        "On 2026-06-15 domestic transfers in in CNY and in foreign currency came to ¥540,000.00 or US$76,000.00 "
        "together; the reporting limit is ¥500,000.00 or US$100,000.00 a day."
    )


def test_structuring_is_told_with_number_hours_band_and_law() -> None:
    trades = [moved(45_000, f"10:0{number}:00", trade_id=f"t{number}", **CASH) for number in range(3)]
    [hit] = stored(*found("RISK-004", trades))
    [finding] = findings_of([hit])
    assert finding.text == (
        "3 trades (cash in) within 72 hours, each from 80 % of the reporting limit of ¥50,000.00 or US$10,000.00 up to "
        "just under it."
    )
    assert finding.basis.endswith("art. 11, 12")
    listed = dict(finding.figures)
    assert listed["first of them"] == "2026-06-15 10:00:00"
    assert (listed["t0@1"], listed["t2@1"]) == ("45,000.00 CNY", "45,000.00 CNY")


def test_a_trade_without_dollars_says_that_only_limits_in_dollars_miss_it() -> None:
    hits = stored(*found("DATA-QUALITY", [moved(1, **{**USD, "fx_usd": None})]))
    assert sentence(hits[0]) == "Without the exchange rate to USD the trade cannot be held against limits in dollars."


@pytest.mark.parametrize("rule", ["RISK-003", "RISK-004"])
def test_figures_of_another_version_do_not_break_the_page(rule: str) -> None:
    trades = [moved(400_000, f"10:0{number}:00", trade_id=f"t{number}") for number in range(3)]
    [hit] = stored(*found(rule, trades)[-1:])
    for figures in ({}, {"trades": 3}, {"trades": [1]}, {"category": "cash"}, {"from": "x", "to": 1}, {"basis": None}):
        hit.figures = figures
        assert findings_of([hit])[0].text == f"{RULES[rule]} found {SUBTYPES[hit.subtypes[0]]}, score {hit.score}."


def test_two_categories_and_directions_of_a_day_are_one_report_outside_merging_that_officers_see() -> None:
    make_customer("c1")
    trades = [
        moved(50_000, "09:00:00", trade_id="cash", **CASH), moved(500_000, "10:00:00", trade_id="home"),
        moved(500_000, "11:00:00", trade_id="out", trade_type="sell"),
        moved(500_000, "11:00:00", "2026-06-16", trade_id="next"),
    ]  # fmt: skip
    stored(*found("RISK-003", trades))
    today, tomorrow = RiskAlert.objects.order_by("opened_at", "alert_id")
    assert (today.alert_type, today.hit_count, today.subtypes) == (AlertType.REPORT, 3, ["large_amount"])
    assert (tomorrow.alert_type, tomorrow.hit_count) == (AlertType.REPORT, 1)
    assert {alert.merge_slot for alert in (today, tomorrow)} == {None}
    page = make_client(make_officer()).get(f"{QUEUE}{today.pk}/change/")
    assert page.status_code == 200
    assert "the reporting limit is ¥50,000.00 a day" in page.content.decode()
    assert make_client(make_operator()).get(f"{QUEUE}{today.pk}/change/").status_code == 404


def test_structuring_is_an_event_that_merges() -> None:
    trades = [moved(45_000, f"10:0{number}:00", trade_id=f"t{number}", **CASH) for number in range(3)]
    stored(*found("RISK-003", trades), *found("RISK-004", trades))
    kinds = sorted(RiskAlert.objects.values_list("alert_type", "hit_count", "merge_slot"))
    assert kinds == [("event", 1, "c1"), ("report", 2, None)]


def test_whatever_is_told_of_them_would_be_refused_where_others_than_risk_read() -> None:
    trades = [moved(Decimal(45_000), f"10:0{number}:00", trade_id=f"t{number}", **CASH) for number in range(3)]
    both = [moved(400_000, "09:00:00"), moved(20_000, "10:00:00", **USD)]
    hits = stored(*found("RISK-003", trades), *found("RISK-004", trades), *found("RISK-003", both))
    assert len(hits) >= 4
    for hit in hits:
        [finding] = findings_of([hit])
        for text in (finding.text, finding.basis, str(finding.rule_name), hit.rule_id, *hit.subtypes):
            assert tips_off(text), text
    assert not any(tips_off(str(words)) for words in LIMITS_LACK.values())


def test_a_late_trade_and_a_cancelled_one_move_the_hits_within_the_days_one_report() -> None:
    trades = [moved(250_000, f"{hour:02d}:00:00", trade_id=f"t{hour}") for hour in (10, 12, 14)]

    def live() -> dict[str, str]:
        hits = RiskAlertHit.objects.filter(state="live").order_by("occurred_at")
        return {hit.evidence_key: hit.figures["sum_cny"] for hit in hits}

    def settled(*now: Any) -> None:
        final = {trade.trade_id: FinalTrade(trade.version, trade.status) for trade in now}
        hits = found("RISK-003", now)
        settle_customer(tenant="default", customer_id="c1", hits=hits, final_trades=final, trace_id="a" * 32)

    settled(*trades)
    assert live() == {"domestic:in:t12@1": "500000.00", "domestic:in:t14@1": "750000.00"}
    late = moved(250_000, "08:00:00", trade_id="t08")
    settled(*trades, late)
    assert live() == {
        "domestic:in:t10@1": "500000.00", "domestic:in:t12@1": "750000.00", "domestic:in:t14@1": "1000000.00",
    }  # fmt: skip
    gone = [replace(trade, version=2, status="cancelled") for trade in trades[:2]]
    settled(*gone, trades[2], late)
    assert live() == {"domestic:in:t14@1": "500000.00"}
    assert RiskAlert.objects.get().hit_count == 1
    states = RiskAlertHit.objects.exclude(state="live").values_list("trade_id", "state")
    assert {("t10", "cancelled"), ("t12", "cancelled"), ("t14", "superseded")} <= set(states)
