"""How many alerts were opened and disposed of, by kind, rules and outcome: of what is past from rows that were counted
when it was over (`risk_alert_tally`), of what came since by an index, up to a limit.

So the overview's 30 days cost the same with a thousand alerts and with millions. A day that nobody has counted yet (a
new installation, a worker that stood still) is read as if it were new: where that is more than the limit, what is shown
says from when on it is whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db import connections, transaction
from django.db.models import QuerySet

from config.base.clock import business_date, business_day_bounds, now
from risk.alerts.models import AlertStatus, AlertType, RiskAlert, Shelf
from risk.console.filters import CASES
from risk.console.models import AlertTally

DAYS = 30  # business days, today among them
HOURS = 24  # whole ones, besides the present one
LIVE_ROWS = 5_000  # of each kind, that are read of what no tally holds
# Who opens or disposes of an alert may commit a little after the moment that it is written with.
SETTLED = {AlertTally.Grain.HOUR: timedelta(minutes=2), AlertTally.Grain.DAY: timedelta(minutes=10)}
# An alert that is reopened is no longer disposed of on its day: what is past is counted again now and then.
AGAIN = {AlertTally.Grain.HOUR: timedelta(minutes=30), AlertTally.Grain.DAY: timedelta(hours=20)}
AT_ONCE = 12  # periods that one run counts again, of a tenant

Opened = tuple[str, str]
"""Kind, rules (as `rule_set` has them)."""
Disposed = tuple[str, str, str, bool, str]
"""Kind, status, code, whether it was ever confirmed, rules."""


@dataclass
class Figures:
    """opened, disposed: of the 30 days. hours: when each of the last hours began, and how many alerts of customers
    were opened in it, the oldest first. whole_since: before it not everything is counted; None where all is."""

    opened: Counter[Opened] = field(default_factory=Counter)
    disposed: Counter[Disposed] = field(default_factory=Counter)
    hours: list[tuple[datetime, int]] = field(default_factory=list)
    whole_since: datetime | None = None


def first_day(at: datetime) -> date:
    """The earliest of the business days that `since=30d` and the overview speak of."""
    return business_date(at) - timedelta(days=DAYS - 1)


def figures(*, tenant: str, at: datetime | None = None) -> Figures:
    """3 queries: the tallies (at most 80 rows), and what was opened and disposed of since the last of them."""
    at = at or now()
    days, hours = _days(at), _hours(at)
    found = _stored(tenant, days[0][0])
    result = Figures()
    parts: list[AlertTally] = []
    spans: list[tuple[datetime, datetime]] = []  # that no tally holds
    for begins, ends in days:
        if tally := found.get((AlertTally.Grain.DAY, begins)):
            parts.append(tally)
            continue
        of_day = [one for one in hours if begins <= one[0] < ends]
        known = [found[key] for one in of_day if (key := (AlertTally.Grain.HOUR, one[0])) in found]
        # A day that is not over: by its hours, as far as all of them since midnight are known.
        if of_day and of_day[0][0] == begins and known:
            parts += known
            spans += [one for one in of_day if (AlertTally.Grain.HOUR, one[0]) not in found]
        else:
            spans.append((begins, min(ends, at)))
    for tally in parts:
        for *key, count in tally.counts.get("opened", []):
            result.opened[tuple(key)] += count  # type: ignore[index]
        for *key, count in tally.counts.get("disposed", []):
            result.disposed[tuple(key)] += count  # type: ignore[index]
    of_hour = {
        begins: sum(
            row[-1]
            for row in found[AlertTally.Grain.HOUR, begins].counts.get("opened", [])
            if row[0] == AlertType.EVENT
        )
        for begins, _ends in hours
        if (AlertTally.Grain.HOUR, begins) in found
    }
    unknown = [one for one in hours if one[0] not in of_hour]
    result.whole_since = _add_live(tenant, result, spans, unknown, of_hour, at)
    result.hours = [(begins, of_hour.get(begins, 0)) for begins, _ends in hours]
    return result


def _stored(tenant: str, since: datetime) -> dict[tuple[str, datetime], AlertTally]:
    rows = AlertTally.objects.filter(tenant=tenant, begins__gte=since, grain__in=AlertTally.Grain.values)
    return {(row.grain, row.begins): row for row in rows}


def _days(at: datetime) -> list[tuple[datetime, datetime]]:
    return [business_day_bounds(first_day(at) + timedelta(days=number)) for number in range(DAYS)]


def _hours(at: datetime) -> list[tuple[datetime, datetime]]:
    """The last HOURS whole ones and the one that runs, counted from the beginning of their business day."""
    hour = timedelta(hours=1)
    midnight = business_day_bounds(business_date(at))[0]
    present = midnight + (at - midnight) // hour * hour
    return [(begins, begins + hour) for begins in (present - number * hour for number in range(HOURS, -1, -1))]


# --- what no tally holds ----------------------------------------------------------------------------------------------


def _add_live(
    tenant: str,
    result: Figures,
    spans: list[tuple[datetime, datetime]],
    unknown: list[tuple[datetime, datetime]],
    of_hour: dict[datetime, int],
    at: datetime,
) -> datetime | None:
    begin = min(one[0] for one in [*spans, *unknown])  # the present hour is always among them
    anchor = _hours(at)[0][0]  # a whole hour
    hour = timedelta(hours=1)
    whole_since = None
    opened, oldest = _grouped(_opened(tenant, begin, at), _WHAT_OPENED, "opened_at", anchor)
    if oldest:
        whole_since = oldest
    for (kind, rules, number), count in opened:
        begins = anchor + number * hour
        if _within(begins, spans):
            result.opened[kind, rules] += count
        if kind == AlertType.EVENT and _within(begins, unknown):
            of_hour[begins] = of_hour.get(begins, 0) + count
    disposed, oldest = _grouped(_disposed(tenant, begin, at), _WHAT_DISPOSED, "queue_at", anchor)
    if oldest:
        whole_since = max(oldest, whole_since or oldest)
    for (kind, status, code, violation, rules, number), count in disposed:
        if _within(anchor + number * hour, spans):
            result.disposed[kind, status, code, bool(violation), rules] += count
    return whole_since


def _within(moment: datetime, spans: Iterable[tuple[datetime, datetime]]) -> bool:
    return any(begins <= moment < ends for begins, ends in spans)


_WHAT_OPENED = ("alert_type", "rule_set")
_WHAT_DISPOSED = ("alert_type", "status", "disposition_code", "violation", "rule_set")


def _opened(tenant: str, since: datetime, until: datetime | None = None) -> list[QuerySet[Any]]:
    rows = RiskAlert.objects.filter(tenant=tenant, opened_at__gte=since)
    rows = rows.filter(opened_at__lt=until) if until else rows
    return [rows.filter(alert_type__in=CASES).values("alert_type", "rule_set", "opened_at")]


def _disposed(tenant: str, since: datetime, until: datetime | None = None) -> list[QuerySet[Any]]:
    """One for each kind of alert: in the order of the index of the queue's tabs."""
    rows = RiskAlert.objects.filter(tenant=tenant, shelf=Shelf.DONE, queue_at__gte=since)
    rows = rows.filter(queue_at__lt=until) if until else rows
    columns = ("alert_type", "status", "disposition_code", "confirmed_at", "rule_set", "queue_at")
    return [rows.filter(alert_type=kind).values(*columns) for kind in CASES]


