"""Rows and seals as they stand in the tables, in order of id and number, in pages: millions need no more memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from django.db import DatabaseError, connection, transaction

from guard.audit import sealkeys
from guard.audit.canonical import COLUMNS, LEAF_BYTES, SEAL_COLUMNS, Row, row_of, seal_holds
from guard.audit.ranges import Ranges, size_of

PAGE = 5000  # rows
SEAL_PAGE_BYTES = 4 * 2**20  # of leaves and ranges in memory at once, about
_SEALS_AT_ONCE = 500
_IN_ONE_QUERY = 500
_LAST = 2**63 - 1
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM audit_log"  # noqa: S608 - constants
_SELECT_SEALS = f"SELECT {', '.join((*SEAL_COLUMNS, 'mac'))} FROM audit_seal"  # noqa: S608 - constants


@contextmanager
def _any_text(cursor: Any) -> Iterator[None]:
    """SQLite's driver refuses a text that is no UTF-8, and somebody may have put one there: it is read as it is."""
    if connection.vendor != "sqlite":
        yield
        return
    own = cursor.connection
    before = own.text_factory
    own.text_factory = _text
    try:
        yield
    finally:
        own.text_factory = before


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _rows(where: str, arguments: list[int], limit: int) -> list[Row]:
    with connection.cursor() as cursor, _any_text(cursor):
        cursor.execute(f"{_SELECT} WHERE {where} ORDER BY id LIMIT %s", [*arguments, limit])
        return [row_of(values) for values in cursor.fetchall()]


def rows_after(after_id: int, *, limit: int = PAGE) -> list[Row]:
    """The next rows after an id. 1 query by the primary key."""
    return _rows("id > %s", [after_id], limit)


def stream_rows(*, up_to: int | None = None) -> Iterator[Row]:
    """Every row in order of id, also those with ids that the table never gives out (negative ones).

    up_to: the last id, inclusive; None: to the end as it is when the end is reached.
    """
    where, arguments = ("id <= %s", [up_to]) if up_to is not None else ("1 = 1", [])
    page = _rows(where, arguments, PAGE)
    while page:
        yield from page
        if len(page) < PAGE:
            return
        page = _rows(f"{where} AND id > %s", [*arguments, page[-1].id], PAGE)


def rows_in(ranges: Ranges, *, limit: int) -> list[Row]:
    """What is there of these ids, in order of id, at most `limit`. 1 query for 500 ranges."""
    found: list[Row] = []
    for start in range(0, len(ranges), _IN_ONE_QUERY):
        part = ranges[start : start + _IN_ONE_QUERY]
        single = [first for first, last in part if first == last]
        wide = [(first, last) for first, last in part if first != last]
        where = [f"id IN ({', '.join(['%s'] * len(single))})"] if single else []
        where += ["id BETWEEN %s AND %s"] * len(wide)
        ids = single + [one for pair in wide for one in pair]
        found += _rows(f"({' OR '.join(where)})", ids, limit - len(found))
        if len(found) >= limit:
            break
    return found


def rows_by_id(ids: list[int]) -> list[Row]:
    """What is there of these ids, ascending. 1 query for 500."""
    return rows_in([[one, one] for one in ids], limit=len(ids)) if ids else []


def being_written(ranges: Ranges) -> bool:
    """Whether a transaction that has not ended holds one of these ids; also where that cannot be told.

    Asked by a lock that is not waited for: it is refused where such a row stands, and locks nothing where none does
    (READ COMMITTED). SQLite has one writer at a time, and the sealer asks with nobody else writing.
    """
    if connection.vendor == "sqlite" or not ranges:
        return False
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            for start in range(0, len(ranges), _IN_ONE_QUERY):
                part = ranges[start : start + _IN_ONE_QUERY]
                where = " OR ".join(["id BETWEEN %s AND %s"] * len(part))
                cursor.execute(
                    f"SELECT id FROM audit_log WHERE {where} FOR UPDATE NOWAIT",  # noqa: S608 - constants
                    [one for pair in part for one in pair],
                )
                cursor.fetchall()
    except DatabaseError:
        return True
    return False


def last_row_id() -> int:
    """The highest id, 0 for an empty log. 1 query."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(id) FROM audit_log")
        return int(cursor.fetchone()[0] or 0)


def last_number() -> int | None:
    """The highest number in the table of seals, whatever stands there; None for an empty one. 1 query."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(number) FROM audit_seal")
        found = cursor.fetchone()[0]
        return None if found is None else int(found)


