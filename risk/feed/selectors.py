"""Reads of the feed: where it stands, and what came after a number."""

from __future__ import annotations

from typing import Any

from django.db.models import ExpressionWrapper, F, QuerySet, TextField

from risk.alerts.models import AlertOutbox, FeedHead
from risk.feed.events import VOID, Damaged, frame, sound_event

PAGE = 200


def head(*, tenant: str) -> int:
    """The last seq stamped in the tenant; 0 before the first."""
    return FeedHead.objects.filter(pk=tenant).values_list("seq", flat=True).first() or 0


def frames_after(*, tenant: str, after: int, limit: int = PAGE) -> list[dict[str, Any]]:
    """Websocket frames with seq > `after`, in order, at most `limit`. Of a row that is set aside, or damaged since it
    was sent, a `void` frame: no number is missing."""
    rows = with_raw(AlertOutbox.objects.filter(tenant=tenant, seq__gt=after)).order_by("seq")
    frames = []
    for seq, kind, raw, set_aside_at in rows.values_list("seq", "kind", "raw", "set_aside_at")[:limit]:
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
