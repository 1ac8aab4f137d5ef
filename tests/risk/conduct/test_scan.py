"""From rows of the audit log to one alert an advisor and day, whatever happens in between."""

from __future__ import annotations

import json
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError

from config.base.clock import now
from guard.access.services import Caller
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import find
from memory.core.models import CoreAssignment, CoreProduct
from memory.erasure.services import erase_customer
from risk.alerts import officers, settlement
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.calendar.models import Holiday
from risk.conduct import services, tasks
from risk.conduct.models import Campaign, ConductChange, ConductCursor
from risk.conduct.services import scan_conduct
from tests.memory.core.build import PRODUCT, load
from tests.risk.alerts.people import make_person
from tests.risk.conduct.make import (
    MINUTE,
    NOON,
    clock_at,
    import_trade,
    live,
    make_probing,
    make_refusal,
    make_request,
    make_trade,
)

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)
PROBING = ("RISK-008", "wei:2026-06-15:probing", "")


def counts() -> tuple[int, ...]:
    return tuple(model.objects.count() for model in (RiskAlert, RiskAlertHit, AlertOutbox, AuditLog))


def test_probing_opens_one_alert_of_the_advisor_and_a_second_scan_changes_nothing() -> None:
    make_probing()
    assert scan_conduct().as_json() == {
        "rows": 5, "advisors": 1, "hits": 1, "data_quality": 0, "failed": [], "left": 0,
    }  # fmt: skip
    assert live() == [PROBING]
    alert = RiskAlert.objects.get()
    assert (alert.alert_type, alert.score, alert.subtypes) == ("pattern", 75, ["agent_behavior"])
    assert (alert.customer_id, alert.advisor_id, alert.merge_slot) == ("", "wei", None)
    assert alert.payload == {"actor_type": "agent", "actor_id": "wei", "patterns": ["probing"]}
    event = AlertOutbox.objects.get().event
    assert event == {
        "alert_id": alert.alert_id, "alert_type": "pattern", "customer_id_mask": "w***", "risk_score": 75,
        "trace_id": alert.trace_id, "notify_role": ["risk_officer", "risk_manager"],
        "alert_subtype": ["agent_behavior"],
    }  # fmt: skip
    row = AuditLog.objects.get(event_type="agent_behavior_detected")
    assert (row.decision, row.risk_score, row.object_id) == ("detected", 75, alert.alert_id)
    before = counts()
    assert scan_conduct().advisors == 0
    assert scan_conduct(everything=True).hits == 1
    assert counts() == before
    assert not ConductChange.objects.exists()


def test_an_idle_tick_is_five_queries_at_most(django_assert_max_num_queries: Any) -> None:
    make_probing()
    scan_conduct()
    scan_conduct()  # of what the first has written itself
    with django_assert_max_num_queries(5):
        assert tasks.scan_conduct() == 0


def test_a_second_pattern_of_the_day_joins_and_the_score_stays() -> None:
    make_probing()
    scan_conduct()
    make_trade(at=NOON + 30 * MINUTE, customer="c9")
    make_refusal("c9", NOON + 20 * MINUTE)
    make_request(at=NOON + 31 * MINUTE)
    scan_conduct()
    alert = RiskAlert.objects.get()
    assert (alert.score, alert.hit_count, alert.subtypes) == (75, 2, ["agent_behavior"])
    assert alert.payload["patterns"] == ["probing", "probe_then_trade"]
    assert [row.kind for row in AlertOutbox.objects.order_by("id")] == ["alert", "update"]
    assert AuditLog.objects.filter(event_type="agent_behavior_detected").count() == 2


def test_another_day_and_another_advisor_are_alerts_of_their_own() -> None:
    make_probing()
    make_probing(NOON + DAY)
    make_probing(caller=Caller("default", "advisor", "lin"))
    make_probing(caller=Caller("north", "advisor", "wei"))
    scan_conduct()
    keys = sorted(RiskAlertHit.objects.values_list("tenant", "evidence_key"))
    assert keys == [
        ("default", "lin:2026-06-15:probing"),
        ("default", "wei:2026-06-15:probing"),
        ("default", "wei:2026-06-16:probing"),
        ("north", "wei:2026-06-15:probing"),
    ]
    assert RiskAlert.objects.count() == 4


