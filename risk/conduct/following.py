"""From what happened to whom it concerns: rows of the audit log and facts of the core become marks on advisors.

No audit row slips under a watermark. The log's ids are given out before the commit, so a row may appear below the
highest id that was seen: `ConductCursor` keeps the ids that were missing then, and looks for them again each time,
until they are older than AUDIT_GAP_SECONDS and no open transaction holds them (as the sealer does). Reading a row,
marking its advisor and moving on are one transaction under the cursor's lock. `scan_trades --all` reads everything
once more.

No change of the core either: the importer's own transaction makes the requests that speak of a customer due for a look,
and a request whose trade the core does not have is looked up again and again by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from config.base.clock import from_micros, now, to_micros
from config.base.db import retry_conflicts
from config.base.ids import ID_PATTERN
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.ranges import Ranges, missing_between, ranges_of, without
from guard.audit.reading import being_written
from guard.audit.selectors import CONDUCT_EVENTS, Arrived, arrived_after, arrived_among, last_id, summaries
from risk.conduct.models import ConductChange, ConductCursor, TradeRequest
from risk.conduct.reading import fingerprint, requested_trades

PAGE = 5000  # rows of the log in one transaction
LOOKS = 500  # requests looked up at once
PATIENCE = timedelta(days=1)  # so long a reported trade may be missing from the core
SOONEST, LATEST = timedelta(seconds=5), timedelta(hours=1)  # between two looks
_SLACKER = 20  # a request that is x old is looked up again after x / 20


def mark(*, tenant: str, advisor_id: str, since: datetime, until: datetime) -> None:
    """Tells the scanner to judge what this advisor did between two instants; call it in the change's transaction."""
    ConductChange.objects.create(tenant=tenant, advisor_id=advisor_id, since=since, until=until)


# --- the audit log --------------------------------------------------------------------------------------------------


def collect(*, pages: int = 20) -> int:
    """Reads what is new in the audit log, of all tenants, and marks the advisors it speaks of. How many rows.

    Cost with nothing new: 2 queries, 1 more for 200 ranges of missing ids.
    """
    if _nothing_new():
        return 0
    total = 0
    for _page in range(pages):
        read, more = retry_conflicts(_collect_page, also=(IntegrityError,))
        total += read
        if not more:
            break
    return total


def _nothing_new() -> bool:
    """Asked without the lock: most ticks end here."""
    cursor = ConductCursor.objects.filter(pk=1).first()
    if cursor is None or cursor.head != last_id() or _expired(cursor.missing):
        return False
    return not cursor.missing or not arrived_among([[first, last] for first, last, _ in cursor.missing], limit=1)


def _collect_page() -> tuple[int, bool]:
    """1. Take the cursor. 2. Read late rows and the next page. 3. Mark. 4. Move the cursor. All or nothing."""
    with transaction.atomic():
        ConductCursor.objects.get_or_create(pk=1)
        cursor = ConductCursor.objects.select_for_update().get(pk=1)
        if last_id() < cursor.head:
            # The log is another one than before (restored, or emptied for a test): from its beginning.
            cursor.head, cursor.missing = 0, []
        ranges: Ranges = [[first, last] for first, last, _seen in cursor.missing]
        late = arrived_among(ranges, limit=PAGE) if ranges else []
        fresh = arrived_after(cursor.head, limit=PAGE)
        if not late and not fresh and not _expired(cursor.missing):
            return 0, False
        _mark_advisors([*late, *fresh])
        missing = _still_missing(cursor, late, fresh, all_seen=len(late) < PAGE)
        head = fresh[-1].id if fresh else cursor.head
        ConductCursor.objects.filter(pk=1).update(head=head, missing=missing)
        return len(late) + len(fresh), len(fresh) == PAGE or len(late) == PAGE


def _still_missing(cursor: ConductCursor, late: list[Arrived], fresh: list[Arrived], *, all_seen: bool) -> list[Any]:
    """What is looked for next time: `[first, last, since when]`, ascending."""
    came = ranges_of(row.id for row in late)
    gone = _expired(cursor.missing) if all_seen else []
    if gone and being_written(gone):
        gone = []
    left = [
        [first, last, seen]
        for old_first, old_last, seen in cursor.missing
        for first, last in without(without([[old_first, old_last]], came), gone)
    ]
    seen = to_micros(now())
    return left + [[first, last, seen] for first, last in missing_between(cursor.head, (row.id for row in fresh))]


