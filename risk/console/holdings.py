"""What the customer held at the close before the trade: a picture by class, and where it was concentrated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from memory.core.facts import ProductFact
from memory.profiles.snapshots.limits import ConcentrationLimits
from memory.profiles.snapshots.summary import Rows, summarise
from risk.console.corefacts import CoreFacts
from risk.console.customers.picture import Slice, class_word, slices_of

MOST_BARS = 3  # of each dimension, beside those of the alert's own products
DIMENSIONS = {
    "product": gettext_lazy("Product"),
    "issuer": gettext_lazy("Issuer"),
    "class": gettext_lazy("Asset class"),
}


@dataclass(frozen=True)
class Bar:
    """One product, issuer or class. share, limit: percent; limit: None where the rule has none. own: the alert's
    products are in it."""

    name: Any
    coded: bool  # the name is a code
    amount: Decimal
    share: Decimal
    limit: Decimal | None
    own: bool

    @property
    def over(self) -> bool:
        return self.limit is not None and self.share > self.limit

    @property
    def label(self) -> str:
        if self.limit is None:
            return _("%(share)s, no limit") % {"share": f"{self.share:.1f} %"}
        return _("%(share)s, the limit is %(limit)s") % {"share": f"{self.share:.1f} %", "limit": f"{self.limit:.0f} %"}

    @property
    def width(self) -> str:
        return f"{min(self.share, Decimal(100)):.1f}"

    @property
    def mark(self) -> str:
        return f"{self.limit:.1f}" if self.limit is not None else ""


@dataclass(frozen=True)
class HeldRow:
    product_id: str
    asset_class: Any
    risk_level: str
    amount: str
    percent: Decimal
    own: bool


@dataclass(frozen=True)
class Holdings:
    """total: CNY, cash with it. others: how many products are not listed, and what they are worth."""

    as_of: date
    total: Decimal
    slices: Sequence[Slice]
    held: Sequence[HeldRow]
    others: Mapping[str, Any]
    bars: Sequence[tuple[Any, Sequence[Bar]]]
    rule: str  # whose limits are shown: `RISK-002@3`; '' where it is off


def holdings_of(
    facts: CoreFacts, own: Collection[str], at: datetime, limits: ConcentrationLimits | None
) -> Holdings | None:
    """own: products of the alert. None where there is no snapshot by then. Pure."""
    if not facts.positions:
        return None
    found = {row.product_id: facts.product(row.product_id, at) for row in facts.positions}
    products = {product_id: product for product_id, product in found.items() if product is not None}
    # Of what was: the change since 30 days before is no evidence here.
    document = summarise(Rows(facts.positions, [], products, None, None), limits=None)
    total = Decimal(document["total"])
    return Holdings(
        as_of=facts.positions[0].as_of,
        total=total,
        slices=slices_of(document["by_class"]),
        held=[
            HeldRow(
                row["product_id"], class_word(row["asset_class"]), row["risk_level"] or "", row["amount"],
                Decimal(row["share"] or 0) * 100, row["product_id"] in own,
            )
            for row in document["by_product"]["top"]
        ],
        others=document["by_product"]["other"],
        bars=_bars(facts, products, own, total, limits),
        rule=limits.rule if limits is not None else "",
    )  # fmt: skip


def _bars(
    facts: CoreFacts,
    products: Mapping[str, ProductFact],
    own: Collection[str],
    total: Decimal,
    limits: ConcentrationLimits | None,
) -> list[tuple[Any, Sequence[Bar]]]:
    """By dimension, the largest first. Cash-like products are no concentration, and the lowest limit of a group counts,
    as the rule has it."""
    if total <= 0:
        return []
    sums: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    bounds: dict[tuple[str, str], Fraction] = {}
    ours: set[tuple[str, str]] = set()
    for row in facts.positions:
        product = products.get(row.product_id)
        if product is None or product.is_cash_like or not row.market_value or row.market_value <= 0:
            continue
        names = {"product": product.product_id, "issuer": product.issuer_id, "class": product.asset_class}
        bounded = limits.of(product) if limits is not None else {}
        for dimension, name in names.items():
            place = (dimension, name)
            sums[place] += row.market_value
            if row.product_id in own:
                ours.add(place)
            if dimension in bounded:
                bounds[place] = min(bounded[dimension], bounds.get(place, bounded[dimension]))
    found: list[tuple[Any, Sequence[Bar]]] = []
    for dimension, label in DIMENSIONS.items():
        ranked = sorted((-amount, place) for place, amount in sums.items() if place[0] == dimension)
        shown = [item for rank, item in enumerate(ranked) if rank < MOST_BARS or item[1] in ours]
        bars = [_bar(place, -amount, total, bounds.get(place), place in ours) for amount, place in shown if place[1]]
        if bars:
            found.append((label, bars))
    return found


def _bar(place: tuple[str, str], amount: Decimal, total: Decimal, limit: Fraction | None, own: bool) -> Bar:
    dimension, name = place
    bound = Decimal(limit.numerator) * 100 / Decimal(limit.denominator) if limit is not None else None
    return Bar(
        class_word(name) if dimension == "class" else name,
        dimension != "class",
        amount,
        amount * 100 / total,
        bound,
        own,
    )
