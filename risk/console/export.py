"""What a view of the queue holds, as a file for a spreadsheet: the chosen columns, customers masked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.utils.translation import gettext as _

from guard.audit.selectors import csv_lines
from risk.console.filters import COLUMNS
from risk.console.queue import Page, Reading, top_hits, walk
from risk.console.rows import rows_of

MOST = 10_000  # alerts in one file


def exported(reading: Reading, *, tenant: str, columns: Sequence[str]) -> Iterator[str]:
    """CSV, in the order of the queue, MOST alerts at most. 4 queries for 500 alerts, a further one for the channel."""
    heads = [_("Alert"), _("What"), *(str(COLUMNS[name]) for name in columns)]

    def rows() -> Iterator[list[Any]]:
        for alerts in walk(reading, most=MOST):
            page = Page(alerts, top_hits=top_hits(alerts) if "sentence" in columns or "branch" in columns else {})
            for row in rows_of(page, tenant=tenant, columns=columns):
                yield [row["alert"].pk, row["words"], *(_cell(name, row) for name in columns)]

    return csv_lines(heads, rows())


def _cell(name: str, row: dict[str, Any]) -> Any:
    alert = row["alert"]
    values: dict[str, Any] = {
        "due": f"{row['due'].local:%Y-%m-%d %H:%M}" if row["due"] else "",
        "score": alert.score,
        "level": str(alert.get_escalation_level_display()) if alert.escalation_level else "",
        "sentence": row["sentence"],
        "customer": row["subject"],
        "hits": alert.hit_count,
        "assignee": alert.assignee.get_username() if alert.assignee else "",
        "status": str(alert.get_status_display()),
        "advisor": row["advisor"],
        "branch": row["channel"],
        "opened": f"{row['opened']:%Y-%m-%d %H:%M}",
    }
    return values[name]
