"""What a snapshot says, from the core's rows alone: no clock, no database, the same rows give the same text.

Money is exact and a string, shares are of the total, as text with six decimals; both as the rules write them. A value
below 0 counts as 0 and is told, as the rules count it. Lists are bounded; what is left out is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

from config.base.clock import rfc3339
from memory.core.facts import AssessmentFact, CustomerFact, PositionFact, ProductFact
from memory.profiles import derived
from memory.profiles.snapshots.limits import ConcentrationLimits

SCHEMA_VERSION = 1
TOP_PRODUCTS = 10
LISTED = 20  # flags of a kind, ids of a kind of fault
CHANGE_DAYS = 30
UNKNOWN = "unknown"  # the class of a product that has none, or that the core does not know

Json = dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """positions: of the newest day. before: of the day at or before 30 days earlier. products: the rows in force."""

    positions: Sequence[PositionFact]
    before: Sequence[PositionFact]
    products: Mapping[str, ProductFact]
    assessment: AssessmentFact | None
    customer: CustomerFact | None


def money(value: Decimal) -> str:
    """The exact amount as plain text, at least two decimals."""
    with localcontext(Context(prec=200)):
        whole, _point, decimals = format(value.normalize(), "f").partition(".")
    return f"{whole}.{decimals.ljust(2, '0')}"


def ratio(part: Decimal, whole: Decimal, places: str = "0.000001") -> str | None:
    """None where there is no whole to be a part of."""
    if whole <= 0:
        return None
    with localcontext(Context(prec=120)):
        return format((part / whole).quantize(Decimal(places), ROUND_HALF_UP), "f")


def _worth(row: PositionFact) -> Decimal:
    # A core of somebody else's may leave out what ours requires.
    value: Decimal | None = row.market_value
    return max(value, Decimal(0)) if value is not None else Decimal(0)


def _sum(values: Iterable[Decimal]) -> Decimal:
    with localcontext(Context(prec=200)):
        return sum(values, Decimal(0))


def summarise(rows: Rows, *, limits: ConcentrationLimits | None) -> Json:
    """The document as it is kept and cached, less its ids and instant."""
    held = sorted(((row.product_id, _worth(row)) for row in rows.positions), key=lambda item: (-item[1], item[0]))
    total = _sum(value for _product, value in held)
    cash = _sum(value for product_id, value in held if _is_cash(rows.products.get(product_id)))
    return {
        "schema_version": SCHEMA_VERSION,
        "as_of": rows.positions[0].as_of.isoformat() if rows.positions else None,
        "currency": "CNY",
        "total": money(total),
        "by_class": _by_class(held, rows.products, total),
        "by_product": _by_product(held, rows.products, total),
        "top_share": _top(held, total),
        "cash_like": {"amount": money(cash), "share": ratio(cash, total)},
        "change_30d": _change(rows, total),
        "assessment": _assessment(rows),
        "suitability_flags": _above_tolerance(held, rows, total),
        "concentration_flags": _concentration(held, rows.products, total, limits),
        "data_quality": _quality(rows),
    }


def _is_cash(product: ProductFact | None) -> bool:
    return product is not None and bool(product.is_cash_like)


def _class(product: ProductFact | None) -> str:
    return (product.asset_class if product is not None else "") or UNKNOWN


def _by_class(held: Sequence[tuple[str, Decimal]], products: Mapping[str, ProductFact], total: Decimal) -> list[Json]:
    groups: dict[str, list[Decimal]] = defaultdict(list)
    for product_id, value in held:
        groups[_class(products.get(product_id))].append(value)
    sums = sorted(((_sum(values), name, len(values)) for name, values in groups.items()), key=lambda g: (-g[0], g[1]))
    return [
        {"asset_class": name, "amount": money(amount), "share": ratio(amount, total), "products": count}
        for amount, name, count in sums
    ]


def _by_product(held: Sequence[tuple[str, Decimal]], products: Mapping[str, ProductFact], total: Decimal) -> Json:
    rest = _sum(value for _product, value in held[TOP_PRODUCTS:])
    return {
        "count": len(held),
        "top": [_product_line(*item, products, total) for item in held[:TOP_PRODUCTS]],
        "other": {
            "count": max(0, len(held) - TOP_PRODUCTS),
            "amount": money(rest),
            "share": ratio(rest, total),
        },
    }


def _product_line(product_id: str, value: Decimal, products: Mapping[str, ProductFact], total: Decimal) -> Json:
    product = products.get(product_id)
    return {
        "product_id": product_id,
        "asset_class": _class(product),
        "risk_level": f"R{product.risk_level}" if product is not None else None,
        "is_cash_like": product.is_cash_like if product is not None else None,
        "amount": money(value),
        "share": ratio(value, total),
    }


def _top(held: Sequence[tuple[str, Decimal]], total: Decimal) -> Json | None:
    if not held or total <= 0:
        return None
    return {"product_id": held[0][0], "share": ratio(held[0][1], total)}


def _change(rows: Rows, total: Decimal) -> Json:
    """amount: today's total less the earlier one. pct: of the earlier one, in percent with two decimals."""
    if not rows.positions:
        return {"from": None, "amount": None, "pct": None, "reason": "no_positions"}
    if not rows.before:
        return {"from": None, "amount": None, "pct": None, "reason": "no_positions_30_days_before"}
    earlier = _sum(_worth(row) for row in rows.before)
    change = {"from": rows.before[0].as_of.isoformat(), "amount": money(_sum((total, -earlier)))}
    if earlier <= 0:
        return {**change, "pct": None, "reason": "nothing_held_30_days_before"}
    pct = ratio(_sum((total, -earlier)) * 100, earlier, "0.01")
    return {**change, "pct": pct, "reason": None}


