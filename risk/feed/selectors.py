"""Reads of the feed: where it stands, and what came after a number."""

from __future__ import annotations

from typing import Any

from risk.alerts.models import AlertOutbox, FeedHead
from risk.feed.events import frame

PAGE = 200


def head(*, tenant: str) -> int:
    """The last seq stamped in the tenant; 0 before the first."""
    return FeedHead.objects.filter(pk=tenant).values_list("seq", flat=True).first() or 0


def frames_after(*, tenant: str, after: int, limit: int = PAGE) -> list[dict[str, Any]]:
    """Websocket frames with seq > `after`, in order, at most `limit`."""
    rows = AlertOutbox.objects.filter(tenant=tenant, seq__gt=after).order_by("seq")
    return [{**frame(kind, event), "seq": seq} for seq, kind, event in rows.values_list("seq", "kind", "event")[:limit]]


def can_resume(*, tenant: str, after: int) -> bool:
    """Whether every event since `after` is still kept. Numbers above the head are of another feed."""
    last = head(tenant=tenant)
    if not 0 <= after <= last:
        return False
    return after == last or AlertOutbox.objects.filter(tenant=tenant, seq=after + 1).exists()
