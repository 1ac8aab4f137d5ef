"""The chain of seals as a sealer sees it: where it ends, what is still open, and what must not be taken for it.

A seal is taken for what it is by its mac alone. Whatever else stands in the table (anybody with the right to INSERT can
put it there, under any number) is passed over: the chain goes on after its last sound seal, under the next number that
is free, and verify_audit names what was passed over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from guard.audit import sealkeys
from guard.audit.ranges import Ranges, without
from guard.audit.reading import Standing, marks, seals_down, standing_of, stream_seals

logger = logging.getLogger(__name__)

# Missing ids are looked at again after a quarter of their age, between these (seconds).
SOONEST, LATEST = 1.0, 30.0
# What the seal after a chain that vanished names as the one before it, where nobody remembers its head.
RESTARTED = "restarted"
# The sealer's clock: seconds that have passed here, whatever the wall clock is set to.
elapsed: Callable[[], float] = time.monotonic


@dataclass
class Gap:
    """Ids that a seal found missing. seen: when this process began to look; due: when it looks again (`elapsed`)."""

    ranges: Ranges
    number: int
    seen: float
    due: float

    def look_again(self, at: float) -> None:
        self.due = at + max(SOONEST, min(LATEST, (at - self.seen) / 4))


@dataclass
class Chain:
    """The chain as far as this process knows it. previous_mac: what the next seal names as the one before it: the head,
    or, where that is not there any more, the head that was remembered. cut: it was; gone: what was remembered of it,
    numbers and macs. free: the next seal's number."""

    number: int = -1
    mac: str = ""
    previous_mac: str = ""
    head_id: int = 0
    total: int = 0
    free: int = 0
    cut: bool = False
    gone: list[tuple[int, str]] = field(default_factory=list)
    base_adopted: int = 0  # of chains that are older than the origin: told by seal 1, and holds for all rows
    gaps: dict[int, Gap] = field(default_factory=dict)  # by the seal that opened them

    def follow(self, seal: dict[str, Any]) -> None:
        """Goes on to the next seal."""
        for number, gap in list(self.gaps.items()):
            gap.ranges = without(without(gap.ranges, seal["members"]), seal["closed"])
            if not gap.ranges:
                del self.gaps[number]
        if seal["opened"]:
            at = elapsed()
            self.gaps[seal["number"]] = Gap(seal["opened"], seal["number"], at, at)
        self.number = seal["number"]
        self.mac = self.previous_mac = seal["mac"]
        self.head_id, self.total = seal["head_id"], seal["total"]
        self.free, self.cut, self.gone = self.number + 1, False, []

    def fits(self, seal: dict[str, Any], keys: sealkeys.Ring) -> bool:
        """Whether this is the next seal. One whose key is not here is believed where it goes on exactly from here:
        another sealer has a newer key already; verify_audit has it checked when the key is here."""
        found = standing_of(seal, keys)
        if found is Standing.UNKNOWN:
            logger.warning("audit seal %s cannot be checked: its key is not here", seal["number"])
            return bool(seal["previous_mac"] == self.mac and seal["from_id"] == self.head_id)
        return found is Standing.SOUND


def find(known: Chain | None, remembered: Callable[[], list[tuple[int, str]]]) -> Chain:
    """The chain now. 1 query by primary key in a quiet second; where this process knows nothing, or what it knows is
    not there any more, the table is read from its end back to the last sound seal and the oldest open gap.

    remembered: numbers and macs of heads that are known from elsewhere; asked where the table is read.
    """
    keys = sealkeys.ring()
    if known is not None and known.number >= 0 and not known.cut:
        there = marks([known.number, known.free])
        if there.get(known.number) == known.mac:
            return _further(known, keys) if known.free in there else known
    own: list[tuple[int, str]] = []
    if known is not None and known.cut:
        own = known.gone  # looked for anew: another sealer may have gone on after the hole
    elif known is not None and known.number >= 0:
        own = [(known.number, known.mac)]
    return _mark(_look(keys), own + remembered())


def newest() -> dict[str, Any] | None:
    """The last seal of the chain: not of the table. Reads what is above it and itself. Errors: DatabaseError."""
    keys = sealkeys.ring()
    head = next((seal for seal in seals_down() if standing_of(seal, keys) is Standing.SOUND), None)
    chain = Chain()
    if head is not None:
        chain.follow({**head, "opened": []})
    else:
        lowest = next(stream_seals(after=-1), None)
        chain.free = lowest["number"] if lowest is not None and lowest["number"] <= 1 else 0
    for seal in stream_seals(after=chain.free - 1):
        if seal["number"] != chain.free:
            break
        if chain.fits(seal, keys):
            head = seal
            chain.follow({**seal, "opened": []})
        else:
            chain.free += 1
    return head


def _further(chain: Chain, keys: sealkeys.Ring) -> Chain:
    """Past the numbers that are taken, up to the first that is free."""
    for seal in stream_seals(after=chain.free - 1):
        if seal["number"] != chain.free:
            break
        if chain.fits(seal, keys):
            chain.follow(seal)
        else:
            logger.error("audit seal %s is none of ours: run manage.py verify_audit", seal["number"])
            chain.free += 1
    return chain


def _look(keys: sealkeys.Ring) -> Chain:
    for seal in seals_down():
        if standing_of(seal, keys) is Standing.SOUND:
            return _further(_read_back(seal, keys), keys)
    chain = Chain()
    lowest = next(stream_seals(after=-1), None)
    if lowest is not None and lowest["number"] <= 1:
        chain.free = lowest["number"]
        _further(chain, keys)
    return chain


def _read_back(head: dict[str, Any], keys: sealkeys.Ring) -> Chain:
    chain = Chain()
    first = min(head["oldest_open"] or head["number"], head["number"])
    for seal in stream_seals(after=first - 1, up_to=head["number"]):
        if standing_of(seal, keys) is Standing.SOUND:
            chain.follow(seal)
    for seal in stream_seals(after=0, up_to=1):
        if standing_of(seal, keys) is Standing.SOUND:
            chain.base_adopted = seal["adopted"]
    return chain


def _mark(chain: Chain, remembered: list[tuple[int, str]]) -> Chain:
    """Where a seal that is remembered is not in the chain, the next seal follows on that one: the hole shows for good,
    whoever takes the place of what is gone."""
    gone = [(number, mac) for number, mac in remembered if not _stands(number, mac)]
    if gone:
        number, mac = max(gone)
        chain.previous_mac, chain.cut, chain.gone = mac, True, gone
        chain.free = _free_from(max(chain.free, number + 1))
    elif chain.number < 0:
        chain.previous_mac, chain.cut = RESTARTED, True
        chain.free = _free_from(max(chain.free, 1))
    if chain.cut:
        logger.error(
            "audit seals: seal %s is not there any more: the chain was cut off, or the database put back",
            max(gone)[0] if gone else 0,
        )
    return chain


def _stands(number: int, mac: str) -> bool:
    if marks([number]).get(number) == mac:
        return True
    # Told already: another sealer, or this one before it was started anew, went on from there.
    for seal in stream_seals(after=number, up_to=number + 1000):
        if seal.get("previous_mac") == mac and standing_of(seal, sealkeys.ring()) is Standing.SOUND:
            return True
    return False


def _free_from(number: int) -> int:
    for seal in stream_seals(after=number - 1):
        if seal["number"] != number:
            break
        number += 1
    return number
