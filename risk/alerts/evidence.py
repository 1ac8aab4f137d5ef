"""What an officer judges, as one number: whoever decides names it, and is told of what has come since."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from config.base.fields import Damaged, canonical_json
from risk.alerts.models import HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import alert_score

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
        rows[hit.alert_id].append(_said(hit))  # type: ignore[attr-defined]
    return {alert.alert_id: _hash(alert.score, rows[alert.alert_id]) for alert in alerts}


def _said(hit: RiskAlertHit) -> str:
    return canonical_json([
        hit.rule_id, hit.rule_version, hit.evidence_key, hit.trade_id, hit.trade_version, hit.score,
        _stored(list(hit.subtypes), hit.subtypes), _stored(hit.figures, hit.figures),
    ])  # fmt: skip


def _stored(value: Any, read: Any) -> Any:
    """The value; of one that cannot be read its text, so that who judged without it hears when it is mended."""
    return read.text if isinstance(read, Damaged) else value


def _hash(score: int, said: Iterable[str]) -> str:
    return hashlib.sha256(canonical_json({"score": score, "hits": sorted(said)}).encode()).hexdigest()


def hits_since(alert: RiskAlert, version: int, seen_hash: str | None = None) -> list[dict[str, Any]]:
    """The live hits that an officer has not seen, at most MAX_NEW_HITS. No customer id is in it.

    seen_hash: of the evidence that was before the officer. What it does not hold is told too, however new `version`,
    which may have been read later. Where it is of no evidence that the alert ever had, those after `version`; where
    there are none, all that are live, for nobody can say which were seen. One query, of all the alert's hits where
    there is a hash.
    """
    hits = RiskAlertHit.objects.filter(alert_id=alert.alert_id, alert_version__isnull=False).order_by("id")
    if seen_hash is None:
        return _told(list(hits.filter(state=HitState.LIVE, alert_version__gt=version)[:MAX_NEW_HITS]))
    rows = list(hits)
    live = [row for row in rows if row.state == HitState.LIVE]
    seen = _seen_with(alert, rows, seen_hash)
    later = {row.pk for row in live if (row.alert_version or 0) > version}
    if seen is not None:
        return _told([row for row in live if row.pk not in seen or row.pk in later])
    return _told([row for row in live if row.pk in later] or live)


def _seen_with(alert: RiskAlert, rows: Sequence[RiskAlertHit], seen_hash: str) -> set[int] | None:
    """The hits that the alert had when its evidence had that hash, or None: the newest of its versions are tried.

    When a hit was withdrawn is not on it, so each version is tried with those that are gone by now and without.
    """
    versions = sorted({row.alert_version or 0 for row in rows})
    said = {row.pk: _said(row) for row in rows}
    score = 0
    tried: list[tuple[set[int], set[int]]] = []
    for version in versions:
        newest: dict[tuple[str, str], RiskAlertHit] = {}
        for row in rows:
            if (row.alert_version or 0) <= version:
                key = (row.rule_id, row.evidence_key)
                if key not in newest or newest[key].revision < row.revision:
                    newest[key] = row
        gone = {row.pk for row in newest.values() if row.state in (HitState.WITHDRAWN, HitState.CANCELLED)}
        score = max([score, *(row.score for row in newest.values())])
        counted = alert_score((row.rule_id, row.score) for row in newest.values())
        scores = {alert.score, score, counted}
        every = {row.pk for row in newest.values()}
        tried += [(every, scores), (every - gone, scores)]
    for pks, scores in reversed(tried[-2 * MAX_NEW_HITS :]):
        if any(_hash(one, [said[pk] for pk in pks]) == seen_hash for one in scores):
            return pks
    return None


def _told(hits: Sequence[RiskAlertHit]) -> list[dict[str, Any]]:
    return [
        {
            "hit_id": hit.pk,
            "rule_id": hit.rule_id,
            "trade_id": hit.trade_id,
            "score": hit.score,
            "subtypes": list(hit.subtypes),
        }
        for hit in hits[:MAX_NEW_HITS]
    ]
