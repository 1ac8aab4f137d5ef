"""Looking for rows: one search for the admin's page and for its export. Each part of it has an index; see models.py."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Max, Min, Q, QuerySet, TextField
from django.db.models.functions import Cast

from config.base.clock import from_micros, rfc3339, to_micros
from config.base.trace import is_trace_id
from guard.audit import pseudonyms, told
from guard.audit.models import ActorType, AuditLog, AuditSeal, EventType
from guard.audit.ranges import Ranges

PAGE = 2000  # rows that an export reads at once
# Parts of a search that are a column's value, and the column.
_COLUMNS = {
    "event": "event_type", "decision": "decision", "actor_type": "actor_type", "code": "code", "trace": "trace_id",
}  # fmt: skip
EXPORTED = (
    "id", "at", "event_type", "decision", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
    "object_id", "code", "risk_score", "trace_id", "customer", "input_summary",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Search:
    """What to look for; all of it must hold, and what is empty is not asked.

    since, until: the first inclusive, the second not. actor: who acted, or for whom. customer: an id of the core, which
    is looked for under its pseudonym. q: a trace id, or exactly an actor, an object or a customer.
    """

    since: datetime | None = None
    until: datetime | None = None
    event: str = ""
    decision: str = ""
    actor_type: str = ""
    actor: str = ""
    object: str = ""
    code: str = ""
    trace: str = ""
    customer: str = ""
    q: str = ""

    def described(self, tenant: str) -> dict[str, str]:
        """As the record of an export tells it: what was asked, as far as the log may keep it (told.search)."""
        typed = (*_COLUMNS, "actor", "object", "q", "customer")
        said = told.search(tenant, {name: getattr(self, name) for name in typed})
        for name in ("since", "until"):
            if getattr(self, name):
                said[name] = rfc3339(getattr(self, name))
        return said


# One alternative of a search: equal values by column, for which there is an index with `at` behind them.
Way = dict[str, str]


class Found(NamedTuple):
    """What a search means: of `rows`, those that fit one of `ways`. Kept apart, for a database that is given all
    alternatives in one condition reads much more than a page; `page_of` puts them together.

    ways: the alternatives of the part that names the fewest rows; the others are conditions of `rows`.
    """

    rows: QuerySet[AuditLog]
    ways: list[Way]


def find(tenant: str, search: Search) -> Found:
    """In one tenant, without an order. At most 4 queries before the rows' own."""
    rows = AuditLog.objects.filter(tenant=tenant).order_by()
    for name, column in _COLUMNS.items():
        if getattr(search, name):
            rows = rows.filter(**{column: getattr(search, name)})
    if search.since:
        rows = rows.filter(at__gte=search.since)
    if search.until:
        rows = rows.filter(at__lt=search.until)
    lead, *others = _asked(tenant, search) or [[{}]]
    for ways in others:
        anyone = Q(pk__in=[])
        for way in ways:
            anyone |= Q(**way)
        rows = rows.filter(anyone)
    return Found(rows, lead)


def _asked(tenant: str, search: Search) -> list[list[Way]]:
    """Of each part that several columns or names may answer, its alternatives; what names the fewest rows first."""
    asked: list[list[Way]] = []
    if is_trace_id(search.q):
        asked.append([{"trace_id": search.q}])
    if search.customer:
        # Rows that are older than the pseudonyms name the customer as object or actor: look there for them.
        asked.append([{"customer": name} for name in pseudonyms.find(tenant, [search.customer]).values()])
    for value, columns in (
        (search.object, ("object_id",)),
        (search.actor, ("actor_id", "on_behalf_of")),
        ("" if is_trace_id(search.q) else search.q, ("actor_id", "on_behalf_of", "object_id", "customer")),
    ):
        if value:
            asked.append([{column: name} for name in _also(tenant, value) for column in columns])
    return asked


def _also(tenant: str, name: str) -> list[str]:
    """The name itself, and the pseudonym of a customer who is called so."""
    return [name, *pseudonyms.find(tenant, [name]).values()]


@dataclass(frozen=True)
class Place:
    """Between two rows, in the order of pages: by time, and by id where that is the same."""

    at: datetime
    id: int

    def __str__(self) -> str:
        return f"{to_micros(self.at)}-{self.id}"

    @classmethod
    def read(cls, text: str) -> Place | None:
        """What `str` wrote; None for anything else."""
        found = _PLACE.match(text)
        return cls(from_micros(int(found[1])), int(found[2])) if found else None


_PLACE = re.compile(r"([0-9]{1,17})-([0-9]{1,18})\Z")


