"""Runs a statement on a connection of its own: read-only, in bounded time, read row by row up to a bound of bytes.

Its own, so that nothing that a statement may leave behind (a session, a temporary table, a half-read answer) is met by
anybody, and it is closed whatever happens. Cost: one connection and one statement. On the core's server where
CORE_DATABASE_URL is set, else on the main one.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections
from django.db.utils import load_backend

from config.base.clock import rfc3339
from config.base.errors import DomainError
from memory.core.fields import plain
from memory.core.personal import Kind
from memory.core.router import CORE_ALIAS
from memory.profiles.queries.local import teach
from memory.profiles.queries.models import QueryOutcome
from memory.profiles.queries.reach import Output

_TIMED_OUT = {1969, 3024}  # MariaDB's and MySQL's own
_INTERRUPTED = 1317  # by its time, or by somebody who ended it (KILL QUERY)
_LEAST_LENGTH = 256 * 1024  # bytes of a value or row, on SQLite: several times what the gate lets be shown
_SQL_MODE = "STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION"
_LOST = 2013  # the server went, or the driver's own patience did


@dataclass(frozen=True)
class Result:
    """rows: JSON values, in order. truncated: there were more. bytes: of the rows' JSON."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    truncated: bool
    bytes: int


class Ended(Exception):
    """A statement that gave no rows. outcome: as the log says it."""

    def __init__(self, outcome: QueryOutcome, error: DomainError) -> None:
        super().__init__(outcome.value)
        self.outcome, self.error = outcome, error


def alias() -> str:
    return CORE_ALIAS if settings.CORE_IS_EXTERNAL else DEFAULT_DB_ALIAS


def vendor() -> str:
    return str(connections[alias()].vendor)


def seconds() -> float:
    """What a statement gets: on a core of its own, no more than that allows anybody."""
    given = float(settings.ANALYTICS_SECONDS)
    return min(given, settings.CORE_STATEMENT_TIMEOUT_MS / 1000) if settings.CORE_IS_EXTERNAL else given


