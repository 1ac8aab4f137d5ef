"""Time: UTC with microseconds in storage, RFC 3339 with six digits on the wire, business days in one zone."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.utils import timezone


def now() -> datetime:
    """The present instant, aware, UTC."""
    return timezone.now()


def rfc3339(moment: datetime) -> str:
    """`2026-11-30T08:00:00.000000Z`: always UTC, always six digits."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_micros(micros: int) -> datetime:
    """An instant from whole microseconds since 1970 (what Lua makes of Redis TIME), without float rounding."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def to_micros(moment: datetime) -> int:
    """Whole microseconds since 1970."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def business_zone() -> ZoneInfo:
    return ZoneInfo(settings.BUSINESS_TIME_ZONE)


def business_date(moment: datetime) -> date:
    """The business day `[00:00, 24:00)` that holds `moment`."""
    return moment.astimezone(business_zone()).date()


def business_day_bounds(day: date) -> tuple[datetime, datetime]:
    """First instant of `day` and first instant after it, both UTC."""
    start = datetime.combine(day, time(), tzinfo=business_zone())
    end = datetime.combine(day + timedelta(days=1), time(), tzinfo=business_zone())
    return start.astimezone(UTC), end.astimezone(UTC)
