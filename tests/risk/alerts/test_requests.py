"""Requests for information: asked with a due, answered or withdrawn once, overdue by themselves."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from risk.alerts.casework import InformationRequest
from risk.alerts.models import AlertAction, RiskAlert
from risk.alerts.requests import answer, ask, open_questions, withdraw
from risk.alerts.services import claim, sweep
from tests.risk.console.make import make_alert, make_manager, make_officer

pytestmark = pytest.mark.django_db(transaction=True)


def put(alert: RiskAlert, officer: Any, **more: Any) -> InformationRequest:
    given = {
        "recipient_kind": "branch", "recipient": "Pudong branch", "question": "Where is the dual recording?",
        "due_at": now() + timedelta(days=2), **more,
    }  # fmt: skip
    return ask(alert_id=alert.pk, officer=officer, **given)


def refused(code: str, work: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        work()
    assert caught.value.code == code
    return caught.value


def timeline() -> list[str]:
    return list(AlertAction.objects.order_by("id").values_list("action", flat=True))


def test_a_question_is_asked_answered_and_stands_in_the_timeline() -> None:
    alert, lin, zhou = make_alert(), make_officer("lin"), make_officer("zhou")
    row = put(alert, lin)
    done = answer(alert_id=alert.pk, request_id=row.pk, officer=zhou, text="It is in the archive.")
    assert (done.state, done.closing, done.closed_by) == ("answered", "It is in the archive.", zhou)
    assert timeline() == ["ask", "answer"]
    alert.refresh_from_db()
    assert alert.version == 1
    # Nobody is told that they were overtaken by a question.
    claim(alert_id=alert.pk, officer=lin)
    error = refused("ALERT_CONFLICT", lambda: claim(alert_id=alert.pk, officer=zhou))
    assert error.extra["action"] == "claim"


def test_it_is_closed_once_and_the_second_hears_by_whom() -> None:
    alert, lin, zhou = make_alert(), make_officer("lin"), make_officer("zhou")
    row = put(alert, lin)
    start, outcomes = threading.Barrier(2), {}

    def work(officer: Any, close: Any) -> None:
        try:
            start.wait(timeout=20)
            close(alert_id=alert.pk, request_id=row.pk, officer=officer, text="there was none at all")
            outcomes[officer.username] = "done"
        except DomainError as error:
            outcomes[officer.username] = error.extra["by"]
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=one) for one in ((lin, answer), (zhou, withdraw))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    winner = next(name for name, said in outcomes.items() if said == "done")
    assert sorted(outcomes.values()) == sorted(["done", winner])
    assert len(timeline()) == 2


def test_what_is_open_past_its_due_is_told_once(django_assert_num_queries: Any) -> None:
    alert, lin = make_alert(), make_officer()
    first, second = put(alert, lin), put(alert, lin)
    withdraw(alert_id=alert.pk, request_id=second.pk, officer=lin, text="asked twice by mistake")
    later = now() + timedelta(days=3)
    assert open_questions(tenant="default", at=later) == (1, 1)
    assert open_questions(tenant="default") == (1, 0)
    InformationRequest.objects.update(due_at=now() - timedelta(minutes=1))
    assert (sweep().overdue, sweep().overdue) == (1, 0)
    assert timeline() == ["ask", "ask", "withdraw", "overdue"]
    assert answer(alert_id=alert.pk, request_id=first.pk, officer=lin, text="late, but here").state == "answered"


def test_what_does_not_do_is_refused() -> None:
    alert, lin = make_alert(), make_officer()
    make_officer("yan", tenant="east")
    for more in (
        {"recipient": " "},
        {"recipient": "x" * 81},
        {"recipient_kind": "customer"},
        {"recipient_kind": "staff", "recipient": "nobody"},
        {"recipient_kind": "staff", "recipient": "yan"},
        {"question": "why?"},
        {"due_at": now() - timedelta(seconds=1)},
        {"due_at": now() + timedelta(days=93)},
    ):
        refused("INVALID_REQUEST", lambda more=more: put(alert, lin, **more))  # type: ignore[misc]
    assert put(alert, lin, recipient_kind="staff", recipient="lin").recipient == "lin"
    row = InformationRequest.objects.get()
    other = make_alert("C00018")
    refused(
        "QUESTION_NOT_FOUND", lambda: answer(alert_id=other.pk, request_id=row.pk, officer=lin, text="of another one")
    )
    yan = make_officer("yun", tenant="east")
    refused("ALERT_NOT_FOUND", lambda: answer(alert_id=alert.pk, request_id=row.pk, officer=yan, text="x" * 20))


def test_a_manager_asks_nobody_and_it_is_on_the_record() -> None:
    alert, meng = make_alert(), make_manager()
    row = put(alert, make_officer())
    refused("FORBIDDEN", lambda: put(alert, meng))
    refused("FORBIDDEN", lambda: answer(alert_id=alert.pk, request_id=row.pk, officer=meng, text="x" * 20))
    refused("FORBIDDEN", lambda: withdraw(alert_id=alert.pk, request_id=row.pk, officer=meng, text="x" * 20))
    assert AuditLog.objects.filter(event_type="authz", actor_id="meng").count() == 3
