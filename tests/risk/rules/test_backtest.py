"""A version over past trades, against planted dispositions: what it would lose, save and add."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import InterfaceError, OperationalError

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.core.models import CoreChange
from risk.alerts.models import AlertOutbox, RiskAlert, RiskAlertHit
from risk.rules import trials, versions
from risk.rules.backtest import Report, backtest
from risk.rules.models import Backtest, BacktestState, RiskRule, ShadowHit
from risk.rules.services import scan
from risk.rules.trials import on_trial
from tests.memory.core.build import ASSESSMENT, CUSTOMER, POSITION, PRODUCT, TRADE, load, load_just_under
from tests.risk.alerts.people import make_manager, make_person

pytestmark = pytest.mark.django_db

# customer -> amount bought beside 600,000 of something else, and what was decided about the alert.
# 420,000 is 41.2 %, 450,000 is 42.9 %, 800,000 is 57.1 %; 350,000 is 36.8 % and no hit by the figures of the file.
STORY = {
    "c1": ("450000", "confirmed"), "c2": ("420000", "false_positive"), "c3": ("800000", "confirmed"),
    "c4": ("450000", "pending"), "c5": ("800000", "false_positive"), "c6": ("450000", "confirmed"),
    "c7": ("350000", ""), "c8": ("450000", "closed"), "c9": ("450000", "confirmed_closed"),
    "c10": ("800000", "confirmed"),
}  # fmt: skip


def make_story(directory: Path) -> None:
    """c6 has no assessment, so its alert has a finding of RISK-001 too."""
    base = {**TRADE, "product_id": "p3", "price": "1"}
    load(
        directory,
        customers=[{**CUSTOMER, "customer_id": name} for name in STORY],
        products=[{**PRODUCT, "product_id": "p3", "risk_level": "R3"}],
        assessments=[{**ASSESSMENT, "customer_id": name} for name in STORY if name != "c6"],
        positions=[{**POSITION, "customer_id": name, "product_id": "q", "market_value": "600000"} for name in STORY],
        trades=[
            {**base, "trade_id": f"t-{name}", "customer_id": name, "amount": amount}
            for name, (amount, _fate) in STORY.items()
        ],
    )
    scan()
    for name, (_amount, fate) in STORY.items():
        alerts = RiskAlert.objects.filter(customer_id=name, alert_type="event")
        if fate == "confirmed_closed":
            alerts.update(status="closed", confirmed_at=now(), disposition_code="K05")
        elif fate and fate != "pending":
            confirmed_at = now() if fate == "confirmed" else None
            alerts.update(status=fate, confirmed_at=confirmed_at, disposition_code="C04" if confirmed_at else "F02")


def run(**params: Any) -> Report:
    row = on_trial(tenant="default", rule_id="RISK-002", version=None, params=params)
    return backtest(row=row)


def alert_of(name: str) -> str:
    return RiskAlert.objects.get(customer_id=name, alert_type="event").pk


def command(*args: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    try:
        call_command("backtest", *args, stdout=out, stderr=err)
    except SystemExit as exit_:
        return int(exit_.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def counts() -> tuple[int, ...]:
    kinds = (RiskAlert, RiskAlertHit, AlertOutbox, CoreChange, RiskRule, ShadowHit, Backtest)
    return tuple(kind.objects.count() for kind in kinds)


def test_a_higher_limit_loses_and_saves_what_was_planted_and_writes_nothing(tmp_path: Path) -> None:
    make_story(tmp_path)
    before, rows = counts(), AuditLog.objects.count()
    found = run(product_limit="0.45").as_json()
    assert counts() == before
    assert AuditLog.objects.count() == rows + 1
    told = AuditLog.objects.latest("id")
    assert (told.event_type, told.decision, told.input_summary["confirmed_lost"]) == ("rule_scan", "completed", 2)
    assert (found["judged"], found["failed"], found["waiting"]) == (10, 0, 0)
    assert found["hits"] == {
        "confirmed": {"kept": 2, "lost": 3}, "false_positive": {"kept": 1, "lost": 1},
        "closed": {"kept": 0, "lost": 1}, "open": {"kept": 0, "lost": 1},
    }  # fmt: skip
    confirmed, false = found["confirmed"], found["false_positive"]
    assert (confirmed["alerts"], confirmed["kept"], confirmed["lost"]) == (5, 3, 2)
    assert sorted(one["alert_id"] for one in confirmed["listed"]) == sorted([alert_of("c1"), alert_of("c9")])
    assert (false["alerts"], false["kept"], false["saved"]) == (2, 1, 1)
    assert [(one["alert_id"], one["code"]) for one in false["listed"]] == [(alert_of("c2"), "F02")]
    assert found["kept_by_others"] == 1, "c6 stays for its missing assessment"
    assert found["precision"] == {"before": "0.714286", "after": "0.750000"}
    assert found["new"] == {"hits": 0, "sample": []}


def test_a_lower_limit_finds_more(tmp_path: Path) -> None:
    make_story(tmp_path)
    found = run(product_limit="0.35").as_json()
    assert (found["confirmed"]["lost"], found["false_positive"]["saved"]) == (0, 0)
    assert found["new"]["hits"] == 1
    assert found["new"]["sample"][0]["trade_id"] == "t-c7"
    assert found["rescored"] > 0, "the share is measured from another limit"


def test_the_version_in_force_changes_nothing(tmp_path: Path) -> None:
    make_story(tmp_path)
    found = run().as_json()
    assert all(one["lost"] == 0 for one in found["hits"].values())
    assert (found["new"]["hits"], found["rescored"], found["confirmed"]["lost"]) == (0, 0, 0)


def test_what_came_after_a_disposition_is_open(tmp_path: Path) -> None:
    make_story(tmp_path)
    RiskAlertHit.objects.filter(customer_id="c1", rule_id="RISK-002").update(alert_version=None)
    found = run(product_limit="0.45").as_json()
    assert found["hits"]["open"] == {"kept": 0, "lost": 2}
    assert found["confirmed"]["lost"] == 1


def make_activated(**params: Any) -> None:
    mei, bo = make_manager("mei"), make_manager("bo")
    row = versions.draft_version(
        tenant="default", rule_id="RISK-002", params=params, reason="a point less for all", by=mei
    )
    versions.activate(tenant="default", pk=row.pk, revision=1, seen_version=1, by=bo)
    scan()


def told(report: Report) -> dict[str, Any]:
    found = report.as_json()
    return {name: found[name] for name in ("hits", "confirmed", "false_positive", "kept_by_others", "precision")}


def test_decisions_count_for_what_an_activated_version_made_of_the_hits(tmp_path: Path) -> None:
    """Every hit has another score since, and so another revision that no officer has seen."""
    make_story(tmp_path)
    before = told(run(product_limit="0.45"))
    assert before["confirmed"]["lost"] == 2
    make_activated(base=49)
    assert RiskAlertHit.objects.filter(rule_id="RISK-002", state="live", alert_version=None).count() == 8
    assert told(run(product_limit="0.45")) == before


def test_decisions_count_for_a_corrected_trade_and_a_corrected_holding(tmp_path: Path) -> None:
    make_story(tmp_path)
    before = told(run(product_limit="0.45"))
    base = {**TRADE, "product_id": "p3", "price": "1", "version": "2"}
    position = {**POSITION, "product_id": "q", "market_value": "600001"}
    load(
        tmp_path / "corrected",
        trades=[{**base, "trade_id": "t-c1", "customer_id": "c1", "amount": "450001"}],
        positions=[{**position, "customer_id": name} for name in ("c2", "c6", "c9")],
    )
    scan()
    late = RiskAlertHit.objects.filter(rule_id="RISK-002", state="live", alert_version=None)
    assert sorted(late.values_list("evidence_key", flat=True)) == ["t-c1@2", "t-c2@1", "t-c6@1", "t-c9@1"]
    assert told(run(product_limit="0.45")) == before
    make_activated(base=49)  # the third revision of some
    assert told(run(product_limit="0.45")) == before


def test_what_was_gone_when_the_alert_was_judged_is_open_when_it_comes_back(tmp_path: Path) -> None:
    """c6 has a finding of RISK-001 too: only that one is there when the officer decides."""
    make_story(tmp_path)
    alerts = RiskAlert.objects.filter(customer_id="c6", alert_type="event")
    alerts.update(status="in_review", confirmed_at=None)
    holding = {**POSITION, "customer_id": "c6", "product_id": "q"}
    load(tmp_path / "more", positions=[{**holding, "market_value": "900000"}])
    scan()
    assert RiskAlertHit.objects.get(customer_id="c6", rule_id="RISK-002").state == "withdrawn"
    alerts.update(status="confirmed", confirmed_at=now(), disposed_at=now(), merge_slot=None)
    load(tmp_path / "back", positions=[{**holding, "market_value": "600000"}])
    scan()
    assert RiskAlertHit.objects.get(customer_id="c6", rule_id="RISK-002", state="live").alert_version is None
    found = run(product_limit="0.45")
    assert (found.hits["open"]["lost"], found.hits["confirmed"]["lost"], found.kept_by_others) == (2, 2, 0)


def test_a_period_judges_by_the_time_of_the_trade(tmp_path: Path) -> None:
    make_story(tmp_path)
    row = on_trial(tenant="default", rule_id="RISK-002", version=None, params={"product_limit": "0.45"})
    traded = RiskAlertHit.objects.filter(rule_id="RISK-002").values_list("occurred_at", flat=True)[0]
    for since, until, lost in ((traded, None, 2), (traded + timedelta(microseconds=1), None, 0), (None, traded, 0)):
        assert backtest(row=row, since=since, until=until).lost_count == lost


def test_alerts_a_day_are_counted_over_the_last_90_days(tmp_path: Path) -> None:
    make_story(tmp_path)
    for name in ("lin", "zhou"):
        make_person(name)
    make_person("elsewhere", tenant="other")
    row = on_trial(tenant="default", rule_id="RISK-002", version=None, params={"product_limit": "0.45"})
    traded = RiskAlertHit.objects.filter(rule_id="RISK-002").values_list("occurred_at", flat=True)[0]
    day = timedelta(days=1)
    found = backtest(row=row, until=traded + day).as_json()["alerts_a_day"]
    assert (found["now"], found["then"]) == ("0.100000", "0.033333"), "9 and 3 in 90 days"
    assert (found["officers"], found["an_officer"], found["over_aim"]) == (2, "0.016667", False)
    late = backtest(row=row, until=traded + 91 * day).as_json()["alerts_a_day"]
    assert (late["now"], late["then"]) == ("0.000000", "0.000000")


def test_limits_of_003_are_tried_on_004_too(tmp_path: Path) -> None:
    """Three times 45,000 in cash: just under 50,000, and just over 40,000."""
    load_just_under(tmp_path)
    scan()
    assert RiskAlertHit.objects.filter(rule_id="RISK-004").count() == 1
    row = on_trial(tenant="default", rule_id="RISK-003", version=None, params={"cash_cny": 40_000})
    found = backtest(row=row).as_json()
    assert (found["hits"]["open"], found["new"]["hits"]) == ({"kept": 0, "lost": 1}, 3)


def test_the_command_tells_scripts_by_its_exit_code(tmp_path: Path) -> None:
    make_story(tmp_path)
    code, out, _err = command("--rule", "RISK-002", "--params", '{"product_limit": "0.45"}', "--json")
    assert (code, json.loads(out)["confirmed"]["lost"]) == (1, 2)
    code, out, _err = command("--rule", "RISK-002", "--params", '{"product_limit": "0.35"}')
    assert code == 0
    assert "new hits: 1" in out
    row = versions.draft_version(
        tenant="default", rule_id="RISK-002", params={"product_limit": "0.45"},
        reason="fewer alerts of small ones", by=make_manager(),
    )  # fmt: skip
    code, out, _err = command("--rule", "RISK-002", "--version", str(row.version), "--from", "2026-06-15")
    assert code == 1
    assert f"lost: {alert_of('c1')} C04" in out
    assert command("--rule", "RISK-002", "--version", "2", "--to", "2026-06-14")[0] == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--rule", "RISK-009"], "no rule 'RISK-009'"),
        (["--rule", "RISK-002", "--version", "7"], "has no version 7"),
        (["--rule", "RISK-002", "--params", "[1]"], "JSON object"),
        (["--rule", "RISK-002", "--params", "{"], "no JSON"),
        (["--rule", "RISK-002", "--params", '{"product_limit": NaN}'], "a decimal"),
        (["--rule", "RISK-002", "--params", '{"product_limit": 1e999}'], "a decimal"),
        (["--rule", "RISK-004", "--params", '{"cash_cny": 1000}'], "RISK-003"),
        (["--rule", "RISK-002", "--from", "2026-06-15", "--to", "2026-06-14"], "lies before"),
        (["--rule", "RISK-002", "--tenant", "no such"], "tenant"),
        (["--rule", "RISK-002", "--tenant", "nope"], "tenant 'nope' has no customers"),
        (["--rule", "RISK-008", "--tenant", "nope"], "tenant 'nope' has no advisors"),
        (["--rule", "RISK-002", "--from", "0001-01-01"], "outside the years"),
        (["--rule", "RISK-002", "--to", "9999-12-31"], "outside the years"),
        pytest.param(["--rule", "RISK-002", "--params", "[" * 100_000], "too deep", id="deep"),
    ],
)
def test_wrong_arguments_are_exit_code_2(args: list[str], says: str) -> None:
    code, out, err = command(*args)
    assert (code, out) == (2, "")
    assert says in err


def test_a_customer_that_cannot_be_evaluated_is_counted(tmp_path: Path, monkeypatch: Any) -> None:
    make_story(tmp_path)
    from risk.rules import backtest as room

    real = room.Facts

    def broken(rows: Any) -> Any:
        if rows.customer_id == "c3":
            raise ZeroDivisionError
        return real(rows)

    monkeypatch.setattr(room, "Facts", broken)
    code, out, err = command("--rule", "RISK-002", "--params", '{"product_limit": "0.45"}', "--json")
    assert (code, json.loads(out)["failed"], json.loads(out)["judged"]) == (3, 1, 9)
    assert "1 customers or advisors" in err


@pytest.mark.parametrize("error", [OperationalError, InterfaceError, ZeroDivisionError])
def test_what_breaks_off_does_not_look_like_a_loss(monkeypatch: Any, error: type[Exception]) -> None:
    from risk.management.commands import backtest as room

    def fail(**_kwargs: Any) -> Any:
        raise error("root@host")

    monkeypatch.setattr(room, "on_trial", fail)
    code, out, err = command("--rule", "RISK-002", "--json")
    assert (code, out) == (4, "")
    assert error.__name__ in err
    assert "root" not in err


# --- asked for on a version's page ------------------------------------------------------------------------------------


def make_draft(by: Any, limit: str = "0.45") -> RiskRule:
    return versions.draft_version(
        tenant="default", rule_id="RISK-002", params={"product_limit": limit}, reason="fewer alerts of small", by=by
    )


def test_a_backtest_that_is_asked_for_is_run_once_and_kept(tmp_path: Path) -> None:
    make_story(tmp_path)
    mei = make_manager()
    row = make_draft(mei)
    asked = trials.ask(tenant="default", pk=row.pk, by=mei)
    assert trials.ask(tenant="default", pk=row.pk, by=mei) == asked, "it waits already"
    assert trials.run_waiting() == 1
    assert trials.run_waiting() == 0
    asked.refresh_from_db()
    assert (asked.state, asked.report["confirmed"]["lost"], asked.done, asked.total) == ("done", 2, 10, 10)
    assert AuditLog.objects.latest("id").actor_id == "mei"


def test_figures_edited_since_are_not_answered_for(tmp_path: Path) -> None:
    make_story(tmp_path)
    mei = make_manager()
    row = make_draft(mei)
    asked = trials.ask(tenant="default", pk=row.pk, by=mei)
    versions.edit_draft(
        tenant="default", pk=row.pk, revision=1, params={"product_limit": "0.46"}, reason=row.reason, by=mei
    )
    assert trials.run_waiting() == 1
    asked.refresh_from_db()
    assert (asked.state, asked.report) == (BacktestState.FAILED, {})


def test_a_run_that_died_is_taken_up_again_and_one_that_lives_is_left_alone() -> None:
    mei = make_manager()
    asked = trials.ask(tenant="default", pk=make_draft(mei).pk, by=mei)
    Backtest.objects.filter(pk=asked.pk).update(state="running", attempts=1, beat_at=now())
    other = trials.ask(tenant="default", pk=make_draft(mei, "0.46").pk, by=mei)
    assert trials.run_waiting() == 0, "one at a time"
    Backtest.objects.filter(pk=asked.pk).update(beat_at=now() - timedelta(minutes=3))
    assert trials.run_waiting() == 2
    for one in (asked, other):
        one.refresh_from_db()
        assert one.state == BacktestState.DONE
    Backtest.objects.filter(pk=asked.pk).update(state="running", attempts=3, beat_at=now() - timedelta(minutes=3))
    assert trials.run_waiting() == 0
    asked.refresh_from_db()
    assert asked.state == BacktestState.FAILED


def test_an_idle_tick_is_one_query(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert trials.run_waiting() == 0


def test_who_may_neither_change_nor_activate_asks_for_none() -> None:
    row = make_draft(make_manager())
    with pytest.raises(DomainError) as caught:
        trials.ask(tenant="default", pk=row.pk, by=make_person("zhou"))
    assert caught.value.code == "FORBIDDEN"
    guest = make_person("guest", "risk_manager", tenant="other")
    with pytest.raises(DomainError) as caught:
        trials.ask(tenant="other", pk=row.pk, by=guest)
    assert caught.value.code == "RULE_NOT_FOUND"


def test_a_version_of_008_is_run_over_the_audit_log() -> None:
    from risk.conduct.services import scan_conduct
    from tests.risk.conduct.make import make_probing

    make_probing()
    scan_conduct()
    RiskAlert.objects.update(status="confirmed", confirmed_at=now())
    row = on_trial(tenant="default", rule_id="RISK-008", version=None, params={})
    assert backtest(row=row).hits["confirmed"] == {"kept": 1, "lost": 0}
    row = on_trial(tenant="default", rule_id="RISK-008", version=None, params={"probing_refusals": 50})
    report = backtest(row=row)
    assert (report.hits["confirmed"], report.lost_count) == ({"kept": 0, "lost": 1}, 1)
