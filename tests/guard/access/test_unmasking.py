"""Who sees a customer in clear: whose role needs it, one alert at a time, for a reason, on the record."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import DatabaseError

from config.base.errors import DomainError
from guard.access import unmasking
from guard.access.unmasking import unmask
from guard.audit.models import AuditLog
from risk.alerts.models import AlertType
from tests.risk.console.make import (
    make_alert,
    make_client,
    make_customer,
    make_manager,
    make_officer,
    make_operator,
    make_person,
)

pytestmark = pytest.mark.django_db(transaction=True)
REASON = "calling the customer back"


def rows() -> list[AuditLog]:
    return list(AuditLog.objects.filter(event_type="unmask").order_by("id"))


def address(alert: Any) -> str:
    return f"/admin/risk/riskalert/{alert.pk}/unmask/"


def test_officers_and_who_was_granted_it_see_one_customer_and_each_look_is_a_row() -> None:
    make_customer("C00017")
    alert = make_alert("C00017")
    officer, manager = make_officer(), make_manager()
    manager.user_permissions.add(Permission.objects.get(codename="unmask_customer"))
    for person in (officer, manager):
        for _ in range(2):
            shown = unmask(staff=person, kind="risk_alert", object_id=alert.pk, reason=f"  {REASON} ")
            assert shown == {"customer_id": "C00017", "name": "王建国", "words": ""}
    assert [(row.actor_id, row.decision, row.object_type, row.object_id) for row in rows()] == [
        (name, "granted", "risk_alert", alert.pk) for name in ("lin", "lin", "meng", "meng")
    ]
    assert {row.input_summary["reason"] for row in rows()} == {REASON}


def test_the_row_says_why_and_names_nobody() -> None:
    make_customer("C00017")
    alert = make_alert("C00017")
    unmask(staff=make_officer(), kind="risk_alert", object_id=alert.pk, reason="王建国 (C00017) asked for it")
    [row] = rows()
    assert row.input_summary["reason"] == "*** (***) asked for it"
    assert "C00017" not in repr(row.__dict__)


def test_refusals_are_rows_too() -> None:
    alert, west = make_alert("C00017"), make_alert("C00018", tenant="west")
    fault = make_alert("C00019", alert_type=AlertType.DATA_QUALITY)
    officer, root = make_officer(), make_person("root", superuser=True)
    cases = [
        (make_operator(), alert.pk, "FORBIDDEN"),
        (make_manager(), alert.pk, "FORBIDDEN"),
        (root, alert.pk, "FORBIDDEN"),  # running the system is no role
        (officer, west.pk, "NOT_FOUND"),
        (officer, fault.pk, "NOT_FOUND"),
        (officer, "nothing", "NOT_FOUND"),
    ]
    for person, alert_id, code in cases:
        with pytest.raises(DomainError) as refusal:
            unmask(staff=person, kind="risk_alert", object_id=alert_id, reason=REASON)
        assert refusal.value.code == code
    assert [(row.decision, row.code) for row in rows()] == [("refused", code) for _person, _alert, code in cases]


@pytest.mark.parametrize("reason", ["", "    ", "why", "x" * 201, "\u200b" * 12, "why\u0301\u2060\x01"])
def test_without_a_reason_nobody_sees_anything(reason: str) -> None:
    alert, officer = make_alert("C00017"), make_officer()
    with pytest.raises(DomainError) as refusal:
        unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason=reason)
    assert refusal.value.code == "INVALID_REQUEST"
    assert rows() == []
    answer = make_client(officer).post(address(alert), {"reason": reason})
    assert answer.status_code == 422
    assert "C00017" not in answer.content.decode().replace("T-C00017-", "")


def test_no_row_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    alert, officer = make_alert("C00017"), make_officer()

    def broken(**_: Any) -> None:
        raise DatabaseError("full")

    monkeypatch.setattr(unmasking, "record", broken)
    with pytest.raises(DatabaseError):
        unmask(staff=officer, kind="risk_alert", object_id=alert.pk, reason=REASON)


def test_the_page_shows_it_once_in_the_answer_and_masked_again_afterwards() -> None:
    make_customer("C00017")
    alert = make_alert("C00017")
    client = make_client(make_officer())
    page = f"/admin/risk/riskalert/{alert.pk}/change/"
    before = client.get(page).content.decode()
    assert 'id="unmask"' in before
    assert "王建国" not in before
    shown = client.post(address(alert), {"reason": REASON})
    text = shown.content.decode()
    assert shown.status_code == 200
    assert "no-store" in shown["Cache-Control"]
    assert '<dd class="mono" id="customer-id">C00017</dd>' in text
    assert "王建国" in text
    assert "王建国" not in client.get(page).content.decode()
    assert client.get(address(alert)).status_code == 302  # a look by GET shows nothing
    assert [row.decision for row in rows()] == ["granted"]


def test_managers_are_offered_nothing() -> None:
    alert = make_alert("C00017")
    assert (
        'id="unmask"'
        not in make_client(make_manager()).get(f"/admin/risk/riskalert/{alert.pk}/change/").content.decode()
    )


def test_operators_are_offered_nothing_and_refused() -> None:
    fault = make_alert("C00017", alert_type=AlertType.DATA_QUALITY)
    client = make_client(make_operator())
    assert 'id="unmask"' not in client.get(f"/admin/risk/riskalert/{fault.pk}/change/").content.decode()
    assert client.post(address(fault), {"reason": REASON}).status_code == 403
    [row] = rows()
    assert (row.decision, row.code, row.actor_id) == ("refused", "FORBIDDEN", "ops")
    assert not AuditLog.objects.filter(event_type="authz").exists()  # one refusal, one row


def test_another_tenants_alert_is_none() -> None:
    west = make_alert("C00018", tenant="west")
    answer = make_client(make_officer()).post(address(west), {"reason": REASON})
    assert answer.status_code == 404
    assert [row.code for row in rows()] == ["NOT_FOUND"]
