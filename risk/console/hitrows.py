"""The hits of an alert's page: the newest revision of each finding, older ones folded, new ones marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext

from guard.access.masking import mask
from risk.alerts.damage import is_damaged
from risk.alerts.models import AlertLook, HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.console.conduct import PATTERNS
from risk.console.words import RULES, subtype_words


@dataclass(frozen=True)
class HitRow:
    """new: it has come since the reader looked. older: earlier revisions of the same finding, newest first. trade: the
    place of its trade on the page. findings: numbers of its sentences."""

    hit: RiskAlertHit
    rule: Any
    words: str
    evidence: str
    band: str
    new: bool
    older: Sequence[RiskAlertHit]
    trade: str
    findings: Sequence[int]


def hit_rows(
    alert: RiskAlert,
    hits: Sequence[RiskAlertHit],
    look: AlertLook | None,
    anchors: Mapping[str, str],
    findings: Mapping[int, Sequence[int]],
) -> list[HitRow]:
    """hits: newest first. look: the reader's last, None where they never looked: then nothing is news. anchors: places
    of trades by id. findings: numbers of sentences by hit."""
    newest: dict[tuple[str, str], list[RiskAlertHit]] = {}
    for hit in sorted(hits, key=lambda hit: -hit.revision):
        newest.setdefault((hit.rule_id, hit.evidence_key), []).append(hit)
    older = {revisions[0].pk: revisions[1:] for revisions in newest.values()}
    return [
        HitRow(
            hit,
            RULES.get(hit.rule_id, hit.rule_id),
            words_of(hit),
            hit.evidence_key.replace(alert.customer_id, mask(alert.customer_id))
            if alert.customer_id
            else hit.evidence_key,
            band(hit.score),
            _is_new(hit, look),
            older[hit.pk],
            anchors.get(hit.trade_id, ""),
            findings.get(hit.pk, ()),
        )
        for hit in hits
        if hit.pk in older
    ]


def words_of(hit: RiskAlertHit) -> str:
    """The pattern of an advisor's conduct, the subtypes of anything else."""
    if is_damaged(hit):
        return gettext("what is stored of it cannot be read")
    pattern = PATTERNS.get(str(hit.figures.get("pattern"))) if isinstance(hit.figures, dict) else None
    return str(pattern) if pattern else subtype_words(hit.subtypes)


def _is_new(hit: RiskAlertHit, look: AlertLook | None) -> bool:
    """As `risk.alerts.looking.new_hits` counts them for the queue."""
    if look is None or hit.state != HitState.LIVE:
        return False
    if hit.alert_version is None:  # what came after a disposition raises no version
        return hit.detected_at > look.at
    return hit.alert_version > look.version
