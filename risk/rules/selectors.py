"""Reads of what the rules have found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from risk.alerts.models import HitState, RiskAlertHit
from risk.rules.hit import DATA_QUALITY


def live_hits(*, tenant: str, data_quality: bool = False) -> Iterator[dict[str, Any]]:
    """The tenant's live hits by rule and evidence key (by bytes): rule, evidence_key, customer_id, trade_id, score,
    subtypes. Findings on missing facts only on request."""
    hits = RiskAlertHit.objects.filter(tenant=tenant, state=HitState.LIVE)
    if not data_quality:
        hits = hits.exclude(rule_id=DATA_QUALITY)
    names = ("rule_id", "evidence_key", "customer_id", "trade_id", "score", "subtypes")
    # Sorted here: each database has its own idea of the order of text.
    for row in sorted(hits.order_by().values_list(*names), key=lambda row: (row[0], row[1])):
        yield dict(zip(("rule", *names[1:]), row, strict=True))