def change_day(as_of: date) -> date:
    """The last day whose positions the change is counted from."""
    return as_of - timedelta(days=CHANGE_DAYS)


# --- flags ------------------------------------------------------------------------------------------------------


def _assessment(rows: Rows) -> Json:
    """What the reader judges by its own day; whether it has run out is never cached."""
    known = rows.assessment
    return {
        "c_level": f"C{known.c_level}" if known else None,
        "assessed_at": rfc3339(known.assessed_at) if known else None,
        "valid_until": derived.valid_until(known.assessed_at).isoformat() if known else None,
        "investor_type": (rows.customer.investor_type or None) if rows.customer else None,
    }


def _above_tolerance(held: Sequence[tuple[str, Decimal]], rows: Rows, total: Decimal) -> Json:
    """Products above the level last assessed, largest first. Professional investors are exempt; without an assessment
    nothing is matched, and an expired one is matched all the same (RISK-001). A position that was closed is none."""
    there = {row.product_id for row in rows.positions if _is_held(row)}
    exempt = rows.customer is not None and rows.customer.investor_type == "professional"
    known = None if exempt else rows.assessment
    over = [
        (product_id, value)
        for product_id, value in held
        if known is not None
        and product_id in there
        and product_id in rows.products
        and rows.products[product_id].risk_level > known.c_level
    ]
    lines = [
        {
            "code": "product_above_tolerance",
            **_product_line(*item, rows.products, total),
            "tolerance": f"C{known.c_level}",
        }
        for item in over[:LISTED]
        if known is not None
    ]
    return {"count": len(over), "amount": money(_sum(value for _product, value in over)), "flags": lines}


def _concentration(
    held: Sequence[tuple[str, Decimal]],
    products: Mapping[str, ProductFact],
    total: Decimal,
    limits: ConcentrationLimits | None,
) -> Json:
    """Where a purchase of what is held already would be over the rule's limit as it stands, largest share first."""
    if limits is None:
        return {"rule": None, "count": 0, "flags": []}
    known = [(products[product_id], value) for product_id, value in held if product_id in products]
    known = [(product, value) for product, value in known if not product.is_cash_like and value > 0]
    sums: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
    bounds: dict[tuple[str, str], Fraction] = {}
    for product, value in known:
        names = {"product": product.product_id, "issuer": product.issuer_id, "class": product.asset_class}
        for dimension, name in names.items():
            sums[dimension, name].append(value)
        for dimension, limit in limits.of(product).items():
            place = (dimension, names[dimension])
            bounds[place] = min(limit, bounds.get(place, limit))
    flags = []
    for (dimension, name), limit in bounds.items():
        amount = _sum(sums[dimension, name])
        if total >= limits.min_assets and Fraction(amount) > limit * Fraction(total):
            share, bound = ratio(amount, total), ratio(Decimal(limit.numerator), Decimal(limit.denominator))
            flags.append({"code": "concentration", "dimension": dimension, "id": name, "share": share, "limit": bound})
    flags.sort(key=lambda flag: (-Decimal(flag["share"] or 0), str(flag["dimension"]), str(flag["id"])))
    return {"rule": limits.rule, "count": len(flags), "flags": flags[:LISTED]}


def _quality(rows: Rows) -> Json:
    """What keeps the figures from being whole; ids by bytes, the first of each kind."""
    ids = [row.product_id for row in rows.positions]
    return {
        "no_positions": not rows.positions,
        "unknown_products": _some(name for name in ids if name not in rows.products),
        "products_without_class": _some(
            name for name in ids if name in rows.products and not rows.products[name].asset_class
        ),
        "positions_without_value": _some(row.product_id for row in rows.positions if _no_value(row)),
        "negative_positions": _some(
            row.product_id for row in rows.positions if row.market_value is not None and row.market_value < 0
        ),
    }


def _no_value(row: PositionFact) -> bool:
    value: Decimal | None = row.market_value
    return value is None or (value == 0 and bool(row.quantity))


def _is_held(row: PositionFact) -> bool:
    """Whether anything is held by this row: a value, or where there is none a quantity. What is not known counts."""
    value: Decimal | None = row.market_value
    if value:
        return value > 0
    return value is None if row.quantity is None else row.quantity > 0


def _some(ids: Iterable[str]) -> Json:
    found = sorted(set(ids))
    return {"count": len(found), "ids": found[:LISTED]}
