"""Two days around midnight in Shanghai, stored as UTC, where the date changes at 16:00: every rule, both sides.

A customer for each side of each rule; two scanners take them all at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from config.base.redis import state
from guard.access.services import Caller
from memory.core.importer import import_tables
from memory.core.models import CoreTrade
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.conduct.services import ConductReport, scan_conduct
from risk.rules import services
from risk.rules.services import ScanReport, scan
from tests.risk.conduct.make import make_refusal
from tests.risk.rules.build import at

SHANGHAI = ZoneInfo("Asia/Shanghai")
Row = dict[str, str]
EVE, DAY = "2026-06-30", "2026-07-01"  # a month's end too
LAST, FIRST = "23:59:59.999999", "00:00:00"  # the last instant of a day, the first of the next


class Story:
    """Rows of the core files, and what must be found in them."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {
            f"{name}.csv": [] for name in ("customers", "products", "assessments", "positions", "trades")
        }
        self.expected: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self._trades = 0
        for name, level, complex_ in (("bond", 1, "false"), ("fund", 3, "false"), ("risky", 4, "false")):
            self.tables["products.csv"].append({
                "product_id": name, "issuer_id": f"i-{name}", "asset_class": "fixed_income" if level == 1 else "mixed",
                "risk_level": f"R{level}", "is_complex": complex_, "is_cash_like": "false",
            })  # fmt: skip

    def customer(self, name: str, *, assessed: str = "2025-11-01", clock: str = "12:00:00", born: str = "1990-01-01",
                 wealth: str = "10000000", as_of: str = "2026-05-31") -> str:  # fmt: skip
        """Ordinary, natural, C5, with bonds of ten million."""
        self.tables["customers.csv"].append({
            "customer_id": name, "name": "甲", "kind": "natural", "investor_type": "ordinary", "birth_date": born,
            "opened_at": "2020-01-01T00:00:00Z",
        })  # fmt: skip
        if assessed:
            self.assess(name, assessed, clock)
        self.holds(name, as_of, wealth)
        return name

    def assess(self, name: str, day: str, clock: str) -> None:
        row = {"customer_id": name, "c_level": "C5", "is_lowest": "false", "assessed_at": utc(day, clock)}
        self.tables["assessments.csv"].append(row)

    def holds(self, name: str, as_of: str, value: str, product: str = "bond") -> None:
        self.tables["positions.csv"].append(
            {"customer_id": name, "product_id": product, "as_of": as_of, "market_value": value}
        )

    def trade(self, name: str, day: str, clock: str, product: str = "bond", amount: str = "1000", **cells: str) -> str:
        self._trades += 1
        row = {
            "trade_id": f"t{self._trades:03d}", "version": "1", "customer_id": name, "product_id": product,
            "advisor_id": "a", "trade_type": "buy", "traded_at": utc(day, clock), "amount": amount, "currency": "CNY",
            "fx_cny": "1", "fx_usd": "0.14", "quantity": amount, "price": "1", "status": "executed",
            "channel": "online", "settle_method": "transfer", "cross_border": "false", "solicited": "", **cells,
        }  # fmt: skip
        self.tables["trades.csv"].append(row)
        return row["trade_id"]

    def expect(self, rule: str, key: str, score: int, *subtypes: str) -> None:
        self.expected[f"RISK-{rule}", key] = (score, list(subtypes))


def utc(day: str, clock: str) -> str:
    """Shanghai's clock, as a delivery in UTC writes it."""
    return at(day, clock).isoformat()


def days_before(day: str, days: int) -> str:
    return (date.fromisoformat(day) - timedelta(days=days)).isoformat()


