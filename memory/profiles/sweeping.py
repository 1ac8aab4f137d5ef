"""What finishes invalidations: of processes that died between commit and DEL, and of a Redis that was away."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from config.base.clock import now
from config.base.redis import RedisUnavailable
from memory.profiles import cache, recording
from memory.profiles.models import ProfileChange

logger = logging.getLogger(__name__)

BATCH = 500
# A Redis with AOF `everysec` may forget up to a second of what it did before a crash, a deletion among it.
SETTLE = timedelta(seconds=2)
BUDGET_SECONDS = 0.8  # less than the beat's second


def sweep(*, budget_seconds: float = BUDGET_SECONDS) -> int:
    """Deletes cached copies for all outbox rows, then the rows; answers how many rows are done with.

    Steps for each batch: 1. read rows, oldest first; 2. delete their keys in one command, also when a live process
    did so already (it costs one miss); 3. settle the versions whose writers did not live to do it; 4. rows swept 2 s
    ago or more are removed, new ones are marked and stay for that second deletion. With Redis away every row stays and
    the next second tries again. Sweepers beside each other are harmless: all they do may be done twice.
    """
    done = 0
    after = 0
    deadline = time.monotonic() + budget_seconds
    while True:
        rows = list(ProfileChange.objects.filter(id__gt=after).order_by("id")[:BATCH])
        if not rows:
            return done
        after = rows[-1].pk
        started = now()
        try:
            cache.drop(cache.droppable(rows))
        except RedisUnavailable:
            logger.warning("Redis is away: %d profile invalidations wait", len(rows))
            return done
        settled = [row.pk for row in rows if row.swept_at is not None and row.swept_at <= started - SETTLE]
        fresh = [row.pk for row in rows if row.swept_at is None]
        if fresh:
            written = [row.version_row for row in rows if row.swept_at is None and row.version_row is not None]
            recording.settle_quietly(written, now())
            ProfileChange.objects.filter(pk__in=fresh).update(swept_at=now())
        if settled:
            done += ProfileChange.objects.filter(pk__in=settled).delete()[0]
        if time.monotonic() >= deadline:
            return done
