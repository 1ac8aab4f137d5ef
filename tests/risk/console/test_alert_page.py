"""One alert's page: what it shows, and what officers and managers can do on it."""

from __future__ import annotations

import pytest

from guard.audit.models import AuditLog
from memory.profiles.models import CustomerProfileL3
from risk.alerts import services
from risk.alerts.models import AlertAction, AlertStatus, HitState, RiskAlert
from tests.risk.console.make import (
    CONCENTRATION,
    make_alert,
    make_client,
    make_customer,
    make_hit,
    make_manager,
    make_officer,
    make_person,
)

pytestmark = pytest.mark.django_db
LONG = "The papers were asked for and are not there; the branch confirms it."


def address(alert: RiskAlert, act: str = "change") -> str:
    return f"/admin/risk/riskalert/{alert.pk}/{act}/"


def test_the_page_tells_why_with_figures_limit_version_and_law() -> None:
    make_customer()
    alert = make_alert()
    make_hit(
        alert, number=2, rule_id="RISK-002", subtypes=["concentration"], figures=CONCENTRATION, score=73, rule_version=4
    )
    CustomerProfileL3.objects.create(
        customer_id="C00017", payload={"risk_score": 72, "restrictions": [{"code": "max_risk_level", "value": "R3"}]}
    )
    text = make_client(make_officer()).get(address(alert)).content.decode()
    assert "Sold F0101 of risk level R4 to an ordinary investor assessed C2" in text
    assert "63.45 % of the customer&#x27;s assets of ¥812,400.55 are in this product; the limit is 40 %." in text
    assert "rule version 4" in text
    assert "Measures on the Suitability of Securities and Futures Investors, art. 18, 19" in text
    assert "no product above R3" in text
    assert "350,000.00 CNY" in text
    assert "王**" in text
    for secret in ("C00017<", ">C00017", "王建国"):
        assert secret not in text


def test_offending_trades_are_marked_and_only_those() -> None:
    make_customer()
    alert = make_alert()
    page = make_client(make_officer()).get(address(alert)).context["page"]
    assert [(row.trade.trade_id, row.offending) for row in page.trades] == [("T-C00017-1", True), ("T-C00017-2", False)]


def test_withdrawn_and_superseded_hits_stay_on_the_page_and_mark_no_trade() -> None:
    make_customer()
    alert = make_alert()
    alert.hits.update(state=HitState.WITHDRAWN, live_key=None)
    make_hit(alert, number=2, state=HitState.SUPERSEDED, live_key=None)
    page = make_client(make_officer()).get(address(alert)).context["page"]
    assert not any(row.offending for row in page.trades)
    assert len(page.hits) == 2


def test_an_alert_about_a_customer_the_core_does_not_know_is_a_page() -> None:
    alert = make_alert("C99999")
    assert make_client(make_officer()).get(address(alert)).status_code == 200


def test_figures_of_another_version_do_not_break_the_page() -> None:
    for figures in ({}, {"parts": None}, {"share": "x", "limit": None}, {"over": [1]}, {"dimension": {"a": 1}}):
        alert = make_alert("C00001")
        alert.hits.update(figures=figures, subtypes=["concentration"], rule_id="RISK-002")
        assert make_client(make_person(f"p{alert.pk[-6:]}", superuser=True)).get(address(alert)).status_code == 200


def test_opening_is_recorded_with_the_viewer() -> None:
    alert = make_alert()
    make_client(make_officer()).get(address(alert))
    row = AuditLog.objects.get(event_type="alert_viewed")
    assert (row.actor_id, row.object_id, row.decision, row.actor_type) == ("lin", alert.pk, "viewed", "staff")
    assert len(row.trace_id) == 32


def test_an_officer_claims_notes_disposes_and_reopens() -> None:
    alert = make_alert()
    client = make_client(make_officer())

    def post(act: str, **data: object) -> None:
        alert.refresh_from_db()
        response = client.post(address(alert, act), {"version": alert.version, **data})
        assert response.status_code == 302, response.content.decode()
        alert.refresh_from_db()

    post("claim")
    assert (alert.status, alert.assignee.username) == (AlertStatus.IN_REVIEW, "lin")
    post("release")
    assert (alert.status, alert.assignee) == (AlertStatus.PENDING, None)
    post("note", text="Asked the branch for the recording.")
    post("dispose", status="confirmed", code="C01", text=LONG)
    assert (alert.status, alert.disposition_code, alert.disposition_text) == ("confirmed", "C01", LONG)
    assert f"{LONG}" in client.get(address(alert)).content.decode()
    post("reopen", text="The branch has found the recording.")
    assert alert.status == AlertStatus.IN_REVIEW
    done = list(AlertAction.objects.filter(alert=alert).values_list("action", flat=True))
    assert done == ["claim", "release", "note", "claim", "dispose", "reopen"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({"status": "", "code": "C01", "text": LONG}, "Choose an outcome."),
        ({"status": "confirmed", "code": "", "text": LONG}, "Choose a reason code."),
        ({"status": "confirmed", "code": "F01", "text": LONG}, "This reason code belongs to another outcome."),
        ({"status": "confirmed", "code": "C01", "text": "Too short."}, "at least 30 characters; these are 10"),
        ({"status": "false_positive", "code": "F01", "text": "x" * 29}, "at least 30 characters; these are 29"),
    ],
)
def test_a_disposition_that_lacks_something_says_what_and_keeps_the_rest(data: dict[str, str], complaint: str) -> None:
    alert = make_alert(score=80)
    client = make_client(make_officer())
    response = client.post(address(alert, "dispose"), {"version": alert.version, **data})
    assert response.status_code == 422
    assert complaint in response.content.decode()
    assert data["text"] in response.content.decode()
    alert.refresh_from_db()
    assert alert.status == AlertStatus.PENDING


