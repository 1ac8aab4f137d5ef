"""A restriction needs a confirmed alert; an open one moves the score only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.base.clock import business_date, now, rfc3339
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from guard.audit.pseudonyms import of as pseudonym_of
from memory.profiles import restrictions, selectors, services
from memory.profiles.models import CustomerProfileL3
from tests.memory.profiles.helpers import ALICE, BOB, make_agent, make_alert, make_caller

pytestmark = pytest.mark.django_db(transaction=True)

CODE = "NEEDS_CONFIRMED_ALERT"
LEVEL = {"code": "max_risk_level", "value": "R3", "visibility": "public", "text": "please call us"}


def put(*entries: dict[str, Any], if_version: int | None = None) -> services.Written:
    return services.write_l3(
        caller=make_caller("risk"), customer_id=ALICE, payload={"restrictions": list(entries)}, if_version=if_version
    )


def refused(*entries: dict[str, Any]) -> DomainError:
    with pytest.raises(DomainError) as refusal:
        put(*entries)
    assert (refusal.value.code, refusal.value.status) == (CODE, 409)
    return refusal.value


def restricted(*entries: dict[str, Any]) -> None:
    """Alice as she is after her one confirmed alert was reopened: restricted, and nothing confirmed any more."""
    alert = make_alert()
    put(*entries)
    alert.status = "in_review"
    alert.save()


@pytest.mark.parametrize(
    "alert",
    [
        None,
        {"status": "pending"},
        {"status": "in_review"},
        {"status": "escalated"},
        {"status": "false_positive"},
        {"status": "closed"},
        {"customer_id": BOB},
        {"tenant": "other"},
        {"alert_type": "pattern"},
        {"alert_type": "data_quality"},
    ],
)
def test_without_a_confirmed_alert_of_this_customer_here_nobody_is_restricted(alert: dict[str, Any] | None) -> None:
    if alert is not None:
        make_alert(**alert)
    error = refused({"code": "no_complex", "text": "the text stays out of the record"}, LEVEL)
    assert [fault["field"] for fault in error.extra["errors"]] == ["restrictions.0", "restrictions.1"]
    assert not CustomerProfileL3.objects.exists()
    [row] = AuditLog.objects.all()
    assert (row.event_type, row.decision, row.code) == ("profile_write", "refused", CODE)
    assert row.object_id == pseudonym_of("default", ALICE)
    assert row.input_summary["fields"] == ["restrictions.0", "restrictions.1"]
    assert "the text" not in str(row.input_summary)
    # The score moves without.
    services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload={"risk_score": 61})


def test_with_one_they_are() -> None:
    make_alert()
    assert put(LEVEL, {"code": "no_complex"}).version == 1


@pytest.mark.parametrize(
    "alert",
    [
        {"alert_type": "report"},
        {"alert_type": "report", "rule_ids": ["RISK-003"]},
        {"rule_ids": ["RISK-004"]},
        {"rule_ids": ["RISK-003", "RISK-004"]},
    ],
)
def test_where_only_what_must_not_be_told_is_confirmed_risk_restricts_for_itself_alone(alert: dict[str, Any]) -> None:
    """A customer who is restricted on the day after a report of them can count two and two together."""
    make_alert(**alert)
    alone = {"code": "no_complex"}
    for visibility in ("public", "advisor"):
        error = refused(alone, {**LEVEL, "visibility": visibility})
        assert [fault["field"] for fault in error.extra["errors"]] == ["restrictions.1"]
    put(alone)
    make_alert(rule_ids=["RISK-004", "RISK-001"])
    put(alone, LEVEL)


def test_over_http_it_is_a_conflict_with_its_code() -> None:
    response = make_agent("risk").put(f"/profiles/l3/{ALICE}", {"restrictions": [LEVEL]})
    assert (response.status_code, response.json()["code"]) == (409, CODE)
    assert response.json()["errors"][0]["field"] == "restrictions.0"


def test_nobody_to_ask_means_no(monkeypatch: pytest.MonkeyPatch) -> None:
    make_alert()
    monkeypatch.setattr(restrictions, "_resolver", None)
    refused(LEVEL)


def test_what_is_there_may_be_kept_reworded_ended_and_removed_without_an_alert() -> None:
    long_ago, today = "2026-01-01", business_date(now()).isoformat()
    restricted({**LEVEL, "since": long_ago}, {"code": "no_complex"})
    put({**LEVEL, "since": long_ago}, {"code": "no_complex"})
    put({"code": "no_complex"}, {**LEVEL, "text": "we call you"})  # another order, another text, no since
    put({"code": "no_complex", "until": rfc3339(now())}, {**LEVEL, "until": today})
    put(LEVEL | {"until": "2026-02-01"})
    put()
    assert selectors.read_l3(caller=make_caller("risk"), customer_id=ALICE)["version"] == 6
    assert not AuditLog.objects.filter(decision="refused").exists()


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ({}, {"code": "no_complex"}),
        ({}, {"code": "max_risk_level", "value": "R2"}),
        ({}, {"code": "max_risk_level", "value": "R4"}),
        ({}, {"visibility": "advisor"}),
        ({"visibility": "risk"}, {"visibility": "public"}),
        ({"until": "2026-02-01"}, {"until": "2026-02-02"}),
        ({"until": "2026-02-01"}, {"until": None}),
        ({"until": "2026-02-01"}, {"until": "2026-02-02T00:00:00.000001+08:00"}),
        ({"since": "2199-01-01"}, {"since": None}),
        ({"since": "2199-01-02"}, {"since": "2199-01-01"}),
    ],
)
def test_a_change_that_binds_more_is_an_addition(there: dict[str, Any], wanted: dict[str, Any]) -> None:
    restricted(LEVEL | there)
    entry = LEVEL | there | wanted
    if entry["code"] != "max_risk_level":
        entry.pop("value")
    error = refused(LEVEL | there, entry)
    assert error.extra["errors"][0]["field"] == "restrictions.1"
    refused(entry)
    make_alert()
    put(entry)


def test_one_that_was_removed_does_not_come_back_by_itself() -> None:
    restricted(LEVEL)
    put()
    refused(LEVEL)


def test_a_stale_version_is_told_first_and_leaves_no_refusal() -> None:
    restricted(LEVEL)
    with pytest.raises(DomainError) as conflict:
        put({"code": "no_complex"}, if_version=7)
    assert conflict.value.code == "VERSION_CONFLICT"
    assert not AuditLog.objects.filter(decision="refused").exists()


def test_the_question_costs_one_query_and_is_asked_only_where_something_is_added() -> None:
    make_alert()
    put(LEVEL)
    for entries, asked in (((LEVEL,), 0), ((LEVEL, {"code": "no_complex"}), 1)):
        with CaptureQueriesContext(connection) as queries:
            put(*entries)
        assert sum("risk_alert" in query["sql"] for query in queries) == asked
