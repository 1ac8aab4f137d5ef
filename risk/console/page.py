"""Everything that the alert page shows, read in a fixed number of queries, with customers masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from config.base.clock import business_date
from config.base.clock import now as current_time
from config.base.pii import hidden
from memory.core.facts import AssessmentFact, CustomerFact
from memory.profiles.derived import age_on
from memory.profiles.snapshots.limits import concentration_limits
from risk.alerts.models import AlertLook, AlertType, HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.console.bar import Reason, reasons_of
from risk.console.conduct import RefusedAccess, refused_accesses
from risk.console.conversation import Talk, talks_of, traces_of
from risk.console.corefacts import core_facts
from risk.console.hitrows import HitRow, hit_rows
from risk.console.holdings import Holdings, holdings_of
from risk.console.layers import Layers, layers_of
from risk.console.related import EarlierRow, RelatedRow, earlier_alerts, related_alerts
from risk.console.sentences import Finding, findings_of
from risk.console.sight import Sight
from risk.console.subjects import masked_name, subject_of
from risk.console.timeline import Timeline, timeline_of
from risk.console.traderows import TradeRow, trade_rows
from risk.console.words import damage_words, subtype_words

__all__ = ["AlertPage", "alert_page", "masked_name", "subject_of"]

# An alert that went on for months has more than anybody reads: the newest are shown, and the page says so.
MAX_HITS = 100
MAX_ASSESSMENTS = 6


@dataclass(frozen=True)
class FindingRow:
    """number: from 1. trades: id and place on the page of each that it speaks of; '' for one that is not shown."""

    number: int
    finding: Finding
    trades: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class AlertPage:
    """core_away: the core system does not answer, so what comes from it is not known now. folded: how many older
    revisions stand behind newer ones."""

    alert: RiskAlert
    band: str
    words: str
    damage: str  # that something of it cannot be read
    subject: str  # the customer masked; of advisors' conduct, the advisor
    reasons: Sequence[Reason]
    proposed_text: str
    disposition_text: str
    findings: Sequence[Finding]
    why: Sequence[FindingRow]
    core_away: bool
    trades: Sequence[TradeRow]
    assessments: Sequence[tuple[AssessmentFact, bool]]  # the second: in force at the trade
    customer: CustomerFact | None
    customer_name: str
    customer_age: int | None
    advisors: Sequence[str]
    holdings: Holdings | None
    layers: Layers
    earlier: Sequence[EarlierRow]
    related: Sequence[RelatedRow]
    talks: Sequence[Talk]
    refused: Sequence[RefusedAccess]
    hits: Sequence[HitRow]
    folded: int
    more_hits: bool
    timeline: Timeline
    last_action: int  # the id of the newest act, for what comes after it
    happened_at: datetime

    @property
    def offending(self) -> list[TradeRow]:
        return [row for row in self.trades if row.offending]


def alert_page(alert: RiskAlert, sight: Sight, *, person: Any = None, clear: bool = False) -> AlertPage:
    """The page of one alert, which the caller has read and may show; of other alerts, what is in sight.

    person: who reads, for what is new to them. clear: what officers and risk wrote, and what was said, is shown as it
    stands; else without the ids, names, numbers and addresses of people in it.
    Cost: up to 35 queries, whatever there is of the alert; tests/query_counts.json has the figures of each kind.
    """
    tenant, customer_id = alert.tenant, alert.customer_id
    newest = list(RiskAlertHit.objects.filter(alert=alert).order_by("-occurred_at", "-id")[: MAX_HITS + 1])
    hits = newest[:MAX_HITS]
    counted = [hit for hit in hits if hit.state != HitState.SUPERSEDED]
    happened_at = max((hit.occurred_at for hit in counted), default=alert.opened_at)
    first_at = min((hit.occurred_at for hit in counted), default=happened_at)
    findings = findings_of(counted)
    offending = {hit.trade_id for hit in counted if hit.state != HitState.WITHDRAWN}
    named = {hit.trade_id for hit in counted if hit.trade_id} | {one for row in findings for one in row.trade_ids}
    facts = core_facts(alert, counted, named, happened_at)
    speak = _numbers(findings)
    trades = trade_rows(facts, offending, speak.of_trades)
    anchors = {row.trade.trade_id: row.anchor for row in trades}
    own = {row.trade.product_id for row in trades if row.offending} | {hit.product_id for hit in counted}
    customer, in_force = facts.customer(happened_at), facts.assessment(happened_at)
    written = _writer({customer_id, *(row.name or "" for row in facts.known_as)}, clear)
    look = AlertLook.objects.filter(alert=alert, person_id=person.pk).first() if person is not None else None
    rows = hit_rows(alert, hits, look, anchors, speak.of_hits)
    timeline = timeline_of(alert, written)
    cases = sight.cases and alert.alert_type != AlertType.DATA_QUALITY
    traces = traces_of(alert, counted) if cases else []
    held = bool(customer_id) and cases
    return AlertPage(
        alert=alert,
        band=band(alert.score),
        words=subtype_words(alert.subtypes),
        damage=damage_words(alert, *hits),
        subject=subject_of(alert),
        reasons=reasons_of(alert, timeline.actions, rows, written),
        proposed_text=written(alert.proposed_text),
        disposition_text=written(alert.disposition_text),
        findings=findings,
        why=[
            FindingRow(number, finding, [(one, anchors.get(one, "")) for one in finding.trade_ids])
            for number, finding in enumerate(findings, 1)
        ],
        core_away=facts.away,
        trades=trades,
        assessments=[(row, row is in_force) for row in facts.assessments[:MAX_ASSESSMENTS]],
        customer=customer,
        customer_name=masked_name(customer.name) if customer else "",
        customer_age=age_on(customer.birth_date, business_date(happened_at))
        if customer and customer.birth_date
        else None,
        advisors=facts.advisors,
        holdings=holdings_of(facts, own, happened_at, concentration_limits(tenant=tenant)) if held else None,
        layers=layers_of(alert, written, {customer_id}, current_time()) if held else Layers(),
        earlier=earlier_alerts(alert, sight, written),
        related=related_alerts(alert, counted, traces, sight),
        talks=talks_of(alert, traces, first_at, happened_at, written) if cases else [],
        refused=refused_accesses(alert, counted, traces) if cases else [],
        hits=rows,
        folded=sum(len(row.older) for row in rows),
        more_hits=len(newest) > MAX_HITS,
        timeline=timeline,
        last_action=max((action.pk for action in timeline.actions), default=0),
        happened_at=happened_at,
    )


@dataclass(frozen=True)
class _Numbers:
    of_trades: Mapping[str, Sequence[int]]
    of_hits: Mapping[int, Sequence[int]]


def _numbers(findings: Sequence[Finding]) -> _Numbers:
    """Which findings, by number, speak of a trade, and which are a hit's."""
    of_trades: dict[str, list[int]] = {}
    of_hits: dict[int, list[int]] = {}
    for number, finding in enumerate(findings, 1):
        of_hits.setdefault(finding.hit_id, []).append(number)
        for trade_id in finding.trade_ids:
            of_trades.setdefault(trade_id, []).append(number)
    return _Numbers(of_trades, of_hits)


def _writer(whose: set[str], clear: bool) -> Callable[[str], str]:
    return (lambda text: text) if clear else (lambda text: hidden(text, whose))
