"""How long this room's rows are kept."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from config.base.retention import Retention, Rows, kept, register
from risk.console.models import AlertTally, SavedView


def _tallies(before: datetime) -> QuerySet[AlertTally]:
    return AlertTally.objects.filter(begins__lt=before)


register(
    kept(
        SavedView, "views of the queue that people have saved", "their owners' choice", until="their owner removes it"
    ),
    Retention(
        AlertTally._meta.db_table,
        "how many alerts were opened and disposed of in each hour and business day",
        "figures of the overview, which goes back 30 days; the alerts say the same",
        days=40,
        floor=31,
        since="the hour or day began",
        rows=Rows(AlertTally, _tallies),
    ),
)
