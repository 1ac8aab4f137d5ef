"""What the database says about admission, as each process knows it: limits, blocks and pauses, at most 5 s old.

Blocks and pauses are in Redis too, so that they count at once; this copy is what keeps them in force when Redis has
lost them. With the database away the last copy goes on; without any, admission is closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Count, Max, Q

from config.base.clock import now
from guard.admission.amounts import to_units
from guard.admission.models import ActorBlock, AdmissionLimit, AgentPause, BudgetMonth, LimitKind

logger = logging.getLogger(__name__)

# A copy is renewed when it is older than this, so that with the query it is never older than 5 s.
FRESH_SECONDS = 4.0
# How long a thread waits for another that reads the first copy of this process.
FIRST_SECONDS = 1.0
OFF = -1  # no limit

Rule = tuple[str, str, str, int]  # agent, actor, action ('' each: any), value in whole units


@dataclass(frozen=True, slots=True)
class Policy:
    """generation: differs whenever what decides does. rules: by (tenant, kind), the most specific first. untold:
    (tenant, month) that Redis has not been told of."""

    generation: int
    read_at: float
    limits_mark: tuple[int, int]
    rules: dict[tuple[str, str], tuple[Rule, ...]] = field(default_factory=dict)
    blocked: frozenset[tuple[str, str]] = frozenset()
    paused: frozenset[tuple[str, str]] = frozenset()
    untold: frozenset[tuple[str, str]] = frozenset()

    def limit(self, kind: str, *, tenant: str, agent: str, actor_id: str, action: str) -> int:
        """The limit that counts: whole calls, or units of money for the budget; OFF where there is none.

        Most specific wins: the actor before the agent, the agent before the action; then the setting's default.
        """
        for for_agent, for_actor, for_action, value in self.rules.get((tenant, kind), ()):
            if for_agent in ("", agent) and for_actor in ("", actor_id) and for_action in ("", action):
                return value
        return default_limit(kind)


def default_limit(kind: str) -> int:
    """What the settings say where no row does."""
    if kind == LimitKind.BUDGET:
        return to_units(settings.ADMISSION_BUDGET_PER_MONTH) if settings.ADMISSION_BUDGET_PER_MONTH else OFF
    return int(settings.ADMISSION_LIMITS[kind])


def _rules(rows: Iterable[Any]) -> dict[tuple[str, str], tuple[Rule, ...]]:
    found: dict[tuple[str, str], list[Rule]] = {}
    for tenant, kind, agent, actor_id, action, value in rows:
        units = OFF if value is None else to_units(value) if kind == LimitKind.BUDGET else int(value)
        found.setdefault((tenant, kind), []).append((agent, actor_id, action, units))
    order = {place: sorted(rules, key=_specific, reverse=True) for place, rules in found.items()}
    return {place: tuple(rules) for place, rules in order.items()}


def _specific(rule: Rule) -> tuple[bool, bool, bool]:
    return bool(rule[1]), bool(rule[0]), bool(rule[2])


_policy: Policy | None = None
_reading = threading.Lock()
_generation = 0
_forgotten = 0  # raised by every forget: what was read before is not kept after it


def forget_policy() -> None:
    """The next call of this process reads the database."""
    global _policy, _forgotten
    _forgotten += 1
    _policy = None


def forget_policy_on_commit() -> None:
    transaction.on_commit(forget_policy)
    forget_policy()


def policy() -> Policy:
    """The copy, renewed when it is older than FRESH_SECONDS. Cost: no query, or 4 (5 when a limit has changed).

    A database that hangs costs one thread its time-out each FRESH_SECONDS, and the others nothing.
    Errors: OperationalError or InterfaceError where the database is away and this process has no copy yet.
    """
    found = _policy
    if found is not None and time.monotonic() - found.read_at < FRESH_SECONDS:
        return found
    if not _reading.acquire(timeout=0 if found is not None else FIRST_SECONDS):
        # Another thread asks. If the database hangs it waits for all: the others go on with what is known.
        if found is not None:
            return found
        raise OperationalError("limits, blocks and pauses are being read")
    try:
        found = _policy
        if found is not None and time.monotonic() - found.read_at < FRESH_SECONDS:
            return found
        return _renew(found)
    finally:
        _reading.release()


def _renew(old: Policy | None) -> Policy:
    global _policy, _generation
    forgotten, began = _forgotten, time.monotonic()
    try:
        fresh = _read(old, began)
    except (OperationalError, InterfaceError) as error:
        if old is None:
            raise
        # Open with what is known: the next look is in FRESH_SECONDS.
        logger.warning("limits, blocks and pauses cannot be read (%s): those known go on", type(error).__name__)
        fresh = replace(old, read_at=time.monotonic())
    if forgotten == _forgotten:
        _policy = fresh
    return fresh


def _read(old: Policy | None, began: float) -> Policy:
    global _generation
    seen = AdmissionLimit.objects.aggregate(rows=Count("pk"), newest=Max("pk"))
    mark = (int(seen["rows"]), int(seen["newest"] or 0))
    if old is not None and old.limits_mark == mark:
        rules = old.rules
    else:
        rows = AdmissionLimit.objects.filter(current=1, retired=False).order_by()
        rules = _rules(rows.values_list("tenant", "kind", "agent", "actor_id", "action", "value"))
    blocks = ActorBlock.objects.filter(open=1, expires_at__gt=now()).order_by()
    blocked = frozenset(blocks.values_list("tenant", "actor_id"))
    pauses = AgentPause.objects.filter(Q(expires_at=None) | Q(expires_at__gt=now()), open=1).order_by()
    paused = frozenset(pauses.values_list("tenant", "agent"))
    if old is not None and (rules, blocked, paused) == (old.rules, old.blocked, old.paused):
        generation = old.generation
    else:
        _generation += 1
        generation = _generation
    untold = frozenset(BudgetMonth.objects.filter(untold_at__isnull=False).order_by().values_list("tenant", "month"))
    return Policy(generation, began, mark, rules, blocked, paused, untold)
