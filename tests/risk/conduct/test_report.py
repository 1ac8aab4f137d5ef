"""POST /audit/observations: an advisor agent reports what its advisor asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from config.base.errors import DomainError
from guard.access.services import Caller, issue_key
from guard.audit.models import AuditLog
from risk.conduct.services import report_trade_request
from tests.risk.conduct.make import WEI

pytestmark = pytest.mark.django_db(transaction=True)

TRACE = "ab" * 16


def post(body: Any, agent: str = "advisor", actor: str = "wei", bound: bool = False, **headers: str) -> Any:
    key = issue_key(agent=agent, actor_id=actor if bound else "").key
    sent = {"Authorization": f"Bearer {key}", **({} if bound else {"X-Actor-Id": actor}), **headers}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client().generic("POST", "/api/v1/audit/observations", data, content_type="application/json", headers=sent)


def rows() -> list[AuditLog]:
    return list(AuditLog.objects.filter(event_type="trade_request").order_by("id"))


def test_a_report_is_one_row_about_the_advisor_of_the_key() -> None:
    answer = post({"event_type": "trade_request", "trade_id": "t-1", "trace_id": TRACE}, bound=True)
    assert answer.status_code == 201, answer.content
    row = rows()[0]
    told = answer.json()
    assert told.pop("created_at").endswith("Z")
    assert told == {
        "observation_id": str(row.pk), "event_type": "trade_request", "decision": "requested", "trade_id": "t-1",
        "trace_id": TRACE,
    }  # fmt: skip
    assert (row.actor_type, row.actor_id, row.agent, row.trace_id) == ("agent", "wei", "advisor", TRACE)
    assert (row.decision, row.object_id, row.input_summary) == ("requested", "t-1", {"trade_id": "t-1"})


def test_the_least_that_is_told_is_the_trade() -> None:
    answer = post({"trade_id": "t-1"})
    assert (answer.status_code, answer.json()["trace_id"]) == (201, answer["X-Trace-Id"])
    refused = post({"trade_id": "t-2", "decision": "refused", "code": "NO_MANDATE"})
    assert refused.status_code == 201
    assert [(row.decision, row.code) for row in rows()] == [("requested", ""), ("refused", "NO_MANDATE")]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "INVALID_REQUEST"),
        ({"trade_id": ""}, "INVALID_ID"),
        ({"trade_id": "a b"}, "INVALID_ID"),
        ({"trade_id": "t" * 65}, "INVALID_ID"),
        ({"trade_id": 7}, "INVALID_REQUEST"),
        ({"trade_id": "t-1", "trace_id": "no"}, "INVALID_REQUEST"),
        ({"trade_id": "t-1", "trace_id": TRACE.upper()}, "INVALID_REQUEST"),
        ({"trade_id": "t-1", "decision": "detected"}, "INVALID_REQUEST"),
        ({"trade_id": "t-1", "code": "WHY"}, "INVALID_REQUEST"),
        ({"trade_id": "t-1", "event_type": "authz"}, "INVALID_REQUEST"),
        ({"trade_id": "t-1", "actor_id": "lin"}, "INVALID_REQUEST"),
    ],
)
def test_anything_else_is_refused_and_leaves_no_row(body: dict[str, Any], code: str) -> None:
    answer = post(body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert rows() == []


@pytest.mark.parametrize("agent", ["customer", "analyst", "risk"])
def test_only_advisor_agents_report_over_http_and_in_python(agent: str) -> None:
    answer = post(b"{ no json", agent=agent)
    assert (answer.status_code, answer.json()["code"]) == (403, "AUTH_403_SCOPE")
    with pytest.raises(DomainError, match="AUTH_403_SCOPE"):
        report_trade_request(caller=Caller("default", agent, "wei"), trade_id="t-1")
    assert rows() == []
    assert AuditLog.objects.filter(event_type="authz", code="AUTH_403_SCOPE").count() == 2


def test_an_idempotency_key_reports_once() -> None:
    for _ in range(2):
        answer = post({"trade_id": "t-1"}, **{"Idempotency-Key": "k-1"})
        assert answer.status_code == 201
    assert answer["Idempotent-Replayed"] == "true"
    assert len(rows()) == 1


def test_python_callers_meet_the_same() -> None:
    row = report_trade_request(caller=WEI, trade_id="t-1", trace_id=TRACE)
    assert (row.actor_id, row.trace_id) == ("wei", TRACE)
    with pytest.raises(DomainError, match="INVALID_ID"):
        report_trade_request(caller=WEI, trade_id="t 1")
