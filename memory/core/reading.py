"""CSV rows out of a file that may be broken anywhere: a fault costs its own row, never the rows after it.

1. What is not a readable UTF-8 file with the header we need is one fault on line 1; no row is read.
2. A row is a line. Where a quote is still open at its end, lines are added until it closes.
3. It counts as open when what follows reads as a row of its own, when a quote turns up where none can close the field,
   when the fields do not fit the header, or after MAX_RECORD_LINES or MAX_CHARS. Then the line it was opened in is the
   faulty row, and reading goes on at the next line.
Memory: MAX_CHARS twice. Time: each line is read at most MAX_RECORD_LINES times, mostly once or twice.
"""

from __future__ import annotations

import csv
import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from memory.core.columns import FileSpec, header_faults

MAX_CHARS = 131_072  # of one line, and of one row over several lines; also the csv module's limit of a field
MAX_RECORD_LINES = 100
MAX_NAMES = 20  # of columns that are listed in one sentence
_HEAD_BYTES = 4096


class Sink(Protocol):
    """Where faults go (a FileReport)."""

    rows: int
    unknown_columns: list[str]

    def fault(self, line: int, reason: str) -> None: ...


def shown(text: str, limit: int = 60) -> str:
    """`text` so that a terminal may have it: what does not print is spelled out, and it ends at `limit` characters."""
    # A byte that was not UTF-8 came in as a lone surrogate (surrogateescape).
    safe = "".join(char if char.isprintable() else _spelled(char) for char in text[:limit])
    return safe + "…" if len(text) > limit else safe


def _spelled(char: str) -> str:
    return f"\\x{ord(char) & 0xFF:02x}" if "\udc80" <= char <= "\udcff" else ascii(char)[1:-1]


def listed(names: list[str]) -> str:
    """Names in one sentence, printable and not without end."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(shown(name) or "(no name)" for name in names[:MAX_NAMES]) + more


def file_rows(spec: FileSpec, path: Path, report: Sink) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, cells by column) of each whole row. What is not one goes to `report`, counted as a row of it."""
    # os.path: Path asks the same, but raises where a folder on the way is closed. A named pipe would wait for ever.
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a directory" if path.is_dir() else "not a regular file"
        return _refuse(report, 1, f"is {what}; nothing was read")
    try:
        raw = path.open("rb")
    except OSError as error:
        return _refuse(report, 1, f"cannot be read: {error.strerror}; nothing was read")
    with raw:
        lines = _Lines(raw)
        try:
            yield from _rows(spec, raw, lines, report)
        except _ReadError as error:
            _refuse(report, lines.number + 1, f"cannot be read from here on: {error}")


def _refuse(report: Sink, line: int, reason: str) -> None:
    report.rows += 1
    report.fault(line, reason)


class _ReadError(Exception):
    """The disk failed in the middle of a file."""


# --- encodings --------------------------------------------------------------------------------------------------------


def _file_fault(head: bytes) -> str:
    """Why a file that begins with these bytes has no UTF-8 header; '' where it may have one."""
    if not head:
        return "the file is empty"
    if head.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "the file is UTF-32, not UTF-8"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the file is UTF-16, not UTF-8"
    # Column names are ASCII: in UTF-16 every other byte of them is zero.
    return "the file is not UTF-8, probably UTF-16" if head.count(0) * 4 >= len(head) else ""


def _line_fault(line: str) -> str:
    """Why a header line is not UTF-8; '' where it is."""
    if not any("\ud800" <= char <= "\udfff" for char in line):
        return ""
    return f"the header is not UTF-8{guess(line)}"


def guess(text: str) -> str:
    """What text may be that was not UTF-8 (surrogateescape): `, probably GBK`, or '' for nothing we know."""
    try:
        text.encode("utf-8", "surrogateescape").decode("gb18030")
    except UnicodeError:
        return ""
    return ", probably GBK"


# --- lines ------------------------------------------------------------------------------------------------------------


