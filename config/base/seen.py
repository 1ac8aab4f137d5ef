"""What of a text can be seen: a reason of twelve characters without width is no reason."""

from __future__ import annotations

import unicodedata

# Letters and signs that are drawn as nothing, or as a space, whatever their category says.
BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u17b4\u17b5")
_UNSEEN = ("Cc", "Cf", "Mn", "Me", "Zs", "Zl", "Zp")


def is_seen(char: str) -> bool:
    return char not in BLANKS and unicodedata.category(char) not in _UNSEEN


def seen_length(text: str) -> int:
    """How long a text is to a reader, in characters: spaces count between what is seen, marks and signs without width
    do not."""
    told = "".join(char if is_seen(char) or char in " \n\t" else "" for char in text.strip())
    return len(" ".join(told.split()))