def test_ten_characters_do_for_a_mild_false_positive() -> None:
    alert = make_alert(score=59)
    data = {"version": alert.version, "status": "false_positive", "code": "F04", "text": "x" * 10}
    assert make_client(make_officer()).post(address(alert, "dispose"), data).status_code == 302


def test_who_comes_second_is_told_who_was_first_what_and_when_and_keeps_the_text() -> None:
    alert = make_alert()
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    seen = alert.version
    first = {"version": seen, "status": "confirmed", "code": "C01", "text": LONG}
    second = {"version": seen, "status": "false_positive", "code": "F04", "text": "A different view, " + LONG}
    assert lin.post(address(alert, "dispose"), first).status_code == 302
    response = zhou.post(address(alert, "dispose"), second)
    text = response.content.decode()
    assert response.status_code == 409
    assert "lin disposed of this alert at" in text
    assert "C01 unsuitable sale" in text
    assert 'id="alert-status">confirmed' in text
    alert.refresh_from_db()
    assert (alert.status, alert.disposed_by.username) == ("confirmed", "lin")
    # confirmed can still be closed: the form is there, with what Zhou wrote
    assert "A different view" in text


def test_a_second_claim_is_told_who_has_it() -> None:
    alert = make_alert()
    lin, zhou = make_officer("lin"), make_officer("zhou")
    services.claim(alert_id=alert.pk, officer=lin)
    response = make_client(zhou, language="zh-hans").post(address(alert, "claim"), {"version": alert.version})
    assert response.status_code == 409
    assert "lin 已于" in response.content.decode()
    assert "领取该预警" in response.content.decode()


def test_new_evidence_since_the_page_was_read_is_a_conflict() -> None:
    alert = make_alert()
    RiskAlert.objects.filter(pk=alert.pk).update(version=alert.version + 1)
    data = {"version": alert.version, "status": "confirmed", "code": "C01", "text": LONG}
    response = make_client(make_officer()).post(address(alert, "dispose"), data)
    assert response.status_code == 409
    assert "The evidence has changed since you opened this alert." in response.content.decode()
    assert LONG in response.content.decode()


def test_a_manager_sees_no_controls_and_every_post_is_refused_and_recorded() -> None:
    alert = make_alert()
    client = make_client(make_manager())
    text = client.get(address(alert)).content.decode()
    assert "/dispose/" not in text
    assert "/claim/" not in text
    assert "/note/" not in text
    for act in ("claim", "release", "dispose", "reopen", "note"):
        data = {"version": alert.version, "status": "closed", "code": "K01", "text": LONG}
        assert client.post(address(alert, act), data).status_code == 403, act
    refused = AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id="meng", object_id=alert.pk)
    assert sorted(row.input_summary["action"] for row in refused) == ["claim", "dispose", "note", "release", "reopen"]
    alert.refresh_from_db()
    assert (alert.status, alert.version, AlertAction.objects.count()) == (AlertStatus.PENDING, 1, 0)


def test_nobody_adds_edits_or_deletes_an_alert_not_even_a_superuser() -> None:
    alert = make_alert()
    root = make_client(make_person("root", superuser=True))
    assert root.get("/admin/risk/riskalert/add/").status_code == 403
    assert root.post(address(alert, "delete"), {"post": "yes"}).status_code == 403
    assert root.post(address(alert), {"score": 1}).status_code == 405
    bulk = {"action": "delete_selected", "_selected_action": alert.pk, "post": "yes"}
    root.post("/admin/risk/riskalert/", bulk)
    assert RiskAlert.objects.filter(pk=alert.pk).exists()


def test_csrf_is_asked_for() -> None:
    from django.test import Client

    alert = make_alert()
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_officer())
    assert client.post(address(alert, "claim"), {"version": 1}).status_code == 403
    alert.refresh_from_db()
    assert alert.status == AlertStatus.PENDING


def test_a_get_of_an_act_leads_to_the_page() -> None:
    alert = make_alert()
    response = make_client(make_officer()).get(address(alert, "dispose"))
    assert (response.status_code, response["Location"]) == (302, address(alert))
