"""What an alert's page tells beside its evidence: why it is back, what was said and held, what hangs together."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from config.base.clock import now
from guard.audit.services import record
from memory.core.window import CoreUnavailable
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2
from memory.sessions.models import AgentMessage, AgentSession
from risk.alerts import services
from risk.alerts.looking import look
from risk.alerts.models import AlertType, HitState, RiskAlert, RiskAlertHit
from risk.console import corefacts, sentences
from risk.console.words import LACKS, SUBTYPES
from tests.risk.console.make import (
    make_alert,
    make_auditor,
    make_client,
    make_customer,
    make_hit,
    make_manager,
    make_officer,
)

pytestmark = pytest.mark.django_db
LONG = "The recording shows that the customer asked for it, in a branch."
TRACE = "ab" * 16


def address(alert: RiskAlert, act: str = "change") -> str:
    return f"/admin/risk/riskalert/{alert.pk}/{act}/"


def make_talk(
    customer_id: str = "C00017", *, agent: str = "advisor", actor: str = "ADV001", number: int = 1, hours: float = 25,
    said: tuple[str, ...] = ("buy it",), trace: str = "", tenant: str = "default",
) -> AgentSession:  # fmt: skip
    """A conversation, so many hours ago: a trade of `make_hit` is a day old."""
    at = now() - timedelta(hours=hours)
    session = AgentSession.objects.create(
        tenant=tenant, session_id=f"session-{agent}-{number:08d}", agent=agent, actor_id=actor,
        customer_id=customer_id, created_at=at,
    )  # fmt: skip
    for seq, text in enumerate(said, 1):
        AgentMessage.objects.create(
            session_row=session, tenant=tenant, agent=agent, session_id=session.session_id, entry_id=f"e{seq}",
            seq=seq, role="user" if seq % 2 else "assistant", content=text, size=len(text), digest="x",
            trace_id=trace, created_at=at + timedelta(seconds=seq),
        )  # fmt: skip
    return session


def test_an_alert_that_woke_was_returned_or_reopened_says_why_it_is_back() -> None:
    alert = make_alert(score=85)
    lin, zhou = make_officer("lin"), make_officer("zhou")
    client = make_client(lin)

    def fresh() -> RiskAlert:
        alert.refresh_from_db()
        return alert

    services.snooze(
        alert_id=alert.pk, officer=lin, version=1, until=now() + timedelta(minutes=30), text="The branch calls back."
    )
    assert "Put aside until" in client.get(address(alert)).content.decode()
    RiskAlert.objects.filter(pk=alert.pk).update(snoozed_until=None, woken_at=now(), woken_by="time")
    text = client.get(address(alert)).content.decode()
    assert re.search(r"Woken at [^<]* because its time has come\. lin had put it aside: <q>The branch calls", text)
    sent: dict[str, Any] = {"version": fresh().version, "status": "closed", "code": "K05", "text": LONG}
    client.post(
        address(alert, "dispose"), {**sent, "evidence_hash": client.get(address(alert)).context["evidence_hash"]}
    )
    services.give_back(alert_id=alert.pk, officer=zhou, version=fresh().version, text="Ask for the recording first.")
    text = client.get(address(alert)).content.decode()
    assert re.search(r"Returned by zhou at [^<]*: <q>Ask for the recording first\.", text)
    RiskAlert.objects.filter(pk=alert.pk).update(status="closed", woken_by="")
    services.reopen(alert_id=alert.pk, officer=zhou, version=fresh().version, text="The recording is another's.")
    text = client.get(address(alert)).content.decode()
    assert re.search(r"Reopened by zhou at [^<]*: <q>The recording is another&#x27;s\.", text)
    assert "Returned by" not in text


def test_findings_lead_to_their_trades_and_back() -> None:
    make_customer()
    alert = make_alert()
    structuring = {"count": 3, "category": "cash", "direction": "in", "trades": [{"trade": "T-C00017-2@1"}, {"trade": "gone@1"}]}  # fmt: skip  # noqa: E501
    make_hit(alert, rule_id="RISK-004", subtypes=["structuring"], figures=structuring, score=60)
    client = make_client(make_officer())
    response = client.get(address(alert))
    page, text = response.context["page"], response.content.decode()
    assert [(row.trade.trade_id, row.offending, row.part, list(row.findings)) for row in page.trades] == [
        ("T-C00017-1", True, False, [1, 2]),
        ("T-C00017-2", False, True, [2]),
    ]
    assert page.why[1].trades == [("T-C00017-1", "trade-1"), ("T-C00017-2", "trade-2"), ("gone", "")]
    for one in ('href="#trade-1"', 'id="trade-1"', 'id="why-2"', 'href="#why-2"'):
        assert one in text
    assert "gone</a>" not in text


def test_what_was_said_is_shown_masked_under_the_trace_of_the_trade_first() -> None:
    make_customer()
    alert = make_alert()
    make_talk(hours=26, agent="customer", actor="C00017", said=("I am 王建国, C00017, call 13800138000", "Noted."))
    make_talk(hours=24 * 30, number=2, said=("They insist.",), trace=TRACE)  # long ago, and still of this trade
    make_talk(hours=24 * 30, number=3, said=("long ago",))
    make_talk("C00018", hours=25, number=4, said=("about somebody else",))
    make_talk("", hours=25, number=5, said=("about nobody",))
    record(
        tenant="default", event_type="trade_request", decision="requested", actor_type="agent", actor_id="ADV001",
        object_type="core_trade", object_id="T-C00017-1", trace_id=TRACE, input_summary={"trade_id": "T-C00017-1"},
    )  # fmt: skip
    for client in (make_client(make_officer()), make_client(make_manager(), language="zh-hans")):
        response = client.get(address(alert))
        talks = response.context["page"].talks
        assert [[line.text for line in talk.lines] for talk in talks] == [
            ["They insist."],
            ["I am ***, ***, call ***", "Noted."],
        ]
        assert [talk.actor for talk in talks] == ["ADV001", "C0***7"]
        for hidden in ("王建国", "13800138000", "somebody else", "about nobody", "agentsession/"):
            assert hidden not in response.content.decode(), hidden


def test_a_flood_of_messages_is_bounded_and_counted() -> None:
    make_customer()
    alert = make_alert()
    make_talk(said=tuple(f"line {n}" for n in range(60)))
    make_talk(number=2, agent="customer", actor="C00017", said=("x" * 5000,))
    talks = make_client(make_officer()).get(address(alert)).context["page"].talks
    found = {talk.excerpt.session.agent: talk for talk in talks}
    assert (len(found["advisor"].lines), found["advisor"].excerpt.more) == (20, 40)
    assert found["advisor"].lines[-1].text == "line 59"
    assert (len(found["customer"].lines[0].text), found["customer"].lines[0].cut) == (1500, True)


def test_refused_accesses_stand_on_an_event_alert_too() -> None:
    make_customer()
    alert = make_alert()
    alert.hits.update(occurred_at=now() - timedelta(minutes=5))
    for actor, customer in (("ADV001", "C00099"), ("ADV002", "C00017"), ("ADV002", "C00098")):
        record(
            tenant="default", event_type="authz", decision="forbidden", actor_type="agent", actor_id=actor,
            agent="advisor", object_type="profile_l1", object_id=customer, code="NOT_ASSIGNED", customer_id=customer,
            input_summary={"code": "NOT_ASSIGNED", "target": customer},
        )  # fmt: skip
    response = make_client(make_officer()).get(address(alert))
    rows = response.context["page"].refused
    assert sorted((row.who, row.own) for row in rows) == [("ADV001", False), ("ADV002", True)]
    assert "C00099" not in response.content.decode()


def test_new_hits_are_marked_until_they_were_looked_at_and_older_revisions_are_folded() -> None:
    make_customer()
    alert = make_alert()
    officer = make_officer()
    client = make_client(officer)
    assert not any(row.new for row in client.get(address(alert)).context["page"].hits)
    first = alert.hits.get()
    RiskAlertHit.objects.filter(pk=first.pk).update(state=HitState.SUPERSEDED, live_key=None)
    RiskAlert.objects.filter(pk=alert.pk).update(version=2)
    make_hit(alert, evidence_key=first.evidence_key, revision=2, alert_version=2)
    response = client.get(address(alert))
    rows = response.context["page"].hits
    assert [(row.hit.revision, row.new, [old.revision for old in row.older]) for row in rows] == [(2, True, [1])]
    assert "new since you looked" in response.content.decode()
    assert "1 hit is new since you looked." in response.content.decode()
    assert not any(row.new for row in client.get(address(alert)).context["page"].hits)


def test_earlier_alerts_tell_how_they_ended_and_related_ones_what_they_share() -> None:
    make_customer()
    lin = make_officer("lin")
    earlier = make_alert(
        status="false_positive", disposition_code="F04", disposition_text="Spoke with 王建国 about it.",
        disposed_by=lin, disposed_at=now(),
    )  # fmt: skip
    other = make_alert(rule_ids=["RISK-002"], subtypes=["concentration"])
    alert = make_alert(trace_id=TRACE, parent=earlier)
    follow = make_alert("C00050", parent=alert, advisor_id="ADV9")
    beside = make_alert("C00051", advisor_id="ADV001")
    same_trace = make_alert("C00052", advisor_id="ADV8", trace_id=TRACE)
    far = make_alert("C00053", advisor_id="ADV001", opened_at=now() - timedelta(days=30))
    elsewhere = make_alert("C00054", tenant="other", trace_id=TRACE)
    for one in (follow, same_trace, far):
        one.hits.update(product_id="F-OTHER")
    make_alert("C00055", advisor_id="ADV001", alert_type=AlertType.DATA_QUALITY)
    response = make_client(lin).get(address(alert))
    page = response.context["page"]
    assert [(row.alert.pk, row.same_rule) for row in page.earlier] == [(other.pk, False), (earlier.pk, True)]
    assert page.earlier[1].text == "Spoke with *** about it."
    found = {row.alert.pk: [str(word) for word in row.why] for row in page.related}
    assert found == {
        earlier.pk: ["this one follows it"],
        follow.pk: ["follow-up of this one"],
        beside.pk: ["same advisor", "same product"],
        same_trace.pk: ["same trace"],
    }
    assert elsewhere.pk not in response.content.decode()
    assert "C00051" not in response.content.decode()


def test_positions_show_where_they_were_concentrated_at_the_trade_against_the_limits() -> None:
    make_customer()
    alert = make_alert()
    held = make_client(make_officer()).get(address(alert)).context["page"].holdings
    assert str(held.total) == "165000.00"
    bars = {
        str(label): [(str(bar.name), int(bar.share), bar.over, bar.own) for bar in bars] for label, bars in held.bars
    }
    assert bars["Product"] == [("F0101", 100, True, True)]
    assert bars["Issuer"] == [("ISS01", 100, True, True)]
    assert held.rule.startswith("RISK-002@")


def test_profiles_stand_behind_their_masks() -> None:
    make_customer()
    alert = make_alert()
    CustomerProfileL1.objects.create(customer_id="C00017", payload={"occupation": "teacher", "horizon_months": 36})
    CustomerProfileL2.objects.create(
        customer_id="C00017", advisor_id="ADV001", payload={"stage": "grows", "needs": "car"}
    )
    CustomerProfileL2.objects.create(customer_id="C00017", advisor_id="ADV002", payload={"needs": "a boat"})
    response = make_client(make_officer()).get(address(alert))
    layers = response.context["page"].layers
    assert ("horizon in months", ("36",), False) in [
        (str(one.label), one.entries, one.masked) for one in layers.own.lines
    ]
    assert all(one.masked for one in layers.view.lines)
    for hidden in ("teacher", "a boat", ">car<"):
        assert hidden not in response.content.decode()


def test_the_timeline_tells_to_whom_until_when_and_which_hits_joined() -> None:
    make_customer()
    alert = make_alert()
    lin, zhou = make_officer("lin"), make_officer("zhou")
    services.assign(alert_id=alert.pk, officer=lin, to=zhou, version=1)
    record(
        tenant="default", event_type="alert_merged", decision="merged", actor_id="scan", object_type="risk_alert",
        object_id=alert.pk, code="RISK-002", risk_score=73,
        input_summary={"revision": 1, "subtypes": ["concentration"]},
    )  # fmt: skip
    client = make_client(zhou)
    client.post(address(alert, "unmask"), {"reason": "has to call back today"})
    rows = client.get(address(alert)).context["page"].timeline.rows
    told = [(str(row.words), row.who, list(row.beside), row.text) for row in rows]
    assert told == [
        ("the customer was shown in clear", "zhou", [], "has to call back today"),
        ("a hit joined", "", ["Concentration", "concentration", "score 73"], ""),
        ("assigned", "lin", ["to zhou"], ""),
    ]


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_an_open_page_is_told_who_did_what_since(language: str) -> None:
    alert = make_alert()
    lin, zhou = make_officer("lin"), make_officer("zhou")
    client = make_client(zhou, language=language)
    page = client.get(address(alert))
    shown = {"after": page.context["page"].last_action, "version": 1}
    assert client.get(address(alert, "since"), shown).json()["told"] == []
    services.claim(alert_id=alert.pk, officer=lin)
    services.add_note(alert_id=alert.pk, officer=lin, text="王建国 has called")
    make_hit(alert, number=2, alert_version=3)
    answer = client.get(address(alert, "since"), shown)
    body = answer.json()
    assert (body["assignee"], body["status"], body["hits"]) == ("lin", "in_review", 1)
    assert body["told"][0].startswith("lin claimed this alert at" if language == "en" else "lin 已于")
    assert len(body["told"]) == 3
    assert "王建国" not in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert client.get(address(alert, "since"), {"after": body["after"], "version": 3}).json()["told"] == []
    assert client.get(address(alert, "since"), {"after": "x", "version": "-1"}).status_code == 200


def test_since_is_for_whoever_may_see_the_alert() -> None:
    alert = make_alert()
    assert make_client(make_manager()).get(address(alert, "since")).status_code == 200
    assert make_client(make_auditor()).get(address(alert, "since")).status_code == 403
    assert make_client(make_officer("eve", tenant="other")).get(address(alert, "since")).status_code == 404


def test_a_core_that_does_not_answer_is_no_absence_of_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any, **kwargs: Any) -> None:
        raise CoreUnavailable("the core is away")

    make_customer()
    alert = make_alert()
    monkeypatch.setattr(corefacts, "_trades", away)
    monkeypatch.setattr("memory.core.selectors.customer_history", away)
    text = make_client(make_officer()).get(address(alert)).content.decode()
    assert text.count("The core system does not answer now; its part is missing.") == 3
    for lie in ("has no trades of this customer", "No risk assessment on record", "No positions on record"):
        assert lie not in text


def test_each_key_that_the_page_names_is_there_and_a_manager_has_none_of_acts() -> None:
    make_customer()
    alert = make_alert()
    officer = make_client(make_officer()).get(address(alert)).content.decode()
    manager = make_client(make_manager()).get(address(alert)).content.decode()
    for control in ('id="claim"', 'id="dispose"', 'id="note"', "<kbd>c</kbd>", "<kbd>d</kbd>", "<kbd>n</kbd>"):
        assert control in officer, control
        assert control not in manager, control
    assert "<kbd>j</kbd>" in manager


def test_looking_is_each_persons_own() -> None:
    alert = make_alert()
    lin, zhou = make_officer("lin"), make_officer("zhou")
    for person in (lin, zhou):
        look(alert=alert, person=person)
    RiskAlert.objects.filter(pk=alert.pk).update(version=2)
    make_hit(alert, number=2, alert_version=2)
    make_client(lin).get(address(alert))
    assert not any(row.new for row in make_client(lin).get(address(alert)).context["page"].hits)
    assert any(row.new for row in make_client(zhou).get(address(alert)).context["page"].hits)


def test_every_subtype_of_the_eight_rules_has_a_sentence_of_its_own_and_a_law() -> None:
    of_rules = set(SUBTYPES) - set(LACKS) - {"missing_currency"}  # faults in the data break no law
    assert of_rules == set(sentences.BASIS)
    assert of_rules == set(sentences._SENTENCES)
