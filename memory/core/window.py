"""The window onto a core system that is another server: reads only, in bounded time, and one word for "away".

Every read goes through one connection class (`memory/core/backends/`), whoever asks: rules, access, the sync of l1,
pages. So this holds for all of them:

- Writes. The router refuses them by model (router.py). A statement that is no read is refused before it is sent,
  whatever the alias' user does (save, raw SQL, executemany, DDL), and the server refuses it too: the session is READ
  ONLY on MySQL and MariaDB, the file is opened `mode=ro` with `query_only` on SQLite. CORE_READ_ONLY (403).
- Time. CORE_CONNECT_TIMEOUT seconds for a connection as a whole (a server that greets a byte at a time is none),
  CORE_STATEMENT_TIMEOUT_MS for a statement, ended by the server
  (max_statement_time, max_execution_time; on SQLite by its progress handler); where the server says nothing, or drips
  its answer, the connection is cut a second later (config/base/deadlines.py).
- Away. Whatever keeps a read from being answered is CoreUnavailable: CORE_UNAVAILABLE (503) to callers, and still an
  OperationalError to whoever handles databases being away.
- A breaker for each process: after a failure one caller each HOLD_SECONDS asks, the others are told at once.
"""

from __future__ import annotations

import re
import time
from functools import lru_cache
from itertools import pairwise
from types import TracebackType
from typing import Any

from django.conf import settings
from django.db.utils import (
    DatabaseErrorWrapper,
    Error,
    InterfaceError,
    InternalError,
    OperationalError,
    ProgrammingError,
)

from config.base.breaker import Breaker
from config.base.errors import DomainError

HOLD_SECONDS = 5.0
# A connection that lay idle for so long is asked whether it still stands before it is used.
IDLE_SECONDS = 5.0

breaker = Breaker(HOLD_SECONDS)

_READS = frozenset({"select", "with", "show", "explain", "describe", "desc", "savepoint", "release", "rollback"})
_REMEMBERED = 20_000  # characters of a statement that is remembered
_BEGIN = "BEGIN DEFERRED"  # what Django itself says to SQLite: it takes no lock
# A statement in its pieces. What is quoted, and what is remarked, is no word of it.
_REMARK = r"/\*(?![!M+]).*?\*/|(?:--(?=[\s])|\#)[^\n]*"
_PIECES = {
    "mysql": re.compile(
        rf"(?P<gap>\s+|{_REMARK})|(?P<quoted>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`)"
        r"|(?P<word>[^\W\d]\w*)|(?P<number>\d\w*)|(?P<mark>(?!['\"`]|/\*|\*/|\#|--).)",
        re.DOTALL,
    ),
    # `#` and a backslash mean nothing to SQLite, and `--` always begins a remark.
    "sqlite": re.compile(
        r"(?P<gap>\s+|/\*.*?\*/|--[^\n]*)|(?P<quoted>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`)"
        r"|(?P<word>[^\W\d]\w*)|(?P<number>\d\w*)|(?P<mark>(?!['\"`]|/\*|\*/|--).)",
        re.DOTALL,
    ),
}
# Locks on the core's rows, and files and variables on its server, are writes of a kind.
_WRITES_ALL_THE_SAME = (
    *(("for", "update"), ("for", "share"), ("lock", "in"), ("into", "outfile"), ("into", "dumpfile"), ("into", "@")),
    (":", "="),
)

# What says that our statement or the core's schema is at fault, and nothing about whether the server answers.
_ANSWERED = {1044, 1054, 1064, 1109, 1142, 1143, 1146, 1305, 1370}
_REFUSED_WRITE = {1290, 1792, 1836}
_LOST = {1053, 1927, 2006, 2013, 2055, 4031}  # the connection is of no use any more
_SQLITE_ANSWERED = ("no such table", "no such column", "near ")
_SQLITE_REFUSED_WRITE = ("attempt to write a readonly database",)


class CoreUnavailable(DomainError, OperationalError):
    """The core did not answer: CORE_UNAVAILABLE (503). To whoever handles an absent database it is one."""

    def __init__(self, detail: str) -> None:
        super().__init__("CORE_UNAVAILABLE", detail, retry_after=HOLD_SECONDS)


def core_read_only() -> DomainError:
    return DomainError("CORE_READ_ONLY", "CORE_DATABASE_URL is set: the core system is read-only from here")


