"""RISK-007 written down a second time, from the specification's words alone: loops over everything, one trade at a
time, plain local datetimes, nothing of the rule's own code. Slow on purpose."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise

from memory.core.facts import CustomerRows, ProductFact, TradeFact

LOCAL = timezone(timedelta(hours=8))  # Shanghai has had no other offset since 1991

Verdict = dict[str, tuple[str, int, tuple[str, ...]]]


def verdict(rows: CustomerRows) -> Verdict:
    """Evidence key to (trade id, score, subtypes)."""
    found: Verdict = {}
    live = _live(rows)
    for trade in live:
        if trade.trade_type not in ("buy", "switch_in"):
            continue
        key = f"{trade.trade_id}@{trade.version}"
        if trade.plan_id:
            key = f"{trade.customer_id}:{trade.plan_id}:{_clock(trade.traded_at).strftime('%Y-%m')}"
        if key in found:
            continue
        parts = _parts(rows, live, trade)
        if parts:
            total = max(points for _name, points in parts) + 5 * (len(parts) - 1)
            found[key] = (trade.trade_id, min(total, 100), tuple(name for name, _points in parts))
    return found


def _live(rows: CustomerRows) -> list[TradeFact]:
    live = []
    for trade in rows.trades:
        if any(other.trade_id == trade.trade_id and other.version > trade.version for other in rows.trades):
            continue
        if trade.status != "executed" or trade.customer_id != rows.customer_id or trade.fx_cny is None:
            continue
        if trade.price is None and trade.trade_type in ("buy", "sell", "switch_in", "switch_out"):
            continue
        if _product(rows, trade.product_id, trade.traded_at) is None:
            continue
        if not [row for row in rows.customers if row.valid_from <= trade.traded_at]:
            continue
        live.append(trade)
    return sorted(live, key=lambda trade: (trade.traded_at, trade.trade_id.encode()))


def _parts(rows: CustomerRows, live: list[TradeFact], trade: TradeFact) -> list[tuple[str, int]]:
    customer = max((row for row in rows.customers if row.valid_from <= trade.traded_at), key=lambda r: r.valid_from)
    product = _product(rows, trade.product_id, trade.traded_at)
    assert product is not None
    if customer.investor_type == "professional":
        return []
    recorded, disclosed = trade.dual_recording_id != "", trade.risk_disclosure_id != ""
    parts = []

    old = _birthdays(customer.birth_date, _clock(trade.traded_at).date()) if customer.birth_date else 0
    if customer.kind == "natural" and old >= 65 and (product.risk_level >= 4 or product.is_complex):
        if recorded and disclosed:
            parts.append(("elderly_high_risk", 30))
        else:
            parts.append(("elderly_high_risk", 60 + 10 * (old >= 75) + 10 * (not recorded)))

    if product.is_complex and not any(
        earlier.trade_type in ("buy", "switch_in") and _complex(rows, earlier) for earlier in live[: live.index(trade)]
    ):
        if recorded and disclosed:
            parts.append(("first_complex", 30))
        else:
            whole = _assets(rows, live, trade)
            large = whole is not None and whole > 0 and 5 * _cny(trade) >= whole
            parts.append(("first_complex", 45 + 10 * (not recorded) + 10 * large))

    history = sorted((row.assessed_at, row.c_level) for row in rows.assessments)
    for (_then, before), (now, after) in pairwise(history):
        age = trade.traded_at - now
        if after > before and timedelta(0) <= age <= timedelta(days=7) and product.risk_level > before:
            parts.append(("assessment_upgraded", 70))
            break

    for made, _level in history:
        age = trade.traded_at - made
        if timedelta(0) <= age <= timedelta(days=7) and _one_too_many(made, [when for when, _ in history]):
            parts.append(("assessment_shopping", 80))
            break
    return parts


def _one_too_many(made: datetime, history: list[datetime]) -> bool:
    local = _clock(made)
    same_day = [when for when in history if _clock(when).date() == local.date() and when <= made]
    try:
        since = local.replace(year=local.year - 1)
    except ValueError:  # 29 Feb
        since = local.replace(year=local.year - 1, day=28)
    year = [when for when in history if since <= _clock(when) <= local]
    return len(same_day) > 2 or len(year) > 8


def _birthdays(born: date, today: date) -> int:
    """How many birthdays there have been, counted one by one."""
    count = 0
    for year in range(born.year + 1, today.year + 1):
        try:
            birthday = date(year, born.month, born.day)
        except ValueError:
            birthday = date(year, 3, 1)
        count += birthday <= today
    return count


def _product(rows: CustomerRows, product_id: str, moment: datetime) -> ProductFact | None:
    known = [row for row in rows.products if row.product_id == product_id and row.valid_from <= moment]
    return max(known, key=lambda row: row.valid_from) if known else None


def _complex(rows: CustomerRows, trade: TradeFact) -> bool:
    product = _product(rows, trade.product_id, trade.traded_at)
    return bool(product and product.is_complex)


def _assets(rows: CustomerRows, live: list[TradeFact], trade: TradeFact) -> Fraction | None:
    today = _clock(trade.traded_at).date()
    days = [row.as_of for row in rows.positions if row.as_of < today]
    if not days:
        return None
    held = {row.product_id: max(Fraction(0), Fraction(row.market_value))
            for row in rows.positions if row.as_of == max(days)}  # fmt: skip
    for earlier in live[: live.index(trade)]:
        if _clock(earlier.traded_at).date() <= max(days):
            continue
        before = held.get(earlier.product_id, Fraction(0))
        if earlier.trade_type in ("buy", "switch_in", "transfer_in"):
            held[earlier.product_id] = before + _cny(earlier)
        elif earlier.trade_type in ("sell", "switch_out", "transfer_out"):
            held[earlier.product_id] = max(Fraction(0), before - _cny(earlier))
    cash = other = Fraction(0)
    for product_id, value in held.items():
        product = _product(rows, product_id, trade.traded_at)
        if product and product.is_cash_like:
            cash += value
        else:
            other += value
    return other + _cny(trade) + max(Fraction(0), cash - _cny(trade))


def _cny(trade: TradeFact) -> Fraction:
    assert trade.fx_cny is not None
    return Fraction(trade.amount) * Fraction(trade.fx_cny)


def _clock(moment: datetime) -> datetime:
    return moment.astimezone(LOCAL)
