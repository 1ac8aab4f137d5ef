"""What these stories tell: events about the first alert there is."""

from __future__ import annotations

from django.db import transaction

from config.base.clock import now
from risk.alerts.models import AlertOutbox, RiskAlert
from risk.feed.events import tell_update
from risk.feed.services import publish, stamp


def first_alert() -> RiskAlert:
    return RiskAlert.objects.earliest("opened_at", "alert_id")


def tell(times: int = 1, send: bool = True) -> None:
    """So many events, published unless told otherwise."""
    alert = first_alert()
    for _ in range(times):
        with transaction.atomic():
            tell_update(alert)
    if send:
        publish()


def tell_long(times: int, size: int = 30_000) -> None:
    """Events of so many characters: they fill buffers fast."""
    event = {"alert_id": first_alert().alert_id, "status": "x" * size, "assignee": None, "level": None, "version": 1}
    for _ in range(0, times, 50):
        AlertOutbox.objects.bulk_create(AlertOutbox(kind="update", event=event, tenant="default") for _ in range(50))
    publish()


def lose(times: int) -> None:
    """Events that are stamped and marked as sent, and whose message never arrives."""
    tell(times, send=False)
    stamp(tenant="default")
    AlertOutbox.objects.filter(published_at=None).update(published_at=now())
