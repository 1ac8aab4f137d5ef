"""Faults in the data are the operators', to look at; to officers and managers they do not exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from guard.access.roles import RISK_OFFICER
from guard.audit.models import AuditLog
from risk.alerts.models import AlertAction, AlertStatus, AlertType, RiskAlert
from risk.conduct.services import MISSING_TRADE
from risk.console.words import LACKS, LIMITS_LACK, SUBTYPES
from risk.rules.engine import MODULES
from risk.rules.hit import DATA_QUALITY
from tests.risk.console.make import make_alert, make_client, make_customer, make_manager, make_officer, make_operator
from tests.risk.console.make import make_person as person

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[3]
QUEUE = "/admin/risk/riskalert/"
ACTS = ("claim", "release", "dispose", "reopen", "note")


def make_fault(customer_id: str = "C00019", missing: tuple[str, ...] = ("missing_price",)) -> RiskAlert:
    alert = make_alert(customer_id, alert_type=AlertType.DATA_QUALITY, score=0, subtypes=list(missing))
    figures = {"missing": list(missing), "trade_type": "buy"}
    alert.hits.update(rule_id=DATA_QUALITY, subtypes=list(missing), figures=figures)
    return alert


def page(client: Client, alert: RiskAlert) -> int:
    return client.get(f"{QUEUE}{alert.pk}/change/").status_code


def post(client: Client, alert: RiskAlert, act: str) -> int:
    data = {"version": 1, "status": "closed", "code": "K05", "text": "The core system was mended today, see there."}
    return client.post(f"{QUEUE}{alert.pk}/{act}/", data).status_code


@pytest.mark.parametrize("make", [make_officer, make_manager])
def test_officers_and_managers_meet_a_fault_nowhere(make: object) -> None:
    fault = make_fault()
    client = make_client(make())  # type: ignore[operator]
    for query in ("", "?tab=all", "?tab=faults", "?type=data_quality", f"?q={fault.pk}", "?q=C00019"):
        assert not client.get(QUEUE + query).context["rows"], query
    assert client.get(f"{QUEUE}rows/?id={fault.pk}").json()["rows"] == []
    assert page(client, fault) == 404


def test_an_officer_cannot_act_on_a_fault_by_address() -> None:
    fault = make_fault()
    client = make_client(make_officer())
    assert [post(client, fault, act) for act in ACTS] == [404] * 5
    fault.refresh_from_db()
    assert (fault.status, AlertAction.objects.count()) == (AlertStatus.PENDING, 0)


def test_an_operator_sees_faults_and_only_faults_and_touches_nothing() -> None:
    make_customer("C00019")
    fault, case = make_fault(), make_alert("C00019")
    client = make_client(make_operator())
    queue = client.get(QUEUE)
    assert [row["alert"].pk for row in queue.context["rows"]] == [fault.pk]
    assert [tab["name"] for tab in queue.context["tabs"]] == ["faults"]
    assert not client.get(QUEUE, {"q": case.pk}).context["rows"]
    assert (page(client, fault), page(client, case)) == (200, 404)
    text = client.get(f"{QUEUE}{fault.pk}/change/").content.decode()
    assert case.pk not in text
    assert "<form" not in text[text.index('id="content"') :]
    assert [post(client, alert, act) for alert in (fault, case) for act in ACTS] == [403] * 10
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id="ops").count() == 10


def test_who_is_officer_and_operator_has_controls_on_cases_alone() -> None:
    fault, case = make_fault(), make_alert()
    both = make_operator()
    both.groups.add(Group.objects.get(name=RISK_OFFICER))
    client = make_client(both)
    assert client.get(f"{QUEUE}{fault.pk}/change/").context["acts"] == frozenset()
    assert "claim" in client.get(f"{QUEUE}{case.pk}/change/").context["acts"]
    assert (post(client, fault, "claim"), post(client, case, "claim")) == (403, 302)


def test_a_superuser_without_the_role_sees_everything_and_decides_nothing() -> None:
    fault, case = make_fault(), make_alert()
    root = make_client(person("root", superuser=True))
    for alert in (fault, case):
        shown = root.get(f"{QUEUE}{alert.pk}/change/")
        assert (shown.status_code, shown.context["acts"]) == (200, frozenset())
        assert {post(root, alert, act) for act in ACTS} == {403}
    assert "tab=mine" not in root.get(QUEUE).content.decode()
    assert AuditLog.objects.filter(event_type="authz", decision="forbidden", actor_id="root").count() == 10
    officer = person("chief", RISK_OFFICER, superuser=True)
    assert post(make_client(officer), case, "claim") == 302


def test_a_mended_fault_leaves_the_tab() -> None:
    fault = make_fault()
    RiskAlert.objects.filter(pk=fault.pk).update(hit_count=0)
    client = make_client(make_operator())
    assert not client.get(QUEUE).context["rows"]
    assert client.get(QUEUE).context["tabs"][0]["count"] == "0"


def test_a_fault_is_told_in_words() -> None:
    fault = make_fault(missing=("missing_price", "missing_rate"))
    operator = make_operator()
    english = make_client(operator).get(f"{QUEUE}{fault.pk}/change/").content.decode()
    assert "Price missing, exchange rate missing" in english
    assert "The trade cannot be judged without the price, the exchange rate to CNY." in english
    assert re.search("type of trade</dt><dd>buy<", english)
    chinese = make_client(operator, language="zh-hans").get(f"{QUEUE}{fault.pk}/change/").content.decode()
    assert "缺少价格" in chinese
    assert re.search("交易类型</dt><dd>买入<", chinese)
    for text in (english, chinese):
        assert "missing_" not in text.lower()
        assert "trade_type" not in text


def test_every_subtype_that_a_rule_makes_has_words() -> None:
    lacks = set(re.findall(r'"(missing_[a-z]+|unreadable_value)"', (ROOT / "risk/rules/facts.py").read_text()))
    assert len(lacks) == 5
    lacks.add(MISSING_TRADE)
    assert lacks == set(LACKS)
    for_limits = set(re.findall(r'"(missing_[a-z]+)"', (ROOT / "risk/rules/flows.py").read_text()))
    assert for_limits == set(LIMITS_LACK) == {"missing_rate", "missing_currency"}
    made = lacks | for_limits
    for module in MODULES.values():
        constants = {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
        made |= {value for value in constants if re.fullmatch("[a-z]+(_[a-z]+)*", value)}
    assert {"suitability_mismatch", "concentration"} <= made
    assert made <= set(SUBTYPES)
