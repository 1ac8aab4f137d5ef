"""Words without which an expression cannot match: what a text is looked through for before its rules are tried."""

from __future__ import annotations

import re
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

MOST = 400  # words of one expression; with more it is tried always


def atoms(pattern: str) -> frozenset[str] | None:
    """Some words of which every match of a pattern holds at least one; None where no such words can be named."""
    # Python takes flags at the beginning alone, RE2 takes them where they stand.
    flags = re.MULTILINE if "(?m)" in pattern else 0
    found = _sequence(parser.parse(pattern.replace("(?m)", ""), flags))
    return frozenset(found) if found and len(found) <= MOST else None


def _sequence(parts: Any) -> set[str] | None:
    """Of what stands one after another: the best of its parts. Letters in a row are one word."""
    best: set[str] | None = None
    run = ""
    for operator, argument in parts:
        if operator is codes.LITERAL:
            run += chr(argument)
            continue
        best, run = _better(best, {run} if run else None), ""
        best = _better(best, _part(operator, argument))
    return _better(best, {run} if run else None)


def _part(operator: Any, argument: Any) -> set[str] | None:
    if operator is codes.SUBPATTERN:
        return _sequence(argument[3])
    if operator is codes.BRANCH:
        together: set[str] = set()
        for branch in argument[1]:
            found = _sequence(branch)
            if found is None:
                return None
            together |= found
        return together
    if operator in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, _, inner = argument
        return _sequence(inner) if least else None
    if operator is codes.IN and all(one is codes.LITERAL for one, _ in argument) and len(argument) <= 4:
        return {chr(value) for _, value in argument}
    return None


# Words that are in any text, as any single letter is: a rule that needs one of them is looked for by itself.
_COMMON = frozenset(Path(__file__).with_name("common.txt").read_text(encoding="utf-8").split())


def is_common(word: str) -> bool:
    return len(word) == 1 or word in _COMMON


def _better(one: set[str] | None, other: set[str] | None) -> set[str] | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=_worth)


def _worth(words: set[str]) -> tuple[int, int, int]:
    """The fewer words of every day, the longer the shortest, the fewer words: the better."""
    return -sum(map(is_common, words)), min(min(len(word.encode()) for word in words), 4), -len(words)
