"""The list under the bell: out of MySQL, masked, for who is called and in their tenant alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from risk.alerts import services
from risk.alerts.models import AlertOutbox, EscalationLevel, RiskAlert
from risk.console import recent
from risk.feed.events import tell_alert, tell_update
from risk.feed.services import stamp
from tests.risk.console.make import make_alert, make_auditor, make_client, make_manager, make_officer, make_operator
from tests.risk.console.test_query_counts import BUDGET

pytestmark = pytest.mark.django_db
RECENT = "/admin/risk/riskalert/recent/"


def tell(*alerts: RiskAlert, update: bool = False) -> None:
    for alert in alerts:
        with transaction.atomic():
            (tell_update if update else tell_alert)(alert)
    for tenant in {alert.tenant for alert in alerts}:
        stamp(tenant=tenant)


def asked(person: User, query: str = "", language: str = "en") -> dict[str, Any]:
    answer = make_client(person, language=language).get(RECENT + query)
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    return dict(answer.json())


def ids(answer: dict[str, Any]) -> list[str]:
    return [item["alert_id"] for item in answer["items"]]


def test_the_newest_first_each_once_as_it_stands_now() -> None:
    lin = make_officer()
    first, second = make_alert("C00001"), make_alert("C00002")
    tell(first, second, first)
    services.claim(alert_id=second.pk, officer=lin)
    answer = asked(lin)
    assert ids(answer) == [first.pk, second.pk]
    assert answer["head"] == 3
    assert answer["held"] == {second.pk: "in_review"}
    assert answer["items"][1]["status_label"] == "in review"
    assert answer["items"][1]["assignee"] == "lin"
    assert "C00001" not in str(answer)
    assert answer["items"][0]["subject"] == "C0***1"
    assert asked(lin, language="zh-hans")["items"][0]["status_label"] == "待处理"


def test_it_is_the_tenants_and_theirs_who_are_called() -> None:
    loud = make_alert("C00003", escalation_level=EscalationLevel.LEVEL_1)
    tell(make_alert("C00001", tenant="east"), make_alert("C00002"), loud)
    assert len(ids(asked(make_officer()))) == 2
    assert ids(asked(make_manager())) == [loud.pk]
    assert make_client(make_auditor()).get(RECENT).status_code == 403
    assert make_client(make_operator()).get(RECENT).status_code == 403


def test_an_update_is_listed_for_whom_it_is_news() -> None:
    alert = make_alert()
    tell(alert, update=True)
    lin = make_officer()
    assert ids(asked(lin)) == []
    assert ids(asked(lin, "?seq=1&seq=99&seq=x&seq=-1&seq=99999999999999999999")) == [alert.pk]


def test_a_damaged_row_is_passed_over() -> None:
    alert = make_alert()
    tell(alert, alert)
    AlertOutbox.objects.filter(seq=2).update(event={"alert_id": 7})
    assert [item["seq"] for item in asked(make_officer())["items"]] == [1]


def test_what_has_no_number_yet_is_not_told_on_a_young_feed() -> None:
    told, waiting = make_alert("C00001"), make_alert("C00002")
    lin = make_officer()
    with transaction.atomic():
        tell_alert(waiting)
    assert ids(asked(lin)) == []
    AlertOutbox.objects.all().delete()
    tell(told)
    with transaction.atomic():
        tell_alert(waiting)
    assert ids(asked(lin)) == [told.pk]
    assert ids(asked(lin, "?seq=1")) == [told.pk]


def test_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "MOST", 3)
    tell(*[make_alert(f"C{n:05d}") for n in range(5)])
    assert len(ids(asked(make_officer()))) == 3


@pytest.mark.parametrize("alerts", [1, 20])
def test_it_holds_its_budget(alerts: int) -> None:
    client = make_client(make_officer())
    client.get(RECENT)
    tell(*[make_alert(f"C{n:05d}") for n in range(alerts)])
    with CaptureQueriesContext(connection) as queries:
        client.get(f"{RECENT}?seq=1")
    assert len(queries) == BUDGET["recent"]
