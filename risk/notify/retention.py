"""How long this room's rows are kept."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from config.base.retention import Retention, Rows, kept, register
from risk.notify.models import OVER, NotifyChannel, NotifyCursor, NotifyDelivery, NotifyRule


def over(before: datetime) -> QuerySet[NotifyDelivery]:
    return NotifyDelivery.objects.filter(state__in=OVER, done_at__lt=before)


register(
    Retention(
        NotifyDelivery._meta.db_table,
        "notifications that were sent outside, or given up",
        "operators look up what became of one; the audit log has it for good",
        days=90,
        since="sent, given up, or put into a summary",
        held_back="one that waits or is being sent",
        rows=Rows(NotifyDelivery, over),
    ),
    kept(NotifyChannel, "where alerts are sent to, with sealed secrets", "one that is over is taken out of use"),
    kept(NotifyRule, "which alerts are sent where", "part of how the house works", until="somebody deletes it"),
    kept(NotifyCursor, "up to which number the feed was read, a row a tenant", "an event must never be sent twice"),
)
