"""The overview page: what waits, by band, and what is mine."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from risk.console.feed import VIEW, feed_seq, request_tenant
from risk.console.queue import Filters, page_of, tiles
from risk.console.rows import row_of

URGENT_ROWS = 8


def overview_context(request: HttpRequest) -> dict[str, Any]:
    """Nothing for people who may not see alerts: their overview is the list of what they may open."""
    if not request.user.has_perm(VIEW):  # type: ignore[union-attr]
        return {}
    tenant = request_tenant(request)
    feed_seq(request)
    page = page_of(tenant=tenant, user=request.user, filters=Filters(), size=URGENT_ROWS)
    return {
        "tiles": tiles(tenant=tenant, user=request.user),
        "urgent": [row_of(alert, page.top_hits.get(alert.pk)) for alert in page.alerts],
        "urgent_limit": URGENT_ROWS,
    }
