"""Money of budgets: `Decimal` with at most six places outside, whole numbers of the smallest unit in Redis.

Lua counts in doubles, which hold whole numbers exactly below 2^53: 9,007,199,254.740991 is the most that an amount, a
limit or a month's sum may be.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache

from config.base.errors import DomainError

PLACES = 6
UNITS_IN_ONE = 10**PLACES
MOST_UNITS = 2**53 - 1
_KINDS = (str, int, Decimal)
_TEXT = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?")


def to_units(amount: Decimal | int | str, *, name: str = "amount") -> int:
    """Whole units of 0.000001. Errors: INVALID_REQUEST for what is no such number: negative, NaN, a float (binary
    fractions are not what was meant), more than six places, 2^53 units and above."""
    if isinstance(amount, bool) or not isinstance(amount, _KINDS):
        raise DomainError("INVALID_REQUEST", f"{name} must be a decimal number, given as text or Decimal")
    # Decimal reads digits of every script, blanks and underscores, and a signalling NaN cannot be looked up.
    if (isinstance(amount, str) and not _TEXT.fullmatch(amount)) or (isinstance(amount, Decimal) and amount.is_nan()):
        raise DomainError("INVALID_REQUEST", f"{name} is not a decimal number")
    return _units(amount, name)


@lru_cache(maxsize=1024, typed=True)  # estimates are few, and the hot path reads one each call
def _units(amount: Decimal | int | str, name: str) -> int:
    try:
        value = Decimal(amount)
    except (InvalidOperation, ValueError):
        raise DomainError("INVALID_REQUEST", f"{name} is not a decimal number") from None
    if not value.is_finite() or value < 0 or value > MOST_UNITS // UNITS_IN_ONE + 1:
        raise DomainError("INVALID_REQUEST", f"{name} must be 0 to {from_units(MOST_UNITS)}")
    # A Fraction: Decimal's own arithmetic would round what has more digits than its context.
    scaled = Fraction(value) * UNITS_IN_ONE
    units = scaled.numerator
    if scaled.denominator != 1:
        raise DomainError("INVALID_REQUEST", f"{name} has more than {PLACES} decimal places")
    if units > MOST_UNITS:
        raise DomainError("INVALID_REQUEST", f"{name} must be 0 to {from_units(MOST_UNITS)}")
    return units


def from_units(units: int) -> Decimal:
    """The amount, with six places."""
    return Decimal(units).scaleb(-PLACES)
