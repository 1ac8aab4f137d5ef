"""Figures of hits for people: money, shares. What is no number is shown as it is."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any


def percent(share: Any) -> str:
    """`0.4235` becomes `42.35 %`; no more decimals than it has, two at most."""
    found = number(share)
    if found is None:
        return str(share)
    shown = f"{found * 100:.2f}".rstrip("0").rstrip(".")
    return f"{shown} %"


def cny(amount: Any) -> str:
    """`120000.00` becomes `¥120,000.00`."""
    found = number(amount)
    return str(amount) if found is None else f"¥{found:,.2f}"


def usd(amount: Any) -> str:
    """`12000.00` becomes `US$12,000.00`."""
    found = number(amount)
    return str(amount) if found is None else f"US${found:,.2f}"


def number(value: Any) -> Decimal | None:
    """A finite number, or None."""
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        return None
    return found if found.is_finite() else None
