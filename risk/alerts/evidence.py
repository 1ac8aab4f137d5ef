"""What an officer judges, as one number: whoever decides names it, and is told of what has come since."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from config.base.fields import canonical_json
from risk.alerts.models import HitState, RiskAlert, RiskAlertHit

MAX_NEW_HITS = 50  # that one answer lists


def evidence_hash(alert: RiskAlert) -> str:
    """SHA-256, in hex, over the alert's score and its live hits with their figures and rule versions.

    What came after the disposition is no part of it until the alert is reopened. One query; the order in which hits
    were found does not matter.
    """
    return evidence_hashes([alert])[alert.alert_id]


def evidence_hashes(alerts: Sequence[RiskAlert]) -> dict[str, str]:
    """The same of several alerts, by id. One query."""
    rows: dict[str, list[str]] = {alert.alert_id: [] for alert in alerts}
    hits = RiskAlertHit.objects.filter(alert_id__in=rows, state=HitState.LIVE, alert_version__isnull=False)
    for hit in hits.order_by():
        said = [
            hit.rule_id, hit.rule_version, hit.evidence_key, hit.trade_id, hit.trade_version, hit.score,
            list(hit.subtypes), hit.figures,
        ]  # fmt: skip
        rows[hit.alert_id].append(canonical_json(said))  # type: ignore[attr-defined]
    return {
        alert.alert_id: hashlib.sha256(
            canonical_json({"score": alert.score, "hits": sorted(rows[alert.alert_id])}).encode()
        ).hexdigest()
        for alert in alerts
    }


def hits_since(alert: RiskAlert, version: int) -> list[dict[str, Any]]:
    """The live hits that an officer who saw `version` has not seen, at most MAX_NEW_HITS. No customer id is in it."""
    hits = RiskAlertHit.objects.filter(alert_id=alert.alert_id, state=HitState.LIVE, alert_version__gt=version)
    return [
        {
            "hit_id": hit.pk,
            "rule_id": hit.rule_id,
            "trade_id": hit.trade_id,
            "score": hit.score,
            "subtypes": list(hit.subtypes),
        }
        for hit in hits.order_by("id")[:MAX_NEW_HITS]
    ]
