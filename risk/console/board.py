"""The figures of the overview: open alerts by level, age, due and score, what the rules found and what became of it.

Each figure is that of a list of the queue, to which it leads. What is open is counted by index up to a limit; what is
past comes from tallies (tallies.py). What everybody of a tenant sees is kept for KEPT_SECONDS in each process, and read
by one request at a time; what is one's own is read each time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Q, QuerySet

from config.base.clock import now
from risk.alerts.models import AlertStatus, AlertType, EscalationLevel, RiskAlert, Shelf
from risk.console import tallies
from risk.console.counting import BANDS, numbers_of
from risk.console.filters import DUES
from risk.console.queue import BACK, COUNT_LIMIT, Person, age_of, due_in
from risk.console.sets import may_hold, sets_of
from risk.console.sight import Sight
from risk.console.words import RULES

KEPT_SECONDS = 5.0
CELL_LIMIT = 10_000  # of a level and an age: counted in the index alone
LEVELS = {"LEVEL_2": EscalationLevel.LEVEL_2, "LEVEL_1": EscalationLevel.LEVEL_1, "none": EscalationLevel.NONE}
PIECES = ("1d", "1-7d", "7-30d", "30d+")  # of AGES: each alert lies in one of them
JUDGED_RULES = tuple(rule for rule in RULES if rule.startswith("RISK-"))


@dataclass(frozen=True)
class Board:
    """counts: by (name, part), one more than the limit where there are more. at: when it was read."""

    counts: dict[tuple[str, str], int]
    figures: tallies.Figures
    at: datetime

    def of(self, name: str, part: str = "") -> int:
        return self.counts[name, part]


def open_alerts(tenant: str, kind: AlertType = AlertType.EVENT) -> QuerySet[RiskAlert]:
    return RiskAlert.objects.filter(tenant=tenant, alert_type=kind, shelf=Shelf.OPEN)


def board_of(*, tenant: str) -> Board:
    """5 queries, none where it was read less than KEPT_SECONDS ago."""
    return _kept(tenant, lambda: _read(tenant))


def _read(tenant: str) -> Board:
    at = now()
    customers = open_alerts(tenant)
    parts: dict[tuple[str, str], QuerySet[RiskAlert]] = {
        ("tile", "due"): customers.filter(due_in("2h")),
        ("tile", "unassigned"): customers.filter(assignee=None),
        ("tile", "conduct"): open_alerts(tenant, AlertType.PATTERN),
        ("tile", "reports"): open_alerts(tenant, AlertType.REPORT),
    }
    limits: dict[tuple[str, str], int] = {}
    for name, (low, high, _label) in BANDS.items():
        parts["band", name] = customers.filter(score__range=(low, high))
    for name in DUES:
        parts["due", name] = customers.filter(due_in(name))
    for level, value in LEVELS.items():
        for age in PIECES:
            parts[level, age] = customers.filter(age_of(age, in_queue=False), escalation_level=value)
            limits[level, age] = CELL_LIMIT
    sets = sets_of(customers, "rule_set")
    for one in sets or []:
        parts["set", one] = customers.filter(rule_set=one)
    counts = numbers_of(parts, limits)
    for rule in JUDGED_RULES:
        counts["rule", rule] = _open_of_rule(rule, sets, counts)
    return Board(counts, tallies.figures(tenant=tenant, at=at), at)


def _open_of_rule(rule: str, sets: list[str] | None, counts: dict[tuple[str, str], int]) -> int:
    kind = tallies.KIND_OF_RULE.get(rule)
    if kind is not None:
        return counts["tile", "reports" if kind == AlertType.REPORT else "conduct"]
    if sets is None:  # more sets than are looked through one by one
        return COUNT_LIMIT + 1
    return min(COUNT_LIMIT + 1, sum(counts["set", one] for one in sets if may_hold(one, rule)))


# --- what is one's own ------------------------------------------------------------------------------------------------


def own_counts(*, tenant: str, user: Person, sight: Sight) -> dict[str, int]:
    """Of the workbench. Officers: what is theirs; who looks on: what is anybody's. 1 query."""
    customers = open_alerts(tenant)
    waiting = RiskAlert.objects.filter(tenant=tenant, status=AlertStatus.ESCALATED)
    waiting = waiting.filter(alert_type__in=(AlertType.EVENT, AlertType.PATTERN, AlertType.REPORT))
    mine = Q(assignee_id=user.pk) if sight.acts else Q()
    parts = {
        "review": waiting.exclude(proposed_by_id=user.pk) if sight.acts else waiting,
        "returned": customers.filter(mine, woken_by__in=BACK["returned"]),
        "woken": customers.filter(mine, woken_by__in=BACK["woken"]),
    }
    if sight.acts:
        parts["mine"] = customers.filter(mine)
    return numbers_of(parts)


# --- by rule and by disposition ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RuleLine:
    """opened: in 30 days; outcomes: of those disposed of in 30 days, by status; false of judged: the rate's parts."""

    rule: str
    opened: int
    outcomes: dict[str, int]
    false: int
    judged: int

    @property
    def rate(self) -> int | None:
        """Percent of what was judged that was a false positive; None where nothing was."""
        return (100 * self.false + self.judged // 2) // self.judged if self.judged else None


OUTCOMES = (AlertStatus.CONFIRMED, AlertStatus.FALSE_POSITIVE, AlertStatus.CLOSED)


def rule_lines(figures: tallies.Figures) -> list[RuleLine]:
    """Each rule over its own kind of alert, as the queue's filter has it."""
    lines = []
    for rule in JUDGED_RULES:
        kind = tallies.KIND_OF_RULE.get(rule, AlertType.EVENT)
        opened = sum(n for (of, rules), n in figures.opened.items() if of == kind and may_hold(rules, rule))
        mine: Counter[tallies.Disposed] = Counter(
            {key: n for key, n in figures.disposed.items() if key[0] == kind and may_hold(key[4], rule)}
        )
        outcomes = {status.value: sum(n for key, n in mine.items() if key[1] == status) for status in OUTCOMES}
        false, violations = tallies.judged(mine)
        lines.append(RuleLine(rule, opened, outcomes, false, false + violations))
    return lines


def code_lines(figures: tallies.Figures) -> list[tuple[str, str, int]]:
    """(status, code, how many) of customers' alerts that were disposed of in 30 days; no code: ''."""
    found: Counter[tuple[str, str]] = Counter()
    for (kind, status, code, _violation, _rules), count in figures.disposed.items():
        if kind == AlertType.EVENT:
            found[status, code] += count
    order = {status.value: place for place, status in enumerate(OUTCOMES)}
    return [(*key, n) for key, n in sorted(found.items(), key=lambda one: (order.get(one[0][0], 9), -one[1]))]


# --- kept for some seconds --------------------------------------------------------------------------------------------

_boards: dict[tuple[str, str], tuple[float, Board]] = {}
_reading: dict[tuple[str, str], threading.Lock] = {}
_guard = threading.Lock()


def _kept(tenant: str, read: Callable[[], Board]) -> Board:
    key = (settings.REDIS_KEY_PREFIX, tenant)
    with _guard:
        lock = _reading.setdefault(key, threading.Lock())
    with lock:
        kept = _boards.get(key)
        if kept is None or time.monotonic() - kept[0] > KEPT_SECONDS:
            kept = _boards[key] = (time.monotonic(), read())
        return kept[1]


def forget() -> None:
    """For tests that change what is counted."""
    _boards.clear()