def _expired(missing: Iterable[Any]) -> Ranges:
    before = now() - timedelta(seconds=settings.AUDIT_GAP_SECONDS)
    return [[first, last] for first, last, seen in missing if from_micros(seen) < before]


def _mark_advisors(rows: list[Arrived]) -> None:
    spans: dict[tuple[str, str], tuple[datetime, datetime]] = {}
    asked = []
    for row in rows:
        if row.actor_type != ActorType.AGENT or row.event_type not in CONDUCT_EVENTS:
            continue
        since, until = spans.get((row.tenant, row.actor_id), (row.at, row.at))
        spans[row.tenant, row.actor_id] = min(since, row.at), max(until, row.at)
        if row.event_type == EventType.TRADE_REQUEST and row.decision == Decision.REQUESTED:
            asked.append(row)
    told = summaries(row.id for row in asked) if asked else {}
    known = set(TradeRequest.objects.filter(audit_id__in=told).values_list("audit_id", flat=True))
    moment = now()
    TradeRequest.objects.bulk_create(
        [
            TradeRequest(
                tenant=row.tenant,
                audit_id=row.id,
                advisor_id=row.actor_id,
                trade_id=told[row.id]["trade_id"],
                at=row.at,
                next_look=moment,
            )
            for row in asked
            if row.id not in known and _is_id(told.get(row.id, {}).get("trade_id"))
        ],
        500,
    )
    ConductChange.objects.bulk_create(
        [
            ConductChange(tenant=tenant, advisor_id=advisor_id, since=since, until=until)
            for (tenant, advisor_id), (since, until) in sorted(spans.items())
        ],
        500,
    )


def _is_id(value: object) -> bool:
    return isinstance(value, str) and ID_PATTERN.match(value) is not None


# --- the core ---------------------------------------------------------------------------------------------------------


def customers_changed(tenant: str, customer_ids: set[str]) -> None:
    """The importer's word, in its transaction: requests that speak of these customers are due for a look."""
    rows = TradeRequest.objects.filter(tenant=tenant, customer_id__in=customer_ids)
    rows.update(next_look=now())


def look_again(*, tenant: str | None = None, unfound: bool = False) -> int:
    """Looks up the trades that are due, and marks the advisors of whom something changed by it. How many looked up.

    tenant: only this one. unfound: also those that the core did not have, due or not.
    Cost with nothing due: 1 query.
    """
    moment = now()
    rows = TradeRequest.objects.filter(next_look__isnull=False)
    if not unfound:
        rows = rows.filter(next_look__lte=moment)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    looked, last = 0, 0
    while True:
        # By id, so that each is looked up once a round whatever becomes of its next look.
        page = list(rows.filter(id__gt=last).order_by("id")[:LOOKS])
        by_advisor: dict[tuple[str, str], list[TradeRequest]] = defaultdict(list)
        for row in page:
            by_advisor[row.tenant, row.advisor_id].append(row)
        for (of_tenant, advisor_id), requests in by_advisor.items():
            _look(of_tenant, advisor_id, requests, moment)
        looked += len(page)
        if len(page) < LOOKS:
            return looked
        last = page[-1].pk


def _look(tenant: str, advisor_id: str, requests: list[TradeRequest], moment: datetime) -> None:
    trades = requested_trades(tenant=tenant, advisor_id=advisor_id, trade_ids={row.trade_id for row in requests})

    def work() -> None:
        with transaction.atomic():
            changed: list[datetime] = []
            for row in requests:
                trade = trades.get(row.trade_id)
                values: dict[str, Any]
                if trade is not None:
                    values = {
                        "customer_id": trade.customer_id,
                        "traded_at": trade.traded_at,
                        "seen": fingerprint(trade),
                        "overdue": False,
                        "next_look": None,
                    }
                    news = values["seen"] != row.seen
                else:
                    overdue = moment >= row.at + PATIENCE
                    news = overdue != row.overdue or row.seen != ""
                    values = {"seen": "", "overdue": overdue, "next_look": _next_look(row.at, moment)}
                # An import that commits meanwhile has set another time: it is looked up once more.
                ours = TradeRequest.objects.filter(pk=row.pk, next_look=row.next_look).update(**values)
                if ours and news:
                    changed.append(row.at)
            if changed:
                mark(tenant=tenant, advisor_id=advisor_id, since=min(changed), until=max(changed))

    retry_conflicts(work)


def _next_look(at: datetime, moment: datetime) -> datetime:
    soon = moment + min(max((moment - at) / _SLACKER, SOONEST), LATEST)
    due = at + PATIENCE
    return min(soon, due) if moment < due else soon
