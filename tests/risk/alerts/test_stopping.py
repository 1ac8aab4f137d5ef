"""From an alert an actor is blocked, or an AI agent paused: once, by whom and until when, and it ends by itself."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from config.base.clock import now
from config.base.errors import DomainError
from guard.admission import blocks, pauses
from guard.admission.models import ActorBlock, AgentPause
from guard.audit.models import AuditLog
from risk.alerts.models import AlertAction, RiskAlert
from risk.alerts.services import go_on, stop
from tests.risk.console.make import make_alert, make_client, make_manager, make_officer, make_operator

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "It answers customers wrongly."


def halt(alert: RiskAlert, officer: Any, whom: str = "advisor", seconds: int | None = 900) -> bool:
    return stop(alert_id=alert.pk, officer=officer, whom=whom, seconds=seconds, text=WHY)


def refused(code: str, work: Any) -> None:
    with pytest.raises(DomainError) as caught:
        work()
    assert caught.value.code == code


def rows(event: str) -> list[str]:
    return list(AuditLog.objects.filter(event_type=event).order_by("id").values_list("decision", flat=True))


def test_an_advisor_is_blocked_once_and_let_go() -> None:
    alert, lin = make_alert(), make_officer()
    assert halt(alert, lin)
    assert not halt(alert, lin, seconds=60)
    row = ActorBlock.objects.get()
    assert (row.actor_id, row.blocked_by, row.reason, row.open) == ("ADV001", "lin", WHY, 1)
    assert halt(alert, lin, seconds=3600)  # longer
    assert go_on(alert_id=alert.pk, officer=lin, whom="advisor", text="It was somebody else.")
    assert not go_on(alert_id=alert.pk, officer=lin, whom="advisor", text="It was somebody else.")
    assert rows("actor_block") == ["applied", "applied", "lifted"]
    assert list(AlertAction.objects.order_by("id").values_list("action", flat=True)) == ["stop", "stop", "go_on"]


def test_a_pause_ends_by_itself_and_with_its_row() -> None:
    alert, lin = make_alert(), make_officer()
    assert halt(alert, lin, "agent:customer")
    row = pauses.of_agent("default", "customer")
    assert row is not None
    assert row.expires_at is not None
    AgentPause.objects.update(expires_at=now() - timedelta(seconds=1))
    assert pauses.of_agent("default", "customer") is None
    assert (blocks.sweep()["expired"], blocks.sweep()["expired"]) == (1, 0)
    assert rows("agent_pause") == ["applied", "expired"]
    assert halt(alert, lin, "agent:customer", seconds=None)
    assert not halt(alert, lin, "agent:customer", seconds=60)
    assert AgentPause.objects.get(open=1).expires_at is None
    assert go_on(alert_id=alert.pk, officer=lin, whom="agent:customer", text="It was mended today.")
    assert rows("agent_pause")[2:] == ["applied", "lifted"]


def test_two_officers_at_once_make_one_pause_and_one_row() -> None:
    alert = make_alert()
    officers, start, done = [make_officer("lin"), make_officer("zhou")], threading.Barrier(2), []

    def work(officer: Any) -> None:
        try:
            start.wait(timeout=20)
            done.append(halt(alert, officer, "agent:advisor"))
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(one,)) for one in officers]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    # The second asks for an end some milliseconds later than the first: it is taken, in the same row.
    assert len(done) == 2
    assert AgentPause.objects.count() == 1
    assert rows("agent_pause") == ["applied"] * done.count(True)
    assert AlertAction.objects.count() == done.count(True)


def test_who_only_looks_or_runs_the_system_stops_nobody() -> None:
    alert = make_alert()
    for person in (make_manager(), make_operator(), make_officer("yan", tenant="east")):
        code = "ALERT_NOT_FOUND" if person.username == "yan" else "FORBIDDEN"
        refused(code, lambda person=person: halt(alert, person))  # type: ignore[misc]
        refused(code, lambda person=person: halt(alert, person, "agent:risk"))  # type: ignore[misc]
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden").count() == 4
    assert not ActorBlock.objects.exists()
    assert not AgentPause.objects.exists()


def test_what_does_not_do_is_refused() -> None:
    alert, lin = make_alert(advisor_id=""), make_officer()
    refused("INVALID_REQUEST", lambda: halt(alert, lin))
    refused("INVALID_REQUEST", lambda: halt(alert, lin, "agent:nobody"))
    refused("INVALID_REQUEST", lambda: halt(alert, lin, "agent:risk", 32 * 86400))
    refused("INVALID_REQUEST", lambda: stop(alert_id=alert.pk, officer=lin, whom="customer", seconds=60, text="why"))
    refused(
        "INVALID_REQUEST", lambda: stop(alert_id=alert.pk, officer=lin, whom="customer", seconds=60, text="w" * 201)
    )


def test_the_page_says_who_and_until_and_lifts_it() -> None:
    alert = make_alert()
    client, meng = make_client(make_officer()), make_client(make_manager())
    page = f"/admin/risk/riskalert/{alert.pk}/"
    sent = {"whom": "customer", "minutes": 60, "text": WHY}
    assert meng.post(f"{page}stop/", sent).status_code == 403
    assert client.post(f"{page}stop/", {**sent, "text": "short"}).status_code == 422
    assert client.post(f"{page}stop/", sent).status_code == 302
    assert ActorBlock.objects.get().actor_id == "C00017"
    shown = client.get(f"{page}change/").content.decode()
    assert "until 20" in shown
    assert WHY in shown
    assert "C00017" not in shown.split('id="stop"')[1].split("</section>")[0]
    assert 'id="stop"' not in meng.get(f"{page}change/").content.decode()
    lift = {"whom": "customer", "text": "The customer was called."}
    assert meng.post(f"{page}go_on/", lift).status_code == 403
    assert client.post(f"{page}go_on/", lift).status_code == 302
    assert ActorBlock.objects.get().lifted_by == "lin"
