"""Whose facts changed in an external core, which tells nobody: rounds over all of its customers, compared by digest.

A round (docs/decisions/0003-changed-customers.md):
1. Table by table, tenant by tenant: customers whom nobody has looked at get a row in `core_digest`, without a digest.
2. Row by row of `core_digest`: the customers' digests are read from the core. Who differs is marked for the scanner,
   and whoever asked to hear of changes is told, in the transaction that stores the digest and moves the round on. Gone
   customers come to the digest of nothing: they differ too.
3. Who was marked since the last look (by this, by `scan_trades --all`, by anybody), was judged, and does not differ is
   marked once more: the scanner may have read a state that was there for a moment between two looks.

The digest is read before the mark is committed, and the scanner reads after that: what changes in between differs next
time. Killed between any two lines, a page is done wholly or not at all. One goes on with a round at a time (`holder`);
who was slower than its claim finds that out in the transaction and writes nothing.

A page grows and shrinks with the time it takes. A core that does not answer ends the tick; the round stays where it is.
One customer whose rows cannot be read in a statement's time is marked, unseen, and passed by.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.ids import ID_PATTERN, new_id
from memory.core import digests
from memory.core.marking import insert_marks, tell
from memory.core.models import CoreChange, CoreDigest, CoreRound
from memory.core.window import CoreUnavailable

logger = logging.getLogger(__name__)

TICK_SECONDS = 2.0  # of one tick of the beat: no page begins later
CLAIM_SECONDS = 60  # renewed with each page; a dead holder's round waits so long
MOST = 500  # customers of a page
QUICK, SLOW = 0.15, 0.5  # seconds of a page, below which the next is larger, above which it is smaller
TRIES = 3  # of a page of one customer, before it is passed by
DIGESTS = len(digests.TABLES)  # the step after those of the tables


@dataclass
class Look:
    """What a look came to. customers: compared. new: never seen before. marked: differed, or looked at once more.

    complete: the round came to its end. away: the core did not answer. busy: another goes on with the round.
    unread: customers that were marked without being read. odd: names that are no ids.
    """

    customers: int = 0
    new: int = 0
    marked: int = 0
    unread: int = 0
    odd: int = 0
    complete: bool = False
    away: bool = False
    busy: bool = False

    def as_json(self) -> dict[str, Any]:
        return dict(vars(self))


class _Lost(Exception):
    """Another goes on with the round."""


def look(*, seconds: float = TICK_SECONDS) -> Look:
    """Goes on with the round for so long, or begins one where the last began CORE_ROUND_SECONDS ago.

    Cost where none is due: 1 query. A page is 8 statements of the core and 2 to 3 of ours, with changes some 10.
    Errors: those of the main database; a core that is away is told in the answer.
    """
    done = Look()
    if not settings.CORE_IS_EXTERNAL:
        return done
    row = CoreRound.objects.filter(pk=1).first()
    if row is not None and row.step == CoreRound.DONE and not _is_due(row):
        done.complete = True
        return done
    return _go_on(done, anew=False, until=time.monotonic() + seconds, progress=None)


def look_at_all(*, patience: float = 0.0, progress: Callable[[int], None] | None = None) -> Look:
    """One whole round from its beginning, now. patience: seconds to wait for another who goes on with one.

    Only where the core is external.
    """
    deadline = time.monotonic() + patience
    while True:
        done = _go_on(Look(), anew=True, until=None, progress=progress)
        if not done.busy or time.monotonic() > deadline:
            return done
        time.sleep(0.2)


def round_age() -> tuple[float, bool, bool]:
    """(seconds, whether a round was ever finished, whether the core is away). 1 query.

    Whatever the core held so many seconds ago has been seen. Before a round is finished: since the first began.
    """
    row = CoreRound.objects.filter(pk=1).first()
    if row is None:
        return 0.0, False, False
    since = row.complete_from or row.first_at
    return max(0.0, (now() - since).total_seconds()), row.complete_from is not None, row.away_since is not None


# --- a round ----------------------------------------------------------------------------------------------------


def _is_due(row: CoreRound) -> bool:
    return now() >= row.began_at + timedelta(seconds=settings.CORE_ROUND_SECONDS)


def _go_on(done: Look, *, anew: bool, until: float | None, progress: Callable[[int], None] | None) -> Look:
    holder = _claim(anew)
    if holder is None:
        done.busy = True
        return done
    try:
        while until is None or time.monotonic() < until:
            row = CoreRound.objects.get(pk=1)
            if row.holder != holder:
                raise _Lost
            if row.step == CoreRound.DONE:
                done.complete = True
                break
            before = done.customers
            _page(row, holder, done)
            if progress is not None:
                progress(done.customers - before)
    except _Lost:
        done.busy = True
        return done
    except CoreUnavailable:
        done.away = True
    CoreRound.objects.filter(pk=1, holder=holder).update(holder="", held_until=None)
    return done


def _claim(anew: bool) -> str | None:
    """The token of who goes on now; None: another does. anew, or with the last round done: at its beginning."""

    def work() -> str | None:
        with transaction.atomic():
            CoreRound.objects.get_or_create(pk=1)
            row = CoreRound.objects.select_for_update().get(pk=1)
            if row.holder and row.held_until is not None and row.held_until >= now():
                return None
            values: dict[str, Any] = {"holder": new_id(), "held_until": now() + timedelta(seconds=CLAIM_SECONDS)}
            if anew or row.step == CoreRound.DONE:
                values |= {"began_at": now(), "step": 0, "tenant": "", "after": "", "after_id": 0, "stuck": 0}
            CoreRound.objects.filter(pk=1).update(**values)
            return str(values["holder"])

    return retry_conflicts(work, also=(IntegrityError,))


def _page(row: CoreRound, holder: str, done: Look) -> None:
    """One page, done and committed. Errors: _Lost; CoreUnavailable, when what it tells of the page's size is noted."""
    began = time.monotonic()
    try:
        if row.stuck:
            digests.is_there()  # so that a core which is away is not taken for a page that is too much
        work = _judge(row) if row.step == DIGESTS else _discover(row)
        took = time.monotonic() - began
        size = row.size * 2 if took < QUICK else row.size // 2 if took > SLOW else row.size
        values = {"size": min(max(size, 1), MOST), "stuck": 0, "away_since": None}
        _commit(holder, work, values, done)
    except CoreUnavailable:
        _note_silence(row, holder)
        raise
    if row.away_since is not None:
        logger.info("the round over the core goes on")


