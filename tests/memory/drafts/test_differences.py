"""What a reviewer is shown of a change: all of it, in bounded work, also where no eye would see it."""

from __future__ import annotations

import random
from difflib import SequenceMatcher
from typing import Any

import pytest

from memory.profiles.drafts import differences as compared
from memory.profiles.drafts.differences import differences, visible
from memory.profiles.drafts.models import AdvisorDraftRevision


def of(*lines: str) -> AdvisorDraftRevision:
    return AdvisorDraftRevision(body="\n".join(lines))


def shown(old: AdvisorDraftRevision, new: AdvisorDraftRevision) -> list[tuple[str, str]]:
    return [(line.how, line.text) for line in differences(old, new)]


def test_lines_that_went_came_and_stayed() -> None:
    assert shown(of("a", "b", "", "c", ""), of("a", "x", "", "c", "", "d")) == [
        ("same", "a"), ("gone", "b"), ("new", "x"), ("same", ""), ("same", "c"), ("same", ""), ("new", "d"),
    ]  # fmt: skip
    assert [line.how for line in differences(None, of("a", "b"))] == ["same", "same"]


def test_both_texts_are_there_whatever_they_are() -> None:
    chance = random.Random(7)
    for _round in range(300):
        kinds = "ab" if chance.random() < 0.5 else "abcdefghijklmnop"
        old, new = ([chance.choice(kinds) for _ in range(chance.randrange(1, 30))] for _side in range(2))
        lines = shown(of(*old), of(*new))
        assert [text for how, text in lines if how != "new"] == old
        assert [text for how, text in lines if how != "gone"] == new


def between(letter: str, count: int) -> list[str]:
    """Lines of which each has one, with blank ones between."""
    return [text for number in range(count) for text in (f"{letter}{number}", "")]


def gaps(way: int) -> list[str]:
    """Lines that both sides have, with other lines between that repeat themselves."""
    return [text for n in range(1500) for text in (f"k{n}", *("xy"[place * way // 3 % 2] for place in range(60)))]


HARD = {
    "blank lines between": (between("a", 1000), between("b", 1000)),
    "many parts": (gaps(1), gaps(2)),
    "two kinds": (["ab"[n * n % 7 % 2] for n in range(3000)], ["ab"[n * n % 5 % 2] for n in range(3000)]),
    "one kind": (["a"] * 2000, ["a"] * 1999),
    "another order": ([f"{n}" for n in range(3000)], [f"{n}" for n in reversed(range(3000))]),
    "line feeds": ([""] * 200_000, ["", *["x", ""] * 100_000]),
}


@pytest.mark.parametrize("name", HARD)
def test_work_is_bounded(name: str, monkeypatch: Any) -> None:
    """By the pairs of lines that are looked at, for a clock would tell of the machine."""
    pairs = 0

    def counting(junk: Any, one: list[str], other: list[str], **named: Any) -> Any:
        nonlocal pairs
        pairs += len(one) * len(other)
        return SequenceMatcher(junk, one, other, **named)

    monkeypatch.setattr(compared, "SequenceMatcher", counting)
    old, new = HARD[name]
    lines = shown(of(*old), of(*new))
    assert [text for how, text in lines if how != "gone"] == new
    assert pairs <= compared.MOST_PAIRS_IN_ALL


def test_what_no_eye_sees_is_shown() -> None:
    assert visible("a\u2028b\x0c\u202ec\u200b\td\r") == "a[U+2028]b[U+000C][U+202E]c[U+200B]\td[U+000D]"
    assert visible("👩\u200d💻 a\u200db") == "👩\u200d💻 a[U+200D]b"
    assert shown(of("pay", "100 now"), of("pay\u2028100 now")) == [
        ("gone", "pay"), ("gone", "100 now"), ("new", "pay[U+2028]100 now"),
    ]  # fmt: skip
