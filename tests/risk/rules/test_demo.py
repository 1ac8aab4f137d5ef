"""seed_demo: the planted violations are found, all and only those."""

from __future__ import annotations

import json
import stat
from collections import defaultdict
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.core.management import call_command

import memory.core.demo as demo_core
from memory.core.columns import FILES
from memory.core.demo import Demo, generate
from memory.core.facts import AssessmentFact, CustomerFact, CustomerRows, PositionFact, ProductFact, TradeFact
from memory.core.models import CoreCustomer, CoreTrade
from risk.alerts.models import HitState, RiskAlertHit
from risk.rules.engine import default_rules, evaluate
from risk.rules.hit import DATA_QUALITY

KINDS = {
    "trades.csv": TradeFact, "products.csv": ProductFact, "customers.csv": CustomerFact,
    "assessments.csv": AssessmentFact, "positions.csv": PositionFact,
}  # fmt: skip

# A rule whose cases are planted is found in each of its ways.
SUBTYPES = {
    "suitability_mismatch", "suitability_lowest", "suitability_confirmed", "assessment_missing", "assessment_expired",
    "concentration", "large_amount", "structuring",
    "churning_turnover", "churning_cost", "dormant_reactivated", "fast_in_out", "size_outlier", "odd_hour",
    "elderly_high_risk", "first_complex", "assessment_upgraded", "assessment_shopping",
}  # fmt: skip
EVERYBODY = 400  # customers, so that every case is played and as many people again trade quietly

Found = dict[tuple[str, str], tuple[str, int, list[str]]]


def facts_of(demo: Demo) -> list[CustomerRows]:
    """The demo as facts, without a database."""
    parsed = {spec.name: [spec.read(cells) for cells in demo.tables[spec.name]] for spec in FILES}
    facts: dict[str, list[Any]] = {name: [kind(**row) for row in parsed[name]] for name, kind in KINDS.items()}
    of: dict[str, dict[str, list[Any]]] = {name: defaultdict(list) for name in facts}
    for name, rows in facts.items():
        for row in rows:
            of[name]["" if name == "products.csv" else row.customer_id].append(row)
    return [
        CustomerRows(
            customer_id=customer_id,
            customers=tuple(of["customers.csv"][customer_id]),
            assessments=tuple(of["assessments.csv"][customer_id]),
            positions=tuple(of["positions.csv"][customer_id]),
            trades=tuple(of["trades.csv"][customer_id]),
            products=tuple(facts["products.csv"]),
        )
        for customer_id in sorted(of["trades.csv"])
    ]


def planted(demo: Demo) -> Found:
    """Rule and evidence key to trade, score and subtypes: what was written down beside each case."""
    violations = demo.planted.violations
    found = {(v["rule"], v["evidence_key"]): (v["trade_id"], v["score"], v["subtypes"]) for v in violations}
    assert len(found) == len(violations)
    return found


def judged(everything: list[CustomerRows]) -> tuple[Found, dict[str, list[str]]]:
    """What the rules find, and by trade what cannot be judged."""
    hits = [hit for rows in everything for hit in evaluate(rows, default_rules()).hits]
    found = {(h.rule_id, h.evidence_key): (h.trade_id, h.score, list(h.subtypes)) for h in hits}
    assert len(found) == len(hits)
    return (
        {key: value for key, value in found.items() if key[0] != DATA_QUALITY},
        {hit.trade_id: list(hit.subtypes) for hit in hits if hit.rule_id == DATA_QUALITY},
    )


