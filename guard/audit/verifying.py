"""Is the audit log as it was sealed? One pass over rows and seals side by side, in the database or from an export.

Rows come in order of id, seals in order of number. A seal speaks of the ids after its `from_id` up to its `head_id`:
each row there must be a member, or have an id that this seal found missing. Such a late row is held (its bytes, until
the seal that takes it comes by). So memory holds one seal and the late rows, however long the log is.

What is found: edited (the row's leaf differs), deleted (a member is not there), inserted (a row that is neither member
nor missing id, or in ids that were given up), reordered and swapped (ids are part of what is sealed), seals that were
changed, removed, exchanged, added or put elsewhere (mac, number, previous mac), and rows that were changed, added past
`record()`, copied, taken away or exchanged before they were sealed (the row's own mac, and what later rows of the same
process say of it). With anchors: a tail that is gone, a copy that is older.

Keys. What was made with a key that is not here is not checked, as long as it may be so: a seal goes on exactly from the
one before, agrees with the rows, and stands where keys change (before the first, after the last, or between seals of
two different keys); a row's key is one that seals have too, or no seal has come by yet. Anything else is broken.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from config.base.clock import rfc3339
from guard.audit import sealkeys
from guard.audit.anchors import Anchor, AnchorFault
from guard.audit.canonical import LEAF_BYTES, Row, leaf_of, row_holds
from guard.audit.chain import RESTARTED
from guard.audit.copies import Copies
from guard.audit.links import MAC_END, Named, named_in
from guard.audit.ranges import each, holds
from guard.audit.reading import Standing, standing_of
from guard.audit.report import Report

# Rows whose macs are at hand when a later row names them; of others the row is read again in the end.
AT_HAND = 65_536
_TOLD_ROWS = 100_000


class _Naming(NamedTuple):
    """by: the row that names another one. seal: that row's."""

    named: Named
    by: int
    seal: int | None


