"""Receipts and plans as commands print them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """A receipt (services.as_dict) in words, in the same order each time."""
    yield f"receipt {shown['receipt']} of {shown['of']} {shown['subject'][:16]}… in {shown['tenant']}: {shown['state']}"
    yield f"by {shown['by']}, started {shown['started_at']}, finished {shown['finished_at'] or 'not yet'}"
    yield from table("removed", shown["removed"])
    yield "kept:"
    for name, kept in sorted(shown["kept"].items()):
        rows = f" ({kept['rows']} rows)" if "rows" in kept else ""
        yield f"  {name}{rows}: {kept['ground']}"
    for name, left in sorted(shown["remains"].items()):
        how_many = ", ".join(
            f"{what} {len(value) if isinstance(value, list) else value}" for what, value in left.items()
        )
        yield f"still to do: {name}: {how_many}"


def table(title: str, counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    yield f"{title}:" if any(counts.values()) else f"{title}: nothing"
    for name, row in sorted(counts.items()):
        if row:
            yield f"  {name}: " + ", ".join(f"{what} {how_many}" for what, how_many in sorted(row.items()))
