"""The publisher: stamps outbox rows with their place in the feed, sends them, marks them.

On Redis being away: closed, that is, rows wait and nothing is marked; they are tried again with back-off (0.1 s,
doubled up to 2 s, in each process), and numbered meanwhile, so that sockets can read them. Nothing is lost.
A row that is damaged (whoever wrote there) is set aside: its number is told as a `void` event, on `risk:pub:feed`
alone, so that readers miss none, with why in the log and in the row, and the others go on. `resend_set_aside` tells
its alert again. A tenant whose numbers somebody holds locked, or whose rows fail, keeps no other tenant waiting.
A publisher that dies between sending and marking leaves rows that are sent a second time: consumers key on
alert_id (`risk:pub:alert`) or on seq (`risk:pub:feed`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Case, F, Value, When
from redis import Redis

from config.base.clock import now, rfc3339
from config.base.db import is_hanging, retry_conflicts
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.ids import check_id
from config.base.keys import DEFAULT_TENANT
from config.base.redis import RedisUnavailable, state, translated
from risk.alerts.models import AlertOutbox, FeedHead, RiskAlert
from risk.feed.events import VOID, Damaged, alert_event, frame, sound_event, tell, update_event
from risk.feed.keys import PUB_ALERT, PUB_ALIVE, PUB_FEED
from risk.feed.selectors import set_aside, with_raw

logger = logging.getLogger(__name__)

BATCH = 200  # rows of one transaction and of one round trip to Redis
MAX_BATCHES = 50  # of one tenant in one call, so that a task ends; the next tick goes on
# Seconds that a call waits for tenants whose lock another publisher has, all together, after it has served the others.
LOCK_PATIENCE = 0.5
ALIVE_SECONDS = 1.0  # between two messages that the publisher is alive
BACKOFF_FIRST, BACKOFF_MOST = 0.1, 2.0  # seconds between two tries of this process while Redis is away


@dataclass
class PublishResult:
    """Rows stamped and sent by this call. away: Redis was, and rows wait. set_aside: rows that are damaged.

    busy: tenants whose rows somebody else is sending, or holds locked; failed: tenants whose rows could not be sent for
    another reason, which is in the log. Theirs wait for the next call."""

    stamped: int = 0
    published: int = 0
    away: bool = False
    set_aside: int = 0
    busy: int = 0
    failed: int = 0


@dataclass
class _Batch:
    """done: rows that are dealt with. damaged: of them."""

    done: int = 0
    damaged: int = 0


class _Busy(Exception):
    """Another publisher has the tenant's lock."""


class _Backoff:
    """When this process tries Redis again. Another server's outage (another URL) says nothing about this one."""

    def __init__(self) -> None:
        self._server = ""
        self._wait = self._until = 0.0

    def is_over(self) -> bool:
        return self._server != settings.REDIS_URL or time.monotonic() >= self._until

    def failed(self) -> None:
        if self._server != settings.REDIS_URL:
            self.reset()
        self._server = settings.REDIS_URL
        self._wait = min(BACKOFF_MOST, self._wait * 2 or BACKOFF_FIRST)
        # Jitter: several publishers do not come back all at once.
        self._until = time.monotonic() + self._wait * random.uniform(0.7, 1.0)  # noqa: S311

    def reset(self) -> None:
        self._wait = self._until = 0.0


backoff = _Backoff()
_told_alive = -ALIVE_SECONDS


