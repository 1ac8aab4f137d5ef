"""MySQL and MariaDB whose every answer comes whole within a time, or not at all.

The driver's `read_timeout` is for each read: it begins anew with each byte that a server, or a proxy, drips. Here a
statement, with all of its rows, and a commit have one deadline; past it the connection is cut, the call fails with the
driver's 2013, and the connection is not used again. Cost: some microseconds a call, no round trip.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.mysql.base import CursorWrapper
from MySQLdb.cursors import Cursor

from config.base import deadlines


class BoundedCursor(Cursor):  # type: ignore[misc]
    """The driver's cursor: `_query` is where it sends a statement and reads the whole of its answer."""

    owner: Bounded

    def _query(self, q: Any) -> Any:
        with self.owner.within():
            return super()._query(q)

    def nextset(self) -> Any:
        with self.owner.within():
            return super().nextset()


class Bounded:
    """Stands before Django's DatabaseWrapper."""

    driver_cursor: type[BoundedCursor] = BoundedCursor
    connection: Any
    _line: deadlines.Line | None = None
    _line_of: Any = None

    def answer_seconds(self) -> float | None:
        """What one call may take as a whole; None: as long as it takes. The driver bounds the wait for the first byte;
        all of it may take as long again."""
        silence = self.settings_dict["OPTIONS"].get("read_timeout")  # type: ignore[attr-defined]
        return None if silence is None else 2.0 * silence

    def cut(self) -> None:
        """A deadline was missed, and the connection is of no use any more."""
        self.errors_occurred = True

    @contextmanager
    def within(self, seconds: float | None = None) -> Iterator[None]:
        """The block's use of the connection ends after so many seconds (default: `answer_seconds`), as a whole."""
        seconds = self.answer_seconds() if seconds is None else seconds
        if seconds is None or self.connection is None:
            yield
            return
        missed = deadlines.Missed()
        try:
            with deadlines.within(self._own_line(), seconds) as missed:
                yield
        finally:
            if missed.over:
                self.cut()

    def _own_line(self) -> deadlines.Line:
        if self._line is None or self._line_of is not self.connection:
            self._drop_line()
            self._line, self._line_of = deadlines.Line(self.connection.fileno()), self.connection
        return self._line

    def _drop_line(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = self._line_of = None

    def create_cursor(self, name: str | None = None) -> Any:
        cursor = self.connection.cursor(self.driver_cursor)
        cursor.owner = self
        return CursorWrapper(cursor)

    def is_usable(self) -> bool:
        with self.within():
            return super().is_usable()  # type: ignore[misc,no-any-return]

    def _set_autocommit(self, autocommit: bool) -> None:
        with self.within():
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def _commit(self) -> Any:
        with self.within():
            return super()._commit()  # type: ignore[misc]

    def _rollback(self) -> Any:
        with self.within():
            return super()._rollback()  # type: ignore[misc]

    def _close(self) -> Any:
        try:
            return super()._close()  # type: ignore[misc]
        finally:
            self._drop_line()
