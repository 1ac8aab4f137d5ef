"""Reads of the query log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.services import Caller
from memory.profiles.queries import policies
from memory.profiles.queries.models import (
    AnalyticsQueryEnd,
    AnalyticsQueryLog,
    AnalyticsQueryText,
    QueryDecision,
    QueryMode,
)

LIMIT, MOST = 20, 200
# Past its time limit and so many seconds, a statement without an end has lost its process.
GRACE = timedelta(seconds=30)


@dataclass(frozen=True)
class Entry:
    """A row of the log with its end and its text. state: refused, checked, running, done, timeout, too_large, failed,
    or unfinished: started, and nothing was heard of it since. text: '' once it was erased."""

    log: AnalyticsQueryLog
    end: AnalyticsQueryEnd | None
    text: str

    @property
    def state(self) -> str:
        if self.log.decision == QueryDecision.REFUSED:
            return "refused"
        if self.log.mode == QueryMode.CHECK:
            return "checked"
        if self.end is not None:
            return self.end.outcome
        over = self.log.at + timedelta(seconds=self.log.seconds_limit) + GRACE
        return "unfinished" if over < now() else "running"


def entries(logs: Sequence[AnalyticsQueryLog], *, texts: bool = True) -> list[Entry]:
    """2 queries for any number of rows (1 without texts)."""
    ids = [log.query_id for log in logs]
    ends = AnalyticsQueryEnd.objects.in_bulk(ids)
    found = AnalyticsQueryText.objects.in_bulk(ids) if texts else {}
    return [
        Entry(log, ends.get(log.query_id), found[log.query_id].text if log.query_id in found else "") for log in logs
    ]


def own_queries(*, caller: Caller, before: str = "", limit: int = LIMIT) -> tuple[list[Entry], str | None]:
    """The caller's own statements, newest first, and `before` of the following page. 3 queries.

    Errors: AUTH_403_SCOPE (403); INVALID_ID, INVALID_REQUEST (422).
    """
    policies.may_ask(caller, "read")
    if not 1 <= limit <= MOST:
        raise DomainError("INVALID_REQUEST", f"limit: {limit} is outside 1 to {MOST}")
    logs = AnalyticsQueryLog.objects.filter(tenant=caller.tenant, actor_id=caller.actor_id)
    if before:
        logs = logs.filter(query_id__lt=check_id("before", before))
    page = list(logs.order_by("-query_id")[: limit + 1])
    return entries(page[:limit]), page[limit - 1].query_id if len(page) > limit else None


def document(entry: Entry) -> dict[str, Any]:
    log, end = entry.log, entry.end
    return {
        "query_id": log.query_id,
        "at": rfc3339(log.at),
        "mode": log.mode,
        "dialect": log.dialect,
        "decision": log.decision,
        "code": log.code or (end.code if end and end.code else None),
        "state": entry.state,
        "sql": entry.text or None,
        "normalised": log.normalised or None,
        "fingerprint": log.fingerprint or None,
        "tables": log.tables,
        "columns": log.columns,
        "personal": log.personal,
        "rows": end.rows if end else None,
        "duration_ms": end.duration_ms if end else None,
        "trace_id": log.trace_id or None,
    }
