"""What counts as concentrated is the rules' to say. Risk, which knows them, is asked; this room may not know risk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from memory.core.facts import ProductFact


@dataclass(frozen=True)
class ConcentrationLimits:
    """min_assets: CNY, below which nothing is judged. of: product -> dimension (product, issuer, class) -> the share
    above which a purchase of it would hit; a dimension that is absent has no limit. rule: id and version."""

    min_assets: int
    of: Callable[[ProductFact], Mapping[str, Fraction]]
    rule: str


LimitsResolver = Callable[[str], ConcentrationLimits | None]
_resolver: LimitsResolver | None = None


def register_concentration_limits(resolver: LimitsResolver) -> None:
    """Told at ready() by the room that knows: tenant -> the limits in force; None where the rule is off."""
    global _resolver
    _resolver = resolver


def concentration_limits(*, tenant: str) -> ConcentrationLimits | None:
    """Costs what the resolver costs: one SQL. Nobody to ask means that nothing is judged, and the snapshot says so."""
    return _resolver(tenant) if _resolver is not None else None
