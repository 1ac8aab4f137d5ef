"""Rows and seals as they stand in the tables, in order of id and number, in pages: millions need no more memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import connection

from guard.audit.canonical import COLUMNS, SEAL_COLUMNS, Row, row_of
from guard.audit.models import AuditSeal
from guard.audit.ranges import Ranges, size_of

PAGE = 5000  # rows
SEAL_PAGE_BYTES = 4 * 2**20  # of leaves and ranges in memory at once, about
_SEALS_AT_ONCE = 500
_IN_ONE_QUERY = 500
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM audit_log"  # noqa: S608 - constants


def _rows(where: str, arguments: list[int], limit: int) -> list[Row]:
    with connection.cursor() as cursor:
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


def last_row_id() -> int:
    """The highest id, 0 for an empty log. 1 query."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT MAX(id) FROM audit_log")
        return int(cursor.fetchone()[0] or 0)


def head() -> AuditSeal | None:
    """The newest seal. 1 query."""
    return AuditSeal.objects.order_by("-number").first()


def seal_fields(seal: AuditSeal) -> dict[str, Any]:
    """What canonical.seal_bytes and the export want."""
    return {name: getattr(seal, name) for name in (*SEAL_COLUMNS, "mac")}


def stream_seals(*, after: int | None = None, up_to: int | None = None) -> Iterator[dict[str, Any]]:
    """Seals in order of number, `after` exclusive, `up_to` inclusive. One that was made unreadable is given as its
    number with `unreadable`: a finding, and no reason to stop."""
    at_once = _SEALS_AT_ONCE
    while True:
        seals = AuditSeal.objects.order_by("number")
        seals = seals if after is None else seals.filter(number__gt=after)
        seals = seals if up_to is None else seals.filter(number__lte=up_to)
        page = _readable(list(seals.values_list("number", flat=True)[:at_once]))
        bytes_read = 0
        for seal in page:
            after = seal["number"]
            bytes_read += len(str(seal.get("leaves", "")))
            yield seal
        if len(page) < at_once:
            return
        # Seals of a quiet hour are small, those of a burst hold 5000 leaves each.
        at_once = max(10, min(_SEALS_AT_ONCE, SEAL_PAGE_BYTES * len(page) // max(1, bytes_read)))


def _readable(numbers: list[int]) -> list[dict[str, Any]]:
    try:
        return [seal_fields(seal) for seal in AuditSeal.objects.filter(number__in=numbers).order_by("number")]
    except ValueError:  # one column of one of them is no JSON any more: find out which
        found: list[dict[str, Any]] = []
        for number in numbers:
            try:
                found.append(seal_fields(AuditSeal.objects.get(number=number)))
            except ValueError:
                found.append({"number": number, "unreadable": True})
        return found


def is_sound(seal: dict[str, Any]) -> bool:
    """Whether a seal has the shape of one, whatever it says: what was tampered with must not stop the checking."""
    try:
        rows = size_of(seal["members"])
        missing = seal["opened"] + seal["closed"]
        pairs = all(isinstance(first, int) and isinstance(last, int) for first, last in seal["members"] + missing)
        numbers = all(isinstance(seal[name], int) for name in ("from_id", "head_id", "count", "total", "adopted"))
        return pairs and numbers and rows == seal["count"] and 0 <= seal["from_id"] <= seal["head_id"]
    except (KeyError, TypeError, ValueError):
        return False
