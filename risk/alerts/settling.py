"""From what is true of a customer's trades to what is recorded of it: hits, alerts, and the word to the officers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Max

from config.base.clock import business_date
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.redis import RedisUnavailable, state, translated
from config.base.trace import current_trace_id
from guard.audit.models import Decision, EventType
from guard.audit.services import observe, record
from risk.alerts.keys import DEDUP, DEDUP_SECONDS
from risk.alerts.levels import record_level
from risk.alerts.merging import ADVISOR_RULES, Place, pattern_of, place, rescore
from risk.alerts.models import DISPOSED, AlertAction, HitState, RiskAlert, RiskAlertHit
from risk.feed.events import tell_alert, tell_update
from risk.rules.hit import DATA_QUALITY, FinalTrade, Hit

logger = logging.getLogger(__name__)

SCANNER = "risk.rules"  # who acts in the audit when a rule finds something


@dataclass
class SettleResult:
    """What settling did, in counts. `revised` findings were true before with other figures."""

    new: int = 0
    revised: int = 0
    withdrawn: int = 0
    cancelled: int = 0
    superseded: int = 0
    unchanged: int = 0
    alerts_opened: int = 0
    alerts_merged: int = 0

    def __iadd__(self, other: SettleResult) -> SettleResult:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    @property
    def changed(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self) if field.name != "unchanged")


def settle_customer(
    *,
    tenant: str,
    customer_id: str,
    hits: Sequence[Hit],
    final_trades: Mapping[str, FinalTrade],
    trace_id: str = "",
    rule_ids: Collection[str] | None = None,
) -> SettleResult:
    """Makes the stored live hits of a customer equal to `hits`, all that are true of the customer now.

    hits: from a complete evaluation, in the order of their trades; findings on missing facts (DATA_QUALITY) too.
    final_trades: the customer's trades as they now stand; they tell why a finding is gone.
    rule_ids: the rules that were evaluated; None means all that speak of customers. Others are left alone.

    1. Read the live hits (one query; an unchanged customer costs no more).
    2. What is gone is marked `cancelled` (its trade was cancelled or reversed), `superseded` (its trade has a
       higher version) or `withdrawn`.
    3. What is new or has other figures is recorded: one transaction per hit, with alert, audit and outbox rows.
    4. After that `risk:dedup` hints are set. With Redis away this is skipped and nothing else changes.

    Repeating it changes nothing. Two scanners at once end with one live hit, one alert and one event a finding:
    unique keys decide, and the loser reads again and joins.
    Errors: ValueError for hits of another customer, of a rule outside `rule_ids`, or twice for one evidence key.
    """
    wanted: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = (hit.rule_id, hit.evidence_key)
        if hit.customer_id != customer_id or key in wanted or (rule_ids is not None and hit.rule_id not in rule_ids):
            raise ValueError(f"hit {hit.rule_id} {hit.evidence_key} does not belong in this settlement")
        wanted[key] = hit
    # 1
    live = {
        (row.rule_id, row.evidence_key): row
        for row in RiskAlertHit.objects.filter(tenant=tenant, customer_id=customer_id, state=HitState.LIVE)
        if (row.rule_id in rule_ids if rule_ids is not None else row.rule_id not in ADVISOR_RULES)
    }
    return _settle(tenant, live, wanted, final_trades, trace_id or current_trace_id())


def settle_advisor(
    *,
    tenant: str,
    advisor_id: str,
    since: datetime,
    until: datetime,
    hits: Sequence[Hit],
    final_trades: Mapping[str, FinalTrade],
    stays: Callable[[RiskAlertHit], bool] = lambda row: False,
    trace_id: str = "",
) -> SettleResult:
    """As `settle_customer`, for an advisor's conduct and reported trades that the core lacks, in `[since, until)`.

    The bounds are those of whole business days: a day's finding may move within its day.
    stays: asked of a stored finding that is not among `hits`: whether nobody can tell any more that it is not true.
    Errors: ValueError for hits of another advisor, of a customer's rule, outside the bounds, or twice for one key.
    """
    rule_ids = {DATA_QUALITY, *ADVISOR_RULES}
    wanted: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = (hit.rule_id, hit.evidence_key)
        own = hit.advisor_id == advisor_id and not hit.customer_id and hit.rule_id in rule_ids
        if not own or not since <= hit.occurred_at < until or key in wanted:
            raise ValueError(f"hit {hit.rule_id} {hit.evidence_key} does not belong in this settlement")
        wanted[key] = hit
    rows = RiskAlertHit.objects.filter(tenant=tenant, advisor_id=advisor_id, rule_id__in=rule_ids, customer_id="")
    rows = rows.filter(occurred_at__gte=since, occurred_at__lt=until, state=HitState.LIVE)
    live = {key: row for row in rows if (key := (row.rule_id, row.evidence_key)) in wanted or not stays(row)}
    return _settle(tenant, live, wanted, final_trades, trace_id or current_trace_id())


def _settle(
    tenant: str,
    live: Mapping[tuple[str, str], RiskAlertHit],
    wanted: Mapping[tuple[str, str], Hit],
    final_trades: Mapping[str, FinalTrade],
    trace_id: str,
) -> SettleResult:
    """Steps 2 to 4."""
    result = SettleResult()
    # 2: first, so that a corrected trade is counted as itself and not as a repeat of its old version
    for key, row in live.items():
        if key not in wanted:
            _retire(row, _why_gone(row, final_trades), trace_id=trace_id, result=result)
    # 3
    told: list[tuple[Hit, str]] = []
    for key, hit in wanted.items():
        if key in live and same_finding(live[key], hit):
            result.unchanged += 1
            continue
        alert_id = _record(tenant=tenant, hit=hit, trace_id=trace_id, result=result)
        if alert_id:
            told.append((hit, alert_id))
    # 4
    if told:
        transaction.on_commit(lambda: _hint(tenant, told), robust=True)
    return result


def same_finding(row: RiskAlertHit, hit: Hit) -> bool:
    """Whether a stored hit says just what `hit` says: the same figures, score and subtypes of the same trade.

    Another version of the rule that finds the same is no news: the hit keeps the version that made it, and no officer's
    evidence changes under their hands because a figure did that does not touch it.
    """
    return (
        row.score == hit.score
        and list(row.subtypes) == list(hit.subtypes)
        and row.trade_id == hit.trade_id
        and row.trade_version == hit.trade_version
        and canonical_json(row.figures) == canonical_json(dict(hit.figures))
    )


def _why_gone(row: RiskAlertHit, final_trades: Mapping[str, FinalTrade]) -> HitState:
    final = final_trades.get(row.trade_id)
    if final is not None and final.status in ("cancelled", "reversed"):
        return HitState.CANCELLED
    if final is not None and final.version > row.trade_version:
        return HitState.SUPERSEDED
    return HitState.WITHDRAWN


def _retire(row: RiskAlertHit, to: HitState, *, trace_id: str, result: SettleResult) -> None:
    """Takes one hit out of the living. Its alert stays as it is apart from the count: an officer decides."""

    def work() -> bool:
        with transaction.atomic():
            alert = RiskAlert.objects.select_for_update().get(pk=row.alert_id)
            gone = RiskAlertHit.objects.filter(pk=row.pk, state=HitState.LIVE).update(state=to, live_key=None)
            if not gone:
                return False
            if alert.status not in DISPOSED:
                rescore(alert, trace_id=trace_id, told=False)
            else:
                tell_update(alert)
            AlertAction.objects.create(
                alert=alert,
                action=f"hit_{to.value}",
                from_status=alert.status,
                to_status=alert.status,
                text=f"{row.rule_id} {row.trade_id}@{row.trade_version}",
                alert_version=alert.version,
                trace_id=trace_id,
            )
            return True

    if retry_conflicts(work):
        setattr(result, to.value, getattr(result, to.value) + 1)


def _record(*, tenant: str, hit: Hit, trace_id: str, result: SettleResult) -> str | None:
    """Records one finding in one transaction. The alert's id, or None when it was recorded already.

    A unique key refuses what another scanner has written first; then everything is read again.
    """

    def work() -> tuple[str | None, SettleResult]:
        with transaction.atomic():
            return _record_once(tenant=tenant, hit=hit, trace_id=trace_id)

    alert_id, counts = retry_conflicts(work, also=(IntegrityError,))
    result += counts
    return alert_id


def _record_once(*, tenant: str, hit: Hit, trace_id: str) -> tuple[str | None, SettleResult]:
    of_evidence = RiskAlertHit.objects.filter(tenant=tenant, rule_id=hit.rule_id, evidence_key=hit.evidence_key)
    earlier = of_evidence.filter(live_key=hit.evidence_key).first()
    if earlier is not None and same_finding(earlier, hit):
        return None, SettleResult(unchanged=1)
    at: Place = place(tenant=tenant, hit=hit, earlier=earlier, trace_id=trace_id)
    if earlier is not None:
        gone = of_evidence.filter(pk=earlier.pk, state=HitState.LIVE).update(state=HitState.SUPERSEDED, live_key=None)
        if not gone:
            raise IntegrityError("another scanner has revised this finding; read it again")
    last = of_evidence.aggregate(last=Max("revision"))["last"] or 0
    row = RiskAlertHit.objects.create(
        tenant=tenant,
        alert=at.alert,
        rule_id=hit.rule_id,
        rule_version=hit.rule_version,
        evidence_key=hit.evidence_key,
        revision=last + 1,
        live_key=hit.evidence_key,
        anchor=at.anchor,
        after_disposition=at.after_disposition,
        # the version that it makes; none where the alert is disposed of and its evidence stays what was judged
        alert_version=None if at.after_disposition else at.alert.version + (0 if at.opened else 1),
        customer_id=hit.customer_id,
        advisor_id=hit.advisor_id,
        product_id=hit.product_id,
        trade_id=hit.trade_id,
        trade_version=hit.trade_version,
        occurred_at=hit.occurred_at,
        score=hit.score,
        subtypes=list(hit.subtypes),
        figures=dict(hit.figures),
        trace_id=trace_id,
    )
    if hit.rule_id in ADVISOR_RULES:
        if earlier is None:
            _tell_conduct(row)
    else:
        _audit(row, EventType.DATA_QUALITY if hit.rule_id == DATA_QUALITY else EventType.RISK_HIT, Decision.DETECTED)
    if at.opened:
        _audit(row, EventType.ALERT_OPENED, Decision.OPENED, score=at.alert.score)
        record_level(at.alert, at.raised, trace_id=trace_id)
        tell_alert(at.alert, trace_id=trace_id)
    elif at.after_disposition:
        decision = Decision.QUIETED if at.quieted else Decision.AFTER_DISPOSITION
        _audit(row, EventType.ALERT_MERGED, decision, score=at.alert.score)
        tell_update(at.alert)
    else:
        rescore(at.alert, trace_id=trace_id)
        _audit(row, EventType.ALERT_MERGED, Decision.MERGED, score=at.alert.score)
    counts = SettleResult(
        new=0 if earlier else 1,
        revised=1 if earlier else 0,
        alerts_opened=1 if at.opened else 0,
        alerts_merged=0 if at.opened else 1,
    )
    return at.alert.alert_id, counts


def _audit(row: RiskAlertHit, event_type: str, decision: str, *, score: int | None = None) -> None:
    # The customer stands in it by pseudonym, for the audit outlives an erasure; the evidence key, which may hold the
    # id, does not.
    record(
        tenant=row.tenant,
        event_type=event_type,
        decision=decision,
        actor_id=SCANNER,
        agent="risk",
        object_type="risk_alert",
        object_id=row.alert_id,
        code=row.rule_id,
        risk_score=row.score if score is None else score,
        trace_id=row.trace_id,
        customer_id=row.customer_id,
        input_summary={
            "hit_id": row.pk,
            "revision": row.revision,
            "rule_version": row.rule_version,
            "trade_id": row.trade_id,
            "trade_version": row.trade_version,
            "subtypes": row.subtypes,
        },
    )


def _tell_conduct(row: RiskAlertHit) -> None:
    """One row a finding, in a savepoint: where the log does not take it, the loss is counted and the scan goes on."""
    observe(
        tenant=row.tenant,
        event_type=EventType.AGENT_BEHAVIOR_DETECTED,
        decision=Decision.DETECTED,
        actor_id=SCANNER,
        agent="risk",
        object_type="risk_alert",
        object_id=row.alert_id,
        code=row.rule_id,
        risk_score=row.score,
        trace_id=row.trace_id,
        input_summary={
            "hit_id": row.pk,
            "rule_version": row.rule_version,
            "advisor_id": row.advisor_id,
            "pattern": pattern_of(row.figures),
            "trade_id": row.trade_id,
            "subtypes": row.subtypes,
        },
    )


def _hint(tenant: str, told: Sequence[tuple[Hit, str]]) -> None:
    """Open when Redis is away: a hint that is missing costs nothing, the anchors decide."""
    try:
        with translated():
            pipe = state().pipeline(transaction=False)
            for hit, alert_id in told:
                if hit.rule_id in ADVISOR_RULES or not hit.customer_id:
                    continue
                name = _hint_name(tenant, hit.customer_id, hit.rule_id, hit.occurred_at)
                if name:
                    pipe.set(name, alert_id, ex=DEDUP_SECONDS)
            pipe.execute()
    except RedisUnavailable as error:
        logger.debug("no risk:dedup hints: %s", error)


def _hint_name(tenant: str, customer_id: str, rule_id: str, occurred_at: datetime) -> str | None:
    try:
        return DEDUP(tenant, customer_id=customer_id, rule_id=rule_id, date=business_date(occurred_at).isoformat())
    except DomainError:
        return None  # an id of the core that no key may hold: no hint