def test_what_comes_after_the_days_disposition_is_marked_and_changes_nothing_else() -> None:
    make_probing()
    scan_conduct()
    officer = make_person("zhou")
    alert = RiskAlert.objects.get()
    for status, code in (("false_positive", "F04"), ("confirmed", "C06")):
        RiskAlertHit.objects.filter(after_disposition=True).delete()
        RiskAlert.objects.update(status=status, disposition_code=code, disposed_by=officer)
        make_trade(f"t-{status}", NOON + 30 * MINUTE, "c9")
        make_refusal("c9", NOON + 20 * MINUTE)
        make_request(f"t-{status}", NOON + 31 * MINUTE)
        scan_conduct(everything=True)
        late = RiskAlertHit.objects.get(after_disposition=True)
        assert (late.alert_id, late.state, late.score) == (alert.alert_id, "live", 75)
        assert RiskAlert.objects.count() == 1
        assert RiskAlert.objects.get().status == status


def test_a_customers_alerts_and_an_advisors_never_merge(tmp_path: Path) -> None:
    from risk.rules.services import scan
    from tests.memory.core.build import a_small_core

    a_small_core(tmp_path)
    scan()
    make_probing(caller=Caller("default", "advisor", "c1"))  # called as the customer is
    scan_conduct()
    assert sorted(RiskAlert.objects.values_list("alert_type", "customer_id", "advisor_id")) == [
        ("event", "c1", "a1"),
        ("pattern", "", "c1"),
    ]


def test_from_the_pseudonym_in_the_log_to_the_customer_of_the_trade() -> None:
    row = make_refusal("c1", NOON)
    name = find("default", ["c1"])["c1"]
    assert "c1" not in (row.object_id, row.customer, *row.input_summary.values())
    assert name == row.customer
    make_trade("t1", NOON + 60 * MINUTE, "c1")
    make_trade("t2", NOON + 60 * MINUTE, "c2")
    make_request("t2", NOON + 61 * MINUTE)
    scan_conduct()
    assert live() == []
    make_request("t1", NOON + 62 * MINUTE)
    scan_conduct()
    assert live() == [("RISK-008", "wei:2026-06-15:probe_then_trade", "t1")]


def test_a_trade_that_is_not_yet_there_is_looked_for_during_a_day_then_a_fault_until_it_comes(tmp_path: Path) -> None:
    make_refusal("c1", NOON)
    asked = make_request("t1", NOON + MINUTE)
    with clock_at(NOON + DAY):
        scan_conduct()
        assert live() == []
    with clock_at(NOON + MINUTE + DAY):
        assert scan_conduct().data_quality == 1
        assert live() == [("DATA-QUALITY", f"request:{asked.pk}", "t1")]
        alert = RiskAlert.objects.get()
        assert (alert.alert_type, alert.customer_id, alert.advisor_id) == ("data_quality", "", "wei")
        assert not AlertOutbox.objects.exists()
        before = counts()
        scan_conduct(everything=True)
        assert counts() == before
    import_trade(tmp_path, "t1", NOON + 2 * MINUTE)
    with clock_at(NOON + 2 * DAY):
        scan_conduct()
    assert live() == [("RISK-008", "wei:2026-06-15:probe_then_trade", "t1")]
    assert RiskAlertHit.objects.get(rule_id="DATA-QUALITY").state == HitState.SUPERSEDED


def test_a_refused_request_is_not_looked_for() -> None:
    make_request("t1", NOON, decision="refused", code="NO_MANDATE")
    scan_conduct()
    scan_conduct(everything=True)
    assert live() == []


