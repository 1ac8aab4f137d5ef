"""How much there is: of the queue's tabs and of the overview, each up to a limit and no further."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from risk.alerts.models import AlertType, RiskAlert, Shelf
from risk.console.filters import TABS, Filters, tabs_of
from risk.console.queue import COUNT_LIMIT, Person, state_of
from risk.console.sight import Sight

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
    if not parts:
        return {}
    connection = connections[RiskAlert.objects.db]
    columns: list[str] = []
    parameters: list[Any] = []
    for part in parts.values():
        sql, values = part.order_by().values("pk")[: COUNT_LIMIT + 1].query.sql_with_params()
        columns.append(f"(SELECT COUNT(*) FROM ({sql}) held)")  # noqa: S608 - the ORM's own words
        parameters += values
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)}", parameters)
        return {name: capped(count) for name, count in zip(parts, cursor.fetchone(), strict=True)}


def _open(tenant: str, *kinds: AlertType) -> QuerySet[RiskAlert]:
    return RiskAlert.objects.filter(tenant=tenant, alert_type__in=kinds, shelf=Shelf.OPEN)


def tab_counts(*, tenant: str, user: Person, sight: Sight) -> dict[str, str]:
    """What each tab holds unasked. 1 query."""
    held = {}
    for name in tabs_of(sight):
        condition = state_of(Filters(tab=name))
        held[name] = RiskAlert.objects.filter(condition, tenant=tenant, alert_type__in=TABS[name].kinds)
    return counts_of(held)


@dataclass(frozen=True)
class Tile:
    name: str
    label: Any
    count: str
    link: str
    note: Any = ""


def tiles(*, tenant: str, user: Person, sight: Sight) -> list[Tile]:
    """The overview's figures in one query: customers' open alerts by band, mine, unassigned; conduct and reports."""
    customers = _open(tenant, AlertType.EVENT)
    held = {name: customers.filter(score__range=(low, high)) for name, (low, high, _label) in BANDS.items()}
    base = Filters()
    notes = {"critical": _("score 80 and more"), "high": "60 – 79", "medium": "40 – 59", "low": _("under 40")}
    shown: dict[str, tuple[Any, str, Any]] = {
        name: (label, base.link(low=low, high=high), notes[name]) for name, (low, high, label) in BANDS.items()
    }
    if sight.acts:
        held["mine"] = customers.filter(assignee_id=user.pk)
        shown["mine"] = (_("Mine"), base.link(assignee="me"), _("claimed by me"))
    held["unassigned"] = customers.filter(assignee=None)
    shown["unassigned"] = (_("Unassigned"), base.link(assignee="none"), "")
    for name, kind in (("conduct", AlertType.PATTERN), ("reports", AlertType.REPORT)):
        held[name] = _open(tenant, kind)
        shown[name] = (TABS[name].label, base.link(tab=name), "")
    counts = counts_of(held)
    return [Tile(name, label, counts[name], link, note) for name, (label, link, note) in shown.items()]
