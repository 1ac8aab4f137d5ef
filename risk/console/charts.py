"""Charts that the server draws: lengths in a drawing of 100 units, each with its figure in words beside it, so that
none is told by length or colour alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

HEIGHT = 100.0  # of a chart of columns, in its own units
STEP = 24.0
LEAST = 1.5  # of a column or bar that stands for something


@dataclass(frozen=True)
class Bar:
    """value: its length; count: as it is written; css: its colour; note: in words what the colour says."""

    label: Any
    value: int
    count: str
    link: str
    css: str
    note: str = ""
    width: float = 0.0


@dataclass(frozen=True)
class Cell:
    value: int
    count: str
    link: str
    width: float = 0.0


@dataclass(frozen=True)
class Part:
    """One column: short is written under it, label is all of it."""

    short: str
    label: str
    value: int
    count: str
    link: str
    x: float = 0.0
    y: float = 0.0
    height: float = 0.0


def share(value: int, most: int, of: float = 100.0) -> float:
    if not value or not most:
        return 0.0
    return round(max(LEAST, min(of, of * value / most)), 2)


def bars(items: Iterable[Bar]) -> list[Bar]:
    """Against the longest of them."""
    held = list(items)
    most = max((item.value for item in held), default=0)
    return [replace(item, width=share(item.value, most)) for item in held]


def table(heads: Sequence[Any], rows: Sequence[tuple[Any, Sequence[Cell]]]) -> dict[str, Any]:
    """A table whose cells have a bar each, all against the longest."""
    most = max((cell.value for _label, cells in rows for cell in cells), default=0)
    return {
        "heads": heads,
        "rows": [
            {"label": label, "cells": [replace(cell, width=share(cell.value, most)) for cell in cells]}
            for label, cells in rows
        ],
    }


def columns(parts: Sequence[Part]) -> dict[str, Any]:
    """Columns beside each other, and the height of the highest in words."""
    most = max((part.value for part in parts), default=0)
    drawn = []
    for number, part in enumerate(parts):
        height = share(part.value, most, HEIGHT)
        drawn.append(replace(part, x=number * STEP, y=round(HEIGHT - height, 2), height=height))
    return {
        "parts": drawn,
        "width": len(drawn) * STEP,
        "most": f"{most:,}",
        "total": f"{sum(part.value for part in parts):,}",
        "any": most > 0,
    }
