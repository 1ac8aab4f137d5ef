"""By when an alert is to be claimed and disposed of: RISK.md 3, "Escalation (C5)"."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet

from config.base.clock import business_day_bounds
from config.base.db import retry_conflicts
from risk.alerts.models import AlertStatus, AlertType, RiskAlert
from risk.alerts.scoring import band
from risk.calendar.selectors import WorkCalendar, work_calendar

OPENS, CLOSES = time(9), time(18)  # working hours of the officers
OPEN = (AlertStatus.PENDING, AlertStatus.IN_REVIEW, AlertStatus.ESCALATED)


@dataclass(frozen=True)
class Limits:
    """claim: None where nobody has to. wall_clock: nights and holidays count too."""

    claim: timedelta | None
    dispose: timedelta
    wall_clock: bool = False


# Hours, of work except for critical: 9 are a working day.
LIMITS = {
    "critical": Limits(timedelta(hours=1), timedelta(hours=4), wall_clock=True),
    "high": Limits(timedelta(hours=4), timedelta(hours=9)),
    "medium": Limits(timedelta(hours=9), timedelta(hours=27)),
    "low": Limits(None, timedelta(hours=45)),
}
# A report is a filing duty, due in five working days whatever it scores: repeats can take it out of the lowest band.
REPORT_LIMITS = LIMITS["low"]


@dataclass(frozen=True)
class Deadlines:
    """None: no limit."""

    claim: datetime | None = None
    dispose: datetime | None = None


def limits_of(*, score: int, alert_type: str = AlertType.EVENT) -> Limits:
    """The limits of an alert of that kind and score."""
    return REPORT_LIMITS if alert_type == AlertType.REPORT else LIMITS[band(score)]


def deadlines(*, score: int, start: datetime, calendar: WorkCalendar, alert_type: str = AlertType.EVENT) -> Deadlines:
    """Both instants for an alert of that kind and score whose clock began at `start`. Pure."""
    limits = limits_of(score=score, alert_type=alert_type)

    def after(duration: timedelta) -> datetime:
        if limits.wall_clock:
            return start + duration
        return calendar.after_working_time(start, duration, opens=OPENS, closes=CLOSES)

    return Deadlines(after(limits.claim) if limits.claim is not None else None, after(limits.dispose))


def set_deadlines(alert: RiskAlert, *, calendar: WorkCalendar | None = None) -> tuple[str, ...]:
    """Sets the columns of an alert that is about to be saved; their names, for `update_fields`.

    The clock runs from the opening, of a reopened alert from its reopening, with the limits of the band as it now is:
    one whose score rises late may be late at once. Time aside ends with the alert's due at the latest. Faults in the
    data have no limits. At most one query, none for critical alerts.
    """
    if alert.alert_type == AlertType.DATA_QUALITY:
        return ()
    if calendar is None:
        needed = not limits_of(score=alert.score, alert_type=alert.alert_type).wall_clock
        calendar = work_calendar(tenant=alert.tenant) if needed else WorkCalendar()
    start = alert.reopened_at or alert.opened_at
    found = deadlines(score=alert.score, start=start, calendar=calendar, alert_type=alert.alert_type)
    alert.claim_due_at, alert.dispose_due_at = found.claim, found.dispose
    due = due_of(alert)
    if alert.snoozed_until is not None and due is not None and alert.snoozed_until > due:
        alert.snoozed_until = due
    return ("claim_due_at", "dispose_due_at", "snoozed_until")


def due_of(alert: RiskAlert) -> datetime | None:
    """The next limit of an open alert: to be claimed while it is pending, else to be disposed of."""
    if alert.status == AlertStatus.PENDING and alert.claim_due_at is not None:
        return alert.claim_due_at
    return alert.dispose_due_at


def days_changed(tenant: str, day: date) -> None:
    """A day became worked, or not: the limits of open alerts that run over it are counted anew.

    They are taken away in the caller's transaction and filled in after its commit; where that does not happen, by
    the next sweep.
    """
    begin, end = business_day_bounds(day)
    over = Q(claim_due_at__gt=begin) | Q(dispose_due_at__gt=begin)
    running = RiskAlert.objects.filter(tenant=tenant, status__in=OPEN, dispose_due_at__isnull=False)
    started = Q(reopened_at__isnull=True, opened_at__lt=end) | Q(reopened_at__lt=end)
    if running.filter(over).filter(started).update(claim_due_at=None, dispose_due_at=None):
        transaction.on_commit(lambda: fill(tenant=tenant), robust=True)


def fill(*, tenant: str | None = None, batch: int = 200) -> int:
    """Gives open alerts without limits theirs; how many. Each is one transaction; two at once agree."""
    waiting = RiskAlert.objects.filter(status__in=OPEN, dispose_due_at=None)
    waiting = waiting.exclude(alert_type=AlertType.DATA_QUALITY)
    if tenant is not None:
        waiting = waiting.filter(tenant=tenant)
    calendars: dict[str, WorkCalendar] = {}
    filled, last = 0, ""
    while ids := list(waiting.filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:batch]):
        for alert_id in ids:
            filled += retry_conflicts(lambda alert_id=alert_id: _fill_one(waiting, alert_id, calendars))  # type: ignore[misc]
        last = ids[-1]
    return filled


def _fill_one(waiting: QuerySet[RiskAlert], alert_id: str, calendars: dict[str, WorkCalendar]) -> bool:
    with transaction.atomic():
        alert = waiting.select_for_update().filter(pk=alert_id).first()
        if alert is None:
            return False  # another has been here
        if alert.tenant not in calendars:
            calendars[alert.tenant] = work_calendar(tenant=alert.tenant)
        alert.save(update_fields=set_deadlines(alert, calendar=calendars[alert.tenant]))
        return True
