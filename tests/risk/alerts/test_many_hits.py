"""Very many findings of one alert: what settling costs grows with them, not with their square."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.query import ModelIterable

from risk.alerts import settlement
from risk.alerts.models import AlertAction, RiskAlert, RiskAlertHit
from risk.alerts.scoring import alert_score
from risk.alerts.tally import Tally
from risk.rules.hit import Hit
from tests.risk.alerts.people import DAY, live, make_hit, settle, the_alert

pytestmark = pytest.mark.django_db


def make_hits(many: int, *, score: int = 60) -> list[Hit]:
    at = [DAY + timedelta(seconds=n) for n in range(many)]
    return [make_hit(f"T{n}", at=moment, score=score + n % 3) for n, moment in enumerate(at)]


class Read:
    """How many hits were read, and how many a tally was told of."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.tallied = 0
        real_iter, real_change = ModelIterable.__iter__, Tally._change

        def each(query: Any) -> Any:
            for row in real_iter(query):
                self.rows += isinstance(row, RiskAlertHit)
                yield row

        def change(tally: Tally, row: RiskAlertHit, by: int) -> None:
            self.tallied += 1
            real_change(tally, row, by)

        monkeypatch.setattr(ModelIterable, "__iter__", each)
        monkeypatch.setattr(Tally, "_change", change)


@pytest.mark.parametrize("many", [60, 240])
def test_each_hit_is_read_and_counted_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(settlement, "SLICE", 10)
    read = Read(monkeypatch)
    settle(*make_hits(many))
    assert (the_alert().hit_count, len(live())) == (many, many)
    assert read.tallied <= many
    read.rows = read.tallied = 0
    settle(*make_hits(many, score=61))  # all are revised
    assert (the_alert().hit_count, the_alert().score) == (many, 69)
    assert read.rows <= 2 * many
    assert read.tallied <= 3 * many + 10
    read.rows = 0
    settle(*make_hits(many // 2, score=61))  # half of them are gone
    assert (the_alert().hit_count, read.rows <= 2 * many) == (many // 2, True)


def test_slices_end_as_one_transaction_would(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for size in (200, 7):
        monkeypatch.setattr(settlement, "SLICE", size)
        customer = f"C{size}"
        hits = [
            make_hit(f"{customer}-{n}", customer=customer, at=DAY + timedelta(hours=n), score=50 + n) for n in range(30)
        ]
        settle(*hits)
        settle(
            *[make_hit(hit.trade_id, customer=customer, at=hit.occurred_at, score=hit.score + 1) for hit in hits[:20]]
        )
        alert = RiskAlert.objects.get(customer_id=customer)
        rows = RiskAlertHit.objects.filter(alert=alert).order_by("id")
        acts = AlertAction.objects.filter(alert=alert).order_by("id").values_list("action", "alert_version")
        seen.append((
            alert.version, alert.score, alert.hit_count, alert.subtypes, alert.escalation_level,
            [(row.trade_id.partition("-")[2], row.revision, row.state, row.alert_version, row.score) for row in rows],
            sorted(acts),
        ))  # fmt: skip
    assert seen[0][:5] == seen[1][:5]
    assert sorted(seen[0][5]) == sorted(seen[1][5])
    assert seen[0][6] == seen[1][6]


def test_an_officer_between_two_slices_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "SLICE", 5)
    hits = make_hits(20)
    real = settlement.Settlement._change
    slices = []

    def change(self: Any, plan: Any) -> Any:
        if len(slices) == 2:
            RiskAlert.objects.update(status="in_review", merge_slot=None, version=the_alert().version + 1)
        slices.append(1)
        return real(self, plan)

    monkeypatch.setattr(settlement.Settlement, "_change", change)
    settle(*hits)
    assert len(slices) == 5  # one of them was lost, and made again from what then was there
    assert (the_alert().status, the_alert().hit_count, len(live())) == ("in_review", 20, 20)


def test_a_tally_says_what_the_hits_say() -> None:
    rows = [
        RiskAlertHit(rule_id=f"RISK-00{n % 3 + 1}", score=40 + 7 * n % 30, subtypes=[f"s{n % 4}"], figures={})
        for n in range(12)
    ]
    tally = Tally(rows)
    while rows:
        assert tally.score == alert_score((row.rule_id, row.score) for row in rows)
        assert (tally.hits, tally.highest) == (len(rows), max(row.score for row in rows))
        assert set(tally.subtypes) == {row.subtypes[0] for row in rows}
        tally.take(rows.pop(len(rows) // 2))
    assert (tally.score, tally.highest, tally.subtypes, dict(tally.rules)) == (0, 0, [], {})
