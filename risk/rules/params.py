"""Parameters of rules: frozen dataclasses with the specification's figures as defaults, overridden per tenant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeVar

from config.base.errors import DomainError
from risk.rules.figures import DECIMALS, out_of_bounds, out_of_order, rule_of, text_of

Params = TypeVar("Params")

# No exponent: Fraction("1e999999999") would be calculated, digit by digit.
_DECIMAL = re.compile(rf"-?[0-9]{{1,12}}(\.[0-9]{{1,{DECIMALS}}})?", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,12}", re.ASCII)


def build(kind: type[Params], overrides: Mapping[str, Any]) -> Params:
    """The parameters with `overrides` in place of their defaults. Numbers may be JSON numbers or decimal strings.

    Errors: INVALID_REQUEST for a name that the rule does not have, a value of another kind or out of its bounds, or
    figures that contradict each other; `fields` tells for each name what is wrong with it.
    """
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    rule_id = rule_of(kind)
    values: dict[str, Any] = {}
    wrong: dict[str, str] = {}
    for name, value in overrides.items():
        if name not in known:
            wrong[str(name)[:64]] = f"does not exist; use {', '.join(sorted(known))}"
            continue
        default = known[name].default
        is_whole = isinstance(default, int)
        number = None if isinstance(default, bool) else _number(value, is_whole)
        if number is None:
            kind_of = "a whole number" if is_whole else f"a decimal of at most {DECIMALS} places"
            wrong[name] = f"cannot be {_short(value)}; it is {kind_of}"
        elif why := out_of_bounds(rule_id, name, number):
            wrong[name] = f"cannot be {_short(value)}; {why}"
        else:
            values[name] = number
    if not wrong:
        made = kind(**values)
        contradiction = out_of_order(rule_id, {name: getattr(made, name) for name in known})
        if contradiction is None:
            return made
        name, why = contradiction
        wrong[name] = f"cannot be {text_of(getattr(made, name))}; {why}"
    told = "; ".join(f"parameter {name} {why}" for name, why in wrong.items())
    raise DomainError("INVALID_REQUEST", told[:1000], fields=wrong)


def _number(value: Any, is_whole: bool) -> int | Fraction | None:
    """The number that is meant, None where it is of another kind. Spaces around it are a typist's."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        # of an int with a million digits not even the text is made
        return (value if is_whole else Fraction(value)) if abs(value) < 10**12 else None
    text = value.strip() if isinstance(value, str) else repr(value)
    if is_whole:
        return int(text) if isinstance(value, str) and _WHOLE.fullmatch(text) else None
    return Fraction(text) if _DECIMAL.fullmatch(text) else None


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**12:
        return "so large a number"
    return repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:37]}..."


def figures_of(params: Any) -> dict[str, int | str]:
    """All of them as a version stores them: integers, and decimals as text."""
    found = {}
    for field in fields(params):
        value = getattr(params, field.name)
        found[field.name] = value if isinstance(value, int) else text_of(value)
    return found
