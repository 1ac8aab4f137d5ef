"""The whole log with its seals as a file of JSON lines, which proves itself: to verify it takes the file and the keys.

`header` (format, columns), then rows (`{"kind": "row", "row": [the columns]}`, by id) and seals (by number, each after
the rows that it speaks of), then `end`: how many there were and the head, signed, so that a file that was cut is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from config.base.clock import now, rfc3339
from config.base.fields import canonical_json
from guard.audit import sealkeys
from guard.audit.canonical import COLUMNS, SEAL_COLUMNS, Row, row_of
from guard.audit.reading import head, is_sound, stream_rows, stream_seals

FORMAT = "xinghuo.audit"
VERSION = 1
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
    newest = head()  # first: what it and the seals before it hold is there to be read
    number, mac = (newest.number, newest.mac) if newest else (0, "")
    counts = {"rows": 0, "seals": 0}
    rows = stream_rows()
    row = next(rows, None)

    def write(line: dict[str, Any]) -> None:
        out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")

    def write_rows(up_to: int | None) -> None:
        nonlocal row
        while row is not None and (up_to is None or row.id <= up_to):
            out.write('{"kind":"row","row":' + row.whole.decode("utf-8", "surrogatepass") + "}\n")
            counts["rows"] += 1
            if counts["rows"] % 5000 == 0:
                progress(5000)
            row = next(rows, None)

    write({"kind": "header", "format": FORMAT, "version": VERSION, "at": rfc3339(now()), "columns": COLUMNS})
    for seal in stream_seals(up_to=number) if newest else ():
        if is_sound(seal):
            write_rows(seal["head_id"])
        write({"kind": "seal", **{name: rfc3339(one) if name == "at" else one for name, one in seal.items()}})
        counts["seals"] += 1
    write_rows(None)
    progress(counts["rows"] % 5000)
    end: dict[str, Any] = {
        "kind": "end",
        **counts,
        "head": number,
        "mac": mac,
        "at": rfc3339(now()),
        "key_id": next(iter(sealkeys.ring())),
    }
    write({**end, "signature": sealkeys.sign(sealkeys.END, canonical_json(end).encode())[1]})
    return counts


class Export:
    """A file to verify: `rows()` and `seals()` each read it by themselves, so that neither has to keep the other's."""

    def __init__(self, path: Path, keys: sealkeys.Ring) -> None:
        """Errors: OSError, ExportFault for what is no export."""
        self._path = path
        self._keys = keys
        first = next(self._lines(), (0, "", {}))[2]
        if first.get("format") != FORMAT:
            raise ExportFault(f"{path.name} is no export of the audit log", broken=False)
        if first.get("version") != VERSION or first.get("columns") != list(COLUMNS):
            raise ExportFault(f"{path.name} has another version of the format than this program", broken=False)

    def _lines(self, unread: str = "") -> Iterator[tuple[int, str, dict[str, Any]]]:
        """unread: a kind whose lines are counted by the caller and not taken apart."""
        prefix = f'{{"kind":"{unread}",'
        with self._path.open(encoding="utf-8", errors="surrogatepass") as file:
            for number, line in enumerate(file, 1):
                if unread and line.startswith(prefix):
                    yield number, unread, {}
                    continue
                try:
                    found = json.loads(line)
                    yield number, found["kind"], found
                except (ValueError, KeyError, TypeError, RecursionError):
                    raise ExportFault(f"line {number} is not as it was written", broken=number > 1) from None

    def rows(self) -> Iterator[Row]:
        """Errors, at the place: ExportFault."""
        for number, kind, line in self._lines("seal"):
            if kind == "row":
                yield self._row(number, line)

    def _row(self, number: int, line: dict[str, Any]) -> Row:
        values = line.get("row")
        if not isinstance(values, list) or len(values) != len(COLUMNS) or not isinstance(values[0], int):
            raise ExportFault(f"line {number} is not as it was written")
        return row_of(values)

    def seals(self) -> Iterator[dict[str, Any]]:
        """Checks the end too. Errors: ExportFault."""
        counts = {"row": 0, "seal": 0}
        end: dict[str, Any] | None = None
        for number, kind, line in self._lines("row"):
            if end is not None:
                raise ExportFault(f"line {number} stands after the end")
            if kind == "end":
                end = line
            elif kind in counts:
                counts[kind] += 1
            if kind == "seal":
                if not isinstance(line.get("number"), int):
                    raise ExportFault(f"line {number} is not as it was written")
                yield {name: line.get(name) for name in (*SEAL_COLUMNS, "mac", "unreadable")}
        self._check_end(end, counts)

    def _check_end(self, end: dict[str, Any] | None, counts: dict[str, int]) -> None:
        if end is None:
            raise ExportFault("the file ends before its end: it was cut off")
        try:
            signed = canonical_json({name: end[name] for name in _END}).encode()
            sound = sealkeys.holds(sealkeys.END, signed, end["key_id"], end["signature"], self._keys)
        except (KeyError, AttributeError, TypeError):
            sound = False
        if not sound or (end["rows"], end["seals"]) != (counts["row"], counts["seal"]):
            raise ExportFault("the file's end does not belong to it: lines were taken out or put in")
