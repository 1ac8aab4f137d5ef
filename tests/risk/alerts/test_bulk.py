"""Several alerts at once, and the next that nobody has: each officer gets what is theirs, and hears who was first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import AuditLog
from risk.alerts import services
from risk.alerts.bulk import Picked
from risk.alerts.models import AlertStatus, AlertType, RiskAlert
from tests.risk.console.make import make_alert, make_hit, make_manager, make_officer, seen
from tests.threads import Threads

REASON = "The same batch of papers was delivered late and is complete now."
CASES = [AlertType.EVENT]


def picked(*alerts: RiskAlert) -> list[Picked]:
    return [Picked(alert.pk, **seen(alert)) for alert in alerts]


def low(number: int, **fields: Any) -> RiskAlert:
    return make_alert(f"C{number:05d}", **{"score": 45, **fields})


def dispose(officer: Any, *alerts: RiskAlert, **changes: Any) -> list[Any]:
    judgement = {"to_status": "false_positive", "code": "F02", "text": REASON, **changes}
    return services.dispose_many(officer=officer, picked=picked(*alerts), **judgement)


def together(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each of them comes to, begun at one moment."""
    waiting = list(enumerate(works))

    def work() -> tuple[int, Any]:
        number, one = waiting.pop()
        return number, one()

    answers = Threads(len(works), work).end()
    return [dict(answers)[number] for number in range(len(works))]


@pytest.mark.django_db
def test_one_reason_disposes_of_many_each_on_the_record() -> None:
    lin = make_officer()
    alerts = [low(number) for number in range(3)]
    assert [outcome.error for outcome in dispose(lin, *alerts)] == [None] * 3
    assert set(RiskAlert.objects.values_list("status", "disposition_text")) == {("false_positive", REASON)}
    rows = AuditLog.objects.filter(event_type="alert_status", decision="false_positive")
    assert rows.count() == 3
    assert {row.input_summary["at_once"] for row in rows} == {3}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "other",
    [
        {"score": 60},
        {"rule_ids": ["RISK-002"]},
        {"rule_ids": ["RISK-001", "RISK-002"]},
        {"escalation_level": "LEVEL_2"},
        {"four_eyes": True},
    ],
)
def test_where_one_does_not_qualify_none_is_touched(other: dict[str, Any]) -> None:
    lin = make_officer()
    with pytest.raises(DomainError, match="INVALID_REQUEST"):
        dispose(lin, low(1), low(2, **other))
    assert set(RiskAlert.objects.values_list("status", flat=True)) == {"pending"}


@pytest.mark.django_db
def test_fifty_at_most_different_ones_of_this_tenant_by_an_officer() -> None:
    lin = make_officer()
    alerts = [low(number) for number in range(51)]
    refused = [
        lambda: dispose(lin, *alerts),
        lambda: dispose(lin),
        lambda: dispose(lin, alerts[0], alerts[0]),
        lambda: dispose(lin, alerts[0], low(77, tenant="east")),
        lambda: dispose(lin, low(78, alert_type=AlertType.DATA_QUALITY)),
        lambda: dispose(lin, alerts[0], text="short"),
    ]
    for refuse in refused:
        with pytest.raises(DomainError):
            refuse()
    meng = make_manager()
    for act in (
        lambda: dispose(meng, alerts[0]),
        lambda: services.claim_many(officer=meng, picked=picked(alerts[0])),
        lambda: services.assign_many(officer=meng, picked=picked(alerts[0]), to=lin),
        lambda: services.claim_next(officer=meng, kinds=CASES),
    ):
        with pytest.raises(DomainError, match="FORBIDDEN"):
            act()
    assert set(RiskAlert.objects.values_list("status", flat=True)) == {"pending"}
    assert len(dispose(lin, *alerts[:50])) == 50


@pytest.mark.django_db
def test_what_has_changed_since_stays_and_is_named_and_the_others_are_done() -> None:
    lin, zhou = make_officer("lin"), make_officer("zhou")
    fine, taken, grown, dear = (low(number) for number in range(4))
    choice = picked(fine, taken, grown, dear)
    services.claim(alert_id=taken.pk, officer=zhou)
    make_hit(grown, number=2, score=45)
    RiskAlert.objects.filter(pk=dear.pk).update(escalation_level="LEVEL_1", version=2)
    judgement = {"to_status": "closed", "code": "K03", "text": REASON}
    outcomes = services.dispose_many(officer=lin, picked=choice, **judgement)
    codes = [outcome.error.code if outcome.error else "" for outcome in outcomes]
    assert codes == ["", "ALERT_CONFLICT", "VERSION_CONFLICT", "VERSION_CONFLICT"]
    assert outcomes[1].error is not None
    assert outcomes[1].error.extra["by"] == "zhou"
    assert AuditLog.objects.filter(event_type="alert_status", decision="closed").count() == 1


@pytest.mark.django_db
def test_the_next_is_the_most_urgent_that_nobody_has_and_nobody_put_aside() -> None:
    lin = make_officer()
    at = now()
    later, sooner, aside, taken = (low(n, claim_due_at=at + timedelta(hours=9 - n)) for n in range(4))
    RiskAlert.objects.filter(pk=aside.pk).update(snoozed_until=at + timedelta(hours=1))
    services.claim(alert_id=taken.pk, officer=make_officer("zhou"))
    low(9, tenant="east", claim_due_at=at)
    low(10, alert_type=AlertType.REPORT, claim_due_at=at)
    got = [services.claim_next(officer=lin, kinds=CASES) for _ in range(3)]
    assert [alert.pk if alert else None for alert in got] == [sooner.pk, later.pk, None]
    assert got[0] is not None
    assert (got[0].status, got[0].assignee) == (AlertStatus.IN_REVIEW, lin)


@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_officers_who_ask_for_the_next_at_one_moment_each_get_another() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer")
    officers = [make_officer(f"officer{number}") for number in range(6)]
    alerts = {low(number).pk for number in range(20)}
    got = together([lambda officer=officer: services.claim_next(officer=officer, kinds=CASES) for officer in officers])  # type: ignore[misc]
    ids = [alert.pk for alert in got if alert]
    assert len(ids) == len(set(ids)) == 6
    assert set(ids) <= alerts
    held = RiskAlert.objects.exclude(assignee=None).values_list("assignee_id", flat=True)
    assert sorted(held) == sorted(officer.pk for officer in officers)


@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_two_officers_with_the_same_choice_share_it_and_each_hears_of_the_other() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer")
    lin, zhou = make_officer("lin"), make_officer("zhou")
    alerts = [low(number) for number in range(20)]
    judgement = {"to_status": "closed", "code": "K03", "text": REASON}
    choice = picked(*alerts)
    runs = together(
        [
            lambda: services.dispose_many(officer=lin, picked=choice, **judgement),
            lambda: services.claim_many(officer=zhou, picked=choice[::-1]),
        ]
    )
    for outcomes, other in zip(runs, ("zhou", "lin"), strict=True):
        lost = [outcome.error for outcome in outcomes if outcome.error]
        assert {(error.code, error.extra["by"]) for error in lost} <= {("ALERT_CONFLICT", other)}
    assert sum(outcome.error is None for outcomes in runs for outcome in outcomes) == 20
    assert RiskAlert.objects.filter(status="closed", disposed_by=lin).count() == 20 - sum(
        outcome.error is None for outcome in runs[1]
    )
