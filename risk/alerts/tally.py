"""What the live hits of one alert come to, kept up to date hit by hit: an alert may have very many of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from risk.alerts.models import RiskAlertHit
from risk.alerts.scoring import score_of

T = TypeVar("T")


class Tally:
    """hits: how many. Its names are in the order in which they were first found.

    Cost of a hit that comes or goes: that of its own subtypes, and of the rules, scores, subtypes and patterns that
    there are, not of the hits.
    """

    def __init__(self, rows: Iterable[RiskAlertHit] = ()) -> None:
        self.hits = 0
        self._scores: dict[str, Counter[int]] = defaultdict(Counter)  # by rule
        self._subtypes: Counter[str] = Counter()
        self._patterns: Counter[str] = Counter()
        for row in rows:
            self.add(row)

    def add(self, row: RiskAlertHit) -> None:
        self._change(row, 1)

    def take(self, row: RiskAlertHit) -> None:
        """A hit that was added is no longer live."""
        self._change(row, -1)

    def _change(self, row: RiskAlertHit, by: int) -> None:
        self.hits += by
        _count(self._scores[row.rule_id], row.score, by)
        if not self._scores[row.rule_id]:
            del self._scores[row.rule_id]
        for subtype in row.subtypes:
            _count(self._subtypes, subtype, by)
        _count(self._patterns, pattern_of(row.figures), by)

    @property
    def score(self) -> int:
        """As `scoring.alert_score` of the hits."""
        best = {rule_id: max(scores) for rule_id, scores in self._scores.items()}
        return score_of(best, repeats=self.hits - len(best))

    @property
    def highest(self) -> int:
        """The score of the highest hit, 0 without any."""
        return max((max(scores) for scores in self._scores.values()), default=0)

    @property
    def rules(self) -> Counter[str]:
        """How many hits of each rule."""
        return Counter({rule_id: scores.total() for rule_id, scores in self._scores.items()})

    @property
    def subtypes(self) -> list[str]:
        return list(self._subtypes)

    @property
    def patterns(self) -> list[str]:
        return list(self._patterns)


def _count(counter: Counter[T], key: T, by: int) -> None:
    counter[key] += by
    if counter[key] <= 0:
        del counter[key]


def pattern_of(figures: Mapping[str, Any]) -> str:
    """Which pattern of conduct a RISK-008 finding is."""
    return str(figures.get("pattern", ""))
