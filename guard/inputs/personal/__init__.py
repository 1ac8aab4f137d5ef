"""Personal data in a text: what it is, where it stands, and the text without it."""

from __future__ import annotations

from guard.inputs.findings import Found
from guard.inputs.normalising import Layer, Layers, View, digits, joined
from guard.inputs.personal.masking import masked, masked_item, redacted
from guard.inputs.personal.numbers import Candidate, numbers
from guard.inputs.personal.papers import papers
from guard.inputs.personal.people import people

__all__ = ["VERSION", "masked", "masked_item", "personal", "redacted"]

VERSION = "1"  # raised whenever what is found changes

# Who has a stretch that several claim: what is surest first.
_RANK = {
    rule: rank
    for rank, rule in enumerate(
        (
            "email", "email_spelt", "resident_id_18", "uscc", "bank_card_luhn", "mobile", "travel_permit", "passport",
            "travel_permit_named", "passport_named", "plate", "landline", "landline_abroad", "resident_id_15",
            "address_told", "address", "name_labelled", "name_told", "name_titled", "name_english",
        )
    )
}  # fmt: skip


def personal(layers: Layers) -> list[Found]:
    """Every item of personal data, in the order of the text as it was sent; none overlaps another.

    Items have their separators inside and their labels outside. Of what was coded the whole code is the item.
    """
    found = [one for layer in layers.layers for one in _of_layer(layer)]
    found.sort(key=lambda one: (_RANK[one.rule], one.start - one.end, one.start))
    kept: list[Found] = []
    taken: dict[int, list[Found]] = {}
    for one in found:
        if not _taken(taken, one):
            kept.append(one)
    return sorted(kept, key=lambda one: one.start)


_CELL = 64


def _taken(taken: dict[int, list[Found]], one: Found) -> bool:
    """Whether a surer item has some of the same stretch; takes it otherwise. Items lie in cells of 64 characters."""
    cells = range(one.start // _CELL, (one.end - 1) // _CELL + 1)
    for cell in cells:
        if any(other.start < one.end and one.start < other.end for other in taken.get(cell, ())):
            return True
    for cell in cells:
        taken.setdefault(cell, []).append(one)
    return False


def _of_layer(layer: Layer) -> list[Found]:
    together = joined(layer.view)
    as_digits = digits(layer.view)
    seen: list[tuple[View, Candidate]] = [(as_digits, one) for one in numbers(as_digits)]
    seen += [(layer.view, one) for one in papers(layer.view)]
    seen += [(together, one) for one in people(together)]
    return [Found(*layer.in_original(*view.span(one.start, one.end)), one.kind, one.rule) for view, one in seen]
