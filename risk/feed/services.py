"""The publisher: stamps outbox rows with their place in the feed, sends them, marks them.

On Redis being away: closed, that is, rows wait and nothing is marked; they are tried again with back-off (0.1 s,
doubled up to 2 s, in each process), and numbered meanwhile, so that sockets can read them. Nothing is lost.
A publisher that dies between sending and marking leaves rows that are sent a second time: consumers key on
alert_id (`risk:pub:alert`) or on seq (`risk:pub:feed`).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction
from django.db.models import Case, F, Value, When
from redis import Redis

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.fields import canonical_json
from config.base.keys import DEFAULT_TENANT
from config.base.redis import RedisUnavailable, state, translated
from risk.alerts.models import AlertOutbox, FeedHead
from risk.feed.events import frame
from risk.feed.keys import PUB_ALERT, PUB_FEED

logger = logging.getLogger(__name__)

BATCH = 200  # rows of one transaction and of one round trip to Redis
MAX_BATCHES = 50  # of one tenant in one call, so that a task ends; the next tick goes on
BACKOFF_FIRST, BACKOFF_MOST = 0.1, 2.0  # seconds between two tries of this process while Redis is away


@dataclass
class PublishResult:
    """Rows stamped and sent by this call. away: Redis was, and rows wait."""

    stamped: int = 0
    published: int = 0
    away: bool = False


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


def publish(*, at_once: bool = False) -> PublishResult:
    """Publishes what waits in `alert_outbox`, every tenant, in order.

    1. Stamp: under the tenant's `alert_feed_head` row, which is the publishers' lock, rows without seq get the next
       numbers; commit. Only committed rows are seen, so a late commit gets a later number and is never skipped.
    2. Send: under the same lock, stamped rows that are not marked go out in the order of seq, one round trip a batch.
    3. Mark `published_at`; commit.

    Several publishers at once take turns at the lock: none overtakes another, and rows marked by one are not seen
    by the next. Nothing to do costs one query and no transaction.
    at_once: try Redis whatever was found a moment ago.
    """
    result = PublishResult()
    tries = at_once or backoff.is_over()
    waiting = AlertOutbox.objects.filter(published_at=None).order_by().values_list("tenant", flat=True).distinct()
    for tenant in sorted(waiting):
        result.stamped += stamp(tenant=tenant)
        if result.away or not tries:
            result.away = True
            continue  # stamped all the same: sockets can catch up from the rows
        try:
            result.published += send(tenant=tenant)
            backoff.reset()
        except RedisUnavailable as error:
            result.away = True
            backoff.failed()
            logger.warning("alerts wait in the outbox: %s", error)
    return result


def stamp(*, tenant: str) -> int:
    """Step 1 of `publish`, for one tenant. Returns how many rows were stamped."""

    def work() -> int:
        with transaction.atomic():
            head = _lock_head(tenant)
            ids = list(
                AlertOutbox.objects.filter(tenant=tenant, published_at=None, seq=None)
                .order_by("id")
                .values_list("id", flat=True)[:BATCH]
            )
            if not ids:
                return 0
            numbers = {pk: head.seq + n for n, pk in enumerate(ids, start=1)}
            AlertOutbox.objects.filter(pk__in=ids, seq=None).update(
                seq=Case(*[When(pk=pk, then=Value(number)) for pk, number in numbers.items()])
            )
            FeedHead.objects.filter(pk=tenant).update(seq=F("seq") + len(ids))
            return len(ids)

    return _in_batches(work)


def send(*, tenant: str) -> int:
    """Steps 2 and 3 of `publish`, for one tenant. Returns how many rows went out. Errors: RedisUnavailable."""
    client = state()
    # Asked outside the lock: a server that hangs is found out here, where nobody waits for us.
    with translated():
        client.ping()

    def work() -> int:
        with transaction.atomic():
            _lock_head(tenant)
            rows = list(
                AlertOutbox.objects.filter(tenant=tenant, published_at=None, seq__isnull=False).order_by("seq")[:BATCH]
            )
            if not rows:
                return 0
            deliver(client, rows)
            AlertOutbox.objects.filter(pk__in=[row.pk for row in rows]).update(published_at=now())
            return len(rows)

    return _in_batches(work)


def deliver(client: Redis, rows: list[AlertOutbox]) -> None:
    """Sends stamped rows in one round trip: `alert` rows to both channels, `update` rows to the feed's own alone."""
    with translated():
        pipe = client.pipeline(transaction=False)
        for row in rows:
            if row.kind == AlertOutbox.Kind.ALERT:
                pipe.publish(PUB_ALERT(row.tenant), canonical_json(row.event))
            message = {"tenant": row.tenant, "seq": row.seq, "event": frame(row.kind, row.event)}
            pipe.publish(PUB_FEED(DEFAULT_TENANT), canonical_json(message))
        pipe.execute()


def _lock_head(tenant: str) -> FeedHead:
    FeedHead.objects.get_or_create(tenant=tenant)
    return FeedHead.objects.select_for_update().get(tenant=tenant)


def _in_batches(work: Callable[[], int]) -> int:
    total = 0
    for _ in range(MAX_BATCHES):
        done = retry_conflicts(work)
        total += done
        if done < BATCH:
            break
    return total