@dataclass
class _Work:
    """What a page found, and where the round stands after it."""

    moved: dict[str, Any]
    new: dict[str, set[str]]  # tenant: customers
    seen: dict[int, str]  # row of core_digest: what the core says now
    rows: Sequence[CoreDigest] = ()
    odd: int = 0
    first: bool = False  # no round was ever finished
    unread: bool = False


def _discover(row: CoreRound) -> _Work:
    tenant: str | None = row.tenant
    if not tenant:
        tenant = digests.next_tenant(row.step, "")
    if tenant is None:
        return _Work(_next_step(row), {}, {})
    ids, end = digests.customer_ids(row.step, tenant, row.after, row.size)
    moved: dict[str, Any] = {"tenant": tenant, "after": end}
    if end is None:
        following = digests.next_tenant(row.step, tenant)
        moved = _next_step(row) if following is None else {"tenant": following, "after": ""}
    good = {name for name in ids if ID_PATTERN.match(name)} if ID_PATTERN.match(tenant) else set()
    # Rows are added by who holds the round, and by whoever marks or judges a customer (marking.py).
    known = CoreDigest.objects.filter(tenant=tenant, customer_id__in=good).values_list("customer_id", flat=True)
    return _Work(moved, {tenant: good - set(known)}, {}, odd=len(ids) - len(good))


def _next_step(row: CoreRound) -> dict[str, Any]:
    return {"step": row.step + 1, "tenant": "", "after": "", "after_id": 0}


def _judge(row: CoreRound) -> _Work:
    rows = list(CoreDigest.objects.filter(pk__gt=row.after_id).order_by("pk")[: row.size])
    if not rows:
        return _Work({"step": CoreRound.DONE, "complete_from": row.began_at}, {}, {})
    by_tenant: dict[str, list[CoreDigest]] = defaultdict(list)
    for each in rows:
        by_tenant[each.tenant].append(each)
    moved = {"after_id": rows[-1].pk}
    seen: dict[int, str] = {}
    try:
        for tenant, some in by_tenant.items():
            found = digests.customers(tenant, [each.customer_id for each in some])
            seen.update({each.pk: found[each.customer_id] for each in some})
    except CoreUnavailable:
        if len(rows) > 1 or row.stuck < TRIES:
            raise
        logger.warning("one customer's rows in the core cannot be read in time: marked, and passed by")
        return _Work(moved, {}, {rows[0].pk: ""}, rows, unread=True)
    return _Work(moved, {}, seen, rows, first=row.complete_from is None)


