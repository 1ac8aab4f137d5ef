"""What each figure of the rules is called, in what it is counted, and between what it may lie.

The bounds keep a slip of the finger (40 for 0.4, 5 for 50,000) and what no rule can calculate with (a share of 1 that
is divided by what is left of it) out of a version; they are wide, for what is sensible is the managers' to say.
A parameter that a rule's `Params` gains needs a line here (tests/risk/rules/test_figures.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy as _in

DECIMALS = 6  # that a share or a multiple may have


@dataclass(frozen=True)
class Unit:
    """In what a figure is counted; low and high are the least and the most, both allowed."""

    words: Promise | str
    low: Decimal
    high: Decimal


def _unit(words: Promise | str, low: str | int, high: str | int) -> Unit:
    return Unit(words, Decimal(low), Decimal(high))


POINTS = _unit(_in("unit", "points"), 0, 100)
CNY = _unit("CNY", 1, 10**9)
USD = _unit("USD", 1, 10**9)
SHARE = _unit(_in("unit", "share, 0 to 1"), "0.000001", 1)
# RISK-002 divides by what is left above the limit.
LIMIT = _unit(_in("unit", "share, below 1"), "0.01", "0.99")
DAYS = _unit(_in("unit", "days"), 1, 3660)
FEW_DAYS = _unit(_in("unit", "days"), 1, 31)
MONTHS = _unit(_in("unit", "months"), 1, 120)
HOURS = _unit(_in("unit", "hours"), 1, 720)
FEW_HOURS = _unit(_in("unit", "hours"), 1, 168)
MINUTES = _unit(_in("unit", "minutes"), 1, 1440)
SECONDS = _unit(_in("unit", "seconds"), 0, 3600)
COUNT = _unit(_in("unit", "how many"), 1, 1000)
LEVEL = _unit(_in("unit", "level R"), 1, 5)
AGE = _unit(_in("unit", "years of age"), 18, 120)
HOUR = _unit(_in("unit", "hour of the day"), 0, 24)
TIMES = _unit(_in("unit", "times"), "0.01", 1000)
SLOPE = _unit(_in("unit", "points each"), 0, 1000)


@dataclass(frozen=True)
class Figure:
    """One parameter of a rule, for people."""

    label: Promise
    unit: Unit


_LIMITS: dict[str, Figure] = {
    "cash_cny": Figure(_("Cash, in CNY"), CNY),
    "cash_usd": Figure(_("Cash, foreign currency"), USD),
    "entity_cny": Figure(_("Entities, in CNY"), CNY),
    "entity_usd": Figure(_("Entities, foreign currency"), USD),
    "domestic_cny": Figure(_("Natural persons, domestic, in CNY"), CNY),
    "domestic_usd": Figure(_("Natural persons, domestic, foreign currency"), USD),
    "cross_border_cny": Figure(_("Natural persons, cross-border, in CNY"), CNY),
    "cross_border_usd": Figure(_("Natural persons, cross-border, foreign currency"), USD),
}
_FURTHER = Figure(_("For each further subtype"), POINTS)

FIGURES: dict[str, dict[str, Figure]] = {
    "RISK-001": {
        "mismatch_base": Figure(_("Product above the tolerance"), POINTS),
        "mismatch_per_level": Figure(_("For each level above"), POINTS),
        "solicited_extra": Figure(_("More if solicited"), POINTS),
        "lowest": Figure(_("Sale to the lowest risk class"), POINTS),
        "confirmed": Figure(_("Warned and confirmed in writing"), POINTS),
        "missing": Figure(_("No risk assessment"), POINTS),
        "expired": Figure(_("Risk assessment expired"), POINTS),
        "validity_months": Figure(_("An assessment is valid for"), MONTHS),
        "further_part": _FURTHER,
    },
    "RISK-002": {
        "min_assets": Figure(_("Judged from these assets on"), CNY),
        "product_limit": Figure(_("Limit for one product"), LIMIT),
        "product_limit_r2": Figure(_("Limit for one product, R2"), LIMIT),
        "issuer_limit": Figure(_("Limit for one issuer"), LIMIT),
        "issuer_limit_r2": Figure(_("Limit for one issuer, R2"), LIMIT),
        "class_limit": Figure(_("Limit for one asset class"), LIMIT),
        "base": Figure(_("At the limit"), POINTS),
        "slope": Figure(_("More, from the limit to all in one"), POINTS),
        "high_risk_level": Figure(_("High risk from level"), LEVEL),
        "high_risk_extra": Figure(_("More if high risk"), POINTS),
    },
    "RISK-003": {
        **_LIMITS,
        "domestic_points": Figure(_("Domestic"), POINTS),
        "other_points": Figure(_("Cash and cross-border"), POINTS),
    },
    "RISK-004": {
        **_LIMITS,
        "near": Figure(_("Just under the limit: from this share of it on"), SHARE),
        "at_least": Figure(_("Trades just under the limit, at least"), COUNT),
        "window_hours": Figure(_("Within"), HOURS),
        "base": Figure(_("For the first so many trades"), POINTS),
        "per_further": Figure(_("For each further trade"), POINTS),
        "cap": Figure(_("At most, before cash"), POINTS),
        "cash_extra": Figure(_("More if in cash"), POINTS),
    },
    "RISK-005": {
        "window_days": Figure(_("Looked back upon"), DAYS),
        "min_age_days": Figure(_("Accounts from this age on"), DAYS),
        "min_equity": Figure(_("Mean equity, at least"), CNY),
        "min_buys": Figure(_("Purchases, at least"), COUNT),
        "turnover_limit": Figure(_("Turnover a year, from"), TIMES),
        "cost_limit": Figure(_("Cost a year, from this share of the equity on"), SHARE),
        "base": Figure(_("At the limit"), POINTS),
        "turnover_slope": Figure(_("For each further turn"), SLOPE),
        "cost_slope": Figure(_("For cost of the whole equity more"), SLOPE),
        "cap": Figure(_("At most, each part"), POINTS),
        "further_part": _FURTHER,
        "unsolicited_discount": Figure(_("Less if mostly unsolicited"), POINTS),
        "solicited_share": Figure(_("Mostly unsolicited: solicited less than"), SHARE),
    },
    "RISK-006": {
        "dormant_days": Figure(_("Dormant after"), DAYS),
        "dormant_amount": Figure(_("Dormant account: from this amount on"), CNY),
        "dormant_points": Figure(_("Dormant account reactivated"), POINTS),
        "fast_days": Figure(_("Fast in and out: sold within"), DAYS),
        "fast_share": Figure(_("Fast in and out: share of a lot"), SHARE),
        "fast_amount": Figure(_("Fast in and out: from this amount on"), CNY),
        "fast_points": Figure(_("Fast in and out"), POINTS),
        "size_days": Figure(_("Unusual size: compared over"), DAYS),
        "size_trades": Figure(_("Unusual size: earlier trades, at least"), COUNT),
        "size_times": Figure(_("Unusual size: so many times the median"), TIMES),
        "size_amount": Figure(_("Unusual size: from this amount on"), CNY),
        "size_points": Figure(_("Unusual size"), POINTS),
        "odd_until_hour": Figure(_("Unusual hour: before"), HOUR),
        "odd_trades": Figure(_("Unusual hour: earlier trades, at least"), COUNT),
        "odd_share": Figure(_("Unusual hour: at most this share of them then"), SHARE),
        "odd_points": Figure(_("Unusual hour"), POINTS),
        "cap": Figure(_("At most, the sum"), POINTS),
        "hit_from": Figure(_("A hit from"), POINTS),
    },
    "RISK-007": {
        "elderly_age": Figure(_("Elderly from"), AGE),
        "high_risk_level": Figure(_("High risk from level"), LEVEL),
        "elderly_base": Figure(_("Elderly customer, high risk"), POINTS),
        "old_age": Figure(_("Very old from"), AGE),
        "old_extra": Figure(_("More if very old"), POINTS),
        "elderly_unrecorded": Figure(_("Elderly: more without dual recording"), POINTS),
        "complex_base": Figure(_("First complex product"), POINTS),
        "complex_unrecorded": Figure(_("First complex product: more without dual recording"), POINTS),
        "complex_share": Figure(_("First complex product: a large share from"), SHARE),
        "complex_share_extra": Figure(_("First complex product: more if a large share"), POINTS),
        "papers": Figure(_("Recorded and disclosed"), POINTS),
        "upgraded": Figure(_("Risk class raised shortly before"), POINTS),
        "upgraded_days": Figure(_("Shortly before: within"), DAYS),
        "shopping": Figure(_("Repeated assessments"), POINTS),
        "shopping_days": Figure(_("Repeated assessments: bought within"), DAYS),
        "max_in_day": Figure(_("Assessments allowed in a day"), COUNT),
        "max_in_months": Figure(_("Assessments allowed in so many months"), COUNT),
        "shopping_months": Figure(_("Those months"), MONTHS),
        "further_part": _FURTHER,
    },
    "RISK-008": {
        "score": Figure(_("Any pattern"), POINTS),
        "repeat_seconds": Figure(_("The same refusal counts once within"), SECONDS),
        "probing_refusals": Figure(_("Probing: refusals, at least"), COUNT),
        "probing_targets": Figure(_("Probing: targets, at least"), COUNT),
        "probing_minutes": Figure(_("Probing: within"), MINUTES),
        "trade_hours": Figure(_("Probe then trade: within"), FEW_HOURS),
        "product_refusals": Figure(_("Probe then trade: refusals naming the product, at least"), COUNT),
        "burst_events": Figure(_("Off-hours burst: events, at least"), COUNT),
        "burst_minutes": Figure(_("Off-hours burst: within"), MINUTES),
        "opens_hour": Figure(_("Working time begins"), HOUR),
        "closes_hour": Figure(_("Working time ends"), HOUR),
        "push_level": Figure(_("Product push: from level"), LEVEL),
        "push_customers": Figure(_("Product push: customers, at least"), COUNT),
        "push_days": Figure(_("Product push: within"), FEW_DAYS),
        "push_share": Figure(_("Product push: from this share of own requests on"), SHARE),
    },
}

# Pairs that only make sense in this order. strictly: equal is not in order.
_ORDERED: dict[str, tuple[tuple[str, str, bool], ...]] = {
    "RISK-004": (("base", "cap", False),),
    "RISK-005": (("base", "cap", False), ("min_age_days", "window_days", False)),
    "RISK-006": (("hit_from", "cap", False),),
    "RISK-007": (("elderly_age", "old_age", False),),
    "RISK-008": (("opens_hour", "closes_hour", True), ("probing_targets", "probing_refusals", False)),
}


def rule_of(kind: type[Any]) -> str:
    """The rule whose file declares this class of parameters; '' for a class of nobody's."""
    name = kind.__module__.rpartition(".")[2].upper().replace("_", "-")
    return name if name in FIGURES else ""


def out_of_bounds(rule_id: str, name: str, value: int | Fraction) -> str:
    """Why a figure cannot have this value, or ''. English: errors are for machines, and the page says the bounds."""
    figure = FIGURES.get(rule_id, {}).get(name)
    if figure is None:
        return ""
    low, high = figure.unit.low, figure.unit.high
    return "" if Fraction(low) <= value <= Fraction(high) else f"it lies between {low:f} and {high:f}"


def out_of_order(rule_id: str, values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first pair whose figures contradict each other: the name to blame and why."""
    for low, high, strictly in _ORDERED.get(rule_id, ()):
        if values[low] > values[high] or (strictly and values[low] == values[high]):
            return low, f"it lies {'below' if strictly else 'not above'} {high}, which is {text_of(values[high])}"
    return None


def text_of(value: int | Fraction) -> str:
    """A figure as it is stored and typed: an integer, or a decimal without zeros at its end."""
    if isinstance(value, int):
        return str(value)
    text = f"{Decimal(value.numerator) / Decimal(value.denominator):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
