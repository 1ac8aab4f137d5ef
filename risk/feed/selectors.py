"""Reads of the feed: where it stands, and what came after a number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from django.db.models import ExpressionWrapper, F, QuerySet, TextField

from risk.alerts.models import AlertOutbox, FeedHead, RiskAlert
from risk.feed.events import VOID, Damaged, UpdateEvent, frame, sound_event

PAGE = 200


def head(*, tenant: str) -> int:
    """The last seq stamped in the tenant; 0 before the first."""
    return FeedHead.objects.filter(pk=tenant).values_list("seq", flat=True).first() or 0


def heads(*, tenants: Iterable[str]) -> dict[str, int]:
    """`head` of several tenants. 1 query."""
    found = dict(FeedHead.objects.filter(pk__in=tenants).values_list("pk", "seq"))
    return {tenant: found.get(tenant, 0) for tenant in tenants}


def oldest_unsent() -> datetime | None:
    """When the oldest event that the publisher has not sent was written. By an index."""
    unsent = AlertOutbox.objects.filter(published_at=None).order_by("id")
    return unsent.values_list("created_at", flat=True).first()


def stands(*, tenant: str, alert_ids: Collection[str]) -> dict[str, dict[str, Any]]:
    """How alerts stand now, as the fields of an `update` frame, by their id. 1 query."""
    found = RiskAlert.objects.filter(tenant=tenant, alert_id__in=alert_ids).order_by()
    columns = ("alert_id", "status", "assignee__username", "escalation_level", "version")
    return {
        alert_id: UpdateEvent(
            alert_id=alert_id, status=status, assignee=assignee, level=level or None, version=version
        ).model_dump()
        for alert_id, status, assignee, level, version in found.values_list(*columns)
    }


def frames_after(*, tenant: str, after: int, limit: int | None = None) -> list[dict[str, Any]]:
    """Websocket frames with seq > `after`, in order, at most `limit` (PAGE). Of a row that is set aside, or
    damaged since it was sent, a `void` frame: no number is missing."""
    rows = with_raw(AlertOutbox.objects.filter(tenant=tenant, seq__gt=after)).order_by("seq")
    frames = []
    for seq, kind, raw, set_aside_at in rows.values_list("seq", "kind", "raw", "set_aside_at")[: limit or PAGE]:
        try:
            body = VOID if set_aside_at else frame(kind, sound_event(kind, raw))
        except Damaged:
            body = VOID
        frames.append({**body, "seq": seq})
    return frames


def with_raw(rows: QuerySet[AlertOutbox]) -> QuerySet[Any]:
    """The rows with `raw`, the event's text as it stands there: one that is no JSON must not stop the others."""
    return rows.annotate(raw=ExpressionWrapper(F("event"), output_field=TextField(null=True)))


def set_aside(*, tenant: str | None = None) -> QuerySet[AlertOutbox]:
    """Rows that were set aside and whose alert has not been told again since. By an index."""
    rows = AlertOutbox.objects.filter(set_aside_at__isnull=False, resent_at=None)
    return rows if tenant is None else rows.filter(tenant=tenant)


def can_resume(*, tenant: str, after: int) -> bool:
    """Whether every event since `after` is still kept. Numbers above the head are of another feed."""
    last = head(tenant=tenant)
    if not 0 <= after <= last:
        return False
    return after == last or AlertOutbox.objects.filter(tenant=tenant, seq=after + 1).exists()