def around_midnight() -> Story:
    story = Story()
    # 001: assessed on 30 June by Shanghai's calendar, on the 29th by UTC's: valid through 30 June.
    for name, day, clock in (("valid", EVE, LAST), ("expired", DAY, FIRST)):
        story.customer(name, assessed="2025-06-30", clock="00:00:00")
        trade = story.trade(name, day, clock)
        if name == "expired":
            story.expect("001", f"{trade}@1", 50, "assessment_expired")
    # 002: the snapshot of 30 June is its close, 24:00; before that there is none.
    for name, day, clock in (("no-snapshot", EVE, LAST), ("closed", DAY, FIRST)):
        story.customer(name, wealth="50000", as_of=EVE)
        trade = story.trade(name, day, clock, "fund", "50000")
        if name == "closed":
            story.expect("002", f"{trade}@1", 57, "concentration")  # 50 % of 40
    # 003: 300,000 twice, on two days that are one in UTC; and on one day that is two in UTC.
    story.customer("two-days")
    story.trade("two-days", EVE, LAST, amount="300000")
    story.trade("two-days", DAY, FIRST, amount="300000")
    story.customer("one-day")
    story.trade("one-day", DAY, FIRST, amount="300000")
    trade = story.trade("one-day", DAY, LAST, amount="300000")
    story.expect("003", f"domestic:in:{trade}@1", 30, "large_amount")
    story.customer("reported")
    for day, clock in ((EVE, LAST), (DAY, FIRST), (DAY, LAST)):
        trade = story.trade("reported", day, clock, amount="600000")
        story.expect("003", f"domestic:in:{trade}@1", 30, "large_amount")
    # 004: a window of 72 hours does not care.
    story.customer("near")
    story.trade("near", "2026-06-29", LAST, amount="450000")
    story.trade("near", EVE, LAST, amount="450000")
    trade = story.trade("near", DAY, FIRST[:-1] + "1", amount="450000")
    story.expect("004", f"{trade}@1", 60, "structuring")
    # 005: the month is Shanghai's. Six and seven times 60,000 against 60,000.
    story.customer("churned", wealth="60000", as_of="2026-04-30")
    for as_of in ("2026-05-31", EVE):
        story.holds("churned", as_of, "60000")
    for number in range(5):
        story.trade("churned", f"2026-06-1{number}", "12:00:00", amount="60000")
    story.trade("churned", EVE, LAST, amount="60000")
    story.expect("005", "churned:2026-06", 60, "churning_turnover")
    story.trade("churned", DAY, FIRST, amount="60000")
    story.expect("005", "churned:2026-07", 65, "churning_turnover")
    # 006: the night begins at midnight and ends at five. Twenty trades by day, half a year of silence.
    for name, day, clock, score in (
        ("evening", EVE, LAST, 45), ("midnight", DAY, FIRST, 65),
        ("night", DAY, "04:59:59.999999", 65), ("morning", DAY, "05:00:00", 45),
    ):  # fmt: skip
        story.customer(name)
        for number in range(20):
            story.trade(name, days_before(EVE, 200 + number), "12:00:00", amount="40000")
        trade = story.trade(name, day, clock, amount="50000")
        story.expect("006", f"{trade}@1", score, "dormant_reactivated", *(["odd_hour"] if score == 65 else []))
    # 007: 65 at midnight; three assessments on one day or on two.
    for name, day, clock in (("sixty-four", EVE, LAST), ("sixty-five", DAY, FIRST)):
        story.customer(name, born="1961-07-01")
        trade = story.trade(name, day, clock, "risky")
        if name == "sixty-five":
            story.expect("007", f"{trade}@1", 70, "elderly_high_risk")
    for name, last in (("thrice", LAST), ("twice", "")):
        story.customer(name, assessed=EVE, clock="00:00:00")
        story.assess(name, EVE, "20:00:00")
        story.assess(name, EVE if last else DAY, last or FIRST)
        trade = story.trade(name, DAY, "12:00:00")
        if last:
            story.expect("007", f"{trade}@1", 80, "assessment_shopping")
    # 001, 007: a plan's month is Shanghai's.
    story.customer("plan", born="1955-01-01")
    for day, clock in ((EVE, LAST), (DAY, FIRST), (DAY, LAST)):
        story.trade("plan", day, clock, "risky", plan_id="s")
    for month in ("2026-06", "2026-07"):
        story.expect("007", f"plan:s:{month}", 70, "elderly_high_risk")
    return story


def two_scanners(scanner: Callable[..., ScanReport | ConductReport] = scan) -> None:
    """Both scan at once, in small portions, until nothing is left."""
    failed: list[list[str]] = []

    def work() -> None:
        try:
            failed.append(scanner(patience=20.0).failed)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [[], []]


@pytest.mark.django_db(transaction=True)
def test_every_rule_has_its_days_in_shanghai_whatever_utc_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CHUNK", 2)
    story = around_midnight()
    import_tables(tenant="default", tables=story.tables)
    two_scanners()
    rows = RiskAlertHit.objects.values_list("rule_id", "evidence_key", "score", "subtypes", "state", "revision")
    assert {row[:2]: (row[2], row[3]) for row in rows} == story.expected
    assert {row[4:] for row in rows} == {(HitState.LIVE, 1)}
    assert len(rows) == len(story.expected)
    assert {rule for rule, _key in story.expected} == {f"RISK-00{number}" for number in range(1, 8)}


