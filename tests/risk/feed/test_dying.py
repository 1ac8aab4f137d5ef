"""A scanner and a publisher that die at every one of their statements: what is left is whole, and what goes on ends in
one alert, one opening, one number."""

from __future__ import annotations

from collections import Counter

import pytest

from guard.audit.models import AuditLog
from risk.alerts.models import AlertOutbox, FeedHead, RiskAlert, RiskAlertHit
from risk.feed.services import publish
from tests.dying import dies_at
from tests.risk.alerts.people import make_hit, settle
from tests.risk.feed.test_publish import Listener

pytestmark = pytest.mark.django_db(transaction=True)


def whole() -> None:
    """Every alert has its opening in the audit and, first of all it has, in the outbox; every hit an event."""
    alerts = {alert.alert_id: alert for alert in RiskAlert.objects.all()}
    openings = AuditLog.objects.filter(event_type="alert_opened").values_list("object_id", flat=True)
    assert Counter(openings) == dict.fromkeys(alerts, 1)
    hits = Counter(RiskAlertHit.objects.values_list("alert_id", flat=True))
    assert hits == {alert_id: alert.hit_count for alert_id, alert in alerts.items()}
    told: dict[str, list[str]] = {}
    for alert_id, kind in AlertOutbox.objects.order_by("id").values_list("alert_id", "kind"):
        told.setdefault(alert_id, []).append(kind)
    assert {alert_id: len(kinds) for alert_id, kinds in told.items()} == hits
    assert {kinds[0] for kinds in told.values()} <= {"alert"}
    assert AuditLog.objects.filter(event_type="risk_hit").count() == hits.total()


def test_a_scanner_that_dies_leaves_all_of_an_alert_or_nothing() -> None:
    """Two hits of a customer: one opens, one joins."""
    rounds = 0
    while True:
        rounds += 1
        customer = f"C{rounds}"
        hits = [make_hit(f"T{rounds}", customer=customer), make_hit(f"U{rounds}", customer=customer, rule="RISK-002")]
        died = dies_at(rounds, lambda hits=hits: settle(*hits))  # type: ignore[misc]
        whole()
        settle(*hits)
        whole()
        assert RiskAlert.objects.get(customer_id=customer).hit_count == 2
        if not died:
            break
    assert rounds > 8
    assert publish().published == 2 * rounds


def test_a_publisher_that_dies_loses_nothing_and_says_nothing_else_the_second_time(own_redis_prefix: str) -> None:
    listener = Listener(f"{own_redis_prefix}:risk:pub:feed")
    settle(make_hit("T0", customer="C0"))
    publish()  # the tenant's head is there
    rounds = 0
    while True:
        rounds += 1
        settle(make_hit(f"T{rounds}", customer=f"C{rounds}"))
        if not dies_at(rounds, publish):
            break
        # Whatever it did is there or is not: numbers in use are those up to the head, each once.
        used = sorted(seq for seq in AlertOutbox.objects.values_list("seq", flat=True) if seq is not None)
        head = FeedHead.objects.filter(pk="default").values_list("seq", flat=True).first() or 0
        assert used == list(range(1, head + 1))
    assert rounds > 6
    heard = [message for _channel, message in listener.heard()]
    last, twice = 0, 0
    for message in heard:
        if message["seq"] == last + 1:
            last += 1
        else:
            twice += 1
            assert message["seq"] <= last
            assert message == next(one for one in heard if one["seq"] == message["seq"])
    assert last == rounds + 1 == AlertOutbox.objects.filter(published_at__isnull=False).count()
    assert twice, "it died between sending and marking too"