def _note_silence(row: CoreRound, holder: str) -> None:
    """The next page is smaller. Told once, when it begins."""
    if row.away_since is None:
        logger.warning("the core does not answer: the round over its customers waits, nothing is taken as seen")
    CoreRound.objects.filter(pk=1, holder=holder).update(
        size=max(row.size // 4, 1),
        stuck=min(row.stuck + 1, TRIES) if row.size == 1 and row.step == DIGESTS else 0,
        away_since=row.away_since or now(),
    )


# --- the transaction of a page ----------------------------------------------------------------------------------


def _commit(holder: str, work: _Work, values: dict[str, Any], done: Look) -> None:
    """1. The round moves on, if it is still ours. 2. New customers. 3. Digests and marks. All or nothing."""
    until = now() + timedelta(seconds=CLAIM_SECONDS)

    def write() -> int:
        with transaction.atomic():
            ours = CoreRound.objects.filter(pk=1, holder=holder)
            if not ours.update(**work.moved, **values, held_until=until):
                raise _Lost
            for tenant, names in work.new.items():
                rows = [CoreDigest(tenant=tenant, customer_id=name) for name in sorted(names)]
                CoreDigest.objects.bulk_create(rows, 500, ignore_conflicts=True)
            return _compare(work)

    done.marked += retry_conflicts(write)
    done.new += sum(len(names) for names in work.new.values())
    done.customers += len(work.seen)
    done.odd += work.odd
    done.unread += work.unread


def _compare(work: _Work) -> int:
    """How many were marked."""
    different: list[CoreDigest] = []
    again: dict[int, list[int]] = defaultdict(list)
    marks: dict[tuple[str, int], list[str]] = defaultdict(list)
    parts: dict[str, dict[str, set[int]]] = defaultdict(dict)
    waiting = _waiting(work.rows)
    for row in work.rows:
        seen = work.seen[row.pk]
        if seen != row.digest or work.unread:
            # In the first round these are everybody there is: after those of whom something is known to be new.
            marks[row.tenant, int(work.first)].append(row.customer_id)
            if not work.unread:  # those who are told read the core themselves
                parts[row.tenant][row.customer_id] = digests.differing(row.digest, seen)
            row.digest, row.marked = seen, row.marked + 1
            different.append(row)
        elif row.marked and (row.tenant, row.customer_id) not in waiting:
            marks[row.tenant, 1].append(row.customer_id)
            again[row.marked].append(row.pk)
    CoreDigest.objects.bulk_update(different, ["digest", "marked"], batch_size=200)
    for count, keys in again.items():
        # Who was marked meanwhile has a higher count, and stays due for a look.
        rows = CoreDigest.objects.filter(pk__in=keys, marked=count)
        rows.filter(digest=digests.GONE).delete()
        rows.update(marked=0)
    for (tenant, priority), ids in sorted(marks.items()):
        insert_marks(tenant, sorted(ids), priority)
    for tenant, found in parts.items():
        _tell(tenant, found)
    return sum(len(ids) for ids in marks.values())


def _waiting(rows: Sequence[CoreDigest]) -> set[tuple[str, str]]:
    """Who was marked and is not judged yet. No query where nobody was marked, else one a tenant."""
    by_tenant: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.marked:
            by_tenant[row.tenant].append(row.customer_id)
    found: set[tuple[str, str]] = set()
    for tenant, ids in by_tenant.items():
        marks = CoreChange.objects.filter(tenant=tenant, customer_id__in=ids)
        found.update(marks.values_list("tenant", "customer_id").distinct())
    return found


def _tell(tenant: str, found: dict[str, set[int]]) -> None:
    own, only_assigned = {digests.CUSTOMER, digests.ASSESSMENTS}, {digests.ASSIGNMENTS}
    tell(
        tenant,
        facts={name for name, parts in found.items() if parts - only_assigned},
        customers={name for name, parts in found.items() if parts & own},
        assignments={name for name, parts in found.items() if parts & only_assigned},
    )
