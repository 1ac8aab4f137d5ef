"""Everything that the alert page shows, read in a fixed number of queries, with customers masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext_lazy as _

from config.base.clock import business_date
from config.base.pii import hidden
from guard.access.masking import mask
from memory.core import selectors as core
from memory.core.facts import AssessmentFact, CustomerFact, ProductFact
from memory.core.models import Channel, CorePosition, CoreTrade, InvestorType, TradeType
from memory.profiles.derived import age_on
from risk.alerts.models import AlertAction, AlertType, HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import band
from risk.console.conduct import PATTERNS, RefusedAccess, refused_accesses
from risk.console.profile import ProfileLine, profile_lines
from risk.console.sentences import Finding, findings_of
from risk.console.sight import Sight, alerts_of
from risk.console.words import ACTIONS, RULES, subtype_words

# An alert that went on for months has more than anybody reads: the newest are shown, and the page says so.
MAX_HITS = 100
MAX_ACTIONS = 200
MAX_TRADES = 40
MAX_EARLIER = 10
BEFORE, AFTER = timedelta(days=30), timedelta(days=7)


@dataclass(frozen=True)
class Paper:
    """paper_id: '' where there is none; due: whether the law asked for it at that trade."""

    name: Any
    paper_id: str
    due: bool


@dataclass(frozen=True)
class TradeRow:
    trade: CoreTrade
    product: ProductFact | None
    offending: bool
    dead: bool
    mismatched: bool  # bought above the tolerance that was assessed then, by an ordinary investor

    @property
    def papers(self) -> list[Paper]:
        """In the order an officer asks for them. Due at a mismatch alone; the recording in a branch (RISK.md 2)."""
        branch = self.trade.channel == Channel.BRANCH
        return [
            Paper(_("dual recording"), self.trade.dual_recording_id, self.mismatched and branch),
            Paper(_("risk disclosure"), self.trade.risk_disclosure_id, self.mismatched),
            Paper(_("mismatch confirmation"), self.trade.mismatch_confirm_id, self.mismatched),
        ]


@dataclass(frozen=True)
class PositionRow:
    product_id: str
    product: ProductFact | None
    market_value: Decimal
    share: Decimal  # of everything held, in percent


@dataclass(frozen=True)
class HitRow:
    hit: RiskAlertHit
    rule: Any
    words: str
    evidence: str
    band: str


@dataclass(frozen=True)
class ActionRow:
    action: AlertAction
    words: Any
    text: str


@dataclass(frozen=True)
class EarlierRow:
    alert: RiskAlert
    words: str
    band: str


@dataclass(frozen=True)
class AlertPage:
    alert: RiskAlert
    band: str
    words: str
    subject: str  # the customer masked; of advisors' conduct, the advisor
    proposed_text: str
    disposition_text: str
    findings: Sequence[Finding]
    trades: Sequence[TradeRow]
    assessments: Sequence[tuple[AssessmentFact, bool]]  # the second: in force at the trade
    customer: CustomerFact | None
    customer_name: str
    customer_age: int | None
    advisors: Sequence[str]
    positions: Sequence[PositionRow]
    positions_as_of: date | None
    positions_total: Decimal
    profile: Sequence[ProfileLine]
    earlier: Sequence[EarlierRow]
    refused: Sequence[RefusedAccess]  # of advisors' conduct
    hits: Sequence[HitRow]
    more_hits: bool
    timeline: Sequence[ActionRow]
    happened_at: datetime


def masked_name(name: str) -> str:
    """`王小明` becomes `王**`: the family name and as many stars as it takes to hide the rest."""
    return name[:1] + "**" if name else ""


def alert_page(alert: RiskAlert, sight: Sight, *, clear: bool = False) -> AlertPage:
    """The page of one alert, which the caller has read and may show; of other alerts, what is in sight.

    clear: what officers and risk wrote is shown as it stands; else without the ids, names, numbers and addresses of
    people in it.
    """
    tenant, customer_id = alert.tenant, alert.customer_id
    newest_hits = list(RiskAlertHit.objects.filter(alert=alert).order_by("-occurred_at", "-id")[: MAX_HITS + 1])
    hits = newest_hits[:MAX_HITS]
    counted = [hit for hit in hits if hit.state != HitState.SUPERSEDED]
    happened_at = max((hit.occurred_at for hit in counted), default=alert.opened_at)
    trades = _trades(tenant, customer_id, counted, happened_at)
    as_of, held = _positions(tenant, customer_id, business_date(happened_at))
    product_ids = {trade.product_id for trade in trades} | {row.product_id for row in held}
    products = core.product_histories(tenant=tenant, product_ids=product_ids - {""})
    assessments = core.assessments(tenant=tenant, customer_id=customer_id) if customer_id else []
    in_force = next((row for row in assessments if row.assessed_at <= happened_at), None)
    known_as = core.customer_history(tenant=tenant, customer_id=customer_id) if customer_id else []
    customer = core.in_force(known_as, happened_at)
    offending = {hit.trade_id for hit in counted if hit.state != HitState.WITHDRAWN}
    total = sum((row.market_value for row in held), Decimal(0))
    whose = {customer_id, *(row.name or "" for row in known_as)}

    def written(text: str) -> str:
        return text if clear else hidden(text, whose)

    return AlertPage(
        alert=alert,
        band=band(alert.score),
        words=subtype_words(alert.subtypes),
        subject=subject_of(alert),
        proposed_text=written(alert.proposed_text),
        disposition_text=written(alert.disposition_text),
        findings=findings_of(counted),
        trades=[
            TradeRow(
                trade,
                product := core.in_force(products.get(trade.product_id, []), trade.traded_at),
                trade.trade_id in offending,
                trade.status != "executed",
                _mismatched(trade, product, assessments, core.in_force(known_as, trade.traded_at)),
            )
            for trade in trades
        ],
        assessments=[(row, row is in_force) for row in assessments[:6]],
        customer=customer,
        customer_name=masked_name(customer.name) if customer else "",
        customer_age=age_on(customer.birth_date, business_date(happened_at))
        if customer and customer.birth_date
        else None,
        advisors=core.advisors_of(tenant=tenant, customer_id=customer_id, at=happened_at) if customer_id else [],
        positions=[
            PositionRow(
                row.product_id,
                core.in_force(products.get(row.product_id, []), happened_at),
                row.market_value,
                row.market_value * 100 / total if total else Decimal(0),
            )
            for row in held
        ],
        positions_as_of=as_of,
        positions_total=total,
        profile=profile_lines(tenant=tenant, customer_id=customer_id, words=written) if sight.cases else [],
        earlier=_earlier(alert, sight),
        refused=refused_accesses(alert, counted),
        hits=[
            HitRow(
                hit,
                RULES.get(hit.rule_id, hit.rule_id),
                _words_of(hit),
                hit.evidence_key.replace(customer_id, mask(customer_id)) if customer_id else hit.evidence_key,
                band(hit.score),
            )
            for hit in hits
        ],
        more_hits=len(newest_hits) > MAX_HITS,
        timeline=[
            ActionRow(action, ACTIONS.get(action.action, action.action), written(action.text))
            for action in AlertAction.objects.filter(alert=alert)
            .select_related("actor")
            .order_by("-at", "-id")[:MAX_ACTIONS]
        ],
        happened_at=happened_at,
    )


def subject_of(alert: RiskAlert) -> str:
    """Whom the alert is about: a customer masked, an advisor by id (officers have to speak with them)."""
    advisors = alert.alert_type == AlertType.PATTERN or not alert.customer_id
    return alert.advisor_id if advisors else mask(alert.customer_id)


def _words_of(hit: RiskAlertHit) -> str:
    """The pattern of an advisor's conduct, the subtypes of anything else."""
    pattern = PATTERNS.get(str(hit.figures.get("pattern"))) if isinstance(hit.figures, dict) else None
    return str(pattern) if pattern else subtype_words(hit.subtypes)