def _grouped(
    parts: Sequence[QuerySet[Any]], columns: tuple[str, ...], when: str, anchor: datetime | None = None
) -> tuple[list[tuple[tuple[Any, ...], int]], datetime | None]:
    """How many there are of each, and (with `anchor`, a whole hour) in which hour after it: of the newest LIVE_ROWS of
    each part; the second is since when nothing is left out, None where nothing is. Without `anchor` all. 1 query."""
    connection = connections[parts[0].db]
    names = ["confirmed_at IS NOT NULL" if name == "violation" else name for name in columns]
    extra: list[Any] = []
    if anchor is not None:
        extra = [connection.ops.adapt_datetimefield_value(anchor)]
        names.append(_HOUR_AFTER.get(connection.vendor, _HOUR_AFTER["mysql"]).format(when=when))
    by = ", ".join(str(number) for number in range(2, len(names) + 2))
    said, parameters = [], []
    for number, part in enumerate(parts):
        inner = part.order_by() if anchor is None else part.order_by(f"-{when}")[:LIVE_ROWS]
        sql, values = inner.query.sql_with_params()
        if connection.vendor == "mysql":  # of several days the planner would rather read all alerts
            table = connection.ops.quote_name(RiskAlert._meta.db_table)
            sql = sql.replace(f" FROM {table} ", f" FROM {table} FORCE INDEX ({_INDEX[when]}) ", 1)
        shown = f"{number}, {', '.join(names)}, COUNT(*), MIN({when})"
        said.append(f"SELECT {shown} FROM ({sql}) held{number} GROUP BY {by}")  # noqa: S608 - the ORM's words
        parameters += [*extra, *values]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(said), parameters)
        found = cursor.fetchall()
    counted = [(tuple(row[1:-2]), int(row[-2])) for row in found]
    if anchor is None:
        return counted, None
    cut = []
    for number in range(len(parts)):
        of_part = [row for row in found if int(row[0]) == number]
        if sum(row[-2] for row in of_part) >= LIVE_ROWS:
            cut.append(min(_moment(row[-1]) for row in of_part))
    return [((*key[:-1], int(key[-1])), count) for key, count in counted], max(cut, default=None)


