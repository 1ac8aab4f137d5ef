"""The risk agent's write after an alert, over HTTP, with the customer and the advisor looking on."""

from __future__ import annotations

from typing import Any

import pytest

from config.base.errors import CATALOGUE
from config.base.redis import state
from guard.audit.models import AuditLog
from memory.profiles.models import CustomerProfileL3
from risk.alerts.models import RiskAlert
from risk.alerts.services import reopen
from tests.memory.profiles.helpers import ALICE, Agent, make_agent, make_assessment, make_assignment, make_core_customer
from tests.risk.alerts.people import DAY, REASON, make_hit, make_person, settle, the_alert
from tests.risk.alerts.test_officers import judge

pytestmark = pytest.mark.django_db(transaction=True)

LEVEL = {"code": "max_risk_level", "value": "R2", "visibility": "public", "text": "please call us"}
CUSTOMERS_PART = {
    "customer_id", "version", "assessment_status", "assessment_valid_until", "max_product_risk_level", "restrictions",
    "required_steps", "as_of",
}  # fmt: skip


def make_case(*hits: Any) -> None:
    """Alice with her assessment and her advisor, and findings about her."""
    make_core_customer()
    make_assessment()
    make_assignment()
    settle(*(hits or (make_hit(customer=ALICE, score=60),)))


def post(alert: RiskAlert, body: Any = None, agent: str = "risk", **headers: str) -> Any:
    caller: Agent = make_agent(agent)
    return caller.call("POST", f"/alerts/{alert.alert_id}/profile", {} if body is None else body, **headers)


def part(agent: str = "customer") -> dict[str, Any]:
    response = make_agent(agent).get(f"/profiles/l3/{ALICE}")
    assert response.status_code == 200
    return dict(response.json())


def code_of(response: Any) -> tuple[int, str]:
    found = response.json()["code"]
    assert CATALOGUE[found].status == response.status_code
    return response.status_code, found


@pytest.mark.parametrize("agent", ["customer", "advisor", "analyst"])
def test_only_the_risk_agent_and_others_are_told_nothing_of_alerts(agent: str) -> None:
    make_case()
    for alert in (the_alert(), RiskAlert(alert_id="no-such-alert")):
        assert code_of(post(alert, "{not json", agent)) == (403, "AUTH_403_SCOPE")
    refusals = AuditLog.objects.filter(event_type="authz", decision="forbidden", agent=agent)
    assert {row.input_summary["code"] for row in refusals} == {"AUTH_403_SCOPE"}
    assert not CustomerProfileL3.objects.exists()


def test_what_is_not_understood_is_named() -> None:
    make_case()
    assert code_of(post(RiskAlert(alert_id="no-such-alert"))) == (404, "ALERT_NOT_FOUND")
    for body in ({"risk_score": 0}, {"flags": [{"code": "x", "reasons": "y"}]}, {"restrictions": [{"code": "jail"}]}):
        assert code_of(post(the_alert(), body)) == (422, "INVALID_REQUEST")
    assert not CustomerProfileL3.objects.exists()


def test_an_open_alert_moves_the_score_and_a_confirmed_one_restricts_at_once() -> None:
    make_case()
    answer = post(the_alert())
    assert (answer.status_code, answer.json()["risk_score"], answer.json()["risk_level"]) == (201, 60, "high")
    assert code_of(post(the_alert(), {"restrictions": [LEVEL]})) == (409, "NEEDS_CONFIRMED_ALERT")
    assert code_of(post(the_alert(), {"flags": [{"code": "watch"}]})) == (409, "NEEDS_CONFIRMED_ALERT")
    before = part()
    assert (before["restrictions"], before["max_product_risk_level"]) == ([], "R3")
    assert part("advisor")["risk_score"] == 60

    judge(the_alert(), make_person("alice"), "confirmed", "C01")
    body = {"restrictions": [LEVEL, {"code": "no_complex"}], "flags": [{"code": "watch", "visibility": "risk"}]}
    answer = post(the_alert(), body)
    assert (answer.status_code, answer.json()["unfounded"]) == (200, [])
    # Both had it in the cache: nobody is shown what stood there before the call returned.
    after = part()
    assert set(after) == CUSTOMERS_PART
    assert after["restrictions"] == [{"code": "max_risk_level", "text": "please call us", "until": None}]
    assert after["max_product_risk_level"] == "R2"
    assert [entry["code"] for entry in part("advisor")["restrictions"]] == ["max_risk_level"]
    again = post(the_alert(), body)
    assert (again.status_code, again.json()["version"]) == (200, answer.json()["version"])


