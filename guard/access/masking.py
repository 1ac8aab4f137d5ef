"""Masks: what stands in for an identifier where the reader does not need the identifier."""

from __future__ import annotations

STARS = "***"


def mask(value: str) -> str:
    """`value` with only its first two and its last character left: `C00017` becomes `C0***7`.

    Always three stars, so that a mask does not tell the length. Shorter than four characters, those three would be
    all of it: then only the first is kept, and of a single character nothing. Empty stays empty.
    """
    if not value:
        return ""
    if len(value) == 1:
        return STARS
    if len(value) < 4:
        return value[0] + STARS
    return value[:2] + STARS + value[-1]