class Verifier:
    """verify(rows, seals, anchors) once; `report` is what it found.

    again: reads rows by their ids, ascending, once the streams are done; without it the rows that are named from far
    away are not looked at.
    """

    def __init__(
        self,
        keys: sealkeys.Ring,
        *,
        progress: Callable[[int], None] | None = None,
        again: Callable[[list[int]], Iterable[Row]] | None = None,
        remembered: Anchor | None = None,
    ) -> None:
        self.report = Report()
        self._keys = keys
        self._progress = progress or (lambda rows: None)
        self._again = again
        self._remembered = remembered
        self._late: dict[int, Row] = {}  # came by in an id that was missing, and no seal has taken them yet
        self._adopted = 0  # of chains older than the origin: rows up to this id may lack a mac, of any seal
        # The last seal that is believed: number, mac and key.
        self._number, self._mac, self._key = -1, "", ""
        self._junk_since = False  # a seal after it was broken: what it held nobody knows
        self._strangers: tuple[int, str] | None = None  # first of seals whose key is not here; the key before
        self._seal_keys: set[str] = set()
        self._row_keys: dict[str, tuple[int, int | None]] = {}  # not here: the first row of each that a seal holds
        self._copies = Copies()
        self._at_hand: OrderedDict[int, str] = OrderedDict()
        self._namings: list[_Naming] = []
        self._told: set[int] = set()
        self._anchors: Iterator[Anchor] = iter(())
        self._anchor: Anchor | None = None
        self._row: Row | None = None
        self._rows: Iterator[Row] = iter(())

    def verify(self, rows: Iterable[Row], seals: Iterable[Mapping[str, Any]], anchors: Iterable[Anchor] = ()) -> Report:
        """Errors: what the streams raise."""
        self._rows, self._anchors = iter(rows), iter(anchors)
        try:
            self._row = next(self._rows, None)
            self._next_anchor()
            while self._row is not None and self._row.id <= 0:
                self._inserted(self._take())
            for seal in seals:
                self._follow(seal)
            self._finish()
        finally:
            self._copies.close()
        return self.report

    # --- streams ------------------------------------------------------------------------------------------------

    def _take(self) -> Row:
        row = self._row
        assert row is not None
        self._at_hand[row.id] = row.mac[-MAC_END:]
        if len(self._at_hand) > AT_HAND:
            self._at_hand.popitem(last=False)
        self._row = next(self._rows, None)
        if self._row is not None and self._row.id <= row.id:
            self._tell_row("stands after a row with the same or a higher id", self._row.id)
        return row

    def _tell_row(self, what: str, row: int, seal: int | None = None) -> None:
        self.report.tell(what, row=row, seal=seal)
        if len(self._told) < _TOLD_ROWS:
            self._told.add(row)

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
        self.report.seals += 1
        standing = standing_of(seal, self._keys)
        if standing is Standing.JUNK or number <= self._number:
            self._junk_since = True
            self.report.tell("the seal is not as it was made, or not made with our key", seal=number)
            return
        if standing is Standing.UNKNOWN:
            # A chain from before there was a seal 0 begins with 1.
            follows = number == self._number + 1 or (self._number, number) == (-1, 1)
            if seal["previous_mac"] != self._mac or not follows:
                self._junk_since = True
                self.report.tell(
                    f"the seal is made with the key {seal['key_id']!r}, which is not here, and does not follow on the "
                    f"seal before it",
                    seal=number,
                )
                return
            if self._strangers is None:
                self._strangers = (number, self._key)
        else:
            self._strangers_end(seal["key_id"])
            self._connected(seal)
        self._number, self._mac, self._key, self._junk_since = number, seal["mac"], seal["key_id"], False
        self._seal_keys.add(seal["key_id"])
        if number == 1:
            self._adopted = seal["adopted"]
        self.report.head, self.report.head_mac, self.report.total = number, seal["mac"], seal["total"]
        self._compare_anchor(number, seal["mac"], seal["total"])
        self._compare_remembered(number, seal["mac"])
        self._skip(seal["from_id"])
        self._compare_rows(seal)

    def _connected(self, seal: Mapping[str, Any]) -> None:
        """Whether a seal of ours names the one before it. Numbers that are left out between the two were taken by what
        was none of ours, and is told where it still stands."""
        number, report = seal["number"], self.report
        if seal["previous_mac"] == self._mac:
            return
        if seal["previous_mac"] == RESTARTED:
            report.tell("the chain was begun anew here: all seals before it had been removed", seal=number)
        elif number > self._number + 1 and not self._junk_since:
            several = number - self._number > 2
            gone = f"seals {self._number + 1} to {number - 1} are" if several else "the seal is"
            report.tell(f"{gone} missing", seal=self._number + 1)
        elif not self._junk_since:
            report.tell(f"does not follow on seal {self._number} as it stands", seal=number)

    def _strangers_end(self, key_after: str) -> None:
        """Seals whose key is not here may stand where keys change, not among seals of one key."""
        if self._strangers is None:
            return
        first, key_before = self._strangers
        if key_before == key_after:
            self.report.tell(
                f"the seal is made with a key that is not here, among seals of the key {key_after!r}", seal=first
            )
        self._strangers = None

    def _compare_anchor(self, number: int, mac: str, total: int) -> None:
        report = self.report
        while self._anchor is not None and self._anchor.number <= number:
            if self._anchor.number == number and self._anchor.mac == mac:
                report.anchored, report.rows_after_anchor = number, -total
            elif self._anchor.number == number:
                report.tell(
                    f"is another seal than the one anchored on {rfc3339(self._anchor.at)} "
                    f"(line {self._anchor.line}): the log was put back and went on",
                    seal=number,
                )
            else:
                self._anchor_gone()
            self._next_anchor()

    def _anchor_gone(self) -> None:
        assert self._anchor is not None
        self.report.tell(
            f"was anchored on {rfc3339(self._anchor.at)} (line {self._anchor.line}) and is not there: "
            "the tail was cut off, or the log put back",
            seal=self._anchor.number,
        )

    def _compare_remembered(self, number: int, mac: str) -> None:
        one = self._remembered
        if one is not None and (number, mac) == (one.number, one.mac):
            self.report.remembered, self._remembered = number, None

    def _skip(self, from_id: int) -> None:
        """Rows before what the seal speaks of: their own seal is broken or gone. Their own macs speak for them."""
        while self._row is not None and self._row.id <= from_id:
            row = self._take()
            self.report.unchecked += 1
            if row.mac:
                self._own_mac(row)

    def _compare_rows(self, seal: Mapping[str, Any]) -> None:
        try:
            leaves = base64.b64decode(seal["leaves"], validate=True)
        except ValueError:
            leaves = b""
        digest, number, changed = hashlib.sha256(), seal["number"], False
        for place, member in enumerate(each(seal["members"])):
            row = self._member(member, seal)
            if row is None:
                self._tell_row("was sealed and is missing", member, number)
                changed = True
                continue
            self.report.rows += 1
            digest.update(row.whole + b"\n")
            if leaf_of(row) != leaves[place * LEAF_BYTES : (place + 1) * LEAF_BYTES]:
                self._tell_row("is not as it was sealed", member, number)
                changed = True
            elif not row.mac and row.id <= max(self._adopted, seal["adopted"]):
                self.report.adopted += 1
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
        if row.id > seal["from_id"] and holds(seal["opened"], row.id):
            self._late[row.id] = row
        else:
            self._inserted(row, seal["number"])

    def _inserted(self, row: Row, seal: int | None = None) -> None:
        self._tell_row("was not there when its place was sealed: it was added later", row.id, seal)

    # --- one row by itself --------------------------------------------------------------------------------------

    def _own_mac(self, row: Row, seal: int | None = None) -> None:
        try:
            sound = row_holds(row, self._keys)
        except sealkeys.UnknownKey as unknown:
            first = self._row_keys.get(unknown.key_id)
            if first is None or (first[1] is None and seal is not None):
                self._row_keys[unknown.key_id] = (row.id, seal)
            return
        if not sound:
            when = "before it was sealed" if seal is not None else "and no seal holds it"
            self._tell_row(f"was changed, or added past the audit's door, {when}", row.id, seal)
            return
        self._copies.add(hashlib.sha256(row.content).digest()[:16], row.id, -1 if seal is None else seal)
        for named in named_in(row.link):
            found = self._at_hand.get(named.id)
            if found is None:
                self._namings.append(_Naming(named, row.id, seal))
            elif found != named.mac_end:
                self._exchanged(_Naming(named, row.id, seal))

    def _exchanged(self, naming: _Naming) -> None:
        if naming.named.id not in self._told:
            self._tell_row(
                f"is not the row that was written under this id, as row {naming.by} of the same process says",
                naming.named.id,
            )

    # --- the end ------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        report = self.report
        if self._number < 0:
            report.tell("there is no seal of ours: the chain was begun when this was installed, and has been removed")
        while self._anchor is not None:
            self._anchor_gone()
            self._next_anchor()
        if report.anchored is not None:
            report.rows_after_anchor += report.total
        if self._remembered is not None:
            report.tell(
                f"is remembered by this machine as the newest on {rfc3339(self._remembered.at)} and is not there: "
                "the tail was cut off, or the log put back",
                seal=self._remembered.number,
            )
        # After a head that cannot be trusted nobody knows which of the rest was sealed.
        trusted = self._number >= 0 and not self._junk_since
        for row in self._late.values():
            report.unsealed += 1
            self._own_mac(row)
        while self._row is not None:
            row = self._take()
            if trusted:
                report.unsealed += 1
            else:
                report.unchecked += 1
            if row.mac or self._number >= 0:
                self._own_mac(row)
            if report.unsealed % 5000 == 0:
                self._progress(5000)
        for copy, original, seal in self._copies.found():
            self._tell_row(f"is a copy of row {original}", copy, seal if seal >= 0 else None)
        self._look_again()
        self._judge_keys()

    def _look_again(self) -> None:
        """At rows that are named by later ones and were not at hand. One that came while this was reading is there."""
        if self._again is None:
            return
        waiting = sorted(self._namings)
        for start in range(0, len(waiting), 5000):
            part = waiting[start : start + 5000]
            there = {row.id: row.mac[-MAC_END:] for row in self._again(sorted({one.named.id for one in part}))}
            for one in part:
                if one.named.id in self._told:
                    continue
                if one.named.id not in there:
                    self._tell_row(f"was written and is gone: row {one.by} of the same process names it", one.named.id)
                elif there[one.named.id] != one.named.mac_end:
                    self._exchanged(one)

    def _judge_keys(self) -> None:
        here = self._seal_keys - self._keys.keys()
        self.report.unknown_keys |= here
        for key_id, (row, seal) in sorted(self._row_keys.items(), key=lambda one: one[1][0]):
            if key_id in here or seal is None:
                self.report.unknown_keys.add(key_id[:24])
            else:
                self._tell_row(
                    f"was changed, or added past the audit's door: its key {key_id!r} is not here, and no seal was "
                    "ever made with it",
                    row,
                    seal,
                )
