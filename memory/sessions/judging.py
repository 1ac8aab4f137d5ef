"""Which numbers of a session are without a message, and why: pure, from what Redis, the stream and MySQL hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memory.sessions.models import SessionNumbering

Kind = SessionNumbering.Kind
Span = tuple[int, int]  # first, last: both included


@dataclass(frozen=True, slots=True)
class Lease:
    """A range that Redis numbered from. kind: why it was given up; '' while it is in use. used_to: the highest number
    of it that is known to have been given, 0 where nothing is known."""

    first: int
    last: int
    used_to: int
    kind: str


@dataclass
class Numbers:
    """All that is known of one session's numbers. explained: spans with the reason that no message has them.

    start: its first own number (a fork's lower ones are its ancestors'). ceiling: the highest number given to anybody.
    """

    stored: Sequence[Span]
    queued: Iterable[int] = ()
    leases: Sequence[Lease] = ()
    explained: Sequence[tuple[Span, str]] = ()
    start: int = 1
    ceiling: int = 0


@dataclass
class Verdict:
    """lost: numbers that were given and are nowhere. explained: spans and why they are empty, `emptied` among them:
    nobody can tell whether they were given."""

    lost: list[Span] = field(default_factory=list)
    explained: list[tuple[Span, str]] = field(default_factory=list)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same numbers as few spans in order."""
    result: list[Span] = []
    for first, last in sorted(spans):
        if result and first <= result[-1][1] + 1:
            if last > result[-1][1]:
                result[-1] = (result[-1][0], last)
        else:
            result.append((first, last))
    return result


def without(spans: Iterable[Span], taken: Sequence[Span]) -> list[Span]:
    """`spans` less the numbers of `taken` (which is merged)."""
    left: list[Span] = []
    for first, last in spans:
        for low, high in taken:
            if high < first:
                continue
            if low > last:
                break
            if low > first:
                left.append((first, low - 1))
            first = high + 1
            if first > last:
                break
        if first <= last:
            left.append((first, last))
    return left


def within(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """The part of `spans` inside first..last."""
    return [(max(low, first), min(high, last)) for low, high in spans if low <= last and high >= first]


def judge(numbers: Numbers) -> Verdict:
    """Steps: 1. what has a message, or will have; 2. what no message has, up to the highest number that is known to
    be used, less what is explained number by number; 3. inside a range, what is below its highest used number was
    given (Redis numbers without a gap) and is lost, what is above it never was; outside every range all was given,
    for appends past Redis take only numbers that they store, and what a look has seen given leaves the range."""
    present = merged([*numbers.stored, *((seq, seq) for seq in numbers.queued)])
    ranges = merged((lease.first, lease.last) for lease in numbers.leases)
    outside = without([(numbers.start, numbers.ceiling)], ranges) if numbers.ceiling >= numbers.start else []
    known = [last for _, last in [*present[-1:], *outside[-1:]]] + [lease.used_to for lease in numbers.leases]
    top = max(known, default=0)
    wanted = [(lease.first, lease.last) for lease in numbers.leases if lease.kind == Kind.EMPTIED]
    if top >= numbers.start:
        wanted.append((numbers.start, top))
    open_spans = without(merged(wanted), present)

    verdict = Verdict()
    for span, why in numbers.explained:
        verdict.explained += [(part, why) for part in within(open_spans, *span)]
    open_spans = without(open_spans, merged(span for span, _ in numbers.explained))

    for lease in numbers.leases:
        mine = within(open_spans, lease.first, lease.last)
        if not mine:
            continue
        inside = within(present, lease.first, lease.last)
        used = max(lease.used_to, inside[-1][1] if inside else 0)
        verdict.lost += within(mine, lease.first, used)
        verdict.explained += [(part, lease.kind or Kind.OUTAGE) for part in within(mine, used + 1, lease.last)]
        open_spans = without(open_spans, merged(mine))
    verdict.lost = merged([*verdict.lost, *open_spans])
    return verdict
