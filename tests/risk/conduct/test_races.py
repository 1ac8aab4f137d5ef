"""Many scanners, late commits, and scanners that die: each finding once, and none lost."""

from __future__ import annotations

import random
import threading
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.db import transaction

from config.base.clock import now
from guard.access.services import Caller
from guard.audit.models import AuditLog
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.conduct import following, services
from risk.conduct.models import ConductChange, ConductCursor
from risk.conduct.services import scan_conduct
from tests.dying import dies_at
from tests.risk.conduct.make import MINUTE, NOON, clock_at, live, make_probing, make_refusal
from tests.threads import Threads

pytestmark = pytest.mark.django_db(transaction=True)


def advisors(count: int) -> list[Caller]:
    return [Caller("default", "advisor", f"adv-{index}") for index in range(count)]


def once_each(count: int) -> None:
    """One live hit, one alert, one event and one row of the log for each advisor."""
    assert len(live()) == count
    assert RiskAlertHit.objects.count() == count
    assert RiskAlert.objects.count() == count
    assert AlertOutbox.objects.filter(kind="alert").count() == count
    assert AuditLog.objects.filter(event_type="agent_behavior_detected").count() == count
    assert not ConductChange.objects.exists()


def test_scanners_at_once_find_each_once() -> None:
    for caller in advisors(6):
        make_probing(caller=caller)
    reports = Threads(4, lambda: scan_conduct(patience=20)).end()
    assert all(not isinstance(report, BaseException) and not report.failed for report in reports), reports
    once_each(6)


@pytest.mark.mariadb
def test_two_patterns_of_one_advisor_found_by_two_scanners_are_one_alert() -> None:
    make_probing()
    for index in range(10):
        make_refusal(f"n{index}", NOON + timedelta(hours=9) + index * MINUTE, code="AUTH_403_SCOPE")
    hold = threading.Barrier(2, timeout=20)
    real = services.conduct_of

    def together(**fields: Any) -> Any:
        material = real(**fields)
        hold.wait()
        return material

    # Both hold marks of the same advisor, as after a claim that ended while its scanner was slow.
    following.collect()
    with mock.patch.object(services, "conduct_of", together):
        late = now() + timedelta(seconds=services.CLAIM_SECONDS + 1)

        def second() -> Any:
            with mock.patch.object(services, "now", return_value=late):
                return services.scan_conduct(limit=1)

        threads = [Threads(1, lambda: services.scan_conduct(limit=1))]
        while not ConductChange.objects.filter(claim__isnull=False).exists():
            pass
        threads.append(Threads(1, second))
        for thread in threads:
            report = thread.end()[0]
            assert not isinstance(report, BaseException), report
    scan_conduct()
    assert RiskAlert.objects.count() == 1
    assert len(live()) == 2
    assert RiskAlertHit.objects.count() == 2
    assert AuditLog.objects.filter(event_type="agent_behavior_detected").count() == 2


@pytest.mark.mariadb
def test_a_row_that_is_committed_late_lies_below_the_head_and_is_found() -> None:
    make_probing(count=4)
    written, go = threading.Event(), threading.Event()

    def slowly() -> None:
        with transaction.atomic():
            make_refusal("c9", NOON + 9 * MINUTE, code="AUTH_403_SCOPE")
            written.set()
            assert go.wait(20)

    late = Threads(1, slowly)
    assert written.wait(20)
    make_refusal("c1", NOON + 200 * MINUTE)  # a higher id, committed first
    scan_conduct()
    assert live() == []
    assert ConductCursor.objects.get().missing
    go.set()
    late.end()
    assert scan_conduct().hits == 1
    missing = ConductCursor.objects.get().missing
    assert not any(first <= AuditLog.objects.order_by("-id")[0].pk <= last for first, last, _seen in missing)


@pytest.mark.mariadb
def test_an_abandoned_id_is_given_up_but_not_while_a_transaction_holds_it() -> None:
    make_probing(count=1)
    scan_conduct()
    with transaction.atomic():
        make_refusal("c9", NOON)
        transaction.set_rollback(True)
    make_refusal("c1", NOON + 200 * MINUTE)
    scan_conduct()
    assert ConductCursor.objects.get().missing
    with clock_at(now() + timedelta(seconds=settings.AUDIT_GAP_SECONDS + 60)):
        with mock.patch.object(following, "being_written", return_value=True):
            following.collect()
        assert ConductCursor.objects.get().missing
        following.collect()
    assert ConductCursor.objects.get().missing == []


def test_killed_anywhere_it_goes_on_and_finds_each_once() -> None:
    rnd = random.Random(11)
    died = 0
    for round_ in range(20):
        for caller in advisors(3):
            make_probing(NOON + timedelta(days=round_), caller=caller)
        # Claims of those that died before have ended.
        late = now() + round_ * timedelta(seconds=services.CLAIM_SECONDS + 1)
        with mock.patch.object(services, "now", return_value=late):
            died += dies_at(rnd.randrange(1, 70), scan_conduct)
    assert died >= 15
    late = now() + 21 * timedelta(seconds=services.CLAIM_SECONDS + 1)
    with mock.patch.object(services, "now", return_value=late):
        scan_conduct()
    once_each(60)
    assert set(RiskAlertHit.objects.values_list("state", flat=True)) == {HitState.LIVE}
