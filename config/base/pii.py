"""Identifiers of people inside free text, hidden from whoever has no business with them.

One function, `hidden`, for every place that shows words which somebody wrote: reasons, notes, texts. It knows shapes,
not meanings: runs of digits as phones, identity cards, accounts and card numbers have them, however they are grouped,
e-mail addresses, and the ids and names that its caller gives it, such as those of the customer whom the page is about.
Amounts, dates and short numbers stay readable. A detector that knows more takes its place with `use`.

What is looked at is what a reader sees: characters that are drawn as nothing do not keep a name apart, and full-width
and other compatibility forms are the letters and digits that they look like.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from itertools import pairwise

from config.base.seen import BLANKS

STARS = "***"

_GAP = "[ \t\u00a0\u2009\u3000._·‐‑–—/*-]{0,2}[()（）]?"
# What is told apart, in this order. Ids of ours (ULIDs) stay; an address and a number of a known shape go wherever they
# stand; any other run of seven digits or more goes unless letters before it make it a number of a trade or a paper.
_SHAPES = re.compile(
    r"(?P<ours>(?<![0-9A-Za-z])0[0-9A-HJKMNP-TV-Z]{25}(?![0-9A-Za-z]))"
    r"|(?P<mail>[^\s@＠<>()\[\],;:，。；：、（）]{1,64}[@＠][^\s@＠<>()\[\],;:，。；：、（）]{1,255})"
    rf"|(?P<card>(?<!\d)\d(?:{_GAP}\d){{14,18}}[Xxｘ]?(?!\d))"
    rf"|(?P<mobile>(?<!\d)1{_GAP}[3-9](?:{_GAP}\d){{9}}(?!\d))"
    rf"|(?P<number>(?<![A-Za-z0-9_])(?<![A-Za-z]-)[+＋]?[(（]?\d(?:{_GAP}\d){{6,}})"
)
_INSTANT = re.compile(r"\d{4}([-/.])\d{1,2}\1\d{1,2}(?: \d{1,2})?\Z")
_AMOUNT = re.compile(r"\d+\.\d{1,2}\Z")
_DAY = re.compile(r"(?:19|20)\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\Z")

_IN_PARTS = 2  # blanks or marks that may stand between two characters of a name or an id
_SHORT_ID = 4  # an id of fewer characters is looked for as it is: "3.5" is not the id 35

Detector = Callable[[str], str]
Span = tuple[int, int]


class _Folds(dict[int, str]):
    """For `str.translate`: each character as a reader takes it, nothing for what is not drawn. Filled as it is used."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        told = "".join(one for one in unicodedata.normalize("NFKD", char) if one in "\t\n" or not _unseen(one))
        self[code] = told
        return told


def _unseen(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Mn", "Me") or char in BLANKS


_FOLDS = _Folds()


def _starred(text: str, folded: str, spans: Iterable[Span]) -> str:
    """`text` with stars in the place of these stretches of its folded form, and of what is not drawn in and behind
    them."""
    merged: list[list[int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    if not merged:
        return text
    if len(folded) == len(text) and all(len(_FOLDS[ord(char)]) == 1 for char in text):
        places: Collection[int] = range(len(text))
    else:
        places = [place for place, char in enumerate(text) for _one in _FOLDS[ord(char)]]
    at = [*places, len(text)]
    kept, done = [], 0
    for start, end in merged:
        first, last = at[start], at[end]
        kept.append(text[done:first])
        if first >= done:  # else within a character that is starred already
            kept.append(STARS)
        done = max(done, last if last > at[end - 1] else last + 1)
    kept.append(text[done:])
    return "".join(kept)


def _shapes(text: str) -> str:
    folded = text.translate(_FOLDS)
    found = (one.span() for one in _SHAPES.finditer(folded) if not _harmless(one))
    return _starred(text, folded, found)


def _harmless(found: re.Match[str]) -> bool:
    text = found[0]
    plain = found.lastgroup == "number" and (_INSTANT.match(text) or _AMOUNT.match(text) or _DAY.match(text))
    return bool(plain) or found.lastgroup == "ours"


def _pattern(known: str) -> str:
    """Of a name or id as it is folded: its letters and digits with a few blanks or marks between them, or none."""
    parts = re.findall(r"[^\W_]|[\W_]+", known)
    plain = known.isascii()
    if len(parts) < 2 or (plain and len(known) < _SHORT_ID and not known.isalpha()):
        pattern = re.escape(known)
    else:
        pattern = ""
        for before, part in pairwise(["", *parts]):
            if not part.isalnum():
                pattern += rf"[\W_]{{0,{len(part) + 2 * _IN_PARTS}}}"
            else:
                pattern += (rf"[\W_]{{0,{_IN_PARTS}}}" if before.isalnum() else "") + re.escape(part)
    return rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])" if plain else pattern


_detector: Detector = _shapes


def use(detector: Detector | None) -> None:
    """Puts another detector in the place of this room's shapes; None puts these back."""
    global _detector
    _detector = detector or _shapes


def hidden(text: str, known: Collection[str] = ()) -> str:
    """`text` with every identifier of a person in it as `***`.

    known: ids and names that are hidden wherever they stand, whatever shape they have; in any case and width of
    letters, whatever stands between them that is not drawn, and with up to two blanks or marks there. An id is not
    looked for within a longer one. Cost: linear in the text, for each that is known.
    """
    folded = text.translate(_FOLDS)
    names = {name for one in known if len(name := one.translate(_FOLDS).strip()) > 1 or not name.isascii()}
    spans = [found.span() for name in names for found in re.finditer(_pattern(name), folded, flags=re.IGNORECASE)]
    return _detector(_starred(text, folded, spans))
