"""The officers' queue: which alerts a tab and its filters hold, in keyset pages, with bounded counts.

A page is found by index alone, whatever the filters: its ids in the order of an index, then its rows by their keys.
Where a filter stands for several values of an index (a range of scores, the sets of rules that hold one), each value is
read in its order up to the page's end, and the results are merged: 'any of these values, by due' in one range would be
sorted whole. docs/decisions/0030-the-queue.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import connections
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from config.base.asked import number
from config.base.clock import business_date, business_day_bounds, from_micros, now, to_micros
from memory.core.models import CoreTrade
from risk.alerts.looking import new_hits
from risk.alerts.models import (
    DISPOSED,
    SET_CHARS,
    AlertStatus,
    HitState,
    RiskAlert,
    RiskAlertHit,
    Shelf,
    WokenBy,
)
from risk.console.filters import AGES, SPANS, TABS, Filters, hour_of
from risk.console.sets import may_hold, sets_of
from risk.console.sight import Sight, alerts_of

PAGE_SIZE = 50
# Counts stop here: past it an officer needs to know that it is too many, not how many.
COUNT_LIMIT = 1000
COUNT_LIMIT_OF_SEVERAL = 200  # filters at once
MAX_NAMED = 500  # alerts of one customer, advisor, trade or trace that a search shows, the newest
# A jump to a page walks over the ids before it, in an index: so many at most, a quarter of a second's worth.
JUMP_ROWS = 100_000
Person = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True)
class Page:
    """number: of this page as far as it is known. last: the page past which a jump does not go."""

    alerts: Sequence[RiskAlert]
    next_after: str = ""
    previous_before: str = ""
    number: int = 1
    top_hits: Mapping[str, RiskAlertHit] = field(default_factory=dict)
    new_hits: Mapping[str, int] = field(default_factory=dict)


# --- what a view holds ----------------------------------------------------------------------------------------------


def matching(*, tenant: str, user: Person, sight: Sight, filters: Filters) -> QuerySet[RiskAlert]:
    """Alerts in this person's sight that the tab and the filters hold. Search is exact, and looks in every tab: an
    officer who names an alert wants that alert."""
    alerts = alerts_of(tenant=tenant, sight=sight)
    if filters.search:
        return alerts.filter(pk__in=_named(tenant, filters.search))
    for condition in _conditions(user, filters).values():
        alerts = alerts.filter(condition)
    return alerts


def _conditions(user: Person, filters: Filters) -> dict[str, Q]:
    """What the tab and each filter ask for, by name."""
    found = {"kinds": Q(alert_type__in=TABS[filters.tab].kinds), "state": state_of(filters)}
    if filters.level:
        found["level"] = Q(escalation_level="" if filters.level == "none" else filters.level)
    if filters.rule:
        found["rule"] = Q(rule_ids__contains=filters.rule)
    if filters.subtype:
        found["subtype"] = Q(subtypes__contains=filters.subtype)
    if (filters.low, filters.high) != (0, 100):
        found["score"] = Q(score__range=(filters.low, filters.high))
    if filters.assignee:
        found["assignee"] = Q(assignee_id=_assignee(user, filters.assignee))
    if filters.customer:
        found["customer"] = Q(customer_id=filters.customer)
    if filters.advisor:
        found["advisor"] = Q(advisor_id=filters.advisor)
    if filters.age:
        found["age"] = age_of(filters.age)
    if filters.due and not filters.newest_first:
        found["due"] = due_in(filters.due)
    if filters.back:
        found["back"] = Q(woken_by__in=BACK[filters.back])
    if filters.code:
        found["code"] = Q(disposition_code=filters.code)
    if filters.since:
        found["since"] = Q(queue_at__gte=span_begins(filters.since))
    if filters.opened:
        found["opened"] = _opened(filters.opened)
    if filters.tab == "review" and filters.state:
        own = Q(proposed_by_id=user.pk)
        found["proposer"] = own if filters.state == "own" else ~own
    return found


def state_of(filters: Filters) -> Q:
    if filters.tab == "review":
        return Q(status=AlertStatus.ESCALATED)
    if filters.state == "period":
        # A period is 30 days at most and begins with the disposition.
        at = now()
        return Q(shelf=Shelf.DONE, quiet_until__gt=at, queue_at__gt=at - timedelta(days=31))
    if filters.state == "all":
        return Q(shelf__in=Shelf.values)
    if filters.state == "done":
        return Q(shelf=Shelf.DONE)
    if filters.tab == "quiet":
        return Q(shelf=Shelf.ASIDE)
    if filters.state:
        return Q(status=filters.state, shelf=Shelf.DONE if filters.state in DISPOSED else Shelf.OPEN)
    return Q(shelf=Shelf.OPEN)


def _shelves(filters: Filters) -> list[Shelf | None]:
    """The shelves on which a view lies; None where the status alone says what it holds."""
    if filters.tab == "review":
        return [None]
    if filters.state == "all":
        return list(Shelf)
    if filters.newest_first:
        return [Shelf.DONE]
    return [Shelf.ASIDE if filters.tab == "quiet" else Shelf.OPEN]


def _assignee(user: Person, name: str) -> int | None:
    if name == "me":
        return user.pk
    if name == "none":
        return None
    # Nobody has the number -1: a name that is nobody's finds nothing.
    return User.objects.filter(username=name).values_list("pk", flat=True).first() or -1


def age_of(name: str, *, in_queue: bool = True) -> Q:
    """in_queue: with a condition by which an index of the queue is begun."""
    _label, over, up_to = AGES[name]
    at = now()
    found = Q(opened_at__lt=at - over) if over is not None else Q()
    if up_to is None:
        return found
    found &= Q(opened_at__gte=at - up_to)
    # No alert is due or disposed of before it is opened: the second condition gives the index a range.
    return found & Q(queue_at__gte=at - up_to) if in_queue else found


def span_begins(span: str) -> datetime:
    """The first instant of the business days of SPANS."""
    return business_day_bounds(business_date(now()) - timedelta(days=SPANS[span][1] - 1))[0]


def _opened(words: str) -> Q:
    begins = hour_of(words)
    if begins is not None:
        return Q(opened_at__gte=begins, opened_at__lt=begins + timedelta(hours=1))
    return Q(opened_at__gte=span_begins(words), queue_at__gte=span_begins(words))


def due_in(name: str) -> Q:
    """Of alerts that have a limit."""
    at = now()
    midnight = business_day_bounds(business_date(at))[1]
    ranges = {
        "overdue": Q(queue_at__lt=at),
        "2h": Q(queue_at__gte=at, queue_at__lt=at + timedelta(hours=2)),
        "today": Q(queue_at__gte=at, queue_at__lt=midnight),
        "later": Q(queue_at__gte=midnight),
    }
    return ranges[name] & Q(dispose_due_at__isnull=False)


def _named(tenant: str, words: str) -> list[str]:
    """Ids of the alerts that an alert, customer, advisor, trade or trace id names; each way by an index of its own."""
    alerts = RiskAlert.objects.filter(tenant=tenant).order_by("-opened_at").values_list("pk", flat=True)
    found = set(alerts.filter(pk=words))
    found.update(alerts.filter(customer_id=words)[:MAX_NAMED])
    found.update(alerts.filter(advisor_id=words)[:MAX_NAMED])
    found.update(alerts.filter(trace_id=words)[:MAX_NAMED])
    # Hits are indexed by customer: whose trade it is, the core knows.
    customers = list(CoreTrade.objects.filter(tenant=tenant, trade_id=words).values_list("customer_id", flat=True))
    if customers:
        hits = RiskAlertHit.objects.filter(tenant=tenant, customer_id__in=customers, trade_id=words)
        found.update(hits.order_by().values_list("alert_id", flat=True)[:MAX_NAMED])
    return sorted(found)


# --- in the order of an index -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """A view as ranges of one index each, which hold every alert of it once."""

    ranges: Sequence[QuerySet[RiskAlert]]
    newest_first: bool
    count_limit: int = COUNT_LIMIT
    index: str = ""  # by which to read it, where the planner is not left to choose

    @property
    def furthest(self) -> int:
        """The number of the last page that a jump goes to."""
        return max(1, JUMP_ROWS // PAGE_SIZE // max(1, len(self.ranges)))

    def ids(self, *, start: int, size: int, place: tuple[datetime, str] | None = None, backwards: bool = False) -> Any:
        """(queue_at, alert_id) of `size` alerts from the `start`th after a place (backwards: before it), in the order
        that is read. 1 query."""
        descending = self.newest_first != backwards
        order = ("-queue_at", "-alert_id") if descending else ("queue_at", "alert_id")
        parts = []
        for one in self.ranges:
            if place is not None:
                at, alert_id = place
                how = "lt" if descending else "gt"
                # The first condition says nothing new; it gives the index a range to start from.
                one = one.filter(**{f"queue_at__{how}e": at})
                one = one.filter(Q(**{f"queue_at__{how}": at}) | Q(**{f"alert_id__{how}": alert_id}))
            parts.append(one.order_by(*order).values_list("queue_at", "alert_id"))
        if not parts:
            return []
        if self.index:
            return self._by_index([part[: start + size] for part in parts], descending, start, size)
        if len(parts) == 1:
            return list(parts[0][start : start + size])
        merged = parts[0][: start + size].union(*(part[: start + size] for part in parts[1:]), all=True)
        return list(merged.order_by(*order)[start : start + size])

    def count(self) -> int:
        """How many there are, up to one more than the limit. 1 query."""
        limit = self.count_limit
        if not self.ranges:
            return 0
        # In order, though nobody asks for it: else the database might read another index, and that one through.
        order = ("-queue_at", "-alert_id") if self.newest_first else ("queue_at", "alert_id")
        if self.index:
            places = [one.order_by(*order).values_list("queue_at", "pk")[: limit + 1] for one in self.ranges]
            return len(self._by_index(places, self.newest_first, 0, limit + 1))
        parts = [one.order_by(*order).values("pk")[: limit + 1] for one in self.ranges]
        return (parts[0] if len(parts) == 1 else parts[0].union(*parts[1:], all=True)[: limit + 1]).count()

    def _by_index(self, parts: Sequence[Any], descending: bool, start: int, size: int) -> list[tuple[datetime, str]]:
        """The parts merged, each read by `index`: of two filters the planner would rather sort the whole table."""
        connection = connections[parts[0].db]
        table = connection.ops.quote_name(RiskAlert._meta.db_table)
        forced, parameters = [], []
        for part in parts:
            sql, values = part.query.sql_with_params()
            forced.append(f"({sql.replace(f' FROM {table} ', f' FROM {table} FORCE INDEX ({self.index}) ', 1)})")
            parameters += values
        order = " ORDER BY 1 DESC, 2 DESC" if descending else " ORDER BY 1, 2"
        sql = f"{' UNION ALL '.join(forced)}{order if len(forced) > 1 else ''}"
        with connection.cursor() as cursor:
            merged = f"SELECT * FROM ({sql} LIMIT {size} OFFSET {start}) merged{order}"  # noqa: S608 - the ORM's words
            cursor.execute(merged, parameters)
            return [(at.replace(tzinfo=UTC), alert_id) for at, alert_id in cursor.fetchall()]


def reading_of(*, tenant: str, user: Person, sight: Sight, filters: Filters) -> Reading:
    """How a view is read. A query for a person's name, and one for each kind of alert where a rule or subtype is asked
    for."""
    if filters.search:
        found = matching(tenant=tenant, user=user, sight=sight, filters=filters)
        return Reading([found], newest_first=True)
    conditions, alerts = _conditions(user, filters), alerts_of(tenant=tenant, sight=sight)
    kinds, shelves = TABS[filters.tab].kinds, _shelves(filters)
    one_by_one = connections[alerts.db].features.supports_slicing_ordering_in_compound
    ranges: list[QuerySet[RiskAlert]] = []
    if not one_by_one:  # SQLite, which is small: one range and a sort
        return Reading([matching(tenant=tenant, user=user, sight=sight, filters=filters)], filters.newest_first)
    if hour_of(filters.opened):  # so few that they are sorted
        found = matching(tenant=tenant, user=user, sight=sight, filters=filters)
        return Reading([found], filters.newest_first, index="risk_alert_opened")
    del conditions["kinds"]
    column = ""
    for kind, shelf in ((kind, shelf) for kind in kinds for shelf in shelves):
        of_kind = alerts.filter(alert_type=kind)
        if len(shelves) > 1:
            of_kind = of_kind.filter(shelf=shelf)
        column, values = _values(of_kind, filters, shelf)
        rest = [condition for name, condition in conditions.items() if name != column]
        if len(shelves) > 1:
            rest.remove(conditions["state"])
        if column in ("rule", "subtype") and any(len(value) >= SET_CHARS for value in values):
            rest.append(conditions[column])  # a set that is cut off may hold it or not
        if column != "score" and "score" in conditions:
            # Beside another filter a range of scores is no way to start: it would have to be sorted by due.
            rest.remove(conditions["score"])
            of_kind = of_kind.alias(points=F("score") + 0).filter(points__range=(filters.low, filters.high))
        for condition in rest:
            of_kind = of_kind.filter(condition)
        ranges += [of_kind.filter(**{_COLUMN[column]: value}) for value in values] if column else [of_kind]
    # No index holds two filters: for the second each row is looked up.
    several = len(conditions) > 2
    if not several:
        # What is younger than a bound lies in its order from that moment on.
        younger = filters.age and AGES[filters.age][2] is not None and shelves[0] is not None
        return Reading(ranges, filters.newest_first, index="risk_alert_tab" if younger else "")
    # What is older than a day may be nothing: then the planner knows better than to walk over all that is younger.
    unsure = filters.customer or (filters.age and AGES[filters.age][2] is None)
    index = "" if unsure else _index(filters, column, shelves[0])
    return Reading(ranges, filters.newest_first, COUNT_LIMIT_OF_SEVERAL, index)


def _index(filters: Filters, column: str, shelf: Shelf | None) -> str:
    """Of the filters that are set the one that narrows most."""
    if shelf is None:
        return "risk_alert_state"
    if column == "back":
        return "risk_alert_back"
    if column == "rule" and filters.state in DISPOSED:
        return "risk_alert_outcomes"
    for name, index in (("assignee", "risk_alert_assignee"), ("advisor", "risk_alert_of_advisor")):
        if getattr(filters, name):
            return index
    if filters.code:
        return "risk_alert_codes"
    if column:
        return _INDEX[column]
    if filters.level:
        return "risk_alert_level"
    return "risk_alert_state" if filters.state not in ("", "all", "done", "period") else "risk_alert_tab"


BACK = {"returned": [WokenBy.RETURNED], "woken": [WokenBy.TIME, WokenBy.LEVEL]}
_INDEX = {
    "rule": "risk_alert_rules", "subtype": "risk_alert_subtypes", "score": "risk_alert_scores",
}  # fmt: skip
_COLUMN = {"back": "woken_by", "rule": "rule_set", "subtype": "subtype_set", "score": "score"}
# Each narrows more than a range of scores or a set does, and has an index of its own.
_NARROWER = ("customer", "assignee", "advisor", "code")


def _values(alerts: QuerySet[RiskAlert], filters: Filters, shelf: Shelf | None) -> tuple[str, list[Any]]:
    """The filter whose values are read one by one, if there is one, and those values."""
    if shelf is not None and filters.back:  # the fewest of all
        return "back", list(BACK[filters.back])
    if shelf is None or any(getattr(filters, name) for name in _NARROWER):
        return "", []
    for column, wanted in (("subtype", filters.subtype), ("rule", filters.rule)):
        if wanted and (found := sets_of(alerts.filter(shelf=shelf), _COLUMN[column])) is not None:
            return column, [one for one in found if may_hold(one, wanted)]
    if (filters.low, filters.high) != (0, 100) and not filters.level:
        return "score", list(range(filters.low, filters.high + 1))
    return "", []


# --- a page -----------------------------------------------------------------------------------------------------------


def page_of(*, tenant: str, user: Person, sight: Sight, filters: Filters, size: int = PAGE_SIZE) -> Page:
    """One page: a query for its ids, one for its rows and three for what their sentences are made of, whatever it
    holds; besides what `reading_of` asks."""
    reading = reading_of(tenant=tenant, user=user, sight=sight, filters=filters)
    return page_of_reading(reading, user=user, filters=filters, size=size)


def page_of_reading(reading: Reading, *, user: Person, filters: Filters, size: int = PAGE_SIZE) -> Page:
    before, after = _place(filters.before), _place(filters.after)
    backwards = filters.before == "~" or before is not None
    start, page_number = 0, filters.page
    if backwards:
        found = reading.ids(start=0, size=size + 1, place=before, backwards=True)
    elif after is not None:
        found = reading.ids(start=0, size=size + 1, place=after)
    else:
        page_number = min(page_number, reading.furthest)
        start = (page_number - 1) * size
        found = reading.ids(start=start, size=size + 1)
    more, found = len(found) > size, found[:size]
    if backwards:
        found.reverse()
    rows = _rows([alert_id for _at, alert_id in found])
    behind = (backwards and filters.before != "~") or (more and not backwards)
    ahead = more if backwards else after is not None or start > 0
    return Page(
        rows,
        next_after=_words(found[-1]) if found and behind else "",
        previous_before=(_words(found[0]) if found else "~") if ahead else "",
        number=page_number,
        top_hits=top_hits(rows),
        new_hits=new_hits(alert_ids=[alert.pk for alert in rows], person=user),
    )


def _rows(ids: Sequence[str]) -> list[RiskAlert]:
    rows = {row.pk: row for row in RiskAlert.objects.filter(pk__in=ids).select_related("assignee")}
    return [rows[alert_id] for alert_id in ids if alert_id in rows]


def walk(reading: Reading, *, most: int, batch: int = 500) -> Iterator[list[RiskAlert]]:
    """All of a view, in batches, up to `most` alerts. 2 queries a batch."""
    place, left = None, most
    while left > 0:
        found = reading.ids(start=0, size=min(batch, left), place=place)
        if not found:
            return
        yield _rows([alert_id for _at, alert_id in found])
        place, left = found[-1], left - len(found)


def _words(place: tuple[datetime, str]) -> str:
    return f"{to_micros(place[0])}~{place[1]}"


def _place(words: str) -> tuple[datetime, str] | None:
    micros, _tilde, alert_id = words.partition("~")
    value = number(micros) if 0 < len(micros) <= 16 else None
    return (from_micros(value), alert_id) if value is not None and alert_id else None


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
