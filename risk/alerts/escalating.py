"""The sweep: what the passing of time does to open alerts. Run by the beat, and by `escalate_alerts`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.trace import current_trace_id, traced
from risk.alerts.damage import refuse_damaged
from risk.alerts.deadlines import OPEN, fill
from risk.alerts.levels import (
    CONFIRMED_WITHIN,
    LEVEL_1_REPEATS,
    LEVEL_1_SCORE,
    LEVEL_2_SCORE,
    NEVER_ESCALATED,
    raise_level,
    record_level,
)
from risk.alerts.models import AlertStatus, EscalationLevel, HitState, RiskAlert, RiskAlertHit
from risk.alerts.requests import overdue, tell_overdue
from risk.alerts.scoring import MEDIUM_FROM
from risk.alerts.snoozing import due_to_wake, wake_one
from risk.feed.events import tell_alert

T = TypeVar("T")
logger = logging.getLogger(__name__)

BATCH = 200


@dataclass
class SweepResult:
    """Alerts that reached each level, that were woken because their time had come, that were given their limits,
    questions that became overdue, and what failed: it is tried again by the next sweep."""

    level_1: int = 0
    level_2: int = 0
    woken: int = 0
    dated: int = 0
    overdue: int = 0
    failed: int = 0


def sweep(*, tenant: str | None = None, at: datetime | None = None) -> SweepResult:
    """Escalates what is due, wakes what was put aside, gives limits to alerts that have none.

    tenant: only this one (default: all). at: the instant that is asked about, now by default.

    1. Limits of alerts without: of before this release, and where the holidays have changed.
    2. Levels: candidates by index (late, by score, by hits, or confirmed before), each decided anew under its lock
       and told in the same transaction. Two sweeps at once, or one that dies, leave each level once.
    3. Alerts whose time aside is over; after the levels, so that an escalation says that it woke them.
    4. Questions whose due is over, for the timeline.

    Nothing to do costs four queries; a candidate that stays as it is, three more.
    Errors: INVALID_ID for the tenant. One alert that fails stops no other.
    """
    if tenant is not None:
        check_id("tenant", tenant)
    moment = at or now()
    result = SweepResult(dated=fill(tenant=tenant))
    last = ""
    while ids := list(_candidates(moment, tenant).filter(pk__gt=last).values_list("pk", flat=True)[:BATCH]):
        for alert_id in ids:
            level = _tried(escalate_one, alert_id, moment, result)
            result.level_1 += level == EscalationLevel.LEVEL_1
            result.level_2 += level == EscalationLevel.LEVEL_2
        last = ids[-1]
    for alert_id in due_to_wake(at=moment, tenant=tenant):
        result.woken += bool(_tried(wake_one, alert_id, moment, result))
    for request_id in overdue(at=moment, tenant=tenant):
        result.overdue += bool(_tried(tell_overdue, request_id, moment, result))
    return result


def _tried(work: Callable[[str, datetime], T], alert_id: str, at: datetime, result: SweepResult) -> T | None:
    try:
        with traced():
            return retry_conflicts(lambda: work(alert_id, at))
    except DomainError as error:
        logger.error("the sweep leaves one alert as it is: %s", error.detail)
    except Exception:
        logger.exception("the sweep failed at one alert; the next tries again")
    result.failed += 1
    return None


def _candidates(at: datetime, tenant: str | None) -> QuerySet[RiskAlert]:
    """Open alerts that may have to rise: a little more than those that do. In the order of their ids."""
    confirmed = RiskAlert.objects.filter(
        tenant=OuterRef("tenant"), customer_id=OuterRef("customer_id"), confirmed_at__gte=at - CONFIRMED_WITHIN
    )
    not_called = Q(escalation_level=EscalationLevel.NONE)
    rows = RiskAlert.objects.filter(status__in=OPEN, score__gte=MEDIUM_FROM)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return (
        rows.exclude(escalation_level=EscalationLevel.LEVEL_2)
        .exclude(alert_type__in=NEVER_ESCALATED)
        .filter(
            Q(dispose_due_at__lt=at)
            | Q(score__gte=LEVEL_2_SCORE)
            | Q(hit_count__gte=LEVEL_1_REPEATS)
            | Exists(confirmed.exclude(customer_id=""))
            | (not_called & (Q(score__gte=LEVEL_1_SCORE) | Q(status=AlertStatus.PENDING, claim_due_at__lt=at)))
        )
        .order_by("pk")
    )


def escalate_one(alert_id: str, at: datetime) -> str | None:
    """The level that this call has raised the alert to."""
    with transaction.atomic():
        alert = RiskAlert.objects.select_for_update().filter(pk=alert_id, status__in=OPEN).first()
        if alert is None:
            return None
        refuse_damaged(alert)
        live = RiskAlertHit.objects.filter(alert=alert, state=HitState.LIVE).order_by()
        raised = raise_level(alert, rules=live.values_list("rule_id", flat=True), at=at)
        if not raised:
            return None
        # The version stays: a level is nothing that an officer judges, and their work is not refused for it.
        alert.save(update_fields=raised)
        record_level(alert, raised, trace_id=current_trace_id())
        tell_alert(alert, trace_id=current_trace_id())
        return alert.escalation_level
