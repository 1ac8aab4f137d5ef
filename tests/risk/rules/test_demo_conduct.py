"""The demo's advisors: what was planted of RISK-008 is found, all and only that, by the rule and through the log."""

from __future__ import annotations

from collections import defaultdict
from datetime import date, datetime
from typing import Any

import pytest

from guard.audit.models import AuditLog
from guard.audit.services import record_all
from memory.core.demo import Demo, cases_008, generate
from memory.core.importer import import_tables
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.conduct.demo import entry_of, tell
from risk.conduct.services import scan_conduct
from risk.rules.hit import DATA_QUALITY
from risk.rules.risk_008 import Conduct, Params, Refusal, Request, RequestedTrade, evaluate
from tests.risk.rules.oracle_008 import expected

Found = dict[str, tuple[str, int, list[str]]]


def a_story(seed: int = 11, end: str = "2026-11-29", customers: int = 110) -> Demo:
    return generate(customers=customers, advisors=4, seed=seed, days=90, end=date.fromisoformat(end))


def planted(demo: Demo) -> Found:
    found = {
        row["evidence_key"]: (row["trade_id"], row["score"], row["subtypes"]) for row in demo.planted.conduct_violations
    }
    assert len(found) == len(demo.planted.conduct_violations)
    return found


def conducts(demo: Demo) -> list[Conduct]:
    """The demo's deeds as the rule takes them, without a database."""
    trades = {row["trade_id"]: row for row in demo.tables["trades.csv"]}
    levels = {row["product_id"]: int(row["risk_level"][1]) for row in demo.tables["products.csv"]}
    begun: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for row in demo.tables["assignments.csv"]:
        begun[row["advisor_id"], row["customer_id"]].append(datetime.fromisoformat(row["valid_from"]))
    of: dict[str, tuple[list[Refusal], list[Request]]] = defaultdict(lambda: ([], []))
    for number, deed in enumerate(demo.planted.conduct):
        refusals, requests = of[deed.advisor_id]
        if not deed.trade_id:
            target = deed.customer_id or deed.product_id
            refusals.append(Refusal(deed.at, number, deed.code, target, deed.customer_id, (target,)))
            continue
        row = trades[deed.trade_id]
        trade = RequestedTrade(
            version=1, customer_id=row["customer_id"], product_id=row["product_id"], trade_type=row["trade_type"],
            traded_at=datetime.fromisoformat(row["traded_at"]), status=row["status"],
            risk_level=levels[row["product_id"]],
            assigned_from=tuple(begun[deed.advisor_id, row["customer_id"]]),
        )  # fmt: skip
        requests.append(Request(deed.at, number, deed.trade_id, bool(deed.code), None if deed.code else trade))
    return [Conduct(advisor_id, *rows) for advisor_id, rows in sorted(of.items())]


@pytest.mark.parametrize(
    ("seed", "end"), [(11, "2026-11-29"), (1, "2026-03-01"), (2, "2028-02-29"), (3, "2027-01-02"), (4, "2025-12-31")]
)
def test_whatever_the_story_just_the_planted_conduct_is_found(seed: int, end: str) -> None:
    demo = a_story(seed, end, customers=220)
    hits = [hit for conduct in conducts(demo) for hit in evaluate(conduct, Params(), 1)]
    assert {hit.evidence_key: (hit.trade_id, hit.score, list(hit.subtypes)) for hit in hits} == planted(demo)
    told = {key: trade for conduct in conducts(demo) for key, trade in expected(conduct)}
    assert told == {key: trade for key, (trade, _score, _subtypes) in planted(demo).items()}
    assert {key.rsplit(":", 1)[1] for key in planted(demo)} == {
        "probing", "probe_then_trade", "off_hours_burst", "product_push",
    }  # fmt: skip
    advisors = {deed.advisor_id for deed in demo.planted.conduct}
    silent = {row["advisor_id"] for row in demo.planted.conduct_silent}
    assert silent | {key.split(":")[0] for key in planted(demo)} == advisors
    assert len(advisors) == len(cases_008.CASES)
    assert len(silent) >= 18


def live() -> Found:
    rows = RiskAlertHit.objects.filter(state=HitState.LIVE, rule_id="RISK-008")
    return {row.evidence_key: (row.trade_id, row.score, list(row.subtypes)) for row in rows}


def counts() -> tuple[int, ...]:
    return tuple(model.objects.count() for model in (RiskAlert, RiskAlertHit, AlertOutbox, AuditLog))


@pytest.mark.django_db
def test_through_the_log_and_again_just_the_planted_conduct_is_live() -> None:
    demo = a_story()
    import_tables(tenant="default", tables=demo.tables)
    assert tell(tenant="default", deeds=demo.planted.conduct) == len(demo.planted.conduct)
    report = scan_conduct(unfound=True)
    assert (report.failed, report.data_quality) == ([], 0)
    assert live() == planted(demo)
    assert not RiskAlertHit.objects.filter(rule_id=DATA_QUALITY).exists()
    # one alert an advisor and day, of everybody whose case it is
    assert RiskAlert.objects.count() == len({key.rsplit(":", 1)[0] for key in planted(demo)})
    before = counts()
    assert tell(tenant="default", deeds=demo.planted.conduct) == 0, "the log is told once"
    scan_conduct(everything=True)
    assert (live(), counts()) == (planted(demo), before)


@pytest.mark.django_db
@pytest.mark.parametrize("order", ["as it was done", "backwards"])
def test_row_by_row_ends_with_the_same(order: str) -> None:
    """Each scan finds one more row of each advisor, in the order of time or against it."""
    demo = a_story()
    import_tables(tenant="default", tables=demo.tables)
    waiting: dict[str, list[Any]] = defaultdict(list)
    for deed in sorted(demo.planted.conduct, key=lambda deed: deed.at, reverse=order == "backwards"):
        waiting[deed.advisor_id].append(deed)
    while waiting:
        turn = [rows.pop(0) for rows in waiting.values()]
        waiting = defaultdict(list, {one: rows for one, rows in waiting.items() if rows})
        record_all([entry_of("default", deed) for deed in turn])
        assert scan_conduct(unfound=True).failed == []
    assert live() == planted(demo)
