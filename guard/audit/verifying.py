"""Is the audit log as it was sealed? One pass over rows and seals side by side, in the database or from an export.

Rows come in order of id, seals in order of number. A seal speaks of the ids after its `from_id` up to its `head_id`:
each row there must be a member, or have an id that this seal found missing. Such a late row is held (its bytes, until
the seal that takes it comes by). So memory holds one seal and the late rows, however long the log is.

What is found: edited (the row's leaf differs), deleted (a member is not there), inserted (a row that is neither member
nor missing id, or in ids that were given up), reordered and swapped (ids are part of what is sealed), seals that were
changed, removed, exchanged or put elsewhere (mac, number, previous mac), and rows that were changed or added past
`record()` before they were sealed (the row's own mac). With anchors: a tail that is gone, a copy that is older.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from config.base.clock import rfc3339
from guard.audit import sealkeys
from guard.audit.anchors import Anchor, AnchorFault
from guard.audit.canonical import LEAF_BYTES, Row, leaf_of, row_holds, seal_holds
from guard.audit.ranges import each, holds
from guard.audit.reading import is_sound

# A row copied whole has a right mac of its own. No two rows ever have the same; so many are remembered.
REMEMBERED = 200_000
TOLD = 100  # findings that are kept in words; all are counted


@dataclass(frozen=True)
class Finding:
    """row, seal: where (None: of no single one). what: a sentence."""

    what: str
    row: int | None = None
    seal: int | None = None

    def __str__(self) -> str:
        where = [f"row {self.row}"] if self.row is not None else []
        where += [f"seal {self.seal}"] if self.seal is not None else []
        return f"{', '.join(where)}: {self.what}" if where else self.what


@dataclass
class Report:
    """rows: compared with their seals. unsealed: newer than the head, or late and not taken yet. unchecked: of seals
    that are broken or gone, so that nobody can say. anchored: the newest seal that an anchor confirms (0: none)."""

    rows: int = 0
    seals: int = 0
    unsealed: int = 0
    unchecked: int = 0
    anchored: int = 0
    anchors: int = 0
    rows_after_anchor: int = 0
    head: int = 0
    head_mac: str = ""
    total: int = 0
    found: int = 0
    findings: list[Finding] = field(default_factory=list)
    first_row: int | None = None
    unknown_keys: set[str] = field(default_factory=set)
    anchor_fault: str = ""

    def tell(self, what: str, *, row: int | None = None, seal: int | None = None) -> None:
        self.found += 1
        if row is not None and (self.first_row is None or row < self.first_row):
            self.first_row = row
        if len(self.findings) < TOLD:
            self.findings.append(Finding(what, row, seal))

    @property
    def exit_code(self) -> int:
        """0 whole and anchored, 1 broken, 2 not to be told (a key is missing), 3 whole, tail and rollback unchecked."""
        if self.found:
            return 1
        if self.unknown_keys or self.anchor_fault:
            return 2
        return 0 if self.anchored else 3

    def as_json(self) -> dict[str, Any]:
        return {
            "result": {0: "whole", 1: "broken", 2: "unknown", 3: "whole_unanchored"}[self.exit_code],
            "rows": self.rows,
            "seals": self.seals,
            "unsealed": self.unsealed,
            "unchecked": self.unchecked,
            "head": self.head,
            "head_mac": self.head_mac,
            "anchored": self.anchored,
            "rows_after_anchor": self.rows_after_anchor,
            "found": self.found,
            "first_row": self.first_row,
            "findings": [{"row": one.row, "seal": one.seal, "what": one.what} for one in self.findings],
            "unknown_keys": sorted(self.unknown_keys),
            "anchor_fault": self.anchor_fault,
        }


class Verifier:
    """verify(rows, seals, anchors) once; `report` is what it found."""

    def __init__(self, keys: sealkeys.Ring, *, progress: Callable[[int], None] | None = None) -> None:
        self.report = Report()
        self._keys = keys
        self._progress = progress or (lambda rows: None)
        self._late: dict[int, Row] = {}  # came by in an id that was missing, and no seal has taken them yet
        self._adopted: int | None = None  # None: seal 1 cannot be read, so nobody knows which rows may lack a mac
        self._previous: tuple[int, str] | None = (0, "")  # number and mac; None: the last one cannot be trusted
        self._number = 0
        self._macs: dict[int, int] = {}  # of the newest rows: the end of the mac -> the row
        self._anchors: Iterator[Anchor] = iter(())
        self._anchor: Anchor | None = None
        self._row: Row | None = None
        self._rows: Iterator[Row] = iter(())

    def verify(self, rows: Iterable[Row], seals: Iterable[Mapping[str, Any]], anchors: Iterable[Anchor] = ()) -> Report:
        """Errors: what the streams raise."""
        self._rows, self._anchors = iter(rows), iter(anchors)
        self._row = next(self._rows, None)
        self._next_anchor()
        while self._row is not None and self._row.id <= 0:
            self._inserted(self._take())
        for seal in seals:
            self._follow(seal)
        self._finish()
        return self.report

    # --- streams ------------------------------------------------------------------------------------------------

    def _take(self) -> Row:
        row = self._row
        assert row is not None
        self._row = next(self._rows, None)
        if self._row is not None and self._row.id <= row.id:
            self.report.tell("stands after a row with a higher id", row=self._row.id)
        return row

    def _next_anchor(self) -> None:
        before = self._anchor
        try:
            self._anchor = next(self._anchors, None)
        except AnchorFault as fault:
            self.report.tell(f"the file of anchors: {fault}")
            self._anchor = None
            return
        except sealkeys.UnknownKey as unknown:
            self.report.anchor_fault = str(unknown)
            self._anchor = None
            return
        if self._anchor is not None:
            self.report.anchors += 1
            if before is not None and self._anchor.number < before.number:
                self.report.tell(
                    f"the file of anchors: line {self._anchor.line} names an earlier seal than the line before: "
                    "the database was put back",
                    seal=self._anchor.number,
                )

    # --- one seal -----------------------------------------------------------------------------------------------

    def _follow(self, seal: Mapping[str, Any]) -> None:
        number = seal["number"]
        report = self.report
        if number != self._number + 1:
            if number <= self._number:
                report.tell(f"stands after seal {self._number}", seal=number)
                return
            gone = f"seals {self._number + 1} to {number - 1} are" if number - self._number > 2 else "the seal is"
            report.tell(f"{gone} missing", seal=self._number + 1)
            self._previous = None
        self._number = number
        report.seals += 1
        if not self._mac_holds(seal):
            self._previous = None
            return
        if self._previous is not None and seal["previous_mac"] != self._previous[1]:
            report.tell(f"does not follow on seal {self._previous[0]} as it stands", seal=number)
        if number == 1:
            self._adopted = seal["adopted"]
        self._previous = (number, seal["mac"])
        report.head, report.head_mac, report.total = number, seal["mac"], seal["total"]
        self._compare_anchor(number, seal["mac"], seal["total"])
        self._skip(seal["from_id"])
        self._compare_rows(seal)

    def _mac_holds(self, seal: Mapping[str, Any]) -> bool:
        if seal.get("unreadable") or not is_sound(dict(seal)):
            self.report.tell("the seal is not as it was made", seal=seal["number"])
            return False
        try:
            sound = seal_holds(seal, self._keys)
        except sealkeys.UnknownKey as unknown:
            self.report.unknown_keys.add(unknown.key_id)
            return False
        except (ValueError, TypeError, AttributeError):
            sound = False
        if not sound:
            self.report.tell("the seal is not as it was made, or not made with our key", seal=seal["number"])
        return sound

    def _compare_anchor(self, number: int, mac: str, total: int) -> None:
        report = self.report
        while self._anchor is not None and self._anchor.number <= number:
            if self._anchor.number == number:
                if self._anchor.mac == mac:
                    report.anchored, report.rows_after_anchor = number, -total
                else:
                    report.tell(
                        f"is another seal than the one anchored on {rfc3339(self._anchor.at)} "
                        f"(line {self._anchor.line}): the log was put back and went on",
                        seal=number,
                    )
            self._next_anchor()

    def _skip(self, from_id: int) -> None:
        """Rows before what the seal speaks of: their own seal is broken or gone."""
        while self._row is not None and self._row.id <= from_id:
            self._take()
            self.report.unchecked += 1

    def _compare_rows(self, seal: Mapping[str, Any]) -> None:
        try:
            leaves = base64.b64decode(seal["leaves"], validate=True)
        except (binascii.Error, ValueError, TypeError):
            leaves = b""
        digest, number, changed = hashlib.sha256(), seal["number"], False
        for place, member in enumerate(each(seal["members"])):
            row = self._member(member, seal)
            if row is None:
                self.report.tell("was sealed and is missing", row=member, seal=number)
                changed = True
                continue
            self.report.rows += 1
            digest.update(row.whole + b"\n")
            if leaf_of(row) != leaves[place * LEAF_BYTES : (place + 1) * LEAF_BYTES]:
                self.report.tell("is not as it was sealed", row=member, seal=number)
                changed = True
            else:
                self._own_mac(row, number)
        if not changed and digest.hexdigest() != seal["digest"]:
            self.report.tell("the digest is not that of its rows", seal=number)
        while self._row is not None and self._row.id <= seal["head_id"]:
            self._between(self._take(), seal)
        for row_id in [row_id for row_id in self._late if seal["closed"] and holds(seal["closed"], row_id)]:
            self._inserted(self._late.pop(row_id), number)
        self._progress(seal["count"])

    def _member(self, member: int, seal: Mapping[str, Any]) -> Row | None:
        if member <= seal["from_id"]:
            return self._late.pop(member, None)
        while self._row is not None and self._row.id < member:
            self._between(self._take(), seal)
        return self._take() if self._row is not None and self._row.id == member else None

    def _between(self, row: Row, seal: Mapping[str, Any]) -> None:
        """A row that the seal does not list, among the ids that it speaks of."""
        if holds(seal["opened"], row.id):
            self._late[row.id] = row
        else:
            self._inserted(row, seal["number"])

    def _inserted(self, row: Row, seal: int | None = None) -> None:
        self.report.tell("was not there when its place was sealed: it was added later", row=row.id, seal=seal)

    def _own_mac(self, row: Row, seal: int | None = None) -> None:
        if not row.mac and (self._adopted is None or row.id <= self._adopted):
            return
        try:
            sound = row_holds(row, self._keys)
        except sealkeys.UnknownKey as unknown:
            self.report.unknown_keys.add(unknown.key_id)
            return
        if sound:
            self._look_for_copy(row, seal)
        else:
            when = "before it was sealed" if seal is not None else "and is not sealed yet"
            self.report.tell(f"was changed, or added past the audit's door, {when}", row=row.id, seal=seal)

    def _look_for_copy(self, row: Row, seal: int | None) -> None:
        short = int(row.mac[-16:], 16)
        original = self._macs.setdefault(short, row.id)
        if original != row.id:
            self.report.tell(f"is a copy of row {original}", row=row.id, seal=seal)
        elif len(self._macs) > REMEMBERED:
            del self._macs[next(iter(self._macs))]

    # --- the end ------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        report = self.report
        while self._anchor is not None:
            report.tell(
                f"was anchored on {rfc3339(self._anchor.at)} (line {self._anchor.line}) and is not there: "
                "the tail was cut off, or the log put back",
                seal=self._anchor.number,
            )
            self._next_anchor()
        if report.anchored:
            report.rows_after_anchor += report.total
        # After a head that cannot be trusted nobody knows which of the rest was sealed.
        trusted = self._previous is not None
        for row in self._late.values():
            report.unsealed += 1
            self._own_mac(row)
        while self._row is not None:
            row = self._take()
            if trusted:
                report.unsealed += 1
            else:
                report.unchecked += 1
            self._own_mac(row)
            if report.unsealed % 5000 == 0:
                self._progress(5000)