def publish(*, at_once: bool = False) -> PublishResult:
    """Publishes what waits in `alert_outbox`, every tenant, in order.

    1. Stamp: under the tenant's `alert_feed_head` row, which is the publishers' lock, rows without seq get the next
       numbers; commit. Only committed rows are seen, so a late commit gets a later number and is never skipped.
    2. Send: under the same lock, stamped rows that are not marked go out in the order of seq, one round trip a batch.
    3. Mark `published_at`; commit.

    Several publishers at once take turns at the lock: none overtakes another, and rows marked by one are not seen
    by the next. Who finds it taken serves the other tenants first, and then waits LOCK_PATIENCE seconds at most.
    Nothing to do costs one query and no transaction.
    at_once: try Redis whatever was found a moment ago.
    Errors: the database's, where it is away.
    """
    result = PublishResult()
    tries = at_once or backoff.is_over()
    waiting = AlertOutbox.objects.filter(published_at=None).order_by().values_list("tenant", flat=True).distinct()
    tenants = sorted(waiting)
    until = 0.0
    while tenants:
        taken = [tenant for tenant in tenants if not _serve(tenant, result, tries=tries)]
        until = until or time.monotonic() + LOCK_PATIENCE
        if taken and time.monotonic() >= until:
            result.busy = len(taken)
            logger.warning("rows of %d tenants wait in the outbox: another publisher has them", len(taken))
            break
        tenants = taken
        if tenants:
            time.sleep(0.02)
    return result


def tell_alive() -> None:
    """Tells every ASGI process that somebody has just looked into the outbox; once a second, whoever asks.

    Open when Redis is away: nobody hears it, and after source.QUIET_SECONDS the heartbeats say so."""
    global _told_alive
    if time.monotonic() - _told_alive < ALIVE_SECONDS or not backoff.is_over():
        return
    _told_alive = time.monotonic()
    try:
        with translated():
            state().publish(PUB_ALIVE(DEFAULT_TENANT), canonical_json({"at": rfc3339(now())}))
    except RedisUnavailable:
        backoff.failed()


def _serve(tenant: str, result: PublishResult, *, tries: bool) -> bool:
    """One tenant's rows, counted into the result. False: another publisher is at them."""
    try:
        result.stamped += stamp(tenant=tenant)
        if result.away or not tries:
            result.away = True
            return True  # stamped all the same: sockets can catch up from the rows
        sent = send(tenant=tenant)
        result.published += sent.done - sent.damaged
        result.set_aside += sent.damaged
        backoff.reset()
    except _Busy:
        return False
    except RedisUnavailable as error:
        result.away = True
        backoff.failed()
        logger.warning("alerts wait in the outbox: %s", error)
    except InterfaceError:
        raise
    except Exception as error:
        if isinstance(error, OperationalError) and is_hanging(error) and error.args[:1] != (1205,):
            raise  # the database is away: for all
        result.failed += 1
        # (A driver's text may hold what was written.)
        logger.error("a tenant's rows wait in the outbox: %s", type(error).__name__, exc_info=not _is_driver(error))
    return True


def _is_driver(error: Exception) -> bool:
    return isinstance(error, DatabaseError)


def stamp(*, tenant: str) -> int:
    """Step 1 of `publish`, for one tenant. Returns how many rows were stamped."""

    def work() -> _Batch:
        with transaction.atomic():
            head = _lock_head(tenant)
            ids = list(
                AlertOutbox.objects.filter(tenant=tenant, published_at=None, seq=None)
                .order_by("id")
                .values_list("id", flat=True)[:BATCH]
            )
            if not ids:
                return _Batch()
            numbers = {pk: head.seq + n for n, pk in enumerate(ids, start=1)}
            AlertOutbox.objects.filter(pk__in=ids, seq=None).update(
                seq=Case(*[When(pk=pk, then=Value(number)) for pk, number in numbers.items()])
            )
            FeedHead.objects.filter(pk=tenant).update(seq=F("seq") + len(ids))
            return _Batch(len(ids))

    return _in_batches(work).done


def send(*, tenant: str) -> _Batch:
    """Steps 2 and 3 of `publish`, for one tenant. Returns how many rows went out. Errors: RedisUnavailable."""
    client = state()
    # Asked outside the lock: a server that hangs is found out here, where nobody waits for us.
    with translated():
        client.ping()

    def work() -> _Batch:
        with transaction.atomic():
            _lock_head(tenant)
            rows = with_raw(AlertOutbox.objects.filter(tenant=tenant, published_at=None, seq__isnull=False))
            found = [
                _outgoing(tenant, *row) for row in rows.order_by("seq").values_list("pk", "seq", "kind", "raw")[:BATCH]
            ]
            if not found:
                return _Batch()
            deliver(client, found)
            moment = now()
            AlertOutbox.objects.filter(pk__in=[one.pk for one in found]).update(published_at=moment)
            damaged = [one for one in found if one.fault]
            for one in damaged:
                AlertOutbox.objects.filter(pk=one.pk).update(set_aside_at=moment, set_aside_for=one.fault)
                logger.error("row %d of the outbox is set aside: %s", one.pk, one.fault)
            return _Batch(len(found), len(damaged))

    return _in_batches(work)