def test_a_cancelled_trade_marks_the_hit_and_a_corrected_one_withdraws_it(tmp_path: Path) -> None:
    make_refusal("c1", NOON)
    make_request("t1", NOON + MINUTE)
    import_trade(tmp_path, "t1", NOON + 2 * MINUTE)
    scan_conduct(unfound=True)
    assert len(live()) == 1
    import_trade(tmp_path, "t1", NOON + 2 * MINUTE, version="2", status="cancelled")
    scan_conduct()
    assert list(RiskAlertHit.objects.values_list("state", flat=True)) == ["cancelled"]
    import_trade(tmp_path, "t1", NOON + 2 * MINUTE, version="3")
    scan_conduct()
    assert len(live()) == 1
    import_trade(tmp_path, "t1", NOON + 2 * MINUTE, version="4", customer_id="c2")
    scan_conduct()
    assert live() == []
    import_trade(tmp_path, "t1", NOON + 2 * MINUTE, version="5")  # back again: followed through either customer
    scan_conduct()
    assert len(live()) == 1


def test_an_assignment_that_is_imported_late_withdraws_the_finding(tmp_path: Path) -> None:
    make_refusal("c1", NOON)
    make_request("t1", NOON + MINUTE)
    import_trade(tmp_path / "t", "t1", NOON + 10 * MINUTE)
    scan_conduct(unfound=True)
    assert len(live()) == 1
    begun = (NOON + 5 * MINUTE).isoformat()
    load(tmp_path / "a", assignments=[{"advisor_id": "wei", "customer_id": "c1", "valid_from": begun}])
    scan_conduct()
    assert live() == []
    assert CoreAssignment.objects.count() == 1


def test_what_was_found_stays_found_when_the_customer_is_erased() -> None:
    """The key by which the log's pseudonym is told is gone then, and nobody can say that it was not so."""
    make_refusal("c1", NOON)
    make_trade("t1", NOON + 60 * MINUTE)
    make_request("t1", NOON + 61 * MINUTE)
    scan_conduct()
    assert len(live()) == 1
    erase_customer(customer_id="c1", by="ops")
    assert find("default", ["c1"]) == {}
    scan_conduct(everything=True)
    assert len(live()) == 1
    make_trade("t1", NOON + 60 * MINUTE, version=2, status="cancelled")
    scan_conduct(everything=True)
    assert list(RiskAlertHit.objects.values_list("state", flat=True)) == ["cancelled"]


def test_a_late_refusal_completes_what_was_reported_on_another_day() -> None:
    make_trade("t1", NOON + 60 * MINUTE)
    make_request("t1", NOON + 9 * DAY)
    scan_conduct()
    assert live() == []
    make_refusal("c1", NOON)  # written last, and earliest of all
    scan_conduct()
    assert live() == [("RISK-008", "wei:2026-06-24:probe_then_trade", "t1")]


def make_push(start: Any = NOON) -> None:
    CoreProduct.objects.create(product_id="p5", risk_level=3)
    for index in range(8):
        at = start + index * 60 * MINUTE
        make_trade(f"t{index + 1}", at, f"c{index + 1}")
        make_request(f"t{index + 1}", at)


def test_product_push_follows_the_rating_and_the_table_of_campaigns(tmp_path: Path) -> None:
    from risk.conduct.campaigns import save_campaign

    make_push()
    scan_conduct()
    assert live() == [("RISK-008", "wei:2026-06-15:product_push", "t8")]
    load(tmp_path, products=[{**PRODUCT, "risk_level": "R2"}])
    scan_conduct()
    assert live() == []
    load(tmp_path, products=[{**PRODUCT, "risk_level": "R4"}])
    scan_conduct()
    assert len(live()) == 1
    day = date(2026, 6, 15)
    campaign = Campaign(tenant="default", product_id="p5", starts_on=day, ends_on=day, name="Summer")
    save_campaign(campaign=campaign, by="ops")
    scan_conduct()
    assert live() == []
    assert AuditLog.objects.get(event_type="config_change").object_type == "risk_campaign"


def test_a_holiday_makes_a_working_day_one_off(tmp_path: Path) -> None:
    from risk.calendar.services import save_holiday

    for index in range(10):
        make_refusal(f"c{index % 2}", NOON + index * 2 * MINUTE)
    scan_conduct()
    assert live() == []
    save_holiday(holiday=Holiday(tenant="default", day=date(2026, 6, 15), name="Dragon Boat"), by="ops")
    scan_conduct()
    assert live() == [("RISK-008", "wei:2026-06-15:off_hours_burst", "")]


