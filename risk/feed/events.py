"""The one door into the feed: every event is an `alert_outbox` row, written in the transaction of its change.

Payloads are declared here and closed: a field that is not named never leaves MySQL this way.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.base.trace import current_trace_id
from guard.access.masking import mask
from guard.access.roles import RISK_MANAGER, RISK_OFFICER
from risk.alerts.models import AlertOutbox, AlertType, RiskAlert
from risk.feed.nudge import nudge_publisher

MAX_EVENT = 65_536  # characters of an event's JSON; ours have some hundred

AlertId = Annotated[str, Field(min_length=1, max_length=64)]


class AlertPayload(BaseModel):
    """What `risk:pub:alert` carries. The last two are left out when empty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alert_id: AlertId
    alert_type: Literal["event", "report", "pattern"]
    # Of `pattern` alerts: the advisor's id, masked. (guard.access.masking: an id that is whole is none of these.)
    customer_id_mask: Annotated[str, Field(pattern=r"^(?:.{0,2}\*\*\*.?)?$")]
    risk_score: int = Field(ge=0, le=100)
    trace_id: str
    notify_role: list[str]
    alert_subtype: list[str] = []
    escalation_level: Literal["", "LEVEL_1", "LEVEL_2"] = ""

    def wire(self) -> dict[str, Any]:
        body = self.model_dump()
        for name in ("alert_subtype", "escalation_level"):
            if not body[name]:
                del body[name]
        return body


class UpdateEvent(BaseModel):
    """How an alert stands now: for open screens, not for consumers of `risk:pub:alert`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    alert_id: AlertId
    status: str
    assignee: str | None
    level: str | None
    version: int


def notify_roles(alert: RiskAlert) -> list[str]:
    """Always an array: the officers; with a level, and always for advisors' conduct, the managers as well."""
    if alert.escalation_level or alert.alert_type == AlertType.PATTERN:
        return [RISK_OFFICER, RISK_MANAGER]
    return [RISK_OFFICER]


def alert_payload(alert: RiskAlert, *, trace_id: str = "") -> AlertPayload:
    """The published payload of an alert as it now stands. trace_id: of the change that is told of."""
    subject = alert.advisor_id if alert.alert_type == AlertType.PATTERN else alert.customer_id
    return AlertPayload(
        alert_id=alert.alert_id,
        alert_type=alert.alert_type,  # type: ignore[arg-type]
        customer_id_mask=mask(subject),
        risk_score=alert.score,
        trace_id=trace_id or alert.trace_id or current_trace_id(),
        notify_role=notify_roles(alert),
        alert_subtype=list(alert.subtypes),
        escalation_level=alert.escalation_level,  # type: ignore[arg-type]
    )


def alert_event(alert: RiskAlert, *, trace_id: str = "") -> AlertOutbox | None:
    """An opening, a merge that adds a subtype or raises the band, or a level, as it now stands, not written yet: goes
    to `risk:pub:alert`. None for data quality, which is for operators and is never told."""
    if alert.alert_type == AlertType.DATA_QUALITY:
        return None
    return _row(alert, AlertOutbox.Kind.ALERT, alert_payload(alert, trace_id=trace_id).wire())


def update_event(alert: RiskAlert) -> AlertOutbox | None:
    """Anything else that happened to an alert, not written yet: goes to open screens alone."""
    if alert.alert_type == AlertType.DATA_QUALITY:
        return None
    event = UpdateEvent(
        alert_id=alert.alert_id,
        status=alert.status,
        assignee=alert.assignee.get_username() if alert.assignee else None,
        level=alert.escalation_level or None,
        version=alert.version,
    )
    return _row(alert, AlertOutbox.Kind.UPDATE, event.model_dump())


def tell(events: Iterable[AlertOutbox | None]) -> None:
    """Writes events, in order, in the transaction of the changes that they tell of. One INSERT."""
    rows = [row for row in events if row is not None]
    if not rows:
        return
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("an outbox row is written in the transaction of the change that it tells of")
    AlertOutbox.objects.bulk_create(rows)
    transaction.on_commit(nudge_publisher, robust=True)


def tell_alert(alert: RiskAlert, *, trace_id: str = "") -> None:
    """`alert_event`, written."""
    tell([alert_event(alert, trace_id=trace_id)])


def tell_update(alert: RiskAlert) -> None:
    """`update_event`, written."""
    tell([update_event(alert)])


def _row(alert: RiskAlert, kind: str, event: dict[str, Any]) -> AlertOutbox:
    return AlertOutbox(tenant=alert.tenant, kind=kind, alert_id=alert.alert_id, event=event)


class Damaged(Exception):
    """An outbox row holds something else than an event. Its text says what, with nothing of what is there."""


def sound_event(kind: str, raw: str | None) -> dict[str, Any]:
    """The event of a row, from the column's text, as it may be sent. Errors: Damaged."""
    if kind not in AlertOutbox.Kind.values:
        raise Damaged("kind is neither alert nor update")
    if raw is None or len(raw) > MAX_EVENT:
        raise Damaged(f"event has more than {MAX_EVENT} characters" if raw else "event is null")
    try:
        stored = json.loads(raw)
    except (ValueError, RecursionError):
        raise Damaged("event is no JSON") from None
    schema = AlertPayload if kind == AlertOutbox.Kind.ALERT else UpdateEvent
    if not isinstance(stored, dict):
        raise Damaged("event is no object")
    try:
        event = schema.model_validate(stored, strict=True)
    except (ValidationError, RecursionError) as error:
        raise Damaged(_faults(error, schema)) from None
    body = event.wire() if isinstance(event, AlertPayload) else event.model_dump()
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Damaged("event holds half of a surrogate pair") from None
    return body


def _faults(error: Exception, schema: type[BaseModel]) -> str:
    """Names of declared fields and kinds of faults alone: what else stands there may be anything."""
    if not isinstance(error, ValidationError):
        return "event is nested too deep"
    found = set()
    for fault in error.errors(include_input=False, include_context=False, include_url=False):
        name = fault["loc"][0] if fault["loc"] else ""
        found.add(f"{name if name in schema.model_fields else 'a field that is not declared'}: {fault['type']}")
    return "; ".join(sorted(found))[:200]


# In place of an event that is set aside: its number is told, so that none is missing, and nothing else.
VOID: dict[str, Any] = {"type": "void"}


def frame(kind: str, event: dict[str, Any]) -> dict[str, Any]:
    """An outbox row as a websocket frame, still without its seq."""
    if kind == AlertOutbox.Kind.ALERT:
        return {"type": "alert", "alert": event}
    return {"type": "update", **event}
