"""What stands in an address or a form, read: a number, a moment, text. Of what is none of these a sentence is made, or
None; nothing that somebody typed raises anything else.

`str.isdigit` holds for ² (which `int` refuses) and for ٣ (which it takes); `int` refuses 4301 digits; a column holds 64
bits; a date near either end of the calendar leaves it when the zone is applied. So these are asked here, and only here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo

from django.utils.translation import gettext as _

MOST_CHARACTERS = 2000  # of one value
MOST_VALUES = 200
LARGEST = 2**63 - 1
FIRST_YEAR, LAST_YEAR = 1970, 9998

_DIGITS = re.compile(r"[0-9]{1,19}\Z")
_HUGE = re.compile(r"\s*[+-]?\d[\d_]{18,}\s*\Z")  # as int() reads it
_EDGE = re.compile(r"\s*(?:0001|9999)-")
# No text: controls (of which a form has tab and line ends), half a pair, and what bytes that are no UTF-8 become.
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffd]")


def number(text: str) -> int | None:
    """A whole number from 0 to 2^63 - 1, in the digits 0 to 9; None for anything else."""
    value = int(text) if _DIGITS.match(text) else LARGEST + 1
    return value if value <= LARGEST else None


def moment(text: str, zone: tzinfo) -> datetime | None:
    """A day or an instant of ISO 8601, of `zone` where it names none; None for what is none, and for what lies before
    1970 or after 9998: the others can be moved by any zone, and by a day."""
    try:
        read = datetime.fromisoformat(text.strip())
        read = read if read.tzinfo else read.replace(tzinfo=zone)
        utc = read.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return read if FIRST_YEAR <= utc.year <= LAST_YEAR else None


def are_text(pieces: Iterable[str]) -> bool:
    """Whether these pieces of a path, one line each, could name anything."""
    return not any(_NO_TEXT.search(piece) or "\n" in piece or "\r" in piece for piece in pieces)


def fault_of(values: Iterable[tuple[str, str]]) -> str:
    """What is wrong with names and values of a query, in a sentence; '' where nothing is."""
    count = 0
    for name, value in values:
        count += 1
        if _NO_TEXT.search(value) or _NO_TEXT.search(name):
            return _("The address holds characters that are no text.")
        if len(value) > MOST_CHARACTERS or len(name) > MOST_CHARACTERS:
            return _("A value in the address has more than %(most)d characters.") % {"most": MOST_CHARACTERS}
    if count > MOST_VALUES:
        return _("The address has more than %(most)d values.") % {"most": MOST_VALUES}
    return ""


def is_beyond(text: str) -> bool:
    """Whether this is a whole number that no column holds, or a day that a zone moves out of the calendar."""
    if _EDGE.match(text):
        return True
    return _HUGE.match(text) is not None and (len(text) > 40 or abs(int(text)) > LARGEST)
