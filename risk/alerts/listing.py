"""HTTP route by which the risk agent reads the tenant's alerts, page by page."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema
from pydantic import ConfigDict, Field

from config.base.clock import from_micros, rfc3339, to_micros
from config.base.errors import DomainError
from config.base.fields import canonical_json
from guard.access.http import AgentAuth, caller_of
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize
from risk.alerts.models import AlertStatus, AlertType, EscalationLevel, RiskAlert

router = Router(tags=["alerts"])

LIMIT, MOST = 20, 200
_BEFORE = re.compile(r"(\d{1,17})~([A-Za-z0-9_.-]{1,64})")


class AlertsIn(Schema):
    model_config = ConfigDict(extra="forbid")
    status: AlertStatus | None = None
    alert_type: AlertType | None = None
    level: EscalationLevel | None = Field(default=None, description="`LEVEL_1` or `LEVEL_2`")
    customer_id: str | None = None
    min_score: int = Field(default=0, ge=0, le=100)
    before: str = Field(default="", description="`next` of the page before")
    limit: int = Field(default=LIMIT, ge=1, le=MOST)


class AlertOut(Schema):
    alert_id: str
    alert_type: str
    status: str
    version: int
    customer_id: str
    advisor_id: str
    score: int
    subtypes: list[str]
    rules: list[str]
    hits: int
    level: str | None
    assignee: str | None
    opened_at: str
    updated_at: str
    trace_id: str


class AlertsOut(Schema):
    items: list[AlertOut]
    next: str | None


def may_list(caller: Caller) -> None:
    """Errors: AUTH_403_SCOPE (403, one audit row)."""
    authorize(caller, Resource.ALERT, "read")


@router.get(
    "/alerts", auth=AgentAuth(lambda caller, path: may_list(caller)), response=AlertsOut, summary="The tenant's alerts"
)
def alerts(request: HttpRequest, query: Query[AlertsIn]) -> HttpResponse:
    """The risk agent only. Newest first; `next` is the `before` of the following page. Without `alert_type` those that
    are for officers; faults in the data (`alert_type=data_quality`) only when asked for. Officers use the console."""
    rows = RiskAlert.objects.filter(tenant=caller_of(request).tenant, score__gte=query.min_score)
    if query.alert_type:
        rows = rows.filter(alert_type=query.alert_type)
    else:
        rows = rows.exclude(alert_type=AlertType.DATA_QUALITY)
    if query.status:
        rows = rows.filter(status=query.status)
    if query.level:
        rows = rows.filter(escalation_level=query.level)
    if query.customer_id is not None:
        rows = rows.filter(customer_id=query.customer_id)
    if query.before:
        opened_at, alert_id = _place(query.before)
        rows = rows.filter(opened_at__lte=opened_at).filter(
            Q(opened_at__lt=opened_at) | Q(opened_at=opened_at, alert_id__lt=alert_id)
        )
    found = list(rows.select_related("assignee").order_by("-opened_at", "-alert_id")[: query.limit + 1])
    page = found[: query.limit]
    more = len(found) > query.limit
    last = f"{to_micros(page[-1].opened_at)}~{page[-1].alert_id}" if more else None
    body = canonical_json({"items": [document(alert) for alert in page], "next": last})
    return HttpResponse(body, content_type="application/json", headers={"Cache-Control": "no-store"})


def _place(before: str) -> tuple[datetime, str]:
    found = _BEFORE.fullmatch(before)
    if found is None:
        raise DomainError("INVALID_REQUEST", "before: not a place in this list; take it from `next`")
    return from_micros(int(found[1])), found[2]


def document(alert: RiskAlert) -> dict[str, Any]:
    """An alert for the risk agent."""
    return {
        "alert_id": alert.alert_id,
        "alert_type": alert.alert_type,
        "status": alert.status,
        "version": alert.version,
        "customer_id": alert.customer_id,
        "advisor_id": alert.advisor_id,
        "score": alert.score,
        "subtypes": list(alert.subtypes),
        "rules": list(alert.rule_ids),
        "hits": alert.hit_count,
        "level": alert.escalation_level or None,
        "assignee": alert.assignee.get_username() if alert.assignee else None,
        "opened_at": rfc3339(alert.opened_at),
        "updated_at": rfc3339(alert.updated_at),
        "trace_id": alert.trace_id,
    }