def page_of(
    found: Found,
    *,
    size: int,
    older_than: Place | None = None,
    newer_than: Place | None = None,
    oldest_first: bool = False,
) -> list[AuditLog]:
    """At most `size` rows in the order of time, newest first.

    Each alternative is walked in its own index and no further than the page is long.
    Cost: 1 query for one alternative, else 1 for all of them and 1 for the rows.
    """
    rows, ways = found
    if older_than:
        rows = rows.filter(Q(at__lt=older_than.at) | Q(id__lt=older_than.id), at__lte=older_than.at)
    if newer_than:
        rows = rows.filter(Q(at__gt=newer_than.at) | Q(id__gt=newer_than.id), at__gte=newer_than.at)
    order = ("at", "id") if oldest_first else ("-at", "-id")
    parts = [rows.filter(**way).order_by(*order)[:size] for way in ways]
    if len(parts) < 2:
        return list(parts[0]) if parts else []
    sql: list[str] = []
    params: list[Any] = []
    for part in parts:
        one, values = part.values("at", "id").query.sql_with_params()
        # A part of its own each: SQLite takes no LIMIT within a UNION.
        sql.append(f"SELECT * FROM ({one}) AS part{len(sql)}")  # noqa: S608 - what the ORM wrote
        params += values
    turn = "" if oldest_first else " DESC"
    with connection.cursor() as cursor:
        cursor.execute(f"{' UNION '.join(sql)} ORDER BY at{turn}, id{turn} LIMIT {size}", params)
        ids = [row[1] for row in cursor.fetchall()]
    return list(AuditLog.objects.filter(pk__in=ids).order_by(*order))


def stream(tenant: str, search: Search) -> Iterator[AuditLog]:
    """Every row of the search, oldest first, of what is there now; 2000 in memory at once, each page by index."""
    last = AuditLog.objects.order_by("-id").values_list("id", flat=True).first() or 0
    rows, ways = find(tenant, search)
    found = Found(rows.filter(id__lte=last), ways)
    after: Place | None = None
    while True:
        page = page_of(found, size=PAGE, newer_than=after, oldest_first=True)
        yield from page
        if len(page) < PAGE:
            return
        after = Place(page[-1].at, page[-1].pk)


# --- advisors' conduct (RISK-008) --------------------------------------------------------------------------------

CONDUCT_EVENTS = (EventType.AUTHZ, EventType.TRADE_REQUEST)
_ARRIVED = ("id", "tenant", "at", "event_type", "decision", "actor_type", "actor_id")
_AT_ONCE = 200  # ranges of ids in one query


class ConductRow(NamedTuple):
    """One refusal of an advisor, or one request for a trade that an advisor agent reported. customer: a pseudonym."""

    id: int
    at: datetime
    event_type: str
    decision: str
    code: str
    object_type: str
    object_id: str
    customer: str
    trace_id: str
    input_summary: dict[str, Any]


def conduct_rows(*, tenant: str, advisor_id: str, since: datetime, until: datetime) -> list[ConductRow]:
    """An advisor's refusals and requests in `[since, until]`, oldest first. 1 query by (actor, event, at)."""
    rows = AuditLog.objects.filter(tenant=tenant, actor_id=advisor_id, event_type__in=CONDUCT_EVENTS)
    rows = rows.filter(at__range=(since, until), actor_type=ActorType.AGENT).order_by()
    found = [ConductRow(*row) for row in rows.values_list(*ConductRow._fields)]
    return sorted(found, key=lambda row: (row.at, row.id))


def conduct_span(*, tenant: str, advisor_id: str) -> tuple[datetime, datetime] | None:
    """The times of an advisor's first and last such row. 1 query by index for each kind and end."""
    ends: list[datetime] = []
    for event in CONDUCT_EVENTS:
        rows = AuditLog.objects.filter(tenant=tenant, actor_id=advisor_id, event_type=event)
        for order in ("at", "-at"):
            ends.extend(rows.order_by(order).values_list("at", flat=True)[:1])
    return (min(ends), max(ends)) if ends else None


def advisors_heard_of(*, tenant: str | None = None) -> list[tuple[str, str]]:
    """Every (tenant, advisor) with such a row. Reads all rows of the two kinds: for a complete scan alone."""
    rows = AuditLog.objects.filter(event_type__in=CONDUCT_EVENTS, actor_type=ActorType.AGENT).order_by()
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return sorted(set(rows.values_list("tenant", "actor_id").distinct()))


def conduct_times(*, tenant: str, since: datetime, until: datetime) -> list[tuple[str, datetime, datetime]]:
    """Each advisor with such a row in `[since, until)`, and the times of the first and last of them. 1 query."""
    rows = AuditLog.objects.filter(tenant=tenant, event_type__in=CONDUCT_EVENTS, at__gte=since, at__lt=until)
    rows = rows.filter(actor_type=ActorType.AGENT).order_by("actor_id")
    return list(rows.values_list("actor_id").annotate(Min("at"), Max("at")))


