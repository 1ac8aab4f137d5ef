"""What of a number, a name or an address may still be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from guard.inputs.findings import Found

STAR = "*"
# How many letters and digits stay at the beginning and at the end.
_SHOWN = {
    "resident_id": (3, 1), "mobile": (3, 4), "bank_card": (4, 4), "passport": (1, 2), "travel_permit": (1, 2),
    "uscc": (2, 2), "email": (1, 0), "landline": (3, 2), "plate": (2, 1), "name": (1, 0), "address": (3, 0),
}  # fmt: skip


def masked_item(text: str, kind: str) -> str:
    """As long as the item and with its separators: `138-0013-8000` is `138-****-8000`. Of an address on the net the
    host stays."""
    head, at, host = text.partition("@") if kind == "email" else (text, "", "")
    first, last = _SHOWN.get(kind, (0, 0))
    places = [index for index, char in enumerate(head) if char.isalnum()]
    if first + last >= len(places):
        first, last = min(1, len(places) - 1), 0
    hidden = set(places[first : len(places) - last])
    return "".join(STAR if index in hidden else char for index, char in enumerate(head)) + at + host


def masked(text: str, found: Iterable[Found]) -> str:
    """The text with each item masked in its place. found: sorted, without overlaps."""
    return _replaced(text, found, lambda item: masked_item(text[item.start : item.end], item.kind))


def redacted(text: str, found: Iterable[Found]) -> str:
    """The text with the kind of each item in its place: `[mobile]`."""
    return _replaced(text, found, lambda item: f"[{item.kind}]")


def _replaced(text: str, found: Iterable[Found], words: Callable[[Found], str]) -> str:
    parts: list[str] = []
    last = 0
    for item in found:
        parts += [text[last : item.start], words(item)]
        last = item.end
    return "".join([*parts, text[last:]])
