"""Ids as ranges `[[first, last], …]`, both ends in, ascending: how a seal lists what it holds and what it misses."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Ranges = list[list[int]]


def ranges_of(ids: Iterable[int]) -> Ranges:
    """Of ascending ids."""
    found: Ranges = []
    for one in ids:
        if found and found[-1][1] + 1 == one:
            found[-1][1] = one
        else:
            found.append([one, one])
    return found


def missing_between(from_id: int, ids: Iterable[int]) -> Ranges:
    """What ascending ids leave out, from the id after `from_id` up to the last of them."""
    found: Ranges = []
    expected = from_id + 1
    for one in ids:
        if one > expected:
            found.append([expected, one - 1])
        expected = one + 1
    return found


def size_of(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def each(ranges: Ranges) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)


def holds(ranges: Ranges, one: int) -> bool:
    place = bisect_right(ranges, one, key=lambda pair: pair[0])
    return place > 0 and one <= ranges[place - 1][1]


def without(ranges: Ranges, taken: Ranges) -> Ranges:
    """What of `ranges` is not in `taken`. Linear in both."""
    left: Ranges = []
    place = 0
    for first, last in ranges:
        while place < len(taken) and taken[place][1] < first:
            place += 1
        at = place
        while first <= last and at < len(taken) and taken[at][0] <= last:
            if taken[at][0] > first:
                left.append([first, taken[at][0] - 1])
            first = max(first, taken[at][1] + 1)
            at += 1
        if first <= last:
            left.append([first, last])
    return left