class Arrived(NamedTuple):
    """A row of the log as whoever follows it needs it to tell whether it is one of theirs."""

    id: int
    tenant: str
    at: datetime
    event_type: str
    decision: str
    actor_type: str
    actor_id: str


def arrived_after(after_id: int, *, limit: int = PAGE) -> list[Arrived]:
    """The next rows after an id, in order. 1 query by the primary key."""
    rows = AuditLog.objects.filter(id__gt=after_id).order_by("id")
    return [Arrived(*row) for row in rows.values_list(*_ARRIVED)[:limit]]


def arrived_among(ranges: Ranges, *, limit: int = PAGE) -> list[Arrived]:
    """Rows that stand now where ids were missing, in order. A query by the primary key for 200 ranges."""
    found: list[Arrived] = []
    for start in range(0, len(ranges), _AT_ONCE):
        among = Q(pk__in=[])
        for first, last in ranges[start : start + _AT_ONCE]:
            among |= Q(id__range=(first, last))
        rows = AuditLog.objects.filter(among).order_by("id")
        found.extend(Arrived(*row) for row in rows.values_list(*_ARRIVED)[: limit - len(found)])
        if len(found) >= limit:
            break
    return found


def summaries(ids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """What these rows tell of what was asked. A query for 1000 of them."""
    wanted = list(ids)
    found: dict[int, dict[str, Any]] = {}
    for start in range(0, len(wanted), 1000):
        rows = AuditLog.objects.filter(id__in=wanted[start : start + 1000])
        found.update(rows.values_list("id", "input_summary"))
    return found


def last_id() -> int:
    """The highest id of the log. 1 query."""
    return AuditLog.objects.order_by("-id").values_list("id", flat=True).first() or 0


def rows_in_clear(tenant: str, customer_id: str = "") -> int:
    """How many rows from before there were pseudonyms name the customer (without one: may name somebody).

    They are known by what they lack, a mac, which is why they are the rows up to `adopted` of the first seals. Nothing
    changes them: the log takes no UPDATE, and their hashes are in the seals.
    Cost: 1 query, and where there are such rows two more, which read the seals and all such rows.
    """
    first = list(AuditSeal.objects.filter(number__in=[0, 1]).values_list("adopted", flat=True))
    if first and not any(first):
        return 0
    old = AuditLog.objects.filter(tenant=tenant, mac="").order_by()
    if first:
        old = old.filter(id__lte=AuditSeal.objects.aggregate(last=Max("adopted"))["last"])
    if customer_id:
        named = Q(actor_id=customer_id) | Q(on_behalf_of=customer_id) | Q(object_id=customer_id)
        old = old.annotate(said=Cast("input_summary", TextField())).filter(
            named | Q(said__contains=json.dumps(customer_id, ensure_ascii=False))
        )
    return old.count()


def _values(row: AuditLog) -> dict[str, Any]:
    return {name: rfc3339(row.at) if name == "at" else getattr(row, name) for name in EXPORTED}


def as_jsonl(rows: Iterator[AuditLog]) -> Iterator[str]:
    """A row a line."""
    for row in rows:
        yield json.dumps(_values(row), ensure_ascii=False) + "\n"


def as_csv(rows: Iterator[AuditLog]) -> Iterator[str]:
    """A header and a row a line."""

    def cells() -> Iterator[list[Any]]:
        for row in rows:
            values = _values(row)
            values["input_summary"] = json.dumps(values["input_summary"], ensure_ascii=False)
            yield list(values.values())

    return csv_lines(EXPORTED, cells())


def csv_lines(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A line at a time. A cell that a spreadsheet would take for a formula is told that it is text."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")

    def line(cells: Sequence[Any]) -> str:
        writer.writerow(cells)
        text = buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
        return text

    yield "\ufeff" + line(heads)  # the mark by which spreadsheets know UTF-8
    for row in rows:
        yield line([f"'{value}" if _is_formula(str(value)) else value for value in row])


# As typed, in full width and as small forms, which spreadsheets of East Asian systems take for the same; after whatever
# they pass over. A tab or a line's end in front is taken for the start of another cell by some.
_FORMULA = re.compile(
    r"[\t\r\n]|[\s\x00\ufeff\u200b-\u200f]*[-=+@\uff1d\uff0b\uff0d\uff20\ufe62\ufe63\ufe66\ufe6b\u2212]"
)


def _is_formula(cell: str) -> bool:
    """Whether a spreadsheet might reckon with it."""
    return _FORMULA.match(cell) is not None
