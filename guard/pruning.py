"""What guard no longer needs goes, a little at a time: short transactions that nobody waits for.

What is kept for good is not here: `audit_log`, `audit_seal` and `budget_ledger` take no DELETE, and a row of `fence`
lives as long as its session. The rooms' `retention.py` say all of it (docs/retention.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import DatabaseError, models
from django.db.models import Q

from config.base.clock import now
from config.base.db import retry_conflicts
from guard.access.logins import prune_logins
from guard.access.models import AgentPrincipal
from guard.access.tokens import prune_tokens
from guard.admission.models import ActorBlock, AdmissionLimit, AgentPause

logger = logging.getLogger(__name__)

BATCH = 500  # rows of one transaction
# Of one run, over all tables; what is left is the next run's.
LONGEST_SECONDS = 5.0


def _remove(rows: models.QuerySet[models.Model], limit: int) -> int:
    """By primary key: found without a lock, so that nobody else's rows are locked beside them."""
    pks = list(rows.order_by().values_list("pk", flat=True)[:limit])
    return rows.filter(pk__in=pks).delete()[0] if pks else 0


def _history() -> timedelta:
    return timedelta(days=settings.GUARD_HISTORY_DAYS)


def prune_console_sessions(*, limit: int = BATCH) -> int:
    """Logins to the console that are over."""
    return _remove(Session.objects.filter(expire_date__lt=now()), limit)


def prune_blocks(*, limit: int = BATCH) -> int:
    """Blocks and pauses that ended GUARD_HISTORY_DAYS ago; more than the 30 days in which a repeat counts."""
    before = now() - _history()
    return sum(
        _remove(model.objects.filter(open=None, ended_at__lt=before), limit) for model in (ActorBlock, AgentPause)
    )


def prune_limits(*, limit: int = BATCH) -> int:
    """Versions of limits that others have taken the place of, or that took a limit away, GUARD_HISTORY_DAYS ago."""
    return _remove(
        AdmissionLimit.objects.filter(Q(current=None) | Q(retired=True), changed_at__lt=now() - _history()), limit
    )


def prune_principals(*, limit: int = BATCH) -> int:
    """Agent keys that were revoked, or expired, GUARD_HISTORY_DAYS ago. From then on they are unknown keys."""
    before = now() - _history()
    return _remove(AgentPrincipal.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before)), limit)


# Table, or what the rows are -> what removes some of them and says how many.
PRUNERS: dict[str, Callable[..., int]] = {
    "tokens": prune_tokens,
    "logins": prune_logins,
    "console_sessions": prune_console_sessions,
    "blocks": prune_blocks,
    "limits": prune_limits,
    "principals": prune_principals,
}


def prune_guard() -> dict[str, int]:
    """Removes what is over, in batches; how many rows of each. From beat; safe to run twice at once.

    A table that fails (its lock is held, say) is told in the log and the others have their turn.
    Errors: DatabaseError where no table was done: the database is away.
    """
    gone = dict.fromkeys(PRUNERS, 0)
    until = time.monotonic() + LONGEST_SECONDS
    failed: list[DatabaseError] = []
    done = 0
    for name, prune in PRUNERS.items():
        try:
            while time.monotonic() < until:
                many = retry_conflicts(lambda prune=prune: prune(limit=BATCH))  # type: ignore[misc]
                gone[name] += many
                done += 1
                if many < BATCH:
                    break
        except DatabaseError as error:
            failed.append(error)
            logger.error("guard: nothing removed of %s: %s", name, type(error).__name__)
    if failed and not done:
        raise failed[-1]
    return gone
