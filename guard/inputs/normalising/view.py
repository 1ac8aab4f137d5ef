"""A text seen through a table, with the place of each of its characters in the text as it was sent."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

PATH = Path(__file__).with_name("tables.npz")

CODE_POINTS = 0x110000
DROPPED = 0xFFFFFFFF
EXPANDED = 0x80000000  # plus the place in `expansions`
LONGEST = 4  # of what one code point stands for; the few that are longer (ligatures of sentences) stay what they are

Codes = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int32]
# Byte offsets are turned into characters from the nearest of these on, so that a hit costs no walk over the text.
_MILE = 4096
_BLOCK = 1 << 15


def codes_of(text: str) -> Codes:
    """The code points of a text, lone surrogates among them. 4 bytes each."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def text_of(codes: Codes) -> str:
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


@dataclass(frozen=True)
class View:
    """codes: what is seen, as code points. places: where in the original each stands; None where nothing was moved.

    Every character of a view comes from one character of the original, so a stretch of the view is one of the original.
    """

    codes: Codes
    places: Places | None = None

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def text(self) -> str:
        return text_of(self.codes)

    @cached_property
    def utf8(self) -> bytes:
        """What engines that work on bytes search; offsets in it go back through `span_of_bytes`."""
        return self.text.encode("utf-8", "replace")

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original that `[start, end)` of this view was seen in, in code points, end exclusive."""
        if self.places is None:
            return start, end
        if start >= end:
            raise ValueError(f"an empty stretch has no place: [{start}, {end})")
        one, other = int(self.places[start]), int(self.places[end - 1])
        return min(one, other), max(one, other) + 1

    @cached_property
    def _miles(self) -> npt.NDArray[np.int64] | None:
        """How many characters begin before each mile of `utf8`; None where a byte is a character."""
        data = np.frombuffer(self.utf8, dtype=np.uint8)
        if len(data) == len(self.codes):
            return None
        heads = (data & 0xC0) != 0x80
        whole = len(data) // _MILE
        counts = heads[: whole * _MILE].reshape(whole, _MILE).sum(axis=1)
        return np.concatenate(([0], np.cumsum(counts)))

    def index_of_byte(self, offset: int) -> int:
        """The index in the view of the character that begins at a byte of `utf8`."""
        miles = self._miles
        if miles is None:
            return offset
        mile = offset // _MILE
        rest = np.frombuffer(self.utf8, dtype=np.uint8, count=offset - mile * _MILE, offset=mile * _MILE)
        return int(miles[mile]) + int(np.count_nonzero((rest & 0xC0) != 0x80))

    def span_of_bytes(self, start: int, end: int) -> tuple[int, int]:
        return self.span(self.index_of_byte(start), self.index_of_byte(end))

    def kept(self, keep: npt.NDArray[np.bool_]) -> View:
        """Without the characters that `keep` says no of."""
        places = np.flatnonzero(keep).astype(np.int32)
        return View(self.codes[keep], places if self.places is None else self.places[places])

    def changed(self, codes: Codes) -> View:
        """Other characters in the same places."""
        return View(codes, self.places)


@dataclass(frozen=True)
class _Tables:
    folds: Codes
    lowers: Codes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    letters: Codes
    version: str


@cache
def tables() -> _Tables:
    """The tables, 9 MB of memory a process, read once. `version`: the first 12 digits of their file's SHA-256."""
    raw = PATH.read_bytes()
    stored: Any = np.load(PATH)
    folds = np.arange(CODE_POINTS, dtype=np.uint32)
    pairs = stored["folds"]
    folds[pairs[:, 0]] = pairs[:, 1]
    lowers = np.arange(CODE_POINTS, dtype=np.uint32)
    pairs = stored["lowers"]
    lowers[pairs[:, 0]] = pairs[:, 1]
    expansions = stored["expansions"].astype(np.int64)
    return _Tables(
        folds=folds,
        lowers=lowers,
        starts=expansions[:, 0],
        lengths=expansions[:, 1],
        letters=stored["letters"],
        version=hashlib.sha256(raw).hexdigest()[:12],
    )


def folded(text: str) -> View:
    """A text with its disguises off, in the case in which it was written.

    NFKC and more: compatible forms are what they stand for, full-width ones narrow, marks over letters, controls of
    direction and whatever has no width are gone, letters that look Latin are Latin, digits of every script are 0-9,
    traditional characters are simplified, dashes, quotes and blanks are one of each, every end of a line is LF.

    The same for a text and its NFKC form (but for what stands for more than LONGEST letters). Never fails; lone
    surrogates are U+FFFD. Cost: one look-up a character, and a copy where characters were dropped or stand for several.
    """
    folds = tables().folds
    codes = codes_of(text)
    found = folds[codes]
    special = found >= EXPANDED
    if not special.any():
        return View(found)
    parts = [_spread(found[at : at + _BLOCK], at) for at in range(0, len(found), _BLOCK)]
    return View(np.concatenate([part.codes for part in parts]), np.concatenate([part.places for part in parts]))


class _Spread(NamedTuple):
    codes: Codes
    places: Places


def _spread(found: Codes, offset: int) -> _Spread:
    """Without what is dropped and with what stands for several; by blocks, so that arrays stay in the cache."""
    known = tables()
    dropped = found == DROPPED
    at = np.flatnonzero((found >= EXPANDED) & ~dropped)
    if not len(at):
        places = np.flatnonzero(~dropped).astype(np.int32)
        return _Spread(found[places], places + np.int32(offset))
    which = found[at] - EXPANDED
    lengths = known.lengths[which]
    counts = np.ones(len(found), dtype=np.int64)
    counts[dropped] = 0
    counts[at] = lengths
    places = np.repeat(np.arange(len(found), dtype=np.int32), counts)
    result = found[places]
    # where each expansion begins in the result, and its letters one after another
    begins = np.repeat(np.cumsum(counts)[at] - lengths, lengths)
    within = np.arange(len(begins), dtype=np.int64) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    result[begins + within] = known.letters[np.repeat(known.starts[which], lengths) + within]
    return _Spread(result, places + np.int32(offset))


def lowered(view: View) -> View:
    """In small letters, character by character."""
    return view.changed(tables().lowers[view.codes])
