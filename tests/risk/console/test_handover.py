"""One officer's open work goes to another: what moves, what was overtaken, and who still may not approve."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from risk.alerts.bulk import Picked
from risk.alerts.models import AlertAction, AlertOutbox, RiskAlert
from risk.alerts.services import approve, claim, dispose, give_back, hand_over, release, snooze
from tests.risk.console.make import make_alert, make_client, make_manager, make_officer, seen

pytestmark = pytest.mark.django_db
PAGE = "/admin/risk/riskalert/handover/"
WHY = "Lin is on leave until the spring."
LONG = "The recording shows that the customer asked for it, in a branch."


def claimed(customer: str, officer: Any, **fields: Any) -> RiskAlert:
    alert = make_alert(customer, **fields)
    return claim(alert_id=alert.pk, officer=officer)


def propose(alert: RiskAlert, officer: Any) -> None:
    dispose(alert_id=alert.pk, officer=officer, to_status="closed", code="K05", text=LONG, **seen(alert))
    alert.refresh_from_db()


def send(client: Client, *alerts: RiskAlert, to: str = "zhou", of: str = "lin", text: str = WHY) -> Any:
    picks = [f"{one.pk}~{one.version}" for one in alerts]
    return client.post(PAGE, {"of": of, "to": to, "text": text, "pick": picks}, follow=True)


def test_all_that_is_in_hand_moves_with_its_clock_and_its_time_aside() -> None:
    lin, zhou, yan = make_officer("lin"), make_officer("zhou"), make_officer("yan")
    due = now() + timedelta(days=2)
    review, aside = claimed("C1", lin), claimed("C2", lin, score=50, dispose_due_at=due)
    until = now() + timedelta(hours=4)
    aside = snooze(alert_id=aside.pk, officer=lin, version=aside.version, until=until, text="The branch answers then.")
    waiting = claimed("C3", lin, score=85)
    propose(waiting, lin)
    others, pending = claimed("C4", yan), make_alert("C5")
    lin.is_active = False
    lin.save()
    client = make_client(yan)
    page = client.get(f"{PAGE}?of=lin").content.decode()
    assert [one.pk in page for one in (review, aside, waiting, others, pending)] == [True, True, True, False, False]
    answer = send(client, review, aside, waiting).content.decode()
    assert "3 alerts are handed over." in answer
    for one in (review, aside, waiting, others, pending):
        one.refresh_from_db()
    assert {one.assignee for one in (review, aside, waiting)} == {zhou}
    assert (others.assignee, pending.assignee) == (yan, None)
    assert (aside.status, aside.snoozed_until, waiting.status) == ("in_review", until, "escalated")
    assert AlertAction.objects.filter(action="handover", actor=yan, text=WHY).count() == 3
    told = AuditLog.objects.filter(event_type="alert_status", decision="assigned", actor_id="yan")
    assert [(row.input_summary["from_officer"], row.input_summary["to_officer"]) for row in told] == [
        ("lin", "zhou")
    ] * 3
    assert AlertOutbox.objects.filter(alert_id=review.pk).order_by("-id")[0].event["assignee"] == "zhou"


def test_nobody_comes_to_approve_what_they_had_proposed() -> None:
    lin, zhou = make_officer("lin"), make_officer("zhou")
    alert = claimed("C1", lin, score=85)
    propose(alert, lin)
    # Zhou has it now; then it goes back to Lin, whose proposal it is.
    for of, to in ((lin, zhou), (zhou, lin)):
        [done] = hand_over(officer=zhou, of=of, to=to, text=WHY, picked=[Picked(alert.pk, alert.version)])
        assert done.error is None
        alert.refresh_from_db()
    with pytest.raises(DomainError) as caught:
        approve(alert_id=alert.pk, officer=lin, **seen(alert))
    assert caught.value.code == "FOUR_EYES"
    assert approve(alert_id=alert.pk, officer=zhou, **seen(alert)).disposed_by == zhou


def test_what_is_given_back_comes_to_the_new_one() -> None:
    lin, zhou, yan = make_officer("lin"), make_officer("zhou"), make_officer("yan")
    alert = claimed("C1", lin, score=85)
    propose(alert, lin)
    hand_over(officer=zhou, of=lin, to=zhou, text=WHY, picked=[Picked(alert.pk, alert.version)])
    alert.refresh_from_db()
    back = give_back(alert_id=alert.pk, officer=yan, version=alert.version, text="There is a second trade.")
    assert (back.status, back.assignee) == ("in_review", zhou)


def test_what_somebody_was_first_at_stays_and_is_named() -> None:
    lin, yan = make_officer("lin"), make_officer("yan")
    zhou = make_officer("zhou")
    first, second, third = claimed("C1", lin), claimed("C2", lin), claimed("C3", lin)
    release(alert_id=first.pk, officer=yan)
    client = make_client(yan)
    answer = send(client, first, second).content.decode()
    assert "1 alert is handed over." in answer
    assert f"Alert {first.pk}: yan released this alert at" in answer
    again = send(client, second, third).content.decode()  # sent twice, from a page that is old
    assert "handed this alert to another officer" in again
    for one in (first, second, third):
        one.refresh_from_db()
    assert [one.assignee for one in (first, second, third)] == [None, zhou, zhou]
    assert AlertAction.objects.filter(action="handover").count() == 2


def test_it_needs_an_officer_a_reason_and_another_officer() -> None:
    lin = make_officer("lin")
    make_officer("zhou")
    make_officer("east", tenant="east")
    meng = make_manager()
    alert = claimed("C1", lin)
    client = make_client(make_officer("yan"))
    assert send(client, alert, text="short").status_code == 422
    for to in ("lin", "meng", "east", "nobody"):
        assert send(client, alert, to=to).status_code == 422, to
    assert send(client).status_code == 422
    manager = make_client(meng)
    assert manager.get(f"{PAGE}?of=lin").status_code == 403
    assert send(manager, alert).status_code == 403
    assert AuditLog.objects.filter(event_type="authz", actor_id="meng").count() == 2
    east = make_client(make_officer("yun", tenant="east"))
    assert alert.pk not in east.get(f"{PAGE}?of=lin").content.decode()
    assert "lin" not in east.get(PAGE).content.decode().split('id="handover-of"')[1].split("</select>")[0]
    alert.refresh_from_db()
    assert alert.assignee == lin
    assert reverse("admin:risk_riskalert_handover") == PAGE
