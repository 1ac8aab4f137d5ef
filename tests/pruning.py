"""Pruning as of another day: what is made now is over in 21 years."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from config import retention_registry
from config.base.clock import now
from config.pruning import Pruned, prune

IN_21_YEARS = timedelta(days=21 * 366)


def prune_table(*names: str, at: datetime | None = None, **options: Any) -> Pruned:
    """Of one table (by default as of 21 years from now) what came of it."""
    rules = [rule for rule in retention_registry.load() if rule.name in names]
    assert len(rules) == len(names)
    return prune(rules, at=at or now() + IN_21_YEARS, **options)[0]
