"""The overview page: what waits, by band, and what is mine."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from config.base.clock import now, rfc3339
from risk.console.counting import tiles
from risk.console.feed import feed_seq, request_sight, request_tenant
from risk.console.filters import Filters
from risk.console.queue import page_of
from risk.console.rows import cells, rows_of

URGENT_ROWS = 8
COLUMNS = ("due", "score", "level", "sentence", "customer", "hits", "assignee", "status")


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
        "urgent": rows_of(page, tenant=tenant, columns=COLUMNS),
        "urgent_limit": URGENT_ROWS,
        "cells": cells(COLUMNS),
        "plain": ",".join(COLUMNS),
        "clock": rfc3339(now()),
    }
