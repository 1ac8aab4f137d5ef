"""From what is true of a customer's trades to what is recorded of it: hits, alerts, and the word to the officers."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from itertools import count

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from config.base.clock import business_date
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.redis import RedisUnavailable, state, translated
from config.base.trace import current_trace_id
from guard.audit.models import Decision, EventType
from guard.audit.services import observe
from risk.alerts.cases import Cases, cases_query
from risk.alerts.deadlines import OPEN
from risk.alerts.effects import Effects
from risk.alerts.keys import DEDUP, DEDUP_SECONDS
from risk.alerts.levels import tell_level
from risk.alerts.merging import ADVISOR_RULES, anchor_of, merge_slot_of, pattern_of, place, recount
from risk.alerts.models import DISPOSED, HitState, RiskAlert, RiskAlertHit
from risk.feed.events import alert_event, update_event
from risk.rules.hit import DATA_QUALITY, FinalTrade, Hit

logger = logging.getLogger(__name__)

SLICE = 200  # changes written in one transaction
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
    live: Sequence[RiskAlertHit] | None = None,
    beside: Callable[[], object] | None = None,
) -> SettleResult:
    """Makes the stored live hits of a customer equal to `hits`, all that are true of the customer now.

    hits: from a complete evaluation, in the order of their trades; findings on missing facts (DATA_QUALITY) too.
    final_trades: the customer's trades as they now stand; they tell why a finding is gone.
    rule_ids: the rules that were evaluated; None means all that speak of customers. Others are left alone.

    live: the customer's live hits, where the caller has read them (`live_hits_of`).
    beside: called in each transaction that changes something, for what has to be written with it.

    1. Read the live hits and what decides where others go. An unchanged customer costs this one query, and none
       where the live hits were given.
    2. What is gone is marked `cancelled` (its trade was cancelled or reversed), `superseded` (its trade has a
       higher version) or `withdrawn`.
    3. What is new or has other figures finds its alert. All this is worked out first, then written in one transaction
       with alerts, audit and outbox rows (SLICE changes at most; more are several).
    4. After that `risk:dedup` hints are set. With Redis away this is skipped and nothing else changes.

    Cost of a first finding that opens an alert: 1 query to read, 1 for the holidays (none where the limits run by
    the clock), 4 INSERTs, 1 more where it has a level; and the pseudonym of a customer whom the audit has not met.
    Of one that joins an alert: 1 to read, 1 to lock, 1 UPDATE, 3 INSERTs.

    Repeating it changes nothing. Two scanners at once end with one live hit, one alert and one event a finding:
    unique keys and the alerts' versions decide, and the loser reads again and joins.
    Errors: ValueError for hits of another customer, of a rule outside `rule_ids`, or twice for one evidence key.
    """
    return settle_and_read(
        tenant=tenant,
        customer_id=customer_id,
        hits=hits,
        final_trades=final_trades,
        trace_id=trace_id,
        rule_ids=rule_ids,
        live=live,
        beside=beside,
    )[0]


def settle_and_read(
    *,
    tenant: str,
    customer_id: str,
    hits: Sequence[Hit],
    final_trades: Mapping[str, FinalTrade],
    trace_id: str = "",
    rule_ids: Collection[str] | None = None,
    live: Sequence[RiskAlertHit] | None = None,
    beside: Callable[[], object] | None = None,
) -> tuple[SettleResult, Sequence[RiskAlertHit]]:
    """As `settle_customer`, with the customer's live hits as they then stand. No query more."""
    wanted: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        key = (hit.rule_id, hit.evidence_key)
        if hit.customer_id != customer_id or key in wanted or (rule_ids is not None and hit.rule_id not in rule_ids):
            raise ValueError(f"hit {hit.rule_id} {hit.evidence_key} does not belong in this settlement")
        wanted[key] = hit
    subject = RiskAlertHit.objects.filter(tenant=tenant, customer_id=customer_id)
    settlement = _Settlement(
        tenant=tenant,
        subject=subject,
        own=lambda row: row.rule_id in rule_ids if rule_ids is not None else row.rule_id not in ADVISOR_RULES,
        wanted=wanted,
        final_trades=final_trades,
        trace_id=trace_id or current_trace_id(),
        beside=beside,
    )
    # 1
    if live is not None and not settlement.differs(live):
        return SettleResult(unchanged=len(wanted)), live
    return settlement.run(live=Q(state=HitState.LIVE))


