"""Transactions that others may cross: deadlocks and lock waits are retried a bounded number of times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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
    longest: float | None = None,
    using: str = DEFAULT_DB_ALIAS,
) -> T:
    """Runs `work` (which opens its own transaction) again when it lost to another transaction.

    also: exceptions that mean the same to the caller, such as IntegrityError where a unique key decides a race.
    longest: no new attempt after so many seconds, LONGEST_SECONDS unless said. Whoever serves no request may wait for
    more than one lock time-out.
    Inside a transaction of the caller's, a lock conflict is raised at once: the database may have rolled back all
    of that transaction, so only its owner can start over.
    Errors: the last conflict, after `attempts` tries or `longest`.
    """
    began, most = time.monotonic(), LONGEST_SECONDS if longest is None else longest
    losses: tuple[type[Exception], ...] = (OperationalError, *also)
    for attempt in range(attempts):
        try:
            return work()
        except losses as error:
            lost_race = isinstance(error, also)
            if not lost_race and (not is_lock_conflict(error) or connections[using].in_atomic_block):
                raise
            if attempt + 1 == attempts or time.monotonic() - began > most:
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
    model = type(rows[0])
    connection = connections[model._default_manager.db]
    if len(rows) > 1 and connection.features.can_return_rows_from_bulk_insert:
        size = connection.ops.bulk_batch_size(_written(rows[0]), rows)
        for start in range(0, len(rows), size):
            _insert(connection, rows[start : start + size])
        return
    for row in rows:
        row.save(force_insert=True)


def _written(row: Model) -> list[Any]:
    """The columns that an INSERT names: all but an id that the database gives out, and what it works out itself."""
    key = row._meta.auto_field if row.pk is None else None
    return [field for field in row._meta.local_concrete_fields if field is not key and not field.generated]


def _insert(connection: Any, rows: Sequence[Model]) -> None:
    """What `bulk_create` does for rows of plain values, at less than half its cost in Python."""
    fields, quoted = _written(rows[0]), connection.ops.quote_name
    meta = rows[0]._meta
    names = ", ".join(quoted(field.column) for field in fields)
    places = ", ".join([f"({', '.join(['%s'] * len(fields))})"] * len(rows))
    # names of our own models' columns; every value is a parameter
    sql = f"INSERT INTO {quoted(meta.db_table)} ({names}) VALUES {places}"  # noqa: S608
    prepared = [(field.get_db_prep_save, field.pre_save) for field in fields]
    values = [save(before(row, True), connection) for row in rows for save, before in prepared]
    key = meta.auto_field if rows[0].pk is None else None
    with connection.cursor() as cursor:
        if key is None:
            cursor.execute(sql, values)
        else:
            cursor.execute(f"{sql} RETURNING {quoted(key.column)}", values)
            for row, (row_id,) in zip(rows, cursor.fetchall(), strict=True):
                setattr(row, key.attname, row_id)
    for row in rows:
        row._state.adding, row._state.db = False, connection.alias
