"""What `reconcile` can find, and in which words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Losses: messages that somebody has a receipt for, and that are nowhere.
LOST_MESSAGE = "lost_message"  # Redis names its entry
LOST_NUMBERS = "lost_numbers"  # only its number is known
POSSIBLE_LOSS = "possible_loss"  # the Redis that it may have been queued in is gone, and nobody can tell
# Faults: what can be mended.
UNKNOWN_SESSION = "unknown_session"
UNREADABLE = "unreadable"
CEILING_LOW = "ceiling_low"
STALE_STATE = "stale_state"
DELETED_OPEN = "deleted_open"
DETACHED = "detached"
DAMAGED = "damaged"  # a key of the session holds something else: its state is made again
DEAD_LETTER = "dead_letter"  # waits for an operator to retry or drop it
BRANCH_BROKEN = "branch_broken"  # a turn of the conversation's path names an entry that is nowhere
GHOST = "ghost"  # keys of a session that MySQL has not
QUEUE_DAMAGED = "queue_damaged"  # sess:pending is no stream
NO_GROUP = "no_group"  # entries wait, and nobody has ever drained this stream
# Notes: as it should be.
GAP = "gap"
DUPLICATE = "duplicate"

LOSSES = frozenset({LOST_MESSAGE, LOST_NUMBERS, POSSIBLE_LOSS})
FAULTS = frozenset(
    {
        UNKNOWN_SESSION, UNREADABLE, CEILING_LOW, STALE_STATE, DELETED_OPEN, DETACHED, DAMAGED, DEAD_LETTER,
        BRANCH_BROKEN, GHOST, QUEUE_DAMAGED, NO_GROUP,
    }
)  # fmt: skip


@dataclass
class Finding:
    """first, last: numbers, both included (0: none). why: what explains a gap, or what is wrong."""

    kind: str
    tenant: str
    session_id: str
    agent: str = ""
    first: int = 0
    last: int = 0
    entry_id: str = ""
    why: str = ""
    repaired: str = ""

    @property
    def open(self) -> bool:
        """A loss or a fault that is still there."""
        return self.kind in LOSSES | FAULTS and not self.repaired

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value not in ("", 0)}


def weight(finding: Finding) -> int:
    """What is told first, the smaller: messages that are lost for certain, numbers of such, faults that are open, what
    may have been lost, and last what is explained or was repaired."""
    if not finding.open:
        return 4
    return {LOST_MESSAGE: 0, LOST_NUMBERS: 1, POSSIBLE_LOSS: 3}.get(finding.kind, 2)


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """The weightiest first; of one weight in the order they came."""
    return sorted(findings, key=weight)


def losses(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind in LOSSES and finding.open]
