"""Transactions that others may cross: deadlocks and lock waits are retried a bounded number of times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.db.models import Model

T = TypeVar("T")

ATTEMPTS = 6
# No new attempt later than this: each may itself have waited for the database's whole lock time-out (5 s where requests
# are served, see env.py: less than that here, so that it is waited for once), and the caller of an HTTP request has a
# right to hear that the database is busy.
LONGEST_SECONDS = 4.5
_LOCK_CODES = {1205, 1213, 1020}  # lock wait timeout, deadlock, record changed since last read (MariaDB)
_LOST_RACE = {1213, 1020}  # of those, what is told at once
_SQLITE_BUSY = ("database is locked", "database table is locked")


def is_lock_conflict(error: BaseException) -> bool:
    """Whether the database gave up on a lock: nothing was written and the same work may be tried again."""
    if not isinstance(error, OperationalError):
        return False
    code = error.args[0] if error.args else None
    return code in _LOCK_CODES or (isinstance(code, str) and code.startswith(_SQLITE_BUSY))


def is_hanging(error: BaseException) -> bool:
    """Whether the database is away, or gave no answer or lock in time: the next one to ask would wait as long."""
    return isinstance(error, OperationalError | InterfaceError) and (error.args or (None,))[0] not in _LOST_RACE


def refuse_inside_transaction(what: str, *, using: str = DEFAULT_DB_ALIAS) -> None:
    """For work that commits by itself: the caller's transaction could neither hold it nor take it back.

    what: who is called, as it stands before "cannot". Errors: RuntimeError, a fault of the caller's code.
    """
    blocks = connections[using].atomic_blocks
    # The transaction around a test is none of the caller's; `durable` sees it in the same way.
    if blocks and not getattr(blocks[-1], "_from_testcase", False):
        raise RuntimeError(
            f"{what} cannot be called inside transaction.atomic(), for it commits by itself and would stay where the "
            "transaction is rolled back; call it before or after the block, or with transaction.on_commit()"
        )


def retry_conflicts(
    work: Callable[[], T],
    *,
    also: tuple[type[Exception], ...] = (),
    attempts: int = ATTEMPTS,
    using: str = DEFAULT_DB_ALIAS,
) -> T:
    """Runs `work` (which opens its own transaction) again when it lost to another transaction.

    also: exceptions that mean the same to the caller, such as IntegrityError where a unique key decides a race.
    Inside a transaction of the caller's, a lock conflict is raised at once: the database may have rolled back all
    of that transaction, so only its owner can start over.
    Errors: the last conflict, after `attempts` tries or LONGEST_SECONDS.
    """
    began = time.monotonic()
    losses: tuple[type[Exception], ...] = (OperationalError, *also)
    for attempt in range(attempts):
        try:
            return work()
        except losses as error:
            lost_race = isinstance(error, also)
            if not lost_race and (not is_lock_conflict(error) or connections[using].in_atomic_block):
                raise
            if attempt + 1 == attempts or time.monotonic() - began > LONGEST_SECONDS:
                raise
            # Jitter, so that two that collided do not collide again in step.
            time.sleep(random.uniform(0, 0.01 * 2**attempt))  # noqa: S311 - not a secret
    raise AssertionError("unreachable")


def insert_all(rows: Sequence[Model]) -> None:
    """Inserts rows of one model, in order, and gives each its id: the caller's transaction, one INSERT.

    MySQL does not answer with the ids of several rows (MariaDB and SQLite do): there it is one INSERT a row.
    """
    if not rows:
        return
    manager = type(rows[0])._default_manager
    if len(rows) > 1 and connections[manager.db].features.can_return_rows_from_bulk_insert:
        manager.bulk_create(rows)
        return
    for row in rows:
        row.save(force_insert=True)
