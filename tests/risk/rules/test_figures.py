"""Every figure of every rule has a name, a unit and bounds that its own default respects."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import pytest

from risk.rules.figures import FIGURES, out_of_bounds, out_of_order, rule_of, text_of
from risk.rules.params import build, figures_of
from risk.rules.ruling import ALL_MODULES


@pytest.mark.parametrize("rule_id", sorted(ALL_MODULES))
def test_each_has_a_line_and_lies_within_it(rule_id: str) -> None:
    kind = ALL_MODULES[rule_id].Params
    assert rule_of(kind) == rule_id
    assert [field.name for field in fields(kind)] == list(FIGURES[rule_id])
    defaults = kind()
    for field in fields(kind):
        value = getattr(defaults, field.name)
        assert out_of_bounds(rule_id, field.name, value) == "", field.name
        assert str(FIGURES[rule_id][field.name].label)
    assert out_of_order(rule_id, {field.name: getattr(defaults, field.name) for field in fields(kind)}) is None
    assert build(kind, figures_of(defaults)) == defaults, "what a version stores is what the rule calculates with"
    assert build(kind, {name: str(value) for name, value in figures_of(defaults).items()}) == defaults


def test_figures_as_text() -> None:
    assert [text_of(one) for one in (7, Fraction(6), Fraction(2, 5), Fraction(1, 10**6), Fraction(100))] == [
        "7", "6", "0.4", "0.000001", "100",
    ]  # fmt: skip