@dataclass(frozen=True)
class Outgoing:
    """A stamped row on its way. fault: why it is not sent but set aside."""

    pk: int
    tenant: str
    seq: int
    kind: str
    event: dict[str, Any] = field(default_factory=dict)
    fault: str = ""


def _outgoing(tenant: str, pk: int, seq: int, kind: str, raw: str | None) -> Outgoing:
    try:
        check_id("tenant", tenant)
        return Outgoing(pk, tenant, seq, kind, sound_event(kind, raw))
    except DomainError:
        return Outgoing(pk, tenant, seq, kind, fault="tenant is no id")
    except Damaged as damage:
        return Outgoing(pk, tenant, seq, kind, fault=str(damage))


def deliver(client: Redis, rows: Sequence[Outgoing]) -> None:
    """Sends stamped rows in one round trip: `alert` rows to both channels, all others to the feed's own alone."""
    with translated():
        pipe = client.pipeline(transaction=False)
        for row in rows:
            if row.kind == AlertOutbox.Kind.ALERT and not row.fault:
                pipe.publish(PUB_ALERT(row.tenant), canonical_json(row.event))
            event = VOID if row.fault else frame(row.kind, row.event)
            message = {"tenant": row.tenant, "seq": row.seq, "event": event}
            pipe.publish(PUB_FEED(DEFAULT_TENANT), canonical_json(message))
        pipe.execute()


@dataclass
class Resent:
    """resent: alerts told again. unknown: rows whose alert is not there; they stay set aside."""

    resent: int = 0
    unknown: int = 0


def resend_set_aside(*, tenant: str | None = None) -> Resent:
    """Tells the alerts of rows that were set aside again, each as it now stands, as a later event of its kind.

    A transaction and 4 queries a row. Idempotent; two at once tell it once. A row whose kind is damaged tells it as an
    alert.
    """
    result = Resent()
    last = 0
    while pks := list(set_aside(tenant=tenant).filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        last = pks[-1]
        for pk in pks:
            found = retry_conflicts(lambda pk=pk: _resend(pk))  # type: ignore[misc]
            result.resent += found is True
            result.unknown += found is False
    return result


def _resend(pk: int) -> bool | None:
    """None: somebody else has done it meanwhile."""
    with transaction.atomic():
        row = set_aside().select_for_update().filter(pk=pk).values_list("tenant", "alert_id", "kind").first()
        if row is None:
            return None
        of, alert_id, kind = row
        alert = RiskAlert.objects.select_related("assignee").filter(tenant=of, alert_id=alert_id).first()
        if alert is None:
            return False
        tell([update_event(alert) if kind == AlertOutbox.Kind.UPDATE else alert_event(alert)])
        AlertOutbox.objects.filter(pk=pk).update(resent_at=now())
        return True


def _lock_head(tenant: str) -> FeedHead:
    """Errors: _Busy, at once."""
    FeedHead.objects.get_or_create(tenant=tenant)
    skips = connection.features.has_select_for_update_skip_locked
    head = FeedHead.objects.select_for_update(skip_locked=skips).filter(tenant=tenant).first()
    if head is None:
        raise _Busy
    return head


def _in_batches(work: Callable[[], _Batch]) -> _Batch:
    total = _Batch()
    for _ in range(MAX_BATCHES):
        one = retry_conflicts(work)
        total.done += one.done
        total.damaged += one.damaged
        if one.done < BATCH:
            break
    return total
