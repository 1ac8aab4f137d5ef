"""Parameters of rules: frozen dataclasses with the specification's figures as defaults, overridden per tenant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any, TypeVar

from config.base.errors import DomainError

Params = TypeVar("Params")


def build(kind: type[Params], overrides: Mapping[str, Any]) -> Params:
    """The parameters with `overrides` in place of their defaults. Numbers may be JSON numbers or decimal strings.

    Errors: INVALID_REQUEST for a name that the rule does not have, or a value of another kind.
    """
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in known:
            raise DomainError("INVALID_REQUEST", f"parameter {name!r} does not exist; use {', '.join(sorted(known))}")
        default = known[name].default
        try:
            if isinstance(default, bool) or isinstance(value, bool):
                raise ValueError
            if isinstance(default, int):
                if not isinstance(value, int):
                    raise ValueError
                values[name] = value
            else:
                values[name] = Fraction(str(value))
        except (ValueError, ZeroDivisionError):
            raise DomainError("INVALID_REQUEST", f"parameter {name} cannot be {value!r}") from None
    return kind(**values)