class _Lines:
    """The physical lines of a file with their ends, one at a time; those that were read too far can be given back."""

    def __init__(self, raw: io.BufferedReader) -> None:
        self.number = 0  # of the line that was taken last
        self._ahead: deque[str] = deque()
        self._text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")

    def take(self) -> str:
        """The next line, '' at the end. Of one over MAX_CHARS come MAX_CHARS + 1 characters; the rest is skipped."""
        if self._ahead:
            self.number += 1
            return self._ahead.popleft()
        try:
            line = self._text.readline(MAX_CHARS + 1)
            part = line if len(line) > MAX_CHARS else "\n"
            while part and not part.endswith(("\n", "\r")):
                part = self._text.readline(MAX_CHARS)
        except OSError as error:
            raise _ReadError(error.strerror) from error
        if line:
            self.number += 1
        return line

    def give_back(self, lines: list[str]) -> None:
        self.number -= len(lines)
        self._ahead.extendleft(reversed(lines))


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(spec: FileSpec, raw: io.BufferedReader, lines: _Lines, report: Sink) -> Iterator[tuple[int, dict[str, str]]]:
    header, trouble = _header(spec, raw, lines, report)
    if trouble:
        return _refuse(report, 1, f"{trouble}; no row of this file was read")
    width = len(header)
    begins_row = _row_test(spec, header)
    one_line = [place for place, name in enumerate(header) if name in spec.one_line]
    while True:
        line = lines.take()
        if not line:
            return
        number = lines.number
        if len(line) > MAX_CHARS:
            _refuse(report, number, f"the line is longer than {MAX_CHARS} characters")
            continue
        cells: list[str] | None
        added: list[str]
        if '"' not in line:
            cells, added = next(csv.reader((line,))), []
        else:
            cells, added = _quoted(line, lines, begins_row)
        if cells == []:
            continue
        # Only free text may hold line breaks: an id or a number with one has swallowed the beginning of another row.
        if added and cells and (len(cells) != width or any(_is_broken(cells[place]) for place in one_line)):
            lines.give_back(added)
            cells = None
        if cells is None:
            place = len(next(csv.reader((line,)))) - 1
            where = f"in {shown(header[place])}" if place < width else "here"
            _refuse(report, number, f"the quote opened {where} is not closed")
        elif len(cells) != width:
            _refuse(report, number, f"has {len(cells)} fields, the header has {width}")
        else:
            yield number, dict(zip(header, cells, strict=True))


def _is_broken(cell: str) -> bool:
    text = cell.strip()
    return "\n" in text or "\r" in text


def _header(spec: FileSpec, raw: io.BufferedReader, lines: _Lines, report: Sink) -> tuple[list[str], str]:
    """(column names, '') or ([], why the file cannot be read)."""
    try:
        head = raw.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    except OSError as error:
        raise _ReadError(error.strerror) from error
    if trouble := _file_fault(head):
        return [], trouble
    line = lines.take()
    if len(line) > MAX_CHARS:
        return [], f"the header is longer than {MAX_CHARS} characters"
    if trouble := _line_fault(line):
        return [], trouble
    cells, _added = _quoted(line, lines, lambda _line: False)
    if cells is None:
        return [], "a quote opened in the header is not closed"
    header = [name.strip() for name in cells]
    missing, unknown = header_faults(spec, header)
    repeated = sorted({name for name in header if header.count(name) > 1}) if len(set(header)) < len(header) else []
    if missing:
        return [], f"the header lacks {listed(missing)}"
    if repeated:
        return [], f"the header repeats {listed(repeated)}"
    report.unknown_columns = [shown(name) or "(no name)" for name in unknown]
    return header, ""


def _quoted(line: str, lines: _Lines, begins_row: Callable[[str], bool]) -> tuple[list[str] | None, list[str]]:
    """(cells of the row that begins with `line`, the lines taken for it besides). None: its quote is not closed; then
    no line is taken."""
    added: list[str] = []

    def feed() -> Iterator[str]:
        yield line
        size = len(line)
        while len(added) < MAX_RECORD_LINES and (more := lines.take()):
            added.append(more)
            size += len(more)
            if size > MAX_CHARS or begins_row(more):
                return
            yield more

    try:
        return next(csv.reader(feed(), strict=True)), added
    except csv.Error:
        lines.give_back(added)
    if not added:
        # `"a"b` on one line is careless and means ab, as ever; what it must not do is to reach for the next line.
        reader = csv.reader((line, ""))
        cells = next(reader)
        if reader.line_num == 1:
            return cells, []
    return None, []


def _row_test(spec: FileSpec, header: list[str]) -> Callable[[str], bool]:
    """Does a line that stands behind an open quote read as a row of its own?

    As many fields as the header, and what no row can be without is there and sound. A field that ends in a quote which
    did not begin it is where the open field closes: by the rules of CSV that line is the row's end.
    """
    width = len(header)
    needed = [(header.index(column.name), column.parse) for column in spec.columns if column.required]

    def begins_row(line: str) -> bool:
        if line.count(",") != width - 1:
            return False
        cells = line.rstrip("\r\n").split(",")
        if any(cell.endswith('"') and not cell.startswith('"') for cell in cells):
            return False
        try:
            for place, parse in needed:
                parse(cells[place].strip('"'))
        except ValueError:
            return False
        return True

    return begins_row
