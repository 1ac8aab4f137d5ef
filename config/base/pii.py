"""Identifiers of people inside free text, hidden from whoever has no business with them.

One function, `hidden`, for every place that shows words which somebody wrote: reasons, notes, texts. It knows shapes,
not meanings: runs of digits as phones, identity cards, accounts and card numbers have them, however they are grouped,
e-mail addresses, and the ids and names that its caller gives it, such as those of the customer whom the page is about.
Amounts, dates and short numbers stay readable. A detector that knows more takes its place with `use`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

STARS = "***"

_GAP = "[ \u00a0\u2009\u3000._·‐‑–—/*-]{0,2}[()（）]?"
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

Detector = Callable[[str], str]


def _shapes(text: str) -> str:
    return _SHAPES.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    text = found[0]
    harmless = found.lastgroup == "number" and (_INSTANT.match(text) or _AMOUNT.match(text) or _DAY.match(text))
    return text if harmless or found.lastgroup == "ours" else STARS


_detector: Detector = _shapes


def use(detector: Detector | None) -> None:
    """Puts another detector in the place of this room's shapes; None puts these back."""
    global _detector
    _detector = detector or _shapes


def hidden(text: str, known: Collection[str] = ()) -> str:
    """`text` with every identifier of a person in it as `***`.

    known: ids and names that are hidden wherever they stand, whatever shape they have; in any case of letters. An id
    is not looked for within a longer one.
    """
    for one in sorted(filter(None, known), key=len, reverse=True):
        if len(one) > 1 or not one.isascii():
            pattern = re.escape(one)
            text = re.sub(rf"(?<![A-Za-z0-9_]){pattern}(?![A-Za-z0-9_])" if one.isascii() else pattern, STARS, text,
                          flags=re.IGNORECASE)  # fmt: skip
    return _detector(text)