def test_the_audit_row_of_a_finding_may_fail_and_the_scan_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real = settlement.observe.__globals__["record"]

    def refuses(**fields: Any) -> Any:
        if fields["event_type"] == "agent_behavior_detected":
            raise DatabaseError("no")
        return real(**fields)

    monkeypatch.setitem(settlement.observe.__globals__, "record", refuses)
    make_probing()
    make_probing(caller=Caller("default", "advisor", "lin"))
    report = scan_conduct()
    assert (report.hits, report.failed) == (2, [])
    assert RiskAlert.objects.count() == 2
    assert not AuditLog.objects.filter(event_type="agent_behavior_detected").exists()


def test_one_advisor_that_fails_stops_nobody_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_probing()
    make_probing(caller=Caller("default", "advisor", "lin"))
    real = services.conduct_of

    def fails(**fields: Any) -> Any:
        if fields["advisor_id"] == "lin":
            raise RuntimeError("lin")
        return real(**fields)

    with monkeypatch.context() as patch:
        patch.setattr(services, "conduct_of", fails)
        assert scan_conduct().failed == ["lin"]
    assert len(live()) == 1
    with clock_at(now() + timedelta(seconds=services.CLAIM_SECONDS + 1)):
        assert scan_conduct().hits == 1
    assert len(live()) == 2


def test_a_log_that_was_restored_is_read_from_its_beginning() -> None:
    make_probing()
    scan_conduct()
    ConductCursor.objects.update(head=10**9, missing=[])
    make_probing(NOON + DAY)
    scan_conduct()
    assert len(live()) == 2


def test_a_retired_rule_is_silent() -> None:
    from risk.rules.models import RiskRule, RuleStatus

    RiskRule.objects.create(rule_id="RISK-008", version=1, status=RuleStatus.RETIRED)
    make_probing()
    assert scan_conduct().hits == 0
    RiskRule.objects.create(
        rule_id="RISK-008", version=2, status=RuleStatus.ACTIVE, params={"probing_refusals": 6}, active_slot="RISK-008"
    )
    assert scan_conduct(everything=True).hits == 0
    make_refusal("c2", NOON + 20 * MINUTE)
    assert scan_conduct().hits == 1


def test_the_command_scans_advisors_too_and_hits_are_exported(tmp_path: Path) -> None:
    make_probing()
    make_refusal("c9", NOON + 20 * MINUTE)
    make_trade("t1", NOON + 30 * MINUTE, "c9")
    make_request("t1", NOON + 31 * MINUTE)
    out = StringIO()
    call_command("scan_trades", "--json", stdout=out, stderr=StringIO())
    assert json.loads(out.getvalue())["conduct"]["hits"] == 2
    target = tmp_path / "hits"
    call_command("export_hits", str(target), stderr=StringIO())
    first = [json.loads(line) for line in target.read_text().splitlines() if "RISK-008" in line]
    common = {"rule": "RISK-008", "customer_id": "", "score": 75, "subtypes": ["agent_behavior"]}
    assert first == [
        {**common, "evidence_key": "wei:2026-06-15:probe_then_trade", "trade_id": "t1"},
        {**common, "evidence_key": "wei:2026-06-15:probing", "trade_id": ""},
    ]
    call_command("scan_trades", "--all", stdout=StringIO(), stderr=StringIO())
    call_command("export_hits", str(target), stderr=StringIO())
    assert [json.loads(line) for line in target.read_text().splitlines() if "RISK-008" in line] == first


def test_a_manager_reads_and_never_disposes_and_an_officer_does() -> None:
    from config.base.errors import DomainError
    from tests.risk.alerts.people import make_manager

    make_probing()
    scan_conduct()
    alert = RiskAlert.objects.get()
    manager: User = make_manager()
    with pytest.raises(DomainError, match="FORBIDDEN"):
        officers.claim(alert_id=alert.alert_id, officer=manager, version=alert.version)
