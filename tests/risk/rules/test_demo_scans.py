"""The demo's planted violations through the scanner: in bulk, again, and one trade at a time, in order or late."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import date

import pytest

from memory.core.demo import Demo, generate
from memory.core.demo.world import Cells
from memory.core.importer import import_tables
from risk.alerts.models import AlertOutbox, HitState, RiskAlert, RiskAlertHit
from risk.rules.evaluating import evaluate_trade
from risk.rules.hit import DATA_QUALITY
from risk.rules.services import scan
from tests.risk.rules.test_demo import Found, planted

pytestmark = pytest.mark.django_db


def a_short_story() -> Demo:
    """Some of every rule's cases, and as many quiet people."""
    return generate(customers=110, advisors=4, seed=11, days=90, end=date(2026, 11, 29))


def live() -> Found:
    hits = RiskAlertHit.objects.filter(state=HitState.LIVE).exclude(rule_id=DATA_QUALITY)
    rows = list(hits.values_list("rule_id", "evidence_key", "trade_id", "score", "subtypes"))
    assert len({row[:2] for row in rows}) == len(rows)
    return {(rule, key): (trade, score, subtypes) for rule, key, trade, score, subtypes in rows}


def test_in_bulk_and_again_just_the_planted_violations_are_live() -> None:
    demo = a_short_story()
    import_tables(tenant="default", tables=demo.tables)
    scan()
    assert live() == planted(demo)
    assert {rule for rule, _key in live()} == {f"RISK-00{number}" for number in range(1, 8)}
    before = (RiskAlertHit.objects.count(), RiskAlert.objects.count(), AlertOutbox.objects.count())
    again = scan(everything=True)
    assert (again.customers > 100, again.failed) == (True, [])
    assert live() == planted(demo)
    assert (RiskAlertHit.objects.count(), RiskAlert.objects.count(), AlertOutbox.objects.count()) == before


@pytest.mark.parametrize("order", ["as they were made", "late"])
def test_one_trade_at_a_time_ends_with_the_same(order: str) -> None:
    """Each scan finds one more trade of each customer. `late`: the next might be any that the story holds, so that
    windows fill up backwards, a plan's first purchase arrives last, and a correction comes before what it corrects."""
    demo = a_short_story()
    tables = dict(demo.tables)
    waiting: dict[str, list[Cells]] = defaultdict(list)
    for row in tables.pop("trades.csv"):
        waiting[row["customer_id"]].append(row)
    if order == "late":
        for rows in waiting.values():
            random.Random(1).shuffle(rows)
    import_tables(tenant="default", tables=tables)
    while waiting:
        turn = [rows.pop(0) for rows in waiting.values()]
        waiting = defaultdict(list, {customer: rows for customer, rows in waiting.items() if rows})
        import_tables(tenant="default", tables={"trades.csv": turn})
        assert scan().failed == []
    assert live() == planted(demo)


@pytest.mark.parametrize("order", ["in order", "at random"])
def test_trades_evaluated_one_by_one_end_with_the_same(order: str) -> None:
    """No scan at all: some trade of each customer is evaluated now, then others, which change nothing more."""
    demo = a_short_story()
    import_tables(tenant="default", tables=demo.tables)
    ids = list(dict.fromkeys(row["trade_id"] for row in demo.tables["trades.csv"]))
    if order == "at random":
        random.Random(3).shuffle(ids)
    of = {row["trade_id"]: row["customer_id"] for row in demo.tables["trades.csv"]}
    first = list({of[trade_id]: trade_id for trade_id in ids}.values())
    for trade_id in first:
        evaluate_trade(tenant="default", trade_id=trade_id)
    assert live() == planted(demo)
    for trade_id in ids[:60]:
        assert not evaluate_trade(tenant="default", trade_id=trade_id).changed.changed
