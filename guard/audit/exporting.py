"""The whole log with its seals as a file of JSON lines, which proves itself: to verify it takes the file and the keys.

`header` (format, columns), then rows (`{"kind": "row", "row": [the columns]}`, by id) and seals (by number, each after
the rows that it speaks of), then `end`: how many there were and the head, signed, so that a file that was cut is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from config.base.clock import now, rfc3339
from config.base.fields import canonical_json
from guard.audit import sealkeys
from guard.audit.canonical import COLUMNS, SEAL_COLUMNS, Row, row_of
from guard.audit.chain import newest
from guard.audit.reading import Standing, last_number, standing_of, stream_rows, stream_seals

FORMAT = "xinghuo.audit"
VERSION = 2
_END = ("kind", "rows", "seals", "head", "mac", "at", "key_id")


class ExportFault(Exception):
    """The file is no export, or not as it was written. broken: the latter: somebody has cut or changed it."""

    def __init__(self, what: str, *, broken: bool = True) -> None:
        self.broken = broken
        super().__init__(what)


def write_export(out: TextIO, *, progress: Callable[[int], None] = lambda rows: None) -> dict[str, int]:
    """Streams rows and seals as they are; nothing is judged. Returns {"rows", "seals"}.

    Errors: DatabaseError, OSError; the file then has no end.
    """
    head, last = newest(), last_number()  # first: what these seals hold is there to be read
    keys = sealkeys.ring()
    counts = {"rows": 0, "seals": 0}
    rows = stream_rows()
    row = next(rows, None)

    def write(line: dict[str, Any]) -> None:
        out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=repr) + "\n")

    def write_rows(up_to: int | None) -> None:
        nonlocal row
        while row is not None and (up_to is None or row.id <= up_to):
            out.write('{"kind":"row","row":' + row.whole.decode("utf-8", "surrogatepass") + "}\n")
            counts["rows"] += 1
            if counts["rows"] % 5000 == 0:
                progress(5000)
            row = next(rows, None)

    write({"kind": "header", "format": FORMAT, "version": VERSION, "at": rfc3339(now()), "columns": COLUMNS})
    for seal in stream_seals(up_to=last) if last is not None else ():
        if standing_of(seal, keys) is not Standing.JUNK:
            write_rows(seal["head_id"])
        # What a seal that was tampered with may hold (bytes) is written in words: a finding, and no reason to stop.
        write({"kind": "seal", **seal, "at": rfc3339(seal["at"]) if isinstance(seal["at"], datetime) else seal["at"]})
        counts["seals"] += 1
    write_rows(None)
    progress(counts["rows"] % 5000)
    end: dict[str, Any] = {
        "kind": "end",
        **counts,
        "head": head["number"] if head else 0,
        "mac": head["mac"] if head else "",
        "at": rfc3339(now()),
        "key_id": next(iter(sealkeys.ring())),
    }
    write({**end, "signature": sealkeys.sign(sealkeys.END, canonical_json(end).encode())[1]})
    return counts


class Export:
    """A file to verify: `rows()` and `seals()` each read it by themselves, so that neither has to keep the other's.

    What is wrong with it is in `faults` once both have been read to the end, each a sentence with its line; what can be
    read is given all the same, so that the rows it concerns are named.
    """

    def __init__(self, path: Path, keys: sealkeys.Ring) -> None:
        """Errors: OSError, ExportFault for what is no export."""
        self._path = path
        self._keys = keys
        self.faults: dict[int, str] = {}
        self.unknown_keys: set[str] = set()
        with path.open("rb") as file:
            first = _parsed(file.readline())
        if first is None or first.get("format") != FORMAT:
            raise ExportFault(f"{path.name} is no export of the audit log", broken=False)
        # Version 1 knew no links.
        self._columns = {1: [name for name in COLUMNS if name != "link"], VERSION: list(COLUMNS)}.get(
            first["version"] if type(first.get("version")) is int else 0
        )
        if self._columns is None or first.get("columns") != self._columns:
            raise ExportFault(f"{path.name} has another version of the format than this program", broken=False)

    def _lines(self, unread: str = "") -> Iterator[tuple[int, str, dict[str, Any]]]:
        """unread: a kind whose lines are counted by the caller and not taken apart."""
        prefix = f'{{"kind":"{unread}",'.encode()
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if unread and line.startswith(prefix):
                    yield number, unread, {}
                    continue
                found = _parsed(line)
                kind = found.get("kind") if found is not None else None
                wanted = _NAMES.get(kind) if isinstance(kind, str) and (kind == "header") == (number == 1) else None
                if found is None or kind is None or found.keys() - {"unreadable"} != wanted:
                    self._fault(number)
                else:
                    yield number, kind, found

    def _fault(self, line: int, what: str = "is not as it was written") -> None:
        self.faults.setdefault(line, f"line {line} {what}")

    def rows(self) -> Iterator[Row]:
        for number, kind, line in self._lines("seal"):
            if kind == "row" and (row := self._row(number, line)) is not None:
                yield row

    def again(self, ids: list[int]) -> Iterator[Row]:
        """These rows, by reading the file once more."""
        wanted = set(ids)
        return (row for row in self.rows() if row.id in wanted)

    def _row(self, number: int, line: dict[str, Any]) -> Row | None:
        values = line.get("row")
        assert self._columns is not None
        if isinstance(values, list) and len(values) == len(self._columns) and type(values[0]) is int:
            if "link" not in self._columns:
                values.insert(COLUMNS.index("link"), "")
            try:
                return row_of(values)
            except (ValueError, TypeError, RecursionError, OverflowError):
                pass
        self._fault(number)
        return None

    def seals(self) -> Iterator[dict[str, Any]]:
        """Checks the end too."""
        counts = {"row": 0, "seal": 0}
        end: dict[str, Any] | None = None
        number = 0
        for number, kind, line in self._lines("row"):
            if end is not None:
                self._fault(number, "stands after the end")
            if kind == "end":
                end = line
            elif kind in counts:
                counts[kind] += 1
            if kind == "seal":
                if type(line.get("number")) is int:
                    yield _seal(line)
                else:
                    self._fault(number)
        self._check_end(end, counts, number)

    def _check_end(self, end: dict[str, Any] | None, counts: dict[str, int], line: int) -> None:
        if end is None:
            self.faults[line + 1] = "the file ends before its end: it was cut off"
            return
        try:
            signed = canonical_json({name: end[name] for name in _END}).encode()
            sound = sealkeys.holds(sealkeys.END, signed, end["key_id"], end["signature"], self._keys)
        except sealkeys.UnknownKey as unknown:
            self.unknown_keys.add(unknown.key_id)
            sound = True
        except (KeyError, AttributeError, TypeError, ValueError, RecursionError):
            sound = False
        if not sound or (end["rows"], end["seals"]) != (counts["row"], counts["seal"]):
            self.faults[line] = "the file's end does not belong to it: lines were taken out or put in"


# What a line of each kind has, no less and no more.
_NAMES = {
    "header": {"kind", "format", "version", "at", "columns"},
    "row": {"kind", "row"},
    "seal": {"kind", *SEAL_COLUMNS, "mac"},
    "end": {*_END, "signature"},
}


def _parsed(line: bytes) -> dict[str, Any] | None:
    """None: this is no line of ours."""
    try:
        found = json.loads(line.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seal(line: dict[str, Any]) -> dict[str, Any]:
    fields = {name: line.get(name) for name in (*SEAL_COLUMNS, "mac")}
    try:
        return {**fields, "at": datetime.fromisoformat(str(fields["at"])), **_unreadable(line)}
    except (ValueError, TypeError):
        return {**fields, "unreadable": True}


def _unreadable(line: dict[str, Any]) -> dict[str, Any]:
    return {"unreadable": True} if line.get("unreadable") else {}