@pytest.mark.parametrize(
    ("seed", "end", "days"),
    [
        (20261130, "2026-11-29", 365),
        (1, "2026-03-01", 365),
        (2, "2028-02-29", 200),
        (3, "2027-01-02", 90),
        (4, "2028-03-01", 500),
        (5, "2025-03-31", 365),
    ],
)
def test_whatever_the_seed_and_the_day_just_the_planted_violations_are_found(seed: int, end: str, days: int) -> None:
    demo = generate(customers=EVERYBODY, advisors=12, seed=seed, days=days, end=date.fromisoformat(end))
    found, quality = judged(facts_of(demo))
    assert found == planted(demo)
    assert quality == {row["trade_id"]: row["missing"] for row in demo.planted.data_quality}
    assert {name for violation in demo.planted.violations for name in violation["subtypes"]} == SUBTYPES
    silent = {row["trade_id"] for row in demo.planted.silent}
    assert len(silent) >= 300
    assert silent <= {row["trade_id"] for row in demo.tables["trades.csv"]}


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_year_of_ordinary_customers_raises_no_alarm(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing planted: some hundred people of every age and class, entities and professionals among them."""
    monkeypatch.setattr(demo_core, "plant", lambda *_args, **_kwargs: None)
    days = 365 * (1 + seed % 4)
    demo = generate(customers=150, advisors=5, seed=seed, days=days, end=date(2026, 11, 29) + timedelta(days=97 * seed))
    assert judged(facts_of(demo)) == ({}, {})
    ages = [row["birth_date"] for row in demo.tables["customers.csv"] if row["birth_date"]]
    assert min(ages)[:4] < str(demo_end(demo).year - 75)
    assert len({row["product_id"] for row in demo.tables["trades.csv"]}) > 30


def demo_end(demo: Demo) -> date:
    return date.fromisoformat(max(row["as_of"] for row in demo.tables["positions.csv"]))


def test_the_same_seed_tells_the_same_story() -> None:
    one, two, other = (
        generate(customers=30, advisors=3, seed=seed, days=120, end=date(2026, 11, 29)) for seed in (7, 7, 8)
    )
    assert one == two
    assert one.tables != other.tables


def run(*options: str) -> tuple[int, dict[str, Any]]:
    out = StringIO()
    try:
        call_command("seed_demo", *options, "--json", stdout=out, stderr=StringIO())
    except SystemExit as exit_:
        return int(exit_.code or 0), json.loads(out.getvalue())
    return 0, json.loads(out.getvalue())


@pytest.fixture
def installation(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path
    settings.EMBEDDED_DATABASE = True
    return tmp_path


KEY = ("rule_id", "evidence_key")
SMALL = ("--customers", "60", "--advisors", "4", "--days", "120", "--end", "2026-11-29")


@pytest.mark.django_db
def test_a_demo_from_nothing_then_again_then_a_live_trade(installation: Path) -> None:
    code, report = run(*SMALL)
    assert code == 0
    assert report["customers_scanned"] >= 60
    listed = json.loads((installation / "demo_violations.json").read_text())
    live = RiskAlertHit.objects.filter(state=HitState.LIVE).exclude(rule_id=DATA_QUALITY)
    assert set(live.values_list(*KEY)) == {(v["rule"], v["evidence_key"]) for v in listed["violations"]}

    logins = json.loads((installation / "demo_logins.json").read_text())
    assert stat.S_IMODE((installation / "demo_logins.json").stat().st_mode) == 0o600
    names = [user["username"] for user in logins["users"]]
    assert names == ["officer", "officer2", "manager", "manager2", "auditor", "admin"]
    officer = authenticate(username="officer", password=logins["password"])
    assert officer is not None
    assert officer.is_staff
    assert officer.has_perm("risk.dispose_alert")
    assert not get_user_model().objects.get(username="manager").has_perm("risk.dispose_alert")

    code, again = run(*SMALL)
    assert (again["written"], again["customers_scanned"]) == (0, 0)
    assert json.loads((installation / "demo_logins.json").read_text()) == logins
    code, kept = run("--if-empty")
    assert kept["core"] == "left as it is"

    before = live.count()
    code, planted = run("--live-trade")
    assert code == 0
    assert live.count() == before + 1
    hit = live.get(trade_id=planted["trade_id"])
    assert (hit.score, hit.subtypes) == (95, ["suitability_lowest"])
    run(*SMALL)
    listed = json.loads((installation / "demo_violations.json").read_text())
    assert set(live.values_list(*KEY)) == {(v["rule"], v["evidence_key"]) for v in listed["violations"]}


@pytest.mark.django_db
def test_the_csv_files_imported_are_the_demo_in_the_database(installation: Path, tmp_path: Path) -> None:
    run(*SMALL, "--csv", str(tmp_path / "csv"))
    assert not CoreCustomer.objects.exists()
    run(*SMALL, "--no-scan")
    rows = CoreTrade.objects.count()
    out = StringIO()
    call_command("import_core", str(tmp_path / "csv"), "--json", stdout=out)
    assert all(file["created"] == file["changed"] == 0 for file in json.loads(out.getvalue())["files"])
    assert CoreTrade.objects.count() == rows


@pytest.mark.django_db
def test_made_up_data_stays_out_of_production_and_of_an_external_core(installation: Path, settings: Any) -> None:
    settings.EMBEDDED_DATABASE = False
    code, report = run(*SMALL)
    assert (code, report["code"]) == (2, "FORBIDDEN")
    settings.CORE_IS_EXTERNAL = True
    code, report = run(*SMALL, "--force")
    assert (code, report["code"]) == (2, "CORE_READ_ONLY")
    settings.CORE_IS_EXTERNAL = False
    assert run("--live-trade", "--force")[1]["code"] == "NOT_FOUND"
    assert run("--customers", "0")[0] == 2
    assert not CoreCustomer.objects.exists()


@pytest.mark.django_db
def test_a_place_that_cannot_be_written_is_a_sentence(installation: Path) -> None:
    (installation / "core").write_text("a file")
    code, answer = run("--csv", str(installation / "core"), "--customers", "20")
    assert (code, answer["code"]) == (2, "INVALID_REQUEST")
    assert answer["detail"] == f"{installation / 'core'} cannot be written: File exists"
