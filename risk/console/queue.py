"""The officers' queue: which alerts a tab and its filters hold, in keyset pages, with bounded counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, OuterRef, Q, QuerySet, Subquery
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from config.base.asked import number
from config.base.clock import from_micros, to_micros
from memory.core.models import CoreTrade
from risk.alerts.models import DISPOSED, AlertStatus, AlertType, HitState, RiskAlert, RiskAlertHit
from risk.console.sight import Sight, alerts_of, kinds_made

PAGE_SIZE = 50
# Counts on the tabs stop here: past it an officer needs to know that it is too many, not how many.
COUNT_LIMIT = 999
MAX_NAMED = 500  # alerts of one customer, advisor or trade that a search shows, the newest
Person = AbstractBaseUser | AnonymousUser
OPEN = (AlertStatus.PENDING, AlertStatus.IN_REVIEW, AlertStatus.ESCALATED)

TABS: dict[str, Promise] = {
    "open": _("Open"),
    "mine": _("Mine"),
    "unassigned": _("Unassigned"),
    "disposed": _("Disposed"),
    "all": _("All"),
    "faults": _("Data quality"),
}
# RISK.md 2: low < 40, medium 40-59, high 60-79, critical >= 80.
BANDS: dict[str, tuple[int, int, Promise]] = {
    "critical": (80, 100, _("critical")),
    "high": (60, 79, _("high")),
    "medium": (40, 59, _("medium")),
    "low": (0, 39, _("low")),
}
SORTS: dict[str, Promise] = {"score": _("Highest score first"), "opened": _("Newest first")}


def tabs_of(sight: Sight) -> list[str]:
    """The tabs that hold something for this person, the first of them to start with."""
    names = ["open", "mine", "unassigned", "disposed", "all"] if sight.cases else []
    if not sight.acts and "mine" in names:
        names.remove("mine")  # who claims nothing has nothing
    return [*names, "faults"] if sight.faults else names


@dataclass(frozen=True)
class Filters:
    """What the officer looks at, as it stands in the address."""

    tab: str = "open"
    alert_type: str = ""
    band: str = ""
    search: str = ""
    sort: str = "score"
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str], sight: Sight) -> Filters:
        """From a query string; words it does not know, or that this person has no use for, count as not given."""
        tabs = tabs_of(sight)

        def known(name: str, words: Iterable[str], default: str) -> str:
            value = query.get(name, "")
            return value if value in words else default

        return cls(
            tab=known("tab", tabs, tabs[0]),
            alert_type=known("type", [value for value, _label in kinds_made()], "") if sight.cases else "",
            band=known("band", BANDS, ""),
            search=query.get("q", "").strip()[:64],
            sort=known("sort", SORTS, "score"),
            after=query.get("after", "")[:120],
        )

    def link(self, **changes: str) -> str:
        """The address of this view with other words; a change of view starts at its first page."""
        changed = replace(self, **{"after": "", **changes})
        words = {
            "tab": changed.tab,
            "type": changed.alert_type,
            "band": changed.band,
            "q": changed.search,
            "sort": "" if changed.sort == "score" else changed.sort,
            "after": changed.after,
        }
        return "?" + urlencode({name: value for name, value in words.items() if value})


@dataclass(frozen=True)
class Page:
    alerts: Sequence[RiskAlert]
    next_after: str = ""
    top_hits: Mapping[str, RiskAlertHit] = field(default_factory=dict)


def matching(*, tenant: str, user: Person, sight: Sight, filters: Filters) -> QuerySet[RiskAlert]:
    """Alerts in this person's sight that the tab and the filters hold. Search is exact: an alert, customer, advisor or
    trade id."""
    alerts = alerts_of(tenant=tenant, sight=sight)
    if filters.search:
        # Searching looks everywhere: an officer who names an alert wants that alert, whatever tab is open.
        return alerts.filter(pk__in=_named(tenant, filters.search))
    if filters.tab in ("open", "mine", "unassigned"):
        alerts = alerts.filter(status__in=OPEN)
    elif filters.tab == "disposed":
        alerts = alerts.filter(status__in=DISPOSED)
    if filters.tab == "mine":
        alerts = alerts.filter(assignee_id=user.pk)
    elif filters.tab == "unassigned":
        alerts = alerts.filter(assignee=None)
    if filters.tab == "faults":
        # A fault that was mended has no live hit left, and nobody disposes of it.
        return alerts.filter(alert_type=AlertType.DATA_QUALITY, hit_count__gt=0)
    alerts = alerts.exclude(alert_type=AlertType.DATA_QUALITY)
    if filters.alert_type:
        alerts = alerts.filter(alert_type=filters.alert_type)
    if filters.band:
        low, high, _label = BANDS[filters.band]
        alerts = alerts.filter(score__range=(low, high))
    return alerts


def _named(tenant: str, words: str) -> list[str]:
    """Ids of the alerts that an alert, customer, advisor or trade id names; each way by an index of its own."""
    alerts = RiskAlert.objects.filter(tenant=tenant).order_by("-opened_at").values_list("pk", flat=True)
    found = set(alerts.filter(pk=words))
    found.update(alerts.filter(customer_id=words)[:MAX_NAMED])
    found.update(alerts.filter(advisor_id=words)[:MAX_NAMED])
    # Hits are indexed by customer: whose trade it is, the core knows.
    customers = list(CoreTrade.objects.filter(tenant=tenant, trade_id=words).values_list("customer_id", flat=True))
    if customers:
        hits = RiskAlertHit.objects.filter(tenant=tenant, customer_id__in=customers, trade_id=words)
        found.update(hits.order_by().values_list("alert_id", flat=True)[:MAX_NAMED])
    return sorted(found)


def page_of(*, tenant: str, user: Person, sight: Sight, filters: Filters, size: int = PAGE_SIZE) -> Page:
    """One page in three queries, whatever the page holds."""
    alerts = matching(tenant=tenant, user=user, sight=sight, filters=filters)
    order = "opened_at" if filters.sort == "opened" else "score"
    alerts = alerts.order_by(f"-{order}", "-alert_id")
    position = _position(filters)
    if position is not None:
        value, alert_id = position
        # The first condition says nothing new; it gives the index a range to start from.
        alerts = alerts.filter(**{f"{order}__lte": value})
        alerts = alerts.filter(Q(**{f"{order}__lt": value}) | Q(alert_id__lt=alert_id))
    found = list(alerts.select_related("assignee")[: size + 1])
    rows = found[:size]
    next_after = ""
    if len(found) > size:
        last = rows[-1]
        place = to_micros(last.opened_at) if order == "opened_at" else last.score
        next_after = f"{place}~{last.alert_id}"
    return Page(rows, next_after, top_hits(rows))


def _position(filters: Filters) -> tuple[int | datetime, str] | None:
    place, _tilde, alert_id = filters.after.partition("~")
    value = number(place)
    if value is None or len(place) > 16 or not alert_id:
        return None
    return (from_micros(value) if filters.sort == "opened" else value), alert_id


def top_hits(alerts: Sequence[RiskAlert]) -> dict[str, RiskAlertHit]:
    """The strongest hit of each alert, of which its sentence is made, by alert id. Two queries.

    Asked for the page's alerts alone: in the page's own query the database would look it up for every alert that it
    sorts.
    """
    strongest = (
        RiskAlertHit.objects.filter(alert_id=OuterRef("pk"))
        .exclude(state=HitState.SUPERSEDED)
        .order_by("-score", "-id")
        .values("pk")[:1]
    )
    page = RiskAlert.objects.filter(pk__in=[alert.pk for alert in alerts]).annotate(top_hit_id=Subquery(strongest))
    ids = list(page.order_by().values_list("top_hit_id", flat=True))
    return {hit.alert_id: hit for hit in RiskAlertHit.objects.filter(pk__in=ids)}  # type: ignore[attr-defined]


def capped(count: int) -> str:
    return str(count) if count <= COUNT_LIMIT else f"{COUNT_LIMIT}+"


def tab_counts(*, tenant: str, user: Person, sight: Sight) -> dict[str, str]:
    """How many wait in each tab, counted up to COUNT_LIMIT: never a COUNT(*) over the table."""
    waiting = RiskAlert.objects.filter(tenant=tenant, status__in=OPEN).exclude(alert_type=AlertType.DATA_QUALITY)
    held = {
        "open": waiting,
        "mine": waiting.filter(assignee_id=user.pk),
        "unassigned": waiting.filter(assignee=None),
        "faults": RiskAlert.objects.filter(tenant=tenant, alert_type=AlertType.DATA_QUALITY, hit_count__gt=0),
    }

    def count(alerts: QuerySet[RiskAlert]) -> str:
        return capped(alerts.order_by()[: COUNT_LIMIT + 1].count())

    return {name: count(held[name]) for name in tabs_of(sight) if name in held}


@dataclass(frozen=True)
class Tile:
    name: str
    label: Any
    count: str
    link: str
    note: Any = ""


def tiles(*, tenant: str, user: Person, sight: Sight) -> list[Tile]:
    """The overview's figures in one query: open alerts by band, mine, unassigned."""
    waiting = RiskAlert.objects.filter(tenant=tenant, status__in=OPEN).exclude(alert_type=AlertType.DATA_QUALITY)
    by_band = {name: Count("pk", filter=Q(score__range=(low, high))) for name, (low, high, _label) in BANDS.items()}
    counts = waiting.aggregate(
        **by_band,
        mine=Count("pk", filter=Q(assignee_id=user.pk)),
        unassigned=Count("pk", filter=Q(assignee=None)),
    )
    base = Filters()
    notes = {"critical": _("score 80 and more"), "high": "60 – 79", "medium": "40 – 59", "low": _("under 40")}
    found = [
        Tile(name, label, str(counts[name]), base.link(band=name), notes[name])
        for name, (_low, _high, label) in BANDS.items()
    ]
    if sight.acts:
        found.append(Tile("mine", TABS["mine"], str(counts["mine"]), base.link(tab="mine"), _("claimed by me")))
    unassigned = str(counts["unassigned"])
    return [*found, Tile("unassigned", TABS["unassigned"], unassigned, base.link(tab="unassigned"))]
