"""What an officer sends and is not taken: said where it was written, in their language, and of nobody else's house."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.test import Client

from config.base.clock import business_date, now
from config.base.errors import DomainError
from risk.alerts.casework import InformationRequest
from risk.alerts.models import AlertAction, RiskAlert
from risk.alerts.services import claim
from risk.console.acts import conflict_of
from tests.risk.console.make import make_alert, make_client, make_manager, make_officer, seen

pytestmark = pytest.mark.django_db
QUEUE = "/admin/risk/riskalert/"
UNSEEN = "\u200b\u2060\u00ad" * 14
OUTCOME = {"status": "closed", "code": "K05"}
# Sentences of services, which programs read.
ENGLISH = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")


def send(client: Client, alert: RiskAlert, act: str, **fields: Any) -> Any:
    return client.post(f"{QUEUE}{alert.pk}/{act}/", {"version": alert.version, **fields})


def said(answer: Any) -> list[str]:
    """The sentences of the page that refuses."""
    page = answer.content.decode()
    found = re.findall(r'class="error">([^<]*)<', page)
    conflict = answer.context["conflict"]
    return [*found, conflict["headline"], conflict["detail"]] if conflict else found


def messages_of(answer: Any) -> list[str]:
    """What it adds to what the next page will say."""
    kept: Any = get_messages(answer.wsgi_request)
    return [str(message) for message in kept._queued_messages]


@pytest.mark.parametrize("day", ["9999-12-31", "0001-01-01", "2026-02-30", "yesterday"])
def test_a_day_on_which_nothing_can_be_due_is_told_as_that(day: str) -> None:
    alert, lin = make_alert(), make_client(make_officer())
    asked = {"recipient_kind": "branch", "recipient": "Pudong", "text": "Where is the recording?"}
    answer = send(lin, alert, "ask", **asked, due=day)
    assert answer.status_code == 422
    assert "Where is the recording?" in answer.content.decode()
    assert set(said(answer)) <= {"A question is due within 92 days, and not today&#x27;s past.", "Choose a day."}
    assert said(answer)
    today = business_date(now())
    for days, status in ((-1, 422), (0, 302), (91, 302), (92, 422)):
        assert send(lin, alert, "ask", **asked, due=today + timedelta(days=days)).status_code == status, days
    assert InformationRequest.objects.count() == 2


def test_a_text_that_nobody_sees_is_none() -> None:
    officer = make_officer()
    alert = claim(alert_id=make_alert(score=50).pk, officer=officer)
    lin = make_client(officer, language="zh-hans")
    due = business_date(now())
    question = {"recipient_kind": "branch", "recipient": "Pudong", "due": due}
    for act, fields in (
        ("dispose", {**OUTCOME, **seen(alert)}),
        ("snooze", {"hours": "4"}),
        ("ask", question),
        ("stop", {"whom": "customer", "minutes": "15"}),
        ("note", {}),
        ("answer", {"request_id": "x"}),
    ):
        for text in (UNSEEN, *(["字" * 9 + UNSEEN] if act not in ("note", "answer") else [])):
            answer = send(lin, alert, act, **fields, text=text)
            assert answer.status_code == 422, act
            assert "text" in answer.context[_FORM[act]].errors, act
            assert not any(ENGLISH.search(one) for one in said(answer)), act
    answer = send(lin, alert, "ask", **{**question, "recipient": UNSEEN}, text="双录在哪里？请尽快说明。")
    assert answer.status_code == 422
    assert "recipient" in answer.context["asking"].errors
    assert AlertAction.objects.filter(alert=alert).count() == 1, "the claim"


_FORM = {
    "dispose": "disposition", "snooze": "snoozing", "ask": "asking", "stop": "stopping", "note": "note",
    "answer": "answering",
}  # fmt: skip


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_who_is_of_another_house_is_nobody(language: str) -> None:
    lin = make_officer()
    make_officer("yan", tenant="east")
    make_manager()
    alert = claim(alert_id=make_alert().pk, officer=lin)
    pick, told = f"{alert.pk}~{alert.version}", set()
    for name in ("yan", "nobody", "meng"):
        client = make_client(lin, language=language)  # to which nothing was said yet
        one = send(client, alert, "assign", to=name)
        why = "Lin is on leave until the spring."
        moved = client.post(f"{QUEUE}handover/", {"of": "lin", "to": name, "text": why, "pick": pick})
        several = client.post(f"{QUEUE}bulk/", {"act": "assign", "to": name, "pick": pick})
        assert (one.status_code, moved.status_code) == (422, 422)
        in_bulk = messages_of(several)
        told.add((*said(one), *moved.context["form"].errors["to"], *in_bulk))
    assert len(told) == 1
    assert told == {("Choose an officer.",) * 3} or language != "en"
    assert not any(ENGLISH.search(one) for one in told.pop()) or language == "en"


def test_what_services_refuse_is_told_in_the_readers_language() -> None:
    score = make_alert("C1", score=70)
    lin = make_officer()
    client = make_client(lin, language="zh-hans")
    for act in ("dispose", "claim"):
        picks = [f"{score.pk}~{score.version}", *([f"{'0' * 26}~1"] if act == "claim" else [])]
        answer = client.post(f"{QUEUE}bulk/", {"act": act, "pick": picks})
        words = messages_of(answer)
        assert words
        assert not any(ENGLISH.search(one) for one in words), words
    for code, extra in (("INVALID_REQUEST", {"field": "score"}), ("ALERT_NOT_FOUND", {}), ("CUSTOMER_ERASED", {})):
        told = conflict_of(DomainError(code, "words for programs alone", **extra))
        assert "words for programs" not in f"{told['headline']} {told['detail']}"