def refuse_unless_read(sql: str, vendor: str = "mysql") -> None:
    """Errors: CORE_READ_ONLY for what is not plainly one read. The server's own refusal stands behind this.

    Cost: some 10 microseconds for each 100 characters, once for each text that comes again and again.
    """
    if sql != _BEGIN and not (_is_read if len(sql) <= _REMEMBERED else _is_read.__wrapped__)(sql, vendor):
        raise core_read_only()


@lru_cache(maxsize=512)
def _is_read(sql: str, vendor: str) -> bool:
    words = _words(sql, vendor)
    if words is None:
        return False
    while words and words[-1] == ";":
        words.pop()
    first = next((word for word in words if word != "("), "")
    if first not in _READS or ";" in words:
        return False
    pairs = set(pairwise(words))
    return not pairs & set(_WRITES_ALL_THE_SAME)


def _words(sql: str, vendor: str) -> list[str] | None:
    """Words in lower case and marks, in their order, quotes as one `'`; None for what we cannot read as the server
    does: a quote or remark without an end, a remark that the server carries out."""
    pieces, words, at = _PIECES[vendor], [], 0
    while at < len(sql):
        found = pieces.match(sql, at)
        if found is None:
            return None
        at = found.end()
        if found.lastgroup in ("word", "mark"):
            words.append(found[0].lower())
        elif found.lastgroup == "quoted":
            words.append("'")
    return words


class _Told(DatabaseErrorWrapper):
    """Django's wrapper of the driver's errors, around every call of the driver; what it raises is made ours."""

    wrapper: CoreWindow

    def __enter__(self) -> None:
        self.wrapper.before_call()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            return
        try:
            super().__exit__(exc_type, exc_value, traceback)  # type: ignore[arg-type]
        except Error as error:
            ours = self.wrapper.what_it_means(error)
            if ours is error:
                raise
            raise ours from error


class CoreWindow:
    """Stands before Django's DatabaseWrapper in the classes of `memory/core/backends/`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wrap_database_errors = _Told(self)
        self.execute_wrappers: list[Any] = [_run]
        self._inside = False  # a call that the breaker has let through opens, checks or sets up the connection
        self._lost = False
        self._used_at = 0.0

    def before_call(self) -> None:
        """Before each call of the driver."""

    def what_it_means(self, error: Error) -> Exception:
        """The error that callers meet; notes what it tells of the server."""
        number = error.args[0] if error.args else None
        text = number if isinstance(number, str) else ""
        if number in _REFUSED_WRITE or text.startswith(_SQLITE_REFUSED_WRITE):
            return core_read_only()
        faulty = number in _ANSWERED or text.startswith(_SQLITE_ANSWERED)
        if isinstance(error, ProgrammingError) and not faulty:
            return error
        if not isinstance(error, OperationalError | InterfaceError | InternalError | ProgrammingError):
            return error
        shown = f"{type(error).__name__} {number}" if isinstance(number, int) else type(error).__name__
        if not faulty:
            breaker.trip()
            self._lost = number in _LOST  # closed before the next use: the cursor that failed still wants it
        return CoreUnavailable(f"the core system does not answer ({shown})")

    def _admit(self) -> None:
        if not breaker.may_try():
            raise CoreUnavailable("the core system did not answer a moment ago; one caller each 5 s asks again")

    def connect(self) -> None:
        """Errors: CoreUnavailable, within CORE_CONNECT_TIMEOUT or at once."""
        if self._inside:
            super().connect()  # type: ignore[misc]
            return
        self._admit()
        self._inside = True
        try:
            super().connect()  # type: ignore[misc]
        finally:
            self._inside = False

    def _cursor(self, name: str | None = None) -> Any:
        if self._inside:
            return super()._cursor(name)  # type: ignore[misc]
        self._admit()
        if self._lost:
            self._lost = False
            self.close()  # type: ignore[attr-defined]
        if time.monotonic() - self._used_at > IDLE_SECONDS:
            self.health_check_done = False
        self._inside = True
        try:
            cursor = super()._cursor(name)  # type: ignore[misc]
        finally:
            self._inside = False
        self._used_at = time.monotonic()
        return cursor


def _run(execute: Any, sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    if not context["connection"]._inside:  # what sets up the session is ours
        refuse_unless_read(sql, context["connection"].vendor)
    answer = execute(sql, params, many, context)
    breaker.reset()
    return answer


def statement_seconds() -> float:
    return settings.CORE_STATEMENT_TIMEOUT_MS / 1000  # type: ignore[no-any-return]
