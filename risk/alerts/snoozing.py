"""An alert put aside for a while. It is an attribute, not a status: the clock runs on."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from guard.audit.models import Decision
from risk.alerts.acting import TEXT_MIN, act, admit, checked_text, conflict, expect, move
from risk.alerts.deadlines import due_of
from risk.alerts.levels import record_woken
from risk.alerts.models import AlertStatus, RiskAlert, WokenBy
from risk.feed.events import tell_update

LONGEST = timedelta(hours=72)


def snooze(*, alert_id: str, officer: User, version: int, until: datetime, text: str) -> RiskAlert:
    """Puts a pending alert, or one's own in review, aside until an instant: 72 h at most, never past its due.

    It comes back at that instant, with an escalation, or when an officer acts on it.
    Errors: as `claim`, and INVALID_REQUEST for an instant that does not do, or less than 10 characters of reason.
    """
    tenant = admit(officer, "snooze", alert_id)
    text = checked_text(text, minimum=TEXT_MIN)

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.PENDING, AlertStatus.IN_REVIEW}, "put aside")
        if alert.status == AlertStatus.IN_REVIEW and alert.assignee_id != officer.pk:
            raise conflict(alert, alert.version)
        _check(alert, until)
        move(
            alert, AlertStatus(alert.status), officer,
            action="snooze", decision=Decision.SNOOZED, text=text,
            changes={"snoozed_until": until, "woken_at": None, "woken_by": ""},
            summary={"until": rfc3339(until)},
        )  # fmt: skip
        tell_update(alert)

    return act(tenant, alert_id, version, work)


def wake(*, alert_id: str, officer: User, version: int) -> RiskAlert:
    """Takes an alert up again before its time. Errors: as `claim`; INVALID_REQUEST for one that is not aside."""
    tenant = admit(officer, "wake", alert_id)

    def work(alert: RiskAlert) -> None:
        if alert.snoozed_until is None:
            raise DomainError("INVALID_REQUEST", "the alert is not put aside")
        move(
            alert, AlertStatus(alert.status), officer,
            action="wake", decision=Decision.WOKEN,
            changes={"snoozed_until": None, "woken_at": now(), "woken_by": WokenBy.OFFICER},
            summary={"because": WokenBy.OFFICER.value},
        )  # fmt: skip
        tell_update(alert)

    return act(tenant, alert_id, version, work)


def due_to_wake(*, at: datetime, tenant: str | None = None, batch: int = 500) -> list[str]:
    """Alerts whose time aside is over, the longest first. One query."""
    over = RiskAlert.objects.filter(snoozed_until__lte=at)
    if tenant is not None:
        over = over.filter(tenant=tenant)
    return list(over.order_by("snoozed_until").values_list("pk", flat=True)[:batch])


def wake_one(alert_id: str, at: datetime) -> bool:
    """Brings one back, once, whoever else does so at the same moment; whether it was this call."""
    with transaction.atomic():
        alert = RiskAlert.objects.select_for_update().filter(pk=alert_id, snoozed_until__lte=at).first()
        if alert is None:
            return False
        alert.snoozed_until, alert.woken_at, alert.woken_by = None, at, WokenBy.TIME
        # The version stays: nothing that an officer judges has changed.
        alert.save(update_fields=["snoozed_until", "woken_at", "woken_by"])
        record_woken(alert)
        tell_update(alert)
        return True


def _check(alert: RiskAlert, until: datetime) -> None:
    at, due = now(), due_of(alert)
    if until <= at:
        reason = "is over already"
    elif until > at + LONGEST:
        reason = "is more than 72 h away"
    elif due is not None and until > due:
        reason = f"is past its due at {rfc3339(due)}"
    else:
        return
    raise DomainError("INVALID_REQUEST", f"{rfc3339(until)} {reason}", field="until")