def live_hits_of(*, tenant: str, customer_ids: Collection[str]) -> dict[str, list[RiskAlertHit]]:
    """What `settle_customer` compares with, of many customers, by id. One query."""
    found: dict[str, list[RiskAlertHit]] = defaultdict(list)
    for row in RiskAlertHit.objects.filter(tenant=tenant, customer_id__in=customer_ids, state=HitState.LIVE):
        found[row.customer_id].append(row)
    return found


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
    live = list(rows)
    settlement = _Settlement(
        tenant=tenant,
        subject=RiskAlertHit.objects.filter(tenant=tenant, advisor_id=advisor_id, customer_id=""),
        own=lambda row: (
            row.rule_id in rule_ids
            and since <= row.occurred_at < until
            and ((row.rule_id, row.evidence_key) in wanted or not stays(row))
        ),
        wanted=wanted,
        final_trades=final_trades,
        trace_id=trace_id or current_trace_id(),
    )
    if not settlement.differs(live):
        return SettleResult(unchanged=len(wanted))
    # Not all that was ever found about the advisor: these days', and whatever else stands in open alerts.
    these_days = Q(occurred_at__gte=since, occurred_at__lt=until)
    return settlement.run(live=Q(state=HitState.LIVE) & (these_days | Q(alert__status__in=OPEN)))[0]


@dataclass(frozen=True)
class _Settlement:
    """What is to be true of one subject. own: of its live hits those that were evaluated and may go."""

    tenant: str
    subject: QuerySet[RiskAlertHit]
    own: Callable[[RiskAlertHit], bool]
    wanted: Mapping[tuple[str, str], Hit]
    final_trades: Mapping[str, FinalTrade]
    trace_id: str
    beside: Callable[[], object] | None = None

    def differs(self, live: Iterable[RiskAlertHit]) -> bool:
        """Whether anything has to be done."""
        stored = {(row.rule_id, row.evidence_key): row for row in live if self.own(row)}
        return len(stored) != len(self.wanted) or not all(
            key in stored and same_finding(stored[key], hit) for key, hit in self.wanted.items()
        )

    def run(self, *, live: Q) -> tuple[SettleResult, Sequence[RiskAlertHit]]:
        """Steps 1 to 4. live: which live hits to read; they are given back as they then stand."""
        result = SettleResult()
        attempts = count()
        while True:
            done, told, left, standing = retry_conflicts(
                lambda: self._change(live, next(attempts)), also=(IntegrityError,)
            )
            result += done
            if told:
                transaction.on_commit(partial(_hint, self.tenant, told), robust=True)
            if not left:
                result.unchanged = len(self.wanted) - result.new - result.revised
                return result, standing

    def _change(self, live: Q, attempt: int) -> tuple[SettleResult, list[tuple[Hit, str]], int, Sequence[RiskAlertHit]]:
        """One transaction's worth: what it did, of what to set hints, how many changes are left, and what is live."""
        anchors = {anchor_of(hit) for hit in self.wanted.values()}
        slots = {slot for hit in self.wanted.values() if (slot := merge_slot_of(hit)) is not None}
        evidence = {hit.evidence_key for hit in self.wanted.values()}
        rows = cases_query(self.subject, anchors=anchors, evidence=evidence, slots=slots, live=live)
        cases = Cases(self.tenant, rows)
        if attempt:
            # Also an alert in the slot that has no hits: they would have told of it.
            cases.know(RiskAlert.objects.filter(tenant=self.tenant, merge_slot__in=slots))
        stored = {(row.rule_id, row.evidence_key): row for row in cases.live() if self.own(row)}
        # 2: first, so that a corrected trade is counted as itself and not as a repeat of its old version
        gone = [row for key, row in stored.items() if key not in self.wanted]
        new = [hit for key, hit in self.wanted.items() if key not in stored or not same_finding(stored[key], hit)]
        result = SettleResult()
        for row in gone[:SLICE]:
            _retire(cases, row, _why_gone(row, self.final_trades), self.trace_id, result)
        told = []
        # 3
        for hit in new[: max(0, SLICE - len(gone))]:
            alert_id = _record(cases, hit, stored.get((hit.rule_id, hit.evidence_key)), self.trace_id, result)
            told.append((hit, alert_id))
        if result.changed:
            with transaction.atomic():
                cases.write()
                if self.beside is not None:
                    self.beside()
        return result, told, max(0, len(gone) + len(new) - SLICE), cases.live()


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


