"""A picture of the allocation: one ring, its slices as arcs of an SVG circle whose circumference is 100."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext_lazy as _

from memory.core.models import AssetClass

# A colour of console.css each: a class keeps its colour from one customer to the next.
_COLOUR = {name: place for place, name in enumerate(AssetClass.values, 1)}
_NO_CLASS = len(_COLOUR) + 1


@dataclass(frozen=True)
class Slice:
    """percent: of the total. begin: percent of the ring before it. products: how many are in it."""

    label: Any
    amount: str
    percent: Decimal
    begin: Decimal
    colour: int
    products: int

    @property
    def dash(self) -> str:
        """Of the stroke: the slice, less a hair between it and the next, then the rest of the ring."""
        shown = max(self.percent - Decimal("0.5"), Decimal("0.2")) if self.percent < 100 else self.percent
        return f"{shown:.3f} {100 - shown:.3f}"

    @property
    def offset(self) -> str:
        """A stroke begins at three o'clock; the ring at twelve."""
        return f"{25 - self.begin:.3f}"


def slices_of(by_class: Sequence[Mapping[str, Any]]) -> list[Slice]:
    """Of a snapshot's `by_class`, largest first; empty where nothing is held, so that there is nothing to share."""
    slices: list[Slice] = []
    begin = Decimal(0)
    for row in by_class:
        percent = Decimal(row["share"] or 0) * 100
        if percent <= 0:
            continue
        slices.append(
            Slice(
                class_word(row["asset_class"]), row["amount"], percent, begin,
                _COLOUR.get(row["asset_class"], _NO_CLASS), row["products"],
            )
        )  # fmt: skip
        begin += percent
    return slices


def class_word(name: str) -> Any:
    return AssetClass(name).label if name in AssetClass.values else _("class not known")