def run(sql: str, outputs: Sequence[Output], *, rows: int, full_groups: bool = True) -> Result:
    """full_groups: the session is to hold ONLY_FULL_GROUP_BY too, which the gate has held already.
    rows: the limit that is told; `sql` asks for one more, to tell whether there were.

    Errors: Ended, with SQL_TIMEOUT (504), SQL_RESULT_TOO_LARGE (413), SQL_FAILED (422), DATABASE_UNAVAILABLE (503).
    """
    deadline = time.monotonic() + seconds()
    found: list[list[Any]] = []
    size = 0
    try:
        with _own_connection() as raw, _bounded(raw), _reading(raw, sql, deadline, full_groups) as cursor:
            # One by one: no more than the bound and one row is ever here. How wide a row may be, the gate has said.
            while (row := cursor.fetchone()) is not None:
                values = [_value(one, output.kind) for one, output in zip(row, outputs, strict=True)]
                size += len(json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass"))
                if size > settings.ANALYTICS_BYTES:
                    raise _too_large()
                found.append(values)
                if time.monotonic() > deadline:
                    raise _timeout()
    except (DatabaseError, InterfaceError, sqlite3.Error, _driver_error()) as error:
        raise _ended(error, late=time.monotonic() > deadline) from None
    return Result([output.name for output in outputs], found[:rows], len(found) > rows, size)


def _driver_error() -> type[Exception]:
    try:
        import MySQLdb
    except ImportError:
        return sqlite3.Error
    return MySQLdb.Error


def _timeout() -> Ended:
    return Ended(QueryOutcome.TIMEOUT, DomainError("SQL_TIMEOUT", f"it did not end within {seconds():g} s"))


def _too_large() -> Ended:
    bound = f"the rows are over {settings.ANALYTICS_BYTES} bytes"
    return Ended(QueryOutcome.TOO_LARGE, DomainError("SQL_RESULT_TOO_LARGE", bound))


def _ended(error: BaseException, *, late: bool) -> Ended:
    """By the number alone: the database's own words may hold what the rows hold. late: its time was over."""
    number = error.args[0] if error.args else None
    if number in _TIMED_OUT or (late and number in (_LOST, _INTERRUPTED)):
        return _timeout()
    if isinstance(number, str) and "interrupted" in number and late:
        return _timeout()
    if number == _INTERRUPTED:
        return Ended(QueryOutcome.FAILED, DomainError("SQL_FAILED", "the statement was ended by an operator"))
    if isinstance(number, str) and "too big" in number:
        return _too_large()
    if isinstance(error, DomainError):
        return Ended(QueryOutcome.FAILED, error)
    if isinstance(number, int) and (2000 <= number < 2100 or number in (1040, 1045, 1053, 1203)):
        gone = "CORE_UNAVAILABLE" if settings.CORE_IS_EXTERNAL else "DATABASE_UNAVAILABLE"
        return Ended(QueryOutcome.FAILED, DomainError(gone))
    told = number if isinstance(number, int) else type(error).__name__
    return Ended(QueryOutcome.FAILED, DomainError("SQL_FAILED", f"the database did not run the statement ({told})"))


@contextmanager
def _own_connection() -> Iterator[Any]:
    given = deepcopy(connections[alias()].settings_dict)
    if connections[alias()].vendor != "sqlite":
        # The server ends the statement; the driver only what the server never answers.
        given["OPTIONS"] = {**given["OPTIONS"], "read_timeout": int(seconds()) + 2}
    connection = load_backend(given["ENGINE"]).DatabaseWrapper(given, alias())
    connection.inc_thread_sharing()
    try:
        connection.ensure_connection()
        yield connection
    finally:
        connection.close()


def _bounded(connection: Any) -> AbstractContextManager[None]:
    """The server ends the statement, not its answer: one that drips has a second for it, as a whole."""
    return nullcontext() if connection.vendor == "sqlite" else connection.within(seconds() + 1)


@contextmanager
def _reading(connection: Any, sql: str, deadline: float, full_groups: bool) -> Iterator[Any]:
    raw = connection.connection
    if connection.vendor == "sqlite":
        teach(raw)
        raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(settings.ANALYTICS_BYTES, _LEAST_LENGTH))
        raw.execute("PRAGMA query_only=ON")
        raw.set_progress_handler(lambda: int(time.monotonic() > deadline), 1000)
        # Without Django's converters: values as they are stored.
        cursor = raw.cursor()
        try:
            yield sqlite3.Cursor.execute(cursor, sql)
        finally:
            cursor.close()
        return
    import MySQLdb.cursors

    limit = seconds()
    with raw.cursor() as setup:
        if connection.mysql_is_mariadb:
            setup.execute(f"SET SESSION max_statement_time={limit:.3f}")
        else:
            setup.execute(f"SET SESSION max_execution_time={int(limit * 1000)}")
        mode = f"ONLY_FULL_GROUP_BY,{_SQL_MODE}" if full_groups else _SQL_MODE
        setup.execute(f"SET SESSION sql_mode='{mode}', SESSION time_zone='+00:00'")
        setup.execute("START TRANSACTION READ ONLY")
    cursor = raw.cursor(MySQLdb.cursors.SSCursor)
    try:
        cursor.execute(sql)
        yield cursor
    except BaseException:
        # Whatever is left of the answer is not read: the connection goes.
        connection.connection = None
        raw.close()
        raise
    finally:
        if connection.connection is not None:
            cursor.close()


def _value(value: Any, kind: Kind | None) -> Any:
    """JSON: whole numbers as they are, every other number as text with all of its digits, instants RFC 3339."""
    if value is None or isinstance(value, str):
        return _from_text(value, kind)
    if isinstance(value, bool) or (kind is Kind.BOOL and isinstance(value, int)):
        return bool(value)
    if isinstance(value, int):
        return str(value) if kind is Kind.MONEY else value
    if isinstance(value, Decimal):
        return format(plain(value), "f")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Ended(QueryOutcome.FAILED, DomainError("SQL_FAILED", "a number is out of range"))
        return format(Decimal(f"{value:.15g}"), "f")
    if isinstance(value, datetime):
        return rfc3339(value.replace(tzinfo=UTC) if value.tzinfo is None else value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _from_text(value: str | None, kind: Kind | None) -> Any:
    if value and kind is Kind.INSTANT:
        try:
            return rfc3339(datetime.fromisoformat(value).replace(tzinfo=UTC))
        except ValueError:
            return value
    return value
