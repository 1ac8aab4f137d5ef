"""Other ways to see a folded text: spaced letters joined, digits for letters undone, numerals as digits, rot13.

Each gives back the very view it was given where there was nothing to do, so that its caller need not look twice.
"""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

from guard.inputs.normalising.view import CODE_POINTS, Codes, View

Flags = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

LATIN, HAN, BLANK, MARK, STOP = 1, 2, 4, 8, 16
_SEPARATORS = BLANK | MARK | STOP
_STOPS = ".,;:!?()[]{}\"'"
MAX_GAP = 3  # separators between two letters that were spaced out
_LEET = {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "9": "g", "@": "a", "$": "s"}
_LEET_INSIDE = {"!": "i", "|": "i", "+": "t"}  # within a word only: at its end they are what they are
_NUMERALS = dict(zip("零〇一二三四五六七八九壹贰叁肆伍陆柒捌玖幺", "001234567891234567891", strict=True))


@cache
def kinds() -> Flags:
    """What kind of character each code point is, 1 MB a process. Letters of other scripts are 0: part of words."""
    flags = np.zeros(CODE_POINTS, dtype=np.uint8)
    for code in range(0x3100):
        category = unicodedata.category(chr(code))
        if category[0] in "PS":
            flags[code] = MARK
        elif category[0] == "Z" or chr(code) in "\n\t ":
            flags[code] = BLANK
    flags[[ord(char) for char in _STOPS]] = STOP
    for first, last in (("a", "z"), ("A", "Z"), ("0", "9")):
        flags[ord(first) : ord(last) + 1] = LATIN
    for low, high in ((0x3400, 0xA000), (0x20000, 0x32400), (0x3007, 0x3008)):
        flags[low:high] = HAN
    flags[0xFE30:0xFE50] = MARK
    flags[0x1F000:0x1FB00] = MARK  # emoji between letters
    return flags


def joined(view: View) -> View:
    """Letters that were spaced out or punctuated stand together again: `i.g.n.o.r.e`, `忽 略 指 令`.

    Runs of four single letters or digits (three Chinese characters), up to three separators between two, lose those;
    two blanks or more stay one, for they part words. Between Chinese characters blanks and marks go wherever they are,
    up to three together, full stops and commas only in such runs.
    """
    flags = kinds()[view.codes]
    words = np.flatnonzero((flags & _SEPARATORS) == 0)
    if len(words) < 2:
        return view
    gaps = np.diff(words) - 1
    if not gaps.any():
        return view
    near = (gaps >= 1) & (gaps <= MAX_GAP)
    han = flags[words] == HAN
    latin = flags[words] == LATIN
    parted = gaps > 0
    alone = np.concatenate(([True], parted)) & np.concatenate((parted, [True])) & (han | latin)
    linked = near & alone[:-1] & alone[1:]
    run = _lengths(linked)
    in_run = linked & (run >= np.where(han[:-1] | han[1:], 2, 3))
    stops = np.concatenate(([0], np.cumsum(flags == STOP)))
    blanks = np.concatenate(([0], np.cumsum(flags == BLANK)))
    first, last = words[:-1] + 1, words[1:]
    between_han = near & han[:-1] & han[1:] & (stops[last] == stops[first])
    gone = in_run | between_han
    if not gone.any():
        return view
    spare = in_run & ~between_han & (gaps >= 2) & (blanks[last] - blanks[first] == gaps)
    first, last = first[gone] + spare[gone], last[gone]
    steps = np.zeros(len(view) + 1, dtype=np.int32)
    np.add.at(steps, first, 1)
    np.add.at(steps, last, -1)
    return view.kept(np.cumsum(steps[:-1]) == 0)


def _lengths(linked: Mask) -> npt.NDArray[np.int64]:
    """For each True the length of the run of Trues that it stands in, else 0."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], linked, [False])).astype(np.int8)))
    result = np.zeros(len(linked), dtype=np.int64)
    lengths = edges[1::2] - edges[::2]
    result[linked] = np.repeat(lengths, lengths)
    return result


@cache
def _leet(one: str) -> tuple[Codes, Codes, Flags]:
    """What stands for what everywhere in a word, what within one alone, and what words are made of."""
    everywhere = np.arange(128, dtype=np.uint32)
    inside = np.arange(128, dtype=np.uint32)
    for char, letter in _LEET.items():
        everywhere[ord(char)] = inside[ord(char)] = ord(letter)
    for char, letter in _LEET_INSIDE.items():
        inside[ord(char)] = ord(letter)
    everywhere[ord("1")] = inside[ord("1")] = ord(one)
    inside[ord("!")] = inside[ord("|")] = ord(one)
    part = np.zeros(128, dtype=np.uint8)
    part[[ord(char) for char in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]] = 1
    part[[ord(char) for char in (*_LEET, *_LEET_INSIDE)]] = 2
    return everywhere, inside, part


def unleeted(view: View, *, one: str = "i") -> View:
    """Digits and signs that stand for letters are letters again, in words that hold a letter: `1gn0r3` is `ignore`.

    one: what 1, ! and | are: `i`, or `l` for a second look. As long as the view, character for character.
    """
    everywhere, inside, part = _leet(one)
    small = view.codes < 128
    flags = np.zeros(len(view) + 2, dtype=np.uint8)
    flags[1:-1][small] = part[view.codes[small]]
    of_word = flags > 0
    letters = flags == 1
    if not (flags == 2).any():
        return view
    starts = np.flatnonzero(of_word[1:] & ~of_word[:-1]) + 1
    if not len(starts):
        return view
    words = np.cumsum(of_word & ~np.concatenate(([False], of_word[:-1])))
    with_letter = np.zeros(len(starts) + 1, dtype=bool)
    with_letter[words[letters]] = True
    leet = ((flags == 2) & with_letter[words])[1:-1]
    if not leet.any():
        return view
    within = letters[:-2] | (flags[:-2] == 2)
    within &= letters[2:] | (flags[2:] == 2)
    codes = view.codes.copy()
    codes[leet & within] = inside[view.codes[leet & within]]
    codes[leet & ~within] = everywhere[view.codes[leet & ~within]]
    return view.changed(codes)


@cache
def _numerals() -> Codes:
    table = np.arange(0x10000, dtype=np.uint32)
    for numeral, digit in _NUMERALS.items():
        table[ord(numeral)] = ord(digit)
    return table


def digits(view: View) -> View:
    """Chinese numerals, everyday and financial, as digits: `一三八〇` and `壹叁捌零` are `1380`.

    幺 is 1, as it is spoken. Numerals of place (十, 百, 拾) stay: numbers of papers are spelt by digits.
    """
    table = _numerals()
    low = view.codes < len(table)
    codes = view.codes.copy()
    codes[low] = table[view.codes[low]]
    return view if np.array_equal(codes, view.codes) else view.changed(codes)


@cache
def _rot13() -> Codes:
    table = np.arange(128, dtype=np.uint32)
    for first in ("a", "A"):
        at = ord(first)
        table[at : at + 26] = np.roll(np.arange(at, at + 26), -13)
    return table


def rotated(view: View) -> View:
    """Latin letters turned by thirteen."""
    small = view.codes < 128
    codes = view.codes.copy()
    codes[small] = _rot13()[view.codes[small]]
    return view if np.array_equal(codes, view.codes) else view.changed(codes)


def mirrored(view: View) -> View:
    """From its end to its beginning. Costs an array of places."""
    places = np.arange(len(view), dtype=np.int32) if view.places is None else view.places
    return View(view.codes[::-1], places[::-1])