def marks(numbers: list[int]) -> dict[int, str]:
    """The macs of the seals with these numbers, as they stand. 1 query by primary key, without the seals' contents."""
    with connection.cursor() as cursor:
        where = ", ".join(["%s"] * len(numbers))
        with _any_text(cursor):
            cursor.execute(f"SELECT number, mac FROM audit_seal WHERE number IN ({where})", numbers)  # noqa: S608
            return dict(cursor.fetchall())


def _seals(where: str, arguments: list[int], order: str, limit: int) -> list[dict[str, Any]]:
    with connection.cursor() as cursor, _any_text(cursor):
        cursor.execute(f"{_SELECT_SEALS} WHERE {where} ORDER BY number {order} LIMIT %s", [*arguments, limit])
        return [seal_of(dict(zip((*SEAL_COLUMNS, "mac"), values, strict=True))) for values in cursor.fetchall()]


def seal_of(fields: dict[str, Any]) -> dict[str, Any]:
    """A seal as the driver gives it: lists from their text, an aware time. One that somebody has made unreadable says
    so: a finding, and no reason to stop."""
    try:
        lists = {name: json.loads(fields[name]) for name in ("members", "opened", "closed")}
        at = fields["at"] if isinstance(fields["at"], datetime) else datetime.fromisoformat(fields["at"])
        return {**fields, **lists, "at": at if at.tzinfo else at.replace(tzinfo=UTC)}
    except (ValueError, TypeError, RecursionError, OverflowError):
        return {**fields, "unreadable": True}


def stream_seals(*, after: int | None = None, up_to: int | None = None) -> Iterator[dict[str, Any]]:
    """Seals in order of number, `after` exclusive, `up_to` inclusive, as seal_of gives them; whatever they hold."""
    at_once = _SEALS_AT_ONCE
    end = ("number <= %s", [up_to]) if up_to is not None else ("1 = 1", [])
    where, arguments = ("1 = 1", []) if after is None else ("number > %s", [after])
    while True:
        page = _seals(f"{where} AND {end[0]}", [*arguments, *end[1]], "ASC", at_once)
        yield from page
        if len(page) < at_once:
            return
        where, arguments = "number > %s", [page[-1]["number"]]
        at_once = _next_page(page)


def seals_down() -> Iterator[dict[str, Any]]:
    """Seals from the highest number down. The first page is small: most callers want the first that is sound."""
    where, at_once = "1 = 1", 4
    arguments: list[int] = []
    while page := _seals(where, arguments, "DESC", at_once):
        yield from page
        where, arguments = "number < %s", [page[-1]["number"]]
        at_once = _next_page(page)


def _next_page(page: list[dict[str, Any]]) -> int:
    """Seals of a quiet hour are small, those of a burst hold 5000 leaves each."""
    bytes_read = sum(len(str(seal.get("leaves", ""))) for seal in page)
    return max(10, min(_SEALS_AT_ONCE, SEAL_PAGE_BYTES * len(page) // max(1, bytes_read)))


class Standing(Enum):
    """SOUND: made with our key and as it was made. UNKNOWN: shaped so, and its key is not here. JUNK: else."""

    SOUND = "sound"
    UNKNOWN = "unknown"
    JUNK = "junk"


def standing_of(seal: Mapping[str, Any], keys: sealkeys.Ring) -> Standing:
    """Never raises: whatever may stand in a seal's columns."""
    if seal.get("unreadable") or not is_sound(seal):
        return Standing.JUNK
    try:
        return Standing.SOUND if seal_holds(seal, keys) else Standing.JUNK
    except sealkeys.UnknownKey:
        return Standing.UNKNOWN
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return Standing.JUNK


def is_sound(seal: Mapping[str, Any]) -> bool:
    """Whether a seal has the shape of one, whatever it says: numbers where they belong, ascending ranges, as many
    leaves as it says that it has rows."""
    numbers = ("number", "from_id", "head_id", "count", "total", "oldest_open", "adopted")
    texts = ("digest", "leaves", "previous_mac", "key_id", "mac")
    return (
        all(type(seal.get(name)) is int and 0 <= seal[name] <= _LAST for name in numbers)
        and all(isinstance(seal.get(name), str) for name in texts)
        and isinstance(seal.get("at"), datetime)
        and all(_ascend(seal.get(name)) for name in ("members", "opened", "closed"))
        and size_of(seal["members"]) == seal["count"]
        and len(seal["leaves"]) == -(-LEAF_BYTES * seal["count"] // 3) * 4
        and seal["from_id"] <= seal["head_id"]
    )


def _ascend(ranges: Any) -> bool:
    last = -1
    if not isinstance(ranges, list):
        return False
    for pair in ranges:
        if not isinstance(pair, list) or len(pair) != 2 or any(type(one) is not int for one in pair):
            return False
        if not last < pair[0] <= pair[1] <= _LAST:
            return False
        last = pair[1]
    return True