def _mismatched(
    trade: CoreTrade,
    product: ProductFact | None,
    assessments: Sequence[AssessmentFact],
    customer: CustomerFact | None,
) -> bool:
    """Whether R was above C at that trade, of an ordinary investor's purchase. assessments: newest first."""
    tolerance = next((row.c_level for row in assessments if row.assessed_at <= trade.traded_at), None)
    if product is None or tolerance is None or trade.trade_type not in (TradeType.BUY, TradeType.SWITCH_IN):
        return False
    professional = customer is not None and customer.investor_type == InvestorType.PROFESSIONAL
    return product.risk_level > tolerance and not professional


def _trades(tenant: str, customer_id: str, hits: Sequence[RiskAlertHit], happened_at: datetime) -> list[CoreTrade]:
    """The final state of the offending trades and of the customer's others around them, newest first."""
    named = {hit.trade_id for hit in hits if hit.trade_id}
    first = min((hit.occurred_at for hit in hits), default=happened_at)
    rows = list(CoreTrade.objects.filter(tenant=tenant, trade_id__in=named))
    if customer_id:
        around = CoreTrade.objects.filter(
            tenant=tenant, customer_id=customer_id, traded_at__range=(first - BEFORE, happened_at + AFTER)
        )
        rows += around.order_by("-traded_at")[: MAX_TRADES * 2]
    final: dict[str, CoreTrade] = {}
    for row in rows:
        if row.trade_id not in final or row.version > final[row.trade_id].version:
            final[row.trade_id] = row
    ordered = sorted(final.values(), key=lambda row: (row.traded_at, row.trade_id), reverse=True)
    kept = [row for row in ordered if row.trade_id in named]
    kept += [row for row in ordered if row.trade_id not in named][: max(0, MAX_TRADES - len(kept))]
    return sorted(kept, key=lambda row: (row.traded_at, row.trade_id), reverse=True)


def _positions(tenant: str, customer_id: str, day: date) -> tuple[date | None, list[CorePosition]]:
    """The newest snapshot closed before that day, largest holding first."""
    if not customer_id:
        return None, []
    rows = CorePosition.objects.filter(tenant=tenant, customer_id=customer_id)
    as_of = rows.filter(as_of__lt=day).order_by("-as_of").values_list("as_of", flat=True).first()
    if as_of is None:
        return None, []
    return as_of, sorted(rows.filter(as_of=as_of)[:200], key=lambda row: row.market_value, reverse=True)


def _earlier(alert: RiskAlert, sight: Sight) -> list[EarlierRow]:
    others = alerts_of(tenant=alert.tenant, sight=sight).exclude(pk=alert.pk)
    if alert.alert_type == AlertType.PATTERN:
        others = others.filter(alert_type=AlertType.PATTERN, advisor_id=alert.advisor_id)
    else:
        others = others.filter(customer_id=alert.customer_id)
        if alert.alert_type != AlertType.DATA_QUALITY:
            others = others.exclude(alert_type=AlertType.DATA_QUALITY)
    rows = others.select_related("assignee", "disposed_by").order_by("-opened_at")[:MAX_EARLIER]
    return [EarlierRow(row, subtype_words(row.subtypes), band(row.score)) for row in rows]
