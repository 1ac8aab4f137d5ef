"""Whether two names look like one: by Unicode's list of confusable characters (UTS 39), as `confusable_homoglyphs`
has it. Closed: what may be taken for the other counts as the other."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from config.base.seen import is_seen


def look_alike(one: str, other: str) -> bool:
    """Cost: some microseconds; the list is read once in a process, in about 0.1 s."""
    return bool(_skeletons(one) & _skeletons(other))


def _skeletons(name: str) -> set[str]:
    """As it is written, and in small letters: a capital I is drawn as an l, and its small letter is not."""
    plain = unicodedata.normalize("NFKC", name)
    return {_drawn(plain), _drawn(plain.casefold())}


def _drawn(text: str) -> str:
    signs, groups = _signs()
    for _again in range(3):  # what a sign is drawn as may have an accent, or be a capital, or be drawn as another
        text = "".join(_one(char, signs) for char in unicodedata.normalize("NFKD", text))
        text = "".join(char for char in text if is_seen(char)).casefold()
    for several, one in groups.items():
        text = text.replace(several, one)
    return text


def _one(char: str, signs: dict[str, str]) -> str:
    digit = unicodedata.digit(char, None)
    char = char if digit is None else str(digit)
    return signs.get(char, char)


@cache
def _signs() -> tuple[dict[str, str], dict[str, str]]:
    """Of each character that looks like others: one of them that stands for all, a plain one where there is one. And
    plain characters that look like one together (`rn`).

    Two plain ones are the same only where the list says so of the two: it has signs that look a little like each of
    them (`ſ` is an s, and looks like an f), and an s is no f.
    """
    above: dict[str, str] = {}

    def root(sign: str) -> str:
        while (further := above.get(sign, sign)) != sign:
            sign = further
        return sign

    # Here, for the list is read when it is first imported, and most processes review nothing.
    from confusable_homoglyphs.confusables import confusables_data

    pairs = [("O", "o"), *_pairs(confusables_data)]
    pairs.sort(key=lambda pair: not f"{pair[0]}{pair[1]}".isascii())
    # Last, for some small letters are drawn as capitals (`ᴀ`).
    small = [(one, one.casefold()) for pair in pairs for one in pair if not one.isascii() and len(one.casefold()) == 1]
    for one, other in [*pairs, *small]:
        first, second = sorted((root(one), root(other)), key=lambda sign: (not sign.isascii(), sign))
        if first != second and (f"{one}{other}".isascii() or not second.isascii()):
            above[second] = first
    groups = {sign: root(other["c"]).casefold() for sign, others in confusables_data.items() for other in others
              if len(sign) > 1 == len(other["c"]) and f"{sign}{other['c']}".isascii() and sign.isalpha()}  # fmt: skip
    return {sign: root(sign) for sign in above}, groups


def _pairs(listed: Mapping[str, Sequence[Mapping[str, str]]]) -> Iterator[tuple[str, str]]:
    for sign, others in listed.items():
        for other in others:
            # The list marks signs of scripts from right to left.
            one, two = (_without_accents(text.replace("\u200e", "")) for text in (sign, other["c"]))
            if len(one) == 1 == len(two):
                yield one, two


def _without_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", text) if is_seen(char)) or text
