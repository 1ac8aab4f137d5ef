"""The tree of a conversation: which entries lead to its head, and which of those are shown. Pure.

Numbers make a path cheap to name. The entries of a session lie in stretches of numbers; a turn (`SessionBranch`) ends
one: what is numbered above its `at_seq` follows the turn's target, and not the entry with the number before it. Along
a path numbers only rise, through forks too, for a fork's own begin above the last one that it shares. So a path is a
short list of spans, however many messages it has, and no message is copied for it, nor is a chain of parents walked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

NAVIGATE = "navigate"
COMPACT = "compact"
# Above every number: "up to whatever is there".
END = 2**63 - 1

Span = tuple[int, int, int]  # key of the session, first number, last number: both included


@dataclass(frozen=True, slots=True)
class Turn:
    """See SessionBranch."""

    kind: str
    at_seq: int
    target_pk: int
    target_seq: int


@dataclass(frozen=True, slots=True)
class Path:
    """full: all that leads to the head, oldest first. view: what is shown of it, apart from `pin`, the compaction
    entry (session, number) that stands in front of it, in place of what it covers."""

    full: tuple[Span, ...] = ()
    view: tuple[Span, ...] = ()
    pin: tuple[int, int] | None = None

    def shows(self, pk: int, seq: int) -> bool:
        return (pk, seq) == self.pin or within(self.view, pk, seq)

    @property
    def branched(self) -> bool:
        return len(self.full) > 1 or self.pin is not None


def within(spans: Iterable[Span], pk: int, seq: int) -> bool:
    return any(of == pk and first <= seq <= last for of, first, last in spans)


def count_between(spans: Iterable[Span], low: int, high: int) -> int:
    """How many numbers the spans have from `low` to `high`."""
    return sum(max(0, min(last, high) - max(first, low) + 1) for _, first, last in spans)


def less(spans: Iterable[Span], others: Iterable[Span]) -> tuple[Span, ...]:
    """`spans` without what the `others` have too."""
    left = list(spans)
    for pk, low, high in others:
        rest: list[Span] = []
        for of, first, last in left:
            if of != pk or high < first or low > last:
                rest.append((of, first, last))
                continue
            if first < low:
                rest.append((of, first, low - 1))
            if last > high:
                rest.append((of, high + 1, last))
        left = rest
    return tuple(left)


def _with(spans: tuple[Span, ...], pk: int, first: int, last: int) -> tuple[Span, ...]:
    if last < first:
        return spans
    if spans and spans[-1][0] == pk and spans[-1][2] + 1 == first:
        return (*spans[:-1], (pk, spans[-1][1], last))
    return (*spans, (pk, first, last))


class Tree:
    """A session with all that it shares.

    lineage: (session, number) of what it was forked from, nearest first. turns: of it and of those, in their order.
    """

    def __init__(self, pk: int, lineage: Sequence[tuple[int, int]], turns: Mapping[int, Sequence[Turn]]) -> None:
        self.pk = pk
        self.lineage = tuple(lineage)
        self.floor = self.lineage[0][1] if self.lineage else 0
        self._turns = {of: tuple(given) for of, given in turns.items()}
        self._base: dict[int, Path] = {}
        self._floors: dict[int, int] = {}
        self._after: dict[int, list[Path]] = {}
        # Oldest ancestor first: each path is then made of ones that are there already.
        chain = [(pk, END), *self.lineage]
        for place in reversed(range(len(chain))):
            of = chain[place][0]
            above = chain[place + 1] if place + 1 < len(chain) else None
            self._base[of] = Path() if above is None else self.at(*above)
            self._floors[of] = 0 if above is None else above[1]
            self._after[of] = []
            for turn in self._turns.get(of, ()):
                self._after[of].append(
                    self.at(turn.target_pk, turn.target_seq) if turn.kind == NAVIGATE else self.at(of, turn.at_seq)
                )

    @property
    def last_turn(self) -> int:
        """The number above which everything follows the latest turn; 0 without one."""
        turns = self._turns.get(self.pk, ())
        return turns[-1].at_seq if turns else 0

    @property
    def turn_count(self) -> int:
        return len(self._turns.get(self.pk, ()))

    def head(self) -> Path:
        """The active path."""
        return self.at(self.pk, END)

    def at(self, pk: int, seq: int) -> Path:
        """The path that ends at a number of this session, or of one that it was forked from."""
        turns = self._turns.get(pk, ())[: len(self._after[pk])]
        place = bisect_left(turns, seq, key=lambda turn: turn.at_seq)
        before = self._after[pk][place - 1] if place else self._base[pk]
        start = turns[place - 1].at_seq + 1 if place else self._floors[pk] + 1
        path = replace(before, full=_with(before.full, pk, start, seq), view=_with(before.view, pk, start, seq))
        # The compaction entry itself: what it covers is hidden from here on.
        for turn in self._turns.get(pk, ())[place : bisect_right(self._turns.get(pk, ()), seq, key=lambda t: t.at_seq)]:
            if turn.kind == COMPACT and turn.at_seq == seq:
                return _condensed(path, pk, turn)
        return path


def _condensed(path: Path, pk: int, turn: Turn) -> Path:
    view: list[Span] = []
    for of, first, last in reversed(path.view):
        holds = of == turn.target_pk and first <= turn.target_seq <= last
        view.append((of, turn.target_seq if holds else first, last))
        if holds:
            break
    kept = less(reversed(view), [(pk, turn.at_seq, turn.at_seq)])
    return replace(path, view=kept, pin=(pk, turn.at_seq))
