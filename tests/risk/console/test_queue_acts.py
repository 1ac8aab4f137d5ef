"""What an officer does from the queue: claim, assign, next, one reason for several, views under a name, the file."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.messages import get_messages
from django.test import Client

from config.base.clock import now
from guard.audit.models import AuditLog
from risk.alerts import services
from risk.alerts.models import AlertType, RiskAlert
from risk.console.models import SavedView
from tests.risk.console.make import make_alert, make_auditor, make_client, make_manager, make_officer, make_operator

pytestmark = pytest.mark.django_db
QUEUE = "/admin/risk/riskalert/"
BULK, NEXT, VIEW, EXPORT = (f"{QUEUE}{name}/" for name in ("bulk", "next", "view", "export"))
REASON = "The same batch of papers was delivered late and is complete now."


def pick(*alerts: RiskAlert) -> list[str]:
    return [f"{alert.pk}~{alert.version}" for alert in alerts]


def said(answer: Any) -> list[str]:
    """What this answer adds to what the next page will say."""
    return [str(message) for message in get_messages(answer.wsgi_request)._queued_messages]


def lines_of(client: Client, **query: str) -> list[list[str]]:
    answer = client.get(EXPORT, query)
    assert answer.status_code == 200
    return list(csv.reader(io.StringIO(answer.getvalue().decode("utf-8-sig"))))


def test_an_officer_claims_what_is_chosen_and_is_told_whose_the_others_are() -> None:
    lin, zhou = make_officer("lin"), make_officer("zhou")
    mine, theirs = make_alert("C00017"), make_alert("C00018")
    choice = pick(mine, theirs)
    services.claim(alert_id=theirs.pk, officer=zhou)
    answer = make_client(lin).post(BULK, {"act": "claim", "pick": choice, "back": "rule=RISK-001"})
    assert answer.headers["Location"] == f"{QUEUE}?rule=RISK-001"
    done, lost = said(answer)
    assert done == "1 alert is yours."
    assert lost.startswith(f"Alert {theirs.pk}: zhou claimed this alert at 20")
    assert RiskAlert.objects.get(pk=mine.pk).assignee == lin


def test_an_officer_assigns_several_to_another() -> None:
    zhou = make_officer("zhou")
    alerts = [make_alert(f"C0001{number}") for number in range(3)]
    client = make_client(make_officer())
    assert said(client.post(BULK, {"act": "assign", "pick": pick(*alerts), "to": ""})) == ["Choose an officer."]
    answer = client.post(BULK, {"act": "assign", "pick": pick(*alerts), "to": "zhou"})
    assert said(answer) == ["3 alerts are assigned."]
    assert set(RiskAlert.objects.values_list("assignee", flat=True)) == {zhou.pk}


def test_several_are_disposed_of_on_a_page_that_shows_their_evidence_first() -> None:
    alerts = [make_alert(f"C0001{number}", score=45) for number in range(3)]
    client = make_client(make_officer())
    page = client.post(BULK, {"act": "dispose", "pick": pick(*alerts), "back": "tab=customers"})
    assert page.status_code == 200
    assert "3 alerts of RISK-001 Suitability" in page.content.decode()
    assert set(RiskAlert.objects.values_list("status", flat=True)) == {"pending"}
    sent = {"act": "dispose", "confirm": "1", "pick": page.context["picks"], "status": "false_positive"}
    short = client.post(BULK, {**sent, "code": "F02", "text": "short"})
    assert short.status_code == 422
    assert short.context["picks"] == page.context["picks"]
    services.claim(alert_id=alerts[0].pk, officer=make_officer("zhou"))
    answer = client.post(BULK, {**sent, "code": "F02", "text": REASON})
    assert said(answer)[0] == "2 alerts are disposed of."
    assert f"Alert {alerts[0].pk}: zhou claimed this alert" in said(answer)[1]
    assert RiskAlert.objects.filter(status="false_positive", disposition_text=REASON).count() == 2


def test_alerts_of_two_rules_and_serious_ones_are_not_disposed_of_together() -> None:
    one, other = make_alert("C1", score=45), make_alert("C2", score=45, rule_ids=["RISK-002"])
    serious = make_alert("C3", score=60)
    client = make_client(make_officer())
    assert said(client.post(BULK, {"act": "dispose", "pick": pick(one, other)})) == [
        "Only alerts of one rule are disposed of together."
    ]
    assert said(client.post(BULK, {"act": "dispose", "pick": pick(one, serious)})) == [
        "Only alerts with a score under 60 that take no second officer are disposed of together."
    ]
    assert said(client.post(BULK, {"act": "claim"})) == ["Choose some alerts first."]
    assert said(client.post(BULK, {"act": "claim", "pick": ["x~1"] * 51})) == ["At most 50 at once."]


def test_next_opens_the_most_urgent_of_the_tab() -> None:
    lin = make_officer()
    make_alert("C1", claim_due_at=now() + timedelta(hours=2))
    urgent = make_alert("C2", claim_due_at=now() + timedelta(hours=1))
    report = make_alert("C3", alert_type=AlertType.REPORT, dispose_due_at=now())
    client = make_client(lin)
    assert client.post(NEXT, {"back": ""}).headers["Location"] == f"{QUEUE}{urgent.pk}/change/"
    assert client.post(NEXT, {"back": "tab=reports"}).headers["Location"] == f"{QUEUE}{report.pk}/change/"
    nothing = client.post(NEXT, {"back": "tab=reports"})
    assert nothing.headers["Location"] == f"{QUEUE}?tab=reports"
    assert said(nothing) == ["Nothing waits here that nobody has."]


@pytest.mark.parametrize("make", [make_manager, make_auditor, make_operator])
def test_who_is_no_officer_acts_on_nothing_and_it_is_on_record(make: Any) -> None:
    alert = make_alert(score=45)
    person = make()
    client = make_client(person)
    for act in ("claim", "assign", "dispose"):
        assert client.post(BULK, {"act": act, "pick": pick(alert), "to": person.username}).status_code == 403
    assert client.post(NEXT).status_code == 403
    rows = AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id=person.username)
    assert [row.input_summary["permission"] for row in rows] == ["risk.dispose_alert"] * 4
    alert.refresh_from_db()
    assert (alert.status, alert.version) == ("pending", 1)


def test_another_tenants_and_faults_are_out_of_reach() -> None:
    far, fault = make_alert(tenant="east"), make_alert("C2", alert_type=AlertType.DATA_QUALITY)
    client = make_client(make_officer())
    assert said(client.post(BULK, {"act": "claim", "pick": pick(far)})) == [f"Alert {far.pk}: No such alert."]
    assert client.post(BULK, {"act": "claim", "pick": pick(fault)}).status_code == 403
    assert set(RiskAlert.objects.values_list("status", flat=True)) == {"pending"}


def test_a_view_is_kept_under_its_name_and_is_its_owners() -> None:
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    where = "tab=customers&rule=RISK-001&min=60&customer=C00017&q=C00017&page=7&cols=due,score"
    assert said(lin.post(VIEW, {"name": "  My   mismatches ", "back": where})) == ["The view is saved."]
    view = SavedView.objects.get()
    assert view.name == "My mismatches"
    assert view.query == "tab=customers&rule=RISK-001&min=60&cols=due,score"
    assert "C00017" not in view.query
    assert [one.name for one in lin.get(QUEUE).context["views"]] == ["My mismatches"]
    assert not zhou.get(QUEUE).context["views"]
    assert lin.get(f"{QUEUE}?{view.query}").context["filters"].low == 60
    lin.post(VIEW, {"name": "My mismatches", "back": "tab=reports"})
    assert SavedView.objects.get().query.startswith("tab=reports")
    zhou.post(VIEW, {"remove": str(view.pk)})
    assert SavedView.objects.count() == 1
    assert said(lin.post(VIEW, {"remove": str(view.pk)})) == ["The view is removed."]
    for name in ("", " ", "x" * 41):
        assert said(lin.post(VIEW, {"name": name})) == [
            "A name has 1 to 40 characters; a person keeps at most 30 views."
        ]
    assert not SavedView.objects.exists()


def test_a_manager_shares_a_view_and_an_officer_cannot() -> None:
    lin, meng = make_client(make_officer()), make_client(make_manager())
    assert lin.post(VIEW, {"name": "Mine", "shared": "1"}).status_code == 403
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id="lin").count() == 1
    meng.post(VIEW, {"name": "Reports of the month", "back": "tab=reports", "shared": "1"})
    [view] = lin.get(QUEUE).context["views"]
    assert (view.name, view.own, view.owner) == ("Reports of the month", False, "meng")
    lin.post(VIEW, {"remove": str(view.pk)})
    assert SavedView.objects.count() == 1
    assert not make_client(make_officer("dong", tenant="east")).get(QUEUE).context["views"]
    assert AuditLog.objects.filter(event_type="config_change", object_type="saved_view").count() == 1
    assert make_client(make_auditor()).post(VIEW, {"name": "x"}).status_code == 403


def test_the_file_holds_the_view_in_its_columns_masked_and_on_record() -> None:
    make_alert("C00017", score=95, claim_due_at=now() + timedelta(hours=1))
    make_alert("C00018", score=30)
    make_alert("C00019", tenant="east")
    client = make_client(make_officer())
    heads, *lines = lines_of(client, min="90", customer="C00017", cols="score,customer,status,advisor")
    assert heads == ["Alert", "What", "Score", "Customer", "Status", "Advisor"]
    assert [line[1:] for line in lines] == [
        ["product above the customer's risk tolerance", "95", "C0***7", "pending", "ADV001"]
    ]
    row = AuditLog.objects.get(event_type="evidence_exported")
    assert (row.actor_id, row.object_type) == ("lin", "risk_alert")
    assert row.input_summary["filters"] == {"tab": "customers", "min": 90, "customer": "given"}
    assert len(lines_of(make_client(make_manager()))) == 3
    assert make_client(make_auditor()).get(EXPORT).status_code == 403


def test_no_cell_of_the_file_is_a_formula() -> None:
    for advisor in ("=cmd|' /C calc'!A0", "+1", "-1", "@x", "\tx", "＝1"):
        make_alert(advisor_id=advisor)
    cells = [line[2] for line in lines_of(make_client(make_officer()), cols="advisor")[1:]]
    assert len(cells) == 6
    assert all(cell.startswith("'") for cell in cells)


def test_the_file_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("risk.console.export.MOST", 7)
    made = [make_alert(f"C{n:05d}", claim_due_at=now() + timedelta(minutes=n)).pk for n in range(9)]
    assert [line[0] for line in lines_of(make_client(make_officer()))[1:]] == made[:7]


def test_where_it_leads_back_is_the_queue_whatever_is_sent() -> None:
    client = make_client(make_officer())
    for back in ("//evil.example/", "https://evil.example", "\r\nSet-Cookie: a=b", "a=1#x"):
        place = urlsplit(client.post(BULK, {"act": "claim", "back": back}).headers["Location"])
        assert (place.scheme, place.netloc, place.path, place.fragment) == ("", "", QUEUE, "")
    assert parse_qs(urlsplit(client.get(BULK).headers["Location"]).query) == {}