def test_the_same_request_twice_is_one() -> None:
    make_case()
    first = post(the_alert(), **{"Idempotency-Key": "after-1"})
    again = post(the_alert(), **{"Idempotency-Key": "after-1"})
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    assert again["Idempotent-Replayed"] == "true"


def test_nothing_of_what_must_not_be_told_leaves_risk(own_redis_prefix: str) -> None:
    make_case(make_hit("T1", customer=ALICE, score=45))
    post(the_alert())
    seen = {agent: part(agent) for agent in ("customer", "advisor")}
    settle(
        make_hit("T1", customer=ALICE, score=45),
        make_hit("T2", customer=ALICE, rule="RISK-004", score=85, subtypes=("structuring",)),
        make_hit("T3", customer=ALICE, rule="RISK-003", score=35, subtypes=("large_amount",), at=DAY),
    )
    event, report = the_alert(alert_type="event"), the_alert(alert_type="report")
    for alert in (event, report):
        assert post(alert).json()["risk_score"] == 45
    assert {"structuring", "large_amount"} <= set(part("risk")["reasons"])
    # Not even a version moved for them.
    for agent, document in seen.items():
        assert part(agent) == document

    # What follows from the report is for risk's eyes.
    officer = make_person("alice")
    judge(report, officer, "confirmed", "C99")
    for visibility in ("public", "advisor"):
        for name, entry in (("restrictions", LEVEL), ("flags", {"code": "watch"})):
            response = post(report, {name: [{**entry, "visibility": visibility}]})
            assert code_of(response) == (422, "INVALID_REQUEST")
            assert [fault["field"] for fault in response.json()["errors"]] == [f"{name}.0"]
    refused = AuditLog.objects.filter(event_type="profile_write", decision="refused")
    assert {row.input_summary["fields"][0] for row in refused} == {"restrictions.0", "flags.0"}
    assert post(report, {"restrictions": [{"code": "callback_required"}]}).status_code == 200
    assert part("customer") == seen["customer"]
    assert part("advisor")["restrictions"] is None or part("advisor")["restrictions"] == []
    held = state().get(f"{own_redis_prefix}:profile:l3:{ALICE}")
    assert held is not None
    for word in ("structuring", "large_amount", "callback", "reasons", "open_alerts", event.alert_id, report.alert_id):
        assert word not in str(held)
    # By the other door too.
    response = make_agent("risk").put(f"/profiles/l3/{ALICE}", {"restrictions": [LEVEL]})
    assert code_of(response) == (409, "NEEDS_CONFIRMED_ALERT")


def test_a_reopened_alert_adds_nothing_and_what_stands_without_one_is_told() -> None:
    make_case()
    officer = make_person("alice")
    judge(the_alert(), officer, "confirmed", "C01")
    post(the_alert(), {"restrictions": [LEVEL, {"code": "no_complex", "until": "2026-01-01"}]})
    alert = reopen(alert_id=the_alert().alert_id, officer=officer, version=the_alert().version, text=REASON)
    answer = post(alert).json()
    assert (answer["risk_score"], answer["unfounded"]) == (60, ["max_risk_level"]), "what has run out counts no more"
    assert code_of(post(alert, {"restrictions": [{**LEVEL, "value": "R1"}]})) == (409, "NEEDS_CONFIRMED_ALERT")
    assert part()["max_product_risk_level"] == "R2", "an officer lifts it, no machine"
    judge(alert, officer, "false_positive", "F04")
    assert post(the_alert()).json()["unfounded"] == ["max_risk_level"]
    lifted = {name: value for name, value in part("risk").items() if name in ("risk_score", "risk_level")}
    assert make_agent("risk").put(f"/profiles/l3/{ALICE}", lifted).status_code == 200
    assert (part()["restrictions"], post(the_alert()).json()["unfounded"]) == ([], [])


def test_follow_up_that_is_done_leaves_the_restriction_its_ground() -> None:
    make_case()
    officer = make_person("alice")
    judge(the_alert(), officer, "confirmed", "C01")
    post(the_alert(), {"restrictions": [LEVEL]})
    judge(the_alert(), officer)
    answer = post(the_alert()).json()
    assert (answer["risk_score"], answer["unfounded"]) == (0, [])
    assert part()["max_product_risk_level"] == "R2"
