"""An alert's score and band, from its live hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

FURTHER_RULE = 5  # points for each further rule ...
FURTHER_RULE_FROM = 40  # ... that scores at least so much
REPEAT = 2  # points for each further finding of a rule that is there already ...
REPEAT_CAP = 6  # ... and at most so many
CAP = 100

# RISK.md 2: low < 40, medium 40-59, high 60-79, critical >= 80.
MEDIUM_FROM = 40
_BANDS = ((80, "critical"), (60, "high"), (MEDIUM_FROM, "medium"), (0, "low"))


def band(score: int) -> str:
    """`low`, `medium`, `high` or `critical`."""
    return next(name for floor, name in _BANDS if score >= floor)


def alert_score(hits: Iterable[tuple[str, int]]) -> int:
    """0 to 100, from `(rule_id, score)` of every live hit: the highest, +5 for each further rule that scores at
    least 40, +2 for each repeat (at most 6), at most 100. No hits: 0."""
    best: dict[str, int] = {}
    repeats = 0
    for rule_id, score in hits:
        if rule_id in best:
            repeats += 1
        best[rule_id] = max(best.get(rule_id, 0), score)
    return score_of(best, repeats=repeats)


def score_of(best: Mapping[str, int], *, repeats: int) -> int:
    """The same from the highest score of each rule, and how many findings there are beyond one of each."""
    if not best:
        return 0
    ranked = sorted(best.values(), reverse=True)
    further = sum(1 for score in ranked[1:] if score >= FURTHER_RULE_FROM)
    return min(CAP, ranked[0] + FURTHER_RULE * further + min(REPEAT_CAP, REPEAT * repeats))