_INDEX = {"opened_at": "risk_alert_opened", "queue_at": "risk_alert_tab"}
_HOUR_AFTER = {
    "mysql": "FLOOR(TIMESTAMPDIFF(SECOND, %s, {when}) / 3600)",
    "sqlite": "CAST(floor((strftime('%%s', {when}) - strftime('%%s', %s)) / 3600.0) AS INTEGER)",
}


def _moment(value: Any) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# --- counting what is over --------------------------------------------------------------------------------------------


def tally_all() -> int:
    """Counts every period of every tenant that is over and not counted, and some of those that were counted a while
    ago. How many. A beat's task; two at once do the same work twice and no harm."""
    tenants = RiskAlert.objects.order_by().values_list("tenant", flat=True).distinct()
    return sum(tally(tenant=tenant) for tenant in tenants)


def tally(*, tenant: str, at: datetime | None = None) -> int:
    """Of one tenant. 1 query, and 2 and a write for each period."""
    at = at or now()
    found = _stored(tenant, _days(at)[0][0])
    todo: list[tuple[str, datetime, datetime]] = []
    again: list[tuple[datetime, str, datetime, datetime]] = []
    for grain, periods in ((AlertTally.Grain.HOUR, _hours(at)), (AlertTally.Grain.DAY, _days(at))):
        for begins, ends in periods:
            if ends + SETTLED[grain] > at:
                continue
            known = found.get((grain, begins))
            if known is None:
                todo.append((grain, begins, ends))
            elif known.counted_at < at - AGAIN[grain]:
                again.append((known.counted_at, grain, begins, ends))
    todo += [one[1:] for one in sorted(again)[:AT_ONCE]]
    for which, begins, ends in todo:
        _count(tenant, which, begins, ends)
    return len(todo)


@transaction.atomic
def _count(tenant: str, grain: str, begins: datetime, ends: datetime) -> None:
    counted_at = now()
    opened, _ = _grouped(_opened(tenant, begins, ends), _WHAT_OPENED, "opened_at")
    disposed, _ = _grouped(_disposed(tenant, begins, ends), _WHAT_DISPOSED, "queue_at")
    counts = {
        "opened": [[*key, count] for key, count in opened],
        "disposed": [[kind, status, code, bool(violation), rules, count]
                     for (kind, status, code, violation, rules), count in disposed],
    }  # fmt: skip
    AlertTally.objects.update_or_create(
        tenant=tenant, grain=grain, begins=begins, defaults={"counts": counts, "counted_at": counted_at}
    )


# --- what they say ----------------------------------------------------------------------------------------------------


def judged(disposed: Counter[Disposed]) -> tuple[int, int]:
    """(false positives, violations). A violation whose follow-up is done stays one; what was merely closed is
    neither."""
    false = sum(count for (_kind, status, *_), count in disposed.items() if status == AlertStatus.FALSE_POSITIVE)
    violations = sum(
        count
        for (_kind, status, _code, violation, _rules), count in disposed.items()
        if status == AlertStatus.CONFIRMED or (violation and status == AlertStatus.CLOSED)
    )
    return false, violations


KIND_OF_RULE = {"RISK-003": AlertType.REPORT, "RISK-008": AlertType.PATTERN}
"""The kind of alert that a rule's findings are; of all others customers' alerts."""
