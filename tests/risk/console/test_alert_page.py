"""One alert's page: what it shows, and what officers and managers can do on it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.urls import reverse
from django.utils.translation import override

from config.base.clock import now
from guard.audit.models import AuditLog
from memory.core.models import CoreAssessment, CoreCustomer, CoreProduct, CoreTrade
from memory.profiles.models import CustomerProfileL3
from risk.alerts import services
from risk.alerts.acting import REMARKS
from risk.alerts.models import AlertAction, AlertStatus, EscalationLevel, HitState, RiskAlert
from risk.console.words import ACTIONS
from tests.risk.console.make import (
    CONCENTRATION,
    MISMATCH,
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_hit,
    make_manager,
    make_officer,
    make_person,
    seen,
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
    assert "Measures on the Suitability of Securities and Futures Investors" in text
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
        response = client.post(address(alert, act), {**seen(alert), **data})
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
    response = client.post(address(alert, "dispose"), {**seen(alert), **data})
    assert response.status_code == 422
    assert complaint in response.content.decode()
    assert data["text"] in response.content.decode()
    alert.refresh_from_db()
    assert alert.status == AlertStatus.PENDING


def test_ten_characters_do_for_a_mild_false_positive() -> None:
    alert = make_alert(score=59)
    data = {**seen(alert), "status": "false_positive", "code": "F04", "text": "x" * 10}
    assert make_client(make_officer()).post(address(alert, "dispose"), data).status_code == 302


def test_who_comes_second_is_told_who_was_first_what_and_when_and_keeps_the_text() -> None:
    alert = make_alert()
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    saw = seen(alert)
    first = {**saw, "status": "confirmed", "code": "C01", "text": LONG}
    second = {**saw, "status": "false_positive", "code": "F04", "text": "A different view, " + LONG}
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


REOPENING = "The branch has sent the recording after all."


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"status": "closed", "code": "K05", "text": LONG}, {"status": "confirmed", "code": "C01"}),
        ({"status": "false_positive", "code": "F04", "text": LONG}, {"status": "false_positive", "code": "F04"}),
        # What the loser sent would not even have done; the text is no less theirs.
        ({"status": "closed", "code": "K05", "text": LONG}, {"status": "", "code": ""}),
    ],
)
@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_the_loser_of_a_race_keeps_the_text_where_no_form_is_left(
    first: dict[str, str], second: dict[str, str], language: str
) -> None:
    alert = make_alert()
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"), language=language)
    mine = "A different view of <this>, kept for me. " + LONG
    saw = seen(alert)
    assert lin.post(address(alert, "dispose"), {**saw, **first}).status_code == 302
    response = zhou.post(address(alert, "dispose"), {**saw, "text": mine, **second})
    text = response.content.decode()
    assert response.status_code == 409
    assert 'id="dispose"' not in text
    kept = re.search(r'<textarea id="written"[^>]* readonly[^>]*>(.*?)</textarea>', text, re.DOTALL)
    assert kept is not None
    assert html.unescape(kept[1]) == mine
    assert "still in the form" not in text
    assert ("What you had written was not saved" in text) == (language == "en")


def test_whose_alert_was_claimed_meanwhile_keeps_the_text() -> None:
    alert = make_alert()
    zhou = make_client(make_officer("zhou"))
    saw = seen(alert)
    services.claim(alert_id=alert.pk, officer=make_officer("lin"))
    data = {**saw, "status": "confirmed", "code": "C01", "text": LONG}
    text = zhou.post(address(alert, "dispose"), data).content.decode()
    assert "lin claimed this alert" in text
    assert f">{LONG}</textarea>" in text


def test_who_reopens_second_keeps_the_reason() -> None:
    alert = make_alert(status=AlertStatus.CLOSED)
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    data = {"version": alert.version, "text": REOPENING}
    assert lin.post(address(alert, "reopen"), data).status_code == 302
    for reason in (REOPENING, "Short."):
        response = zhou.post(address(alert, "reopen"), {**data, "text": reason})
        assert response.status_code == 409
        assert re.search(rf'id="written"[^>]*>{reason}<', response.content.decode())


def test_a_lost_race_without_a_text_promises_none() -> None:
    alert = make_alert()
    services.claim(alert_id=alert.pk, officer=make_officer("lin"))
    text = make_client(make_officer("zhou")).post(address(alert, "claim"), {"version": 1}).content.decode()
    assert "What you had written" not in text
    assert "The alert below is shown as it is now." in text


def test_the_form_that_is_left_holds_the_text_and_says_so() -> None:
    alert = make_alert()
    RiskAlert.objects.filter(pk=alert.pk).update(version=alert.version + 1)
    data = {**seen(alert), "status": "confirmed", "code": "C01", "text": LONG}
    text = make_client(make_officer()).post(address(alert, "dispose"), data).content.decode()
    assert "What you had written is still in the form." in text
    assert 'id="written"' not in text
    assert f'aria-describedby="text-count">{LONG}</textarea>' in text


def test_every_act_that_the_code_records_has_words_in_both_languages() -> None:
    """Reads the code: each `action="..."` of an AlertAction or note of a settlement, `hit_<state>` of a hit."""
    written: set[str] = set()
    for path in (Path(__file__).parents[3] / "risk" / "alerts").glob("*.py"):
        written |= set(re.findall(r'(?:\baction=|\.note\(alert, )f?"([^"]+)"', path.read_text()))
    assert {"claim", "dispose", "hit_{to.value}"} <= written
    written.remove("hit_{to.value}")
    written |= {f"hit_{state}" for state in HitState.values if state != HitState.LIVE}
    written |= {level.lower() for level in EscalationLevel.values if level}
    written |= set(REMARKS)
    written.discard("open_attachment")  # what a refusal names
    assert written == set(ACTIONS)
    alert = make_alert()
    for action in sorted(written):
        AlertAction.objects.create(alert=alert, action=action, alert_version=1)
    for language in ("en", "zh-hans"):
        text = make_client(make_officer(f"p-{language}"), language=language).get(address(alert)).content.decode()
        assert not re.search("hit_|Hit_", text)
    with override("zh-hans"):
        assert [str(words) for words in ACTIONS.values() if str(words).isascii()] == []


def papers_of(alert: RiskAlert) -> dict[str, str]:
    """What the page says of each paper of the offending trade."""
    text = make_client(make_officer()).get(address(alert)).content.decode()
    part = text[text.index("Papers of the offending trades") : text.index('id="customer"')]
    return {
        name: "missing" if "missing" in words else "not needed" if "not needed" in words else "there"
        for name, words in re.findall(r"<dt>([^<]+)</dt><dd>(.*?)</dd>", part)
        if name in PAPERS
    }


PAPERS = ("dual recording", "risk disclosure", "mismatch confirmation")


def test_papers_of_a_mismatch_in_a_branch_are_missing() -> None:
    make_customer()
    assert papers_of(make_alert()) == dict.fromkeys(PAPERS, "missing")


def test_a_recording_is_not_due_outside_a_branch() -> None:
    make_customer()
    CoreTrade.objects.update(channel="online", risk_disclosure_id="RD1")
    found = papers_of(make_alert())
    assert found == {"dual recording": "not needed", "risk disclosure": "there", "mismatch confirmation": "missing"}


@pytest.mark.parametrize("within", ["tolerance", "professional", "sale", "later_rating", "no_assessment"])
def test_papers_that_were_not_due_are_not_missing(within: str) -> None:
    make_customer()
    if within == "tolerance":
        CoreAssessment.objects.update(c_level=4)
    elif within == "professional":
        CoreCustomer.objects.update(investor_type="professional")
    elif within == "sale":
        CoreTrade.objects.update(trade_type="sell")
    elif within == "no_assessment":
        CoreAssessment.objects.all().delete()
    else:  # R4 only since a moment ago; at the trade it was R2
        CoreProduct.objects.update(valid_from=now())
        CoreProduct.objects.create(
            tenant="default", product_id="F0101", issuer_id="ISS01", asset_class="equity", risk_level=2
        )
    assert papers_of(make_alert()) == dict.fromkeys(PAPERS, "not needed")


def test_a_finding_lists_no_paper_that_was_not_due() -> None:
    alert = make_alert()
    within = {**MISMATCH, "tolerance_level": "C4", "parts": {"assessment_expired": 50}}
    for figures, listed in ((within, ["risk disclosure"]), (MISMATCH, [*PAPERS])):
        alert.hits.update(figures=figures)
        page = make_client(make_officer(f"lin{len(listed)}")).get(address(alert)).context["page"]
        names = {label for label, _value in page.findings[0].figures}
        assert {name for name in PAPERS if name in names} == set(listed)


def test_the_auditor_and_anyone_else_is_refused_with_the_same_record_as_the_manager() -> None:
    alert = make_alert()
    for person in (make_auditor(), make_manager()):
        client = make_client(person)
        for act in ("claim", "release", "dispose", "reopen", "note", "delete"):
            assert client.post(address(alert, act), {"version": 1}).status_code == 403, act
        refused = AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id=person.username)
        told = sorted((row.object_id, row.code, row.input_summary["action"]) for row in refused)
        expected = ("claim", "delete", "dispose", "note", "release", "reopen")
        assert told == [(alert.pk, "FORBIDDEN", act) for act in expected]
    auditor = make_client(make_auditor("an2"))
    for looked, action in ((address(alert), "change"), ("/admin/risk/riskalert/", "changelist")):
        assert auditor.get(looked).status_code == 403
        row = AuditLog.objects.filter(actor_id="an2").latest("id")
        assert (row.event_type, row.decision, row.input_summary["action"]) == ("authz", "forbidden", action)


def test_new_evidence_since_the_page_was_read_is_a_conflict() -> None:
    alert = make_alert()
    RiskAlert.objects.filter(pk=alert.pk).update(version=alert.version + 1)
    data = {**seen(alert), "status": "confirmed", "code": "C01", "text": LONG}
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
        data = {**seen(alert), "status": "closed", "code": "K01", "text": LONG}
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


def test_what_officers_wrote_names_nobody_to_who_has_not_unmasked() -> None:
    make_customer()
    alert = make_alert()
    told = "spoke with 王建国 (C00017) on 13800138000, sees wang@example.com"
    officer = make_officer()
    services.add_note(alert_id=alert.pk, officer=officer, text=told)
    type(alert).objects.filter(pk=alert.pk).update(
        status="confirmed", disposed_at=now(), disposed_by=officer, disposition_code="C01", disposition_text=told
    )
    address = reverse("admin:risk_riskalert_change", args=[alert.pk])
    for client in (make_client(officer), make_client(make_manager(), language="zh-hans")):
        text = client.get(address).content.decode()
        assert text.count("spoke with *** (***) on ***, sees ***") == 2
        for hidden in ("王建国", "(C00017)", "13800138000", "wang@example.com"):
            assert hidden not in text, hidden
    clear = make_client(officer).post(
        reverse("admin:risk_riskalert_unmask", args=[alert.pk]), {"reason": "has to call back today"}
    )
    assert clear.content.decode().count(told) == 2
