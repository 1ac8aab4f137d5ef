"""RISK-005 and a second reading of it agree, on customers made to stand on its edges."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from risk.rules import risk_005
from risk.rules.facts import Facts
from tests.risk.rules.edges import churner
from tests.risk.rules.oracle_005 import churning


def found(seed: int) -> list[tuple[str, str, int, tuple[str, ...]]]:
    hits = risk_005.evaluate(Facts(churner(seed)), risk_005.Params(), 1)
    return [(hit.evidence_key, hit.trade_id, hit.score, hit.subtypes) for hit in hits]


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**40))
def test_two_readings_agree(seed: int) -> None:
    assert found(seed) == churning(churner(seed))


def test_the_made_up_customers_stand_on_both_sides() -> None:
    """Else the test above would compare nothing with nothing."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        hits = found(seed)
        seen["hits" if hits else "none"] += 1
        for _key, _trade, score, subtypes in hits:
            seen.update(subtypes)
            seen["both"] += len(subtypes) == 2
            seen["at the limit"] += score in (60, 40)
    assert all(seen[name] >= 8 for name in ("hits", "none", *("churning_turnover", "churning_cost"), "both")), seen
    assert seen["at the limit"], seen
