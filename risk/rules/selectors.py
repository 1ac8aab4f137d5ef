"""Reads of what the rules have found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from config.base.fields import Damaged
from risk.alerts.models import HitState, RiskAlertHit
from risk.rules.hit import DATA_QUALITY

_GONE = tuple(state.value for state in HitState if state != HitState.LIVE)


def live_hits(*, tenant: str, data_quality: bool = False) -> tuple[Iterator[dict[str, Any]], int]:
    """The tenant's live hits by rule and evidence key (by bytes): rule, evidence_key, customer_id, trade_id, score,
    subtypes. Findings on missing facts only on request. And how many rows were left out, for nobody can read what they
    say, or whether they are live. One query."""
    hits = RiskAlertHit.objects.filter(tenant=tenant).exclude(state__in=_GONE)
    if not data_quality:
        hits = hits.exclude(rule_id=DATA_QUALITY)
    names = ("rule_id", "evidence_key", "customer_id", "trade_id", "score", "subtypes")
    # Sorted here: each database has its own idea of the order of text.
    rows = sorted(hits.order_by().values_list(*names, "state"), key=lambda row: (row[0], row[1]))
    sound = [row for row in rows if row[-1] == HitState.LIVE and not isinstance(row[-2], Damaged)]
    told = (dict(zip(("rule", *names[1:]), row[:-1], strict=True)) for row in sound)
    return told, len(rows) - len(sound)
