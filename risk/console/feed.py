"""What each console page tells its script about the live feed: where it stood when the page was read, and whose."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.http import HttpRequest

from guard.access.staff_admin import request_tenant
from risk.alerts.models import FeedHead
from risk.console.sight import Sight
from risk.console.words import SUBTYPES

__all__ = ["feed_context", "feed_person", "feed_seq", "request_sight", "request_tenant"]


def request_sight(request: HttpRequest) -> Sight:
    """What the person who asks may see and do, looked up once a request."""
    sight: Sight | None = getattr(request, "_xinghuo_sight", None)
    if sight is None:
        sight = Sight(request.user)
        request._xinghuo_sight = sight  # type: ignore[attr-defined]
    return sight


def feed_seq(request: HttpRequest) -> int:
    """The feed's last seq, read once a request and before the page's rows: the socket resumes after it, so that
    nothing falls between the reading and the connecting."""
    seq: int | None = getattr(request, "_xinghuo_feed_seq", None)
    if seq is None:
        head = FeedHead.objects.filter(tenant=request_tenant(request)).first()
        seq = head.seq if head else 0
        request._xinghuo_feed_seq = seq  # type: ignore[attr-defined]
    return seq


def feed_person(request: HttpRequest) -> str:
    """What a browser keeps this person's marks and settings under: numbers are a tenant's, marks a person's."""
    return f"{request.user.pk}.{request_tenant(request)}"


def feed_context(request: HttpRequest) -> dict[str, Any]:
    """Nothing for people who may not see alerts."""
    if not (request.user.is_staff and request_sight(request).cases):  # type: ignore[union-attr]
        return {}
    words = {code: str(label) for code, label in SUBTYPES.items()}
    return {
        "feed_seq": feed_seq(request),
        "feed_person": feed_person(request),
        "feed_heartbeat": settings.FEED_HEARTBEAT_SECONDS,
        "feed_zone": settings.BUSINESS_TIME_ZONE,
        "subtype_words_json": json.dumps(words, ensure_ascii=False),
    }
