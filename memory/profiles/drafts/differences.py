"""What one revision changed of another, line by line, for people who review."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from memory.profiles.drafts.content import hidden_places
from memory.profiles.drafts.models import AdvisorDraftRevision

# Where lines that are not alone of their kind would have to be compared with more than so many pairs, here or in all of
# the text, the parts are shown whole one after the other: to look for the closest of them costs their number's cube.
MOST_PAIRS = 4000
MOST_PAIRS_IN_ALL = 100_000


@dataclass(frozen=True)
class Line:
    """how: same, gone, new."""

    how: str
    text: str


def differences(old: AdvisorDraftRevision | None, new: AdvisorDraftRevision) -> list[Line]:
    """The text of `new`, with what is gone of `old`; all of it `same` where there is no `old`.

    A line ends at a line feed alone: whatever else ends one on some screens is a character here, and shown as one.
    Cost: by the number of lines and its logarithm; about 0.1 s for the longest text there may be.
    """
    after = new.body.split("\n")
    if old is None:
        return [Line("same", visible(text)) for text in after]
    before = old.body.split("\n")
    lines: list[Line] = []
    left = right = 0
    for one, other in [*_pairs(before, after), (len(before), len(after))]:
        lines += [Line("gone", visible(text)) for text in before[left:one]]
        lines += [Line("new", visible(text)) for text in after[right:other]]
        if other < len(after):
            lines.append(Line("same", visible(after[other])))
        left, right = one + 1, other + 1
    return lines


def visible(text: str) -> str:
    """The text with what no eye sees: controls, separators of lines, what turns the direction or has no width."""
    hidden = set(hidden_places(text, but="\t"))
    return "".join(f"[U+{ord(char):04X}]" if place in hidden else char for place, char in enumerate(text))


def _pairs(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Places of lines that are the same, ascending on both sides: first the lines of which each text has one, as
    many of them as keep their order; then what stands between them."""
    places = {text: place for place, text in enumerate(before)}
    once = {text for text, count in Counter(before).items() if count == 1}
    once &= {text for text, count in Counter(after).items() if count == 1}
    alone = [(places[text], place) for place, text in enumerate(after) if text in once]
    pairs: list[tuple[int, int]] = []
    left = right = done = 0
    for one, other in [*_rising(alone), (len(before), len(after))]:
        found, looked = _between(before[left:one], after[right:other], min(MOST_PAIRS, MOST_PAIRS_IN_ALL - done))
        done += looked
        pairs += [(left + a, right + b) for a, b in found]
        if one < len(before) and other < len(after):
            pairs.append((one, other))
        left, right = one + 1, other + 1
    return pairs


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest part of them that rises on the first side too."""
    ends: list[int] = []  # the smallest end of a part of each length
    last: list[int] = []  # and which pair that is
    came: list[int] = []
    for number, (place, _other) in enumerate(pairs):
        length = bisect_left(ends, place)
        came.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
    found: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = came[number]
    return found[::-1]


def _between(before: list[str], after: list[str], most: int) -> tuple[list[tuple[int, int]], int]:
    """Such places, and how many pairs were compared for them: at most `most`."""
    shorter = min(len(before), len(after))
    head = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    shorter -= head
    tail = next((n for n in range(shorter) if before[-1 - n] != after[-1 - n]), shorter)
    pairs = [(n, n) for n in range(head)]
    one, other = before[head : len(before) - tail], after[head : len(after) - tail]
    looked = len(one) * len(other)
    if looked > most:
        looked = 0
    if looked:
        for a, b, size in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks():
            pairs += [(head + a + n, head + b + n) for n in range(size)]
    return pairs + [(len(before) - n, len(after) - n) for n in range(tail, 0, -1)], looked


def changed_fields(old: AdvisorDraftRevision | None, new: AdvisorDraftRevision) -> list[str]:
    """Names of the fields beside the text that differ: kind, channel, recipient, subject."""
    names = ("kind", "channel", "recipient", "subject")
    return [name for name in names if old is not None and getattr(old, name) != getattr(new, name)]
