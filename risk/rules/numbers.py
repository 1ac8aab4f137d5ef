"""Numbers of the rules: scores, and exact figures as text."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction

# Amounts are whole numbers of 1/TICK CNY: amount and rate have 20 decimals each at most, so their product is whole.
# Sums and comparisons of whole numbers are exact as those of fractions are, and twenty times as fast.
TICK = 10**40
_UNIT = 10**20
_WIDE = Context(prec=200)


def units(value: Decimal) -> int:
    """The number in 1/10^20. One with more decimals, which no column of ours holds, is as exact, only slower."""
    scaled = value.scaleb(20, _WIDE)
    whole = int(scaled)
    if whole != scaled:
        return Fraction(value) * _UNIT  # type: ignore[return-value]  # adds up and compares as a whole number does
    return whole


def ticks(value: Decimal, rate: Decimal | None = None) -> int:
    """The number, or its product with a rate, in 1/TICK."""
    return units(value) * (_UNIT if rate is None else rate_units(rate))


def rate_units(rate: Decimal) -> int:
    """`units` of a rate: most are 1, that of CNY."""
    return _UNIT if rate == 1 else units(rate)


def most_in_all(amounts: Iterable[tuple[Decimal | None, Decimal | None]]) -> int:
    """What amounts, each with its rate, cannot exceed when they are added up: 1/TICK CNY, at least 0.

    All that is above 0 at the highest of the rates: a fraction of the cost of the sum, for whoever asks only whether
    a sum may be large.
    """
    total, highest = Decimal(0), Decimal(0)
    with localcontext(_WIDE):
        for amount, rate in amounts:
            if amount and rate is not None and amount > 0:
                total += amount
                if rate > highest:
                    highest = rate
    return units(total) * units(highest)


def exact(count: int) -> Fraction:
    """Ticks as a number."""
    return Fraction(count, TICK)


def score(points: Fraction | int) -> int:
    """A whole number 0 to 100, half up; the only rounding there is."""
    # floor(x + 1/2) on exact fractions: no float, no banker's rounding.
    return int(min(max((Fraction(points) + Fraction(1, 2)).__floor__(), 0), 100))


def money(value: Fraction) -> str:
    """The exact amount as plain text, at least two decimals; sums and products of decimals always end."""
    with localcontext(Context(prec=200)):
        number = Decimal(value.numerator) / Decimal(value.denominator)
        text = format(number.normalize(), "f")
    whole, _point, decimals = text.partition(".")
    return f"{whole}.{decimals.ljust(2, '0')}"


def cents(value: Fraction) -> str:
    """An amount that need not end, as a mean, half up to two decimals, for people; its sum stands beside it."""
    return money(Fraction((value * 100 + Fraction(1, 2)).__floor__(), 100))


def ratio(value: Fraction) -> str:
    """A share or ratio as text with six decimals, for people; the exact figures stand beside it."""
    with localcontext(Context(prec=60)):
        number = Decimal(value.numerator) / Decimal(value.denominator)
        return format(number.quantize(Decimal("0.000001"), ROUND_HALF_UP), "f")
