"""Looking for rows: one search for the admin's page and for its export. Each part of it has an index; see models.py."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from config.base.clock import rfc3339
from config.base.trace import is_trace_id
from guard.audit import pseudonyms
from guard.audit.models import AuditLog

PAGE = 2000  # rows that an export reads at once
# Parts of a search that are a column's value, and the column.
_COLUMNS = {
    "event": "event_type", "decision": "decision", "actor_type": "actor_type", "code": "code", "trace": "trace_id",
}  # fmt: skip
EXPORTED = (
    "id", "at", "event_type", "decision", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
    "object_id", "code", "risk_score", "trace_id", "customer", "input_summary",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Search:
    """What to look for; all of it must hold, and what is empty is not asked.

    since, until: the first inclusive, the second not. actor: who acted, or for whom. customer: an id of the core, which
    is looked for under its pseudonym. q: a trace id, or exactly an actor, an object or a customer.
    """

    since: datetime | None = None
    until: datetime | None = None
    event: str = ""
    decision: str = ""
    actor_type: str = ""
    actor: str = ""
    object: str = ""
    code: str = ""
    trace: str = ""
    customer: str = ""
    q: str = ""

    def described(self, tenant: str) -> dict[str, str]:
        """As the record of an export tells it: what was asked, a customer by pseudonym."""
        told: dict[str, str] = {}
        for name in _COLUMNS:
            if getattr(self, name):
                told[name] = getattr(self, name)
        for name in ("actor", "object", "q"):
            if value := getattr(self, name):
                told[name] = pseudonyms.find(tenant, [value]).get(value, value)
        if self.customer:
            told["customer"] = pseudonyms.find(tenant, [self.customer]).get(self.customer, "unknown")
        for name in ("since", "until"):
            if getattr(self, name):
                told[name] = rfc3339(getattr(self, name))
        return told


def rows_of(tenant: str, search: Search) -> QuerySet[AuditLog]:
    """The rows that the search means, in one tenant, without an order. At most 2 queries before the rows' own."""
    rows = AuditLog.objects.filter(tenant=tenant).order_by()
    for name, column in _COLUMNS.items():
        if getattr(search, name):
            rows = rows.filter(**{column: getattr(search, name)})
    if search.since:
        rows = rows.filter(at__gte=search.since)
    if search.until:
        rows = rows.filter(at__lt=search.until)
    if search.actor:
        names = _also(tenant, search.actor)
        rows = rows.filter(Q(actor_id__in=names) | Q(on_behalf_of__in=names))
    if search.object:
        rows = rows.filter(object_type__in=_object_types(tenant), object_id__in=_also(tenant, search.object))
    if search.customer:
        # Rows that are older than the pseudonyms name the customer as object or actor: look there for them.
        rows = rows.filter(customer__in=pseudonyms.find(tenant, [search.customer]).values())
    if search.q:
        names = _also(tenant, search.q)
        anywhere = Q(actor_id__in=names) | Q(on_behalf_of__in=names) | Q(object_id__in=names) | Q(customer__in=names)
        rows = rows.filter(Q(trace_id=search.q) if is_trace_id(search.q) else anywhere)
    return rows


def _also(tenant: str, name: str) -> list[str]:
    """The name itself, and the pseudonym of a customer who is called so."""
    return [name, *pseudonyms.find(tenant, [name]).values()]


def _object_types(tenant: str) -> list[str]:
    """Those that the tenant's log holds, so that the index over type and id serves a question about an id alone."""
    return list(AuditLog.objects.filter(tenant=tenant).order_by().values_list("object_type", flat=True).distinct())


def stream(tenant: str, search: Search) -> Iterator[AuditLog]:
    """Every row of the search by id, up to what is there now; 2000 in memory at once, each page by the primary key."""
    rows = rows_of(tenant, search).order_by("id")
    last = AuditLog.objects.order_by("-id").values_list("id", flat=True).first() or 0
    after = 0
    while True:
        page = list(rows.filter(id__gt=after, id__lte=last)[:PAGE])
        yield from page
        if len(page) < PAGE:
            return
        after = page[-1].pk


def _values(row: AuditLog) -> dict[str, Any]:
    return {name: rfc3339(row.at) if name == "at" else getattr(row, name) for name in EXPORTED}


def as_jsonl(rows: Iterator[AuditLog]) -> Iterator[str]:
    """A row a line."""
    for row in rows:
        yield json.dumps(_values(row), ensure_ascii=False) + "\n"


def as_csv(rows: Iterator[AuditLog]) -> Iterator[str]:
    """A header and a row a line. A cell that a spreadsheet would take for a formula is told that it is text."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")

    def line(cells: list[Any]) -> str:
        writer.writerow(cells)
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    yield "\ufeff" + line(list(EXPORTED))  # the mark by which spreadsheets know UTF-8
    for row in rows:
        values = _values(row)
        values["input_summary"] = json.dumps(values["input_summary"], ensure_ascii=False)
        yield line([f"'{value}" if str(value).startswith(("=", "+", "-", "@", "\t", "\r")) else value
                    for value in values.values()])  # fmt: skip
