"""The planted cases of RISK-003 and RISK-004: what they state is what the rules find, on whatever day they play."""

from __future__ import annotations

from datetime import date

import pytest

from memory.core.demo import cases_003, cases_004
from memory.core.demo.cases import Planted, Stage
from memory.core.demo.world import World
from risk.rules.engine import default_rules, evaluate
from risk.rules.hit import DATA_QUALITY
from tests.risk.rules.test_demo import Demo, facts_of


@pytest.mark.parametrize(
    ("seed", "end", "days"),
    [(1, "2026-11-29", 365), (2, "2026-03-01", 365), (3, "2028-02-29", 200), (4, "2027-01-02", 90)],
)
def test_the_planted_flows_are_found_all_and_only_those(seed: int, end: str, days: int) -> None:
    planted = Planted()
    world = World(seed=seed, advisors=3, days=days, end=date.fromisoformat(end))
    for times, case in (*cases_003.CASES, *cases_004.CASES):
        for _ in range(times):
            stage = Stage(world, planted)
            case(stage)
            stage.finish()
    hits = [hit for rows in facts_of(Demo(world.tables, planted)) for hit in evaluate(rows, default_rules()).hits]
    found = {(h.rule_id, h.evidence_key): (h.score, list(h.subtypes)) for h in hits if h.rule_id != DATA_QUALITY}
    assert found == {
        (v["rule"], v["evidence_key"]): (v["score"], v["subtypes"]) for v in planted.violations
    }  # fmt: skip
    quality = {h.trade_id: list(h.subtypes) for h in hits if h.rule_id == DATA_QUALITY}
    assert quality == {row["trade_id"]: row["missing"] for row in planted.data_quality}
    touched = {row["trade_id"] for row in planted.silent} & {v["trade_id"] for v in planted.violations}
    assert not touched