@pytest.mark.django_db(transaction=True)
def test_what_is_kept_of_them_is_named_by_the_same_days(own_redis_prefix: str) -> None:
    """Anchors, alerts and hints: a repeat of the day joins, what comes a microsecond later is another day's."""
    story = around_midnight()
    import_tables(tenant="default", tables=story.tables)
    two_scanners()
    first: dict[str, str] = {}
    for hit in RiskAlertHit.objects.order_by("id"):
        day = hit.occurred_at.astimezone(SHANGHAI).date().isoformat()
        first.setdefault(f"{hit.customer_id}:{hit.rule_id}:{day}", hit.alert_id)
    held = dict(RiskAlertHit.objects.filter(anchor__isnull=False).values_list("anchor", "alert_id"))
    assert held.keys() == first.keys()
    assert {anchor.rsplit(":", 1)[1] for anchor in held} == {EVE, DAY}
    reports = RiskAlert.objects.filter(customer_id="reported").order_by("opened_at", "alert_id")
    of_day = {anchor[-10:]: alert_id for anchor, alert_id in held.items() if anchor.startswith("reported:")}
    assert {alert.alert_id: (alert.alert_type, alert.hit_count) for alert in reports} == {
        of_day[EVE]: ("report", 1), of_day[DAY]: ("report", 2),
    }  # fmt: skip
    names = [f"{own_redis_prefix}:risk:dedup:{anchor}" for anchor in held]
    assert sorted(state().scan_iter(f"{own_redis_prefix}:risk:dedup:*")) == sorted(names)
    assert all(0 < state().ttl(name) <= 86400 for name in names)
    # Redis emptied, and everything looked at once more by both: the anchors decide.
    state().delete(*names)
    before = (RiskAlert.objects.count(), RiskAlertHit.objects.count(), AlertOutbox.objects.count())
    two_scanners(partial(scan, everything=True))
    assert (RiskAlert.objects.count(), RiskAlertHit.objects.count(), AlertOutbox.objects.count()) == before


@pytest.mark.django_db(transaction=True)
def test_an_advisors_days_are_shanghais_too(own_redis_prefix: str) -> None:
    """Refusals from 23:30 on, the last of them on either side of midnight; and a whole night that is one day in UTC."""
    wanted = {}
    for name, day, clock in (("eve", EVE, LAST), ("night", DAY, FIRST)):
        for minute in range(4):
            probe(name, minute, at(EVE, f"23:3{minute}:00"))
        probe(name, 4, at(day, clock))
        wanted[f"{name}:{day}:probing"] = f"{name}:RISK-008:{day}"
    for name, day, hour in (("twice", EVE, 21), ("twice", DAY, 1)):
        for number in range(10):
            make_refusal(
                f"c{number % 2}", at(day, f"{hour:02}:{number * 3:02}:00"), caller=advisor(name), code="NOT_OWNER"
            )
        wanted[f"{name}:{day}:off_hours_burst"] = f"{name}:RISK-008:{day}"
    two_scanners(scan_conduct)
    rows = RiskAlertHit.objects.values_list("evidence_key", "anchor")
    assert dict(rows) == wanted
    assert RiskAlert.objects.filter(alert_type="pattern").count() == 4
    assert not list(state().scan_iter(f"{own_redis_prefix}:risk:dedup:*")), "conduct has its anchor alone"


def advisor(name: str) -> Caller:
    return Caller("default", "advisor", name)


def probe(name: str, number: int, moment: datetime) -> None:
    make_refusal(f"c{number % 3}", moment, caller=advisor(name), code="AUTH_403_SCOPE")


@pytest.mark.django_db
def test_the_instants_are_stored_as_utc() -> None:
    story = around_midnight()
    import_tables(tenant="default", tables=story.tables)
    stored = CoreTrade.objects.filter(customer_id="one-day").order_by("traded_at").values_list("traded_at", flat=True)
    assert list(stored) == [
        datetime(2026, 6, 30, 16, tzinfo=UTC), datetime(2026, 7, 1, 15, 59, 59, 999999, tzinfo=UTC),
    ]  # fmt: skip