def _retire(cases: Cases, row: RiskAlertHit, to: HitState, trace_id: str, result: SettleResult) -> None:
    """Takes one hit out of the living. Its alert stays as it is apart from the count: an officer decides."""
    alert = cases.touch(row.alert_id)
    cases.retire(row, to)
    if alert.status not in DISPOSED:
        cases.save(alert, recount(alert, cases.live_of(alert), cases.effects, trace_id=trace_id, told=False))
    else:
        cases.effects.tell(update_event(alert))
    text = f"{row.rule_id} {row.trade_id}@{row.trade_version}"
    cases.effects.note(alert, f"hit_{to.value}", text=text, trace_id=trace_id)
    setattr(result, to.value, getattr(result, to.value) + 1)


def _record(cases: Cases, hit: Hit, earlier: RiskAlertHit | None, trace_id: str, result: SettleResult) -> str:
    """Records one finding in its alert, whose id it gives. earlier: the live revision that it replaces."""
    at = place(cases, hit, earlier, trace_id)
    alert = at.alert
    if earlier is not None:
        cases.retire(earlier, HitState.SUPERSEDED)
    row = RiskAlertHit(
        tenant=cases.tenant,
        alert=alert,
        rule_id=hit.rule_id,
        rule_version=hit.rule_version,
        evidence_key=hit.evidence_key,
        revision=cases.next_revision(hit.rule_id, hit.evidence_key),
        live_key=hit.evidence_key,
        anchor=at.anchor,
        after_disposition=at.after_disposition,
        # the version that it makes; none where the alert is disposed of and its evidence stays what was judged
        alert_version=None if at.after_disposition else alert.version + (0 if at.opened else 1),
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
    cases.add(row)
    effects = cases.effects
    if hit.rule_id in ADVISOR_RULES:
        if earlier is None:
            effects.observe_later(partial(_tell_conduct, row))
    else:
        _audit(
            effects,
            row,
            EventType.DATA_QUALITY if hit.rule_id == DATA_QUALITY else EventType.RISK_HIT,
            Decision.DETECTED,
        )
    if at.opened:
        _audit(effects, row, EventType.ALERT_OPENED, Decision.OPENED, score=alert.score)
        tell_level(effects, alert, at.raised, trace_id=trace_id)
        effects.tell(alert_event(alert, trace_id=trace_id))
    elif at.after_disposition:
        decision = Decision.QUIETED if at.quieted else Decision.AFTER_DISPOSITION
        _audit(effects, row, EventType.ALERT_MERGED, decision, score=alert.score)
        effects.tell(update_event(alert))
    else:
        columns = recount(
            alert,
            cases.live_of(alert),
            effects,
            trace_id=trace_id,
            confirmed=cases.confirmed_rules(alert),
        )
        cases.save(alert, columns)
        _audit(effects, row, EventType.ALERT_MERGED, Decision.MERGED, score=alert.score)
    result += SettleResult(
        new=0 if earlier else 1,
        revised=1 if earlier else 0,
        alerts_opened=1 if at.opened else 0,
        alerts_merged=0 if at.opened else 1,
    )
    return alert.alert_id


def _audit(effects: Effects, row: RiskAlertHit, event_type: str, decision: str, *, score: int | None = None) -> None:
    # The customer stands in it by pseudonym, for the audit outlives an erasure; the evidence key, which may hold the
    # id, does not.
    effects.record_later(
        lambda: {
            "tenant": row.tenant,
            "event_type": event_type,
            "decision": decision,
            "actor_id": SCANNER,
            "agent": "risk",
            "object_type": "risk_alert",
            "object_id": row.alert_id,
            "code": row.rule_id,
            "risk_score": row.score if score is None else score,
            "trace_id": row.trace_id,
            "customer_id": row.customer_id,
            "input_summary": {
                "hit_id": row.pk,
                "revision": row.revision,
                "rule_version": row.rule_version,
                "trade_id": row.trade_id,
                "trade_version": row.trade_version,
                "subtypes": row.subtypes,
            },
        }
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
