"""The planted cases of RISK-005 and RISK-006: what they state is what the rules find, on whatever day they play."""

from __future__ import annotations

from datetime import date

import pytest

from memory.core.demo import cases_005, cases_006
from memory.core.demo.stage import Planted, Stage
from memory.core.demo.world import World
from risk.rules.engine import default_rules, evaluate
from tests.risk.rules.test_demo import Demo, facts_of


@pytest.mark.parametrize(
    ("seed", "end", "days"),
    [(1, "2026-11-29", 365), (2, "2026-03-01", 365), (3, "2028-02-29", 200), (4, "2027-01-02", 90)],
)
def test_the_planted_trading_is_found_all_and_only_that(seed: int, end: str, days: int) -> None:
    planted = Planted()
    world = World(seed=seed, advisors=3, days=days, end=date.fromisoformat(end))
    for times, case in (*cases_005.CASES, *cases_006.CASES):
        for _ in range(times):
            stage = Stage(world, planted)
            case(stage)
            stage.finish()
    hits = [hit for rows in facts_of(Demo(world.tables, planted)) for hit in evaluate(rows, default_rules()).hits]
    found = {(h.rule_id, h.evidence_key): (h.trade_id, h.score, list(h.subtypes)) for h in hits}
    assert found == {
        (v["rule"], v["evidence_key"]): (v["trade_id"], v["score"], v["subtypes"]) for v in planted.violations
    }  # fmt: skip
    assert not {row["trade_id"] for row in planted.silent} & {v["trade_id"] for v in planted.violations}
