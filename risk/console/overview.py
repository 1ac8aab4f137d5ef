"""The overview page: what waits, by band, and what is mine."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from risk.console.feed import feed_seq, request_sight, request_tenant
from risk.console.queue import Filters, page_of, tiles
from risk.console.rows import row_of

URGENT_ROWS = 8


def overview_context(request: HttpRequest) -> dict[str, Any]:
    """Nothing for people who may not see alerts: their overview is the list of what they may open."""
    sight = request_sight(request)
    if not sight.cases:
        return {}
    tenant = request_tenant(request)
    feed_seq(request)
    page = page_of(tenant=tenant, user=request.user, sight=sight, filters=Filters(), size=URGENT_ROWS)
    return {
        "tiles": tiles(tenant=tenant, user=request.user, sight=sight),
        "urgent": [row_of(alert, page.top_hits.get(alert.pk)) for alert in page.alerts],
        "urgent_limit": URGENT_ROWS,
    }
