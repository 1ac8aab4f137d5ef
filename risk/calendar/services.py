"""Changes of the table of holidays: row, audit row, and word to whom it concerns, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.people import By, admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.calendar.models import Holiday

CHANGE = "risk.change_holiday"
Listener = Callable[[str, date], None]
_listeners: list[Listener] = []


def on_days_changed(listener: Listener) -> None:
    """Call `listener(tenant, day)` in the transaction that makes a day worked or not."""
    _listeners.append(listener)


def save_holiday(*, holiday: Holiday, by: By) -> Holiday:
    """Adds or changes one. by: a person with CHANGE, of the tenant, or the name of a command.

    Errors: FORBIDDEN (403, one audit row), INVALID_ID, INVALID_REQUEST for a day that is in the table already.
    """
    name = _admit(holiday, by, "save")
    rows = Holiday.objects.filter(tenant=holiday.tenant)
    with transaction.atomic():
        if rows.filter(day=holiday.day).exclude(pk=holiday.pk).exists():
            raise DomainError("INVALID_REQUEST", f"{holiday.day} is in the table already")
        before = rows.filter(pk=holiday.pk).first()
        holiday.save()
        _tell(holiday, by, name, "change" if before else "add")
        for day in {holiday.day, before.day if before else holiday.day}:
            for listener in _listeners:
                listener(holiday.tenant, day)
    return holiday


def delete_holiday(*, holiday: Holiday, by: By) -> None:
    """Takes one away: the weekday counts again. by, errors: as `save_holiday`."""
    name = _admit(holiday, by, "delete")
    with transaction.atomic():
        _tell(holiday, by, name, "delete")
        holiday.delete()
        for listener in _listeners:
            listener(holiday.tenant, holiday.day)


def _admit(holiday: Holiday, by: By, action: str) -> str:
    check_id("tenant", holiday.tenant)
    return admit_staff(by, CHANGE, action=action, object_type="risk_holiday", tenant=holiday.tenant)


def _tell(holiday: Holiday, by: By, name: str, action: str) -> None:
    tell_change(holiday, by, name, {"action": action, "day": holiday.day.isoformat(), "kind": holiday.kind})


def tell_change(row: Any, by: By, name: str, summary: dict[str, Any]) -> None:
    """One `config_change` row about a row of a table that people edit. Call it in the change's transaction."""
    record(
        tenant=row.tenant,
        event_type=EventType.CONFIG_CHANGE,
        decision=Decision.CHANGED,
        actor_type=ActorType.STAFF if isinstance(by, User) else ActorType.SYSTEM,
        actor_id=name[:64],
        object_type=row._meta.db_table,
        object_id=str(row.pk),
        input_summary=summary,
    )
