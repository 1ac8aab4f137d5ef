"""On the page: a proposal and its approval, a return, an assignment, time aside, a quiet period."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from config.base.clock import now
from risk.alerts.models import RiskAlert
from tests.risk.console.make import make_alert, make_client, make_hit, make_manager, make_officer, seen

pytestmark = pytest.mark.django_db
LONG = "The recording shows that the customer asked for it, in a branch."
PUT = {"status": "closed", "code": "K05", "text": LONG}


def address(alert: RiskAlert, act: str = "change") -> str:
    return reverse(f"admin:risk_riskalert_{act}", args=[alert.pk])


def post(client: Client, alert: RiskAlert, act: str, **data: Any) -> Any:
    alert.refresh_from_db()
    response = client.post(address(alert, act), {**seen(alert), **data})
    alert.refresh_from_db()
    return response


def test_one_proposes_and_another_approves() -> None:
    alert = make_alert(score=85)
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    page = lin.get(address(alert)).content.decode()
    assert "A second officer has to approve it." in page
    assert post(lin, alert, "dispose", **PUT, quiet_days=7).status_code == 302
    assert alert.status == "escalated"
    own, others = lin.get(address(alert)).content.decode(), zhou.get(address(alert)).content.decode()
    assert 'id="approve"' not in own
    assert 'id="return"' in own
    assert 'id="approve"' in others
    assert LONG in others
    refused = post(lin, alert, "approve")
    assert (refused.status_code, alert.status) == (403, "escalated")
    assert "Who proposed a disposition cannot approve it" in refused.content.decode()
    assert post(zhou, alert, "approve", text="I agree.").status_code == 302
    assert (alert.status, alert.proposed_by.username, alert.disposed_by.username) == ("closed", "lin", "zhou")  # type: ignore[union-attr]
    assert alert.quiet_until is not None


def test_new_hits_are_named_and_the_proposal_is_returned() -> None:
    alert = make_alert(score=85)
    lin, zhou = make_client(make_officer("lin")), make_client(make_officer("zhou"))
    post(lin, alert, "dispose", **PUT)
    looked = seen(alert)
    make_hit(alert, number=2, alert_version=alert.version + 1)
    RiskAlert.objects.filter(pk=alert.pk).update(version=alert.version + 1)
    response = zhou.post(address(alert, "approve"), looked)
    assert response.status_code == 409
    assert "New: RISK-001 T-C00017-2 (85)." in response.content.decode()
    assert "It can only be returned." in zhou.get(address(alert)).content.decode()
    assert post(zhou, alert, "return", text="short").status_code == 422
    assert post(zhou, alert, "return", text="There is a second trade now.").status_code == 302
    assert (alert.status, alert.assignee.username) == ("in_review", "lin")  # type: ignore[union-attr]


def test_a_disposition_without_the_evidence_it_saw_is_not_taken() -> None:
    alert = make_alert()
    response = make_client(make_officer()).post(address(alert, "dispose"), {"version": alert.version, **PUT})
    assert response.status_code == 422
    assert "Look at the evidence first." in response.content.decode()


def test_a_second_opinion_an_assignment_and_time_aside() -> None:
    alert = make_alert(score=50, claim_due_at=now() + timedelta(days=9), dispose_due_at=now() + timedelta(days=9))
    lin = make_client(make_officer("lin"))
    make_officer("zhou")
    make_officer("yan", tenant="east")
    make_manager()
    page = lin.get(address(alert)).content.decode()
    assert '<option value="zhou">' in page
    assert "yan" not in page
    assert "meng" not in page
    assert post(lin, alert, "snooze", hours=24, text="The branch answers tomorrow.").status_code == 302
    assert alert.snoozed_until is not None
    assert "Put aside until" in lin.get(address(alert)).content.decode()
    assert post(lin, alert, "wake").status_code == 302
    assert alert.woken_by == "officer"
    assert post(lin, alert, "assign", to="nobody").status_code == 422
    assert post(lin, alert, "assign", to="yan").status_code == 422
    assert post(lin, alert, "assign", to="zhou").status_code == 302
    assert alert.assignee.username == "zhou"  # type: ignore[union-attr]
    post(lin, alert, "assign", to="lin")
    assert post(lin, alert, "escalate", **PUT).status_code == 302
    assert (alert.status, alert.proposed_code) == ("escalated", "K05")


def test_a_manager_is_refused_every_one_of_them() -> None:
    alert = make_alert(score=85)
    meng = make_client(make_manager())
    for act in ("assign", "snooze", "wake", "escalate", "approve", "return"):
        assert post(meng, alert, act, **PUT).status_code == 403, act
    assert alert.version == 1
