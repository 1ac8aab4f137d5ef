"""How much there is of the queue's tabs, and of whatever else is asked, each up to a limit and no further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import connections
from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from risk.alerts.models import RiskAlert
from risk.console.filters import TABS, Filters, tabs_of
from risk.console.queue import COUNT_LIMIT, Person, state_of
from risk.console.sight import Sight

T = TypeVar("T")

# RISK.md 2: low < 40, medium 40-59, high 60-79, critical >= 80.
BANDS: dict[str, tuple[int, int, Promise]] = {
    "critical": (80, 100, _("critical")),
    "high": (60, 79, _("high")),
    "medium": (40, 59, _("medium")),
    "low": (0, 39, _("low")),
}


def capped(count: int, limit: int = COUNT_LIMIT) -> str:
    """`1,000+` past the limit."""
    return f"{count:,}" if count <= limit else f"{limit:,}+"


def counts_of(parts: Mapping[str, QuerySet[RiskAlert]]) -> dict[str, str]:
    """How many each holds, up to COUNT_LIMIT: never a COUNT(*) over the table. 1 query for all of them."""
    return {name: capped(count) for name, count in numbers_of(parts).items()}


def numbers_of(parts: Mapping[T, QuerySet[RiskAlert]], limits: Mapping[T, int] | None = None) -> dict[T, int]:
    """As counts_of, in whole numbers: one more than the limit where there are more. limits: where it is another."""
    if not parts:
        return {}
    connection = connections[RiskAlert.objects.db]
    columns: list[str] = []
    parameters: list[Any] = []
    for name, part in parts.items():
        limit = (limits or {}).get(name, COUNT_LIMIT)
        sql, values = part.order_by().values("pk")[: limit + 1].query.sql_with_params()
        columns.append(f"(SELECT COUNT(*) FROM ({sql}) held)")  # noqa: S608 - the ORM's own words
        parameters += values
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)}", parameters)
        return dict(zip(parts, cursor.fetchone(), strict=True))


def tab_counts(*, tenant: str, user: Person, sight: Sight) -> dict[str, str]:
    """What each tab holds unasked. 1 query."""
    held = {}
    for name in tabs_of(sight):
        condition = state_of(Filters(tab=name))
        held[name] = RiskAlert.objects.filter(condition, tenant=tenant, alert_type__in=TABS[name].kinds)
    return counts_of(held)
