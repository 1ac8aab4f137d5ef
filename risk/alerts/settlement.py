"""One subject's settlement: which findings are new, other or gone, and the alerts that they go to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import count

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from config.base.db import LONGEST_SECONDS, retry_conflicts
from config.base.fields import canonical_json
from guard.audit.models import Decision, EventType
from guard.audit.services import observe
from memory.core.importer import mark
from risk.alerts.cases import Cases, cases_query, holders_of
from risk.alerts.damage import refuse_damaged
from risk.alerts.effects import Effects
from risk.alerts.hints import hint
from risk.alerts.levels import tell_level
from risk.alerts.merging import ADVISOR_RULES, anchor_of, merge_slot_of, place, recount
from risk.alerts.models import DISPOSED, HitState, RiskAlert, RiskAlertHit
from risk.alerts.tally import pattern_of
from risk.feed.events import alert_event, update_event
from risk.rules.hit import DATA_QUALITY, FinalTrade, Hit

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


@dataclass
class Worked:
    """What one transaction's worth of a settlement comes to, worked out and not written yet.

    told: of what to set hints. left: how many changes are for another transaction.
    """

    cases: Cases
    result: SettleResult
    told: list[tuple[Hit, str]]
    left: int


@dataclass
class Plan:
    """What has to be done: `gone` first, then `new`; what a transaction deals with is taken out. stored: the live hits
    as they were read, by rule and evidence key. spent: a transaction was begun with it, so that whatever becomes of
    that, nobody begins with it again."""

    cases: Cases
    stored: Mapping[tuple[str, str], RiskAlertHit]
    gone: deque[RiskAlertHit]
    new: deque[Hit]
    spent: bool = False


@dataclass(frozen=True)
class Settlement:
    """What is to be true of one subject. about: which hits are its, as a filter takes it. own: of its live hits those
    that were evaluated and may go."""

    tenant: str
    about: Mapping[str, str]
    own: Callable[[RiskAlertHit], bool]
    wanted: Mapping[tuple[str, str], Hit]
    final_trades: Mapping[str, FinalTrade]
    trace_id: str
    beside: Callable[[], object] | None = None
    customer_id: str = ""  # of whom it is; empty where it is an advisor's

    @property
    def subject(self) -> QuerySet[RiskAlertHit]:
        """The subject's hits. Made when asked for: of most customers of a scan nothing is."""
        return RiskAlertHit.objects.filter(tenant=self.tenant, **self.about)

    def changes(self, live: Iterable[RiskAlertHit]) -> int:
        """How many things have to be done. Errors: ALERT_DAMAGED for a finding that cannot be compared."""
        stored = {(row.rule_id, row.evidence_key): row for row in live if self.own(row)}
        for row in stored.values():
            refuse_damaged(row)
        gone = sum(1 for key in stored if key not in self.wanted)
        return gone + sum(
            1 for key, hit in self.wanted.items() if key not in stored or not same_finding(stored[key], hit)
        )

    def unknown(self, live: Iterable[RiskAlertHit]) -> set[tuple[str, str]]:
        """The keys of findings of which the subject has no live hit."""
        return set(self.wanted) - {(row.rule_id, row.evidence_key) for row in live}

    @property
    def anchors(self) -> set[str]:
        return {anchor_of(hit) for hit in self.wanted.values()}

    @property
    def slots(self) -> set[str]:
        return {slot for hit in self.wanted.values() if (slot := merge_slot_of(hit)) is not None}

    @property
    def evidence(self) -> set[str]:
        return {hit.evidence_key for hit in self.wanted.values()}

    def run(
        self, *, live: Q, longest: float = LONGEST_SECONDS, alive: Callable[[], object] = lambda: None
    ) -> tuple[SettleResult, Sequence[RiskAlertHit]]:
        """Reads, works out and writes until nothing is left, and sets the hints. live: which live hits to read; they
        are given back as they then stand.

        What was read is good for every transaction of it, as long as nobody else writes: each looks whether it is.
        longest: as `retry_conflicts` takes it. alive: called after each transaction that is not the last.
        """
        result = SettleResult()
        attempts = count()
        plan: Plan | None = None
        while True:
            begun, plan = plan, None  # whoever fails with it reads again

            def change(begun: Plan | None = begun) -> tuple[Plan, Worked]:
                attempt = next(attempts)
                at_hand = begun if begun is not None and not begun.spent else self._read(live, attempt)
                at_hand.spent = True
                return at_hand, self._change(at_hand)

            plan, done = retry_conflicts(change, also=(IntegrityError,), longest=longest)
            result += done.result
            if done.told:
                transaction.on_commit(partial(hint, self.tenant, done.told), robust=True)
            if not done.left:
                result.unchanged = len(self.wanted) - result.new - result.revised
                return result, done.cases.live()
            plan.spent = False
            plan.cases.go_on()
            alive()

    def _read(self, live: Q, attempt: int) -> Plan:
        """What there is, and what has to be done."""
        rows = cases_query(self.subject, anchors=self.anchors, evidence=self.evidence, slots=self.slots, live=live)
        cases = Cases(self.tenant, rows)
        if attempt:
            # Also an alert in the slot that has no hits: they would have told of it.
            cases.know(RiskAlert.objects.filter(tenant=self.tenant, merge_slot__in=self.slots))
            # And what another has under the keys of the new findings: a trade corrected under the number that it had
            # may be somebody else's now.
            if keys := self.unknown(cases.live()):
                cases.meet(holders_of(self.tenant, keys, but=self.subject))
        return self._plan(cases)

    def _change(self, plan: Plan) -> Worked:
        """One transaction's worth."""
        cases = plan.cases
        worked = self._work_out(plan)
        if worked.result.changed:
            with transaction.atomic():
                cases.write()
                if cases.taken_from:
                    mark(tenant=self.tenant, customer_ids=cases.taken_from)
                if self.beside is not None:
                    self.beside()
        return worked

    def work_out(self, cases: Cases) -> Worked:
        """Decides everything, in memory: the first transaction's worth. cases: the subject's, as just read."""
        return self._work_out(self._plan(cases))

    def _plan(self, cases: Cases) -> Plan:
        stored = {(row.rule_id, row.evidence_key): row for row in cases.live() if self.own(row)}
        return Plan(
            cases,
            stored,
            deque(row for key, row in stored.items() if key not in self.wanted),
            deque(hit for key, hit in self.wanted.items() if key not in stored or not same_finding(stored[key], hit)),
        )

    def _work_out(self, plan: Plan) -> Worked:
        cases, room = plan.cases, SLICE
        worked = Worked(cases, SettleResult(), [], 0)
        # First, so that a corrected trade is counted as itself and not as a repeat of its old version.
        while plan.gone and room:
            row, room = plan.gone.popleft(), room - 1
            _retire(cases, row, _why_gone(row, self.final_trades), self.trace_id, worked.result)
        while plan.new and room:
            hit, room = plan.new.popleft(), room - 1
            earlier = plan.stored.get((hit.rule_id, hit.evidence_key))
            other = cases.take(hit.rule_id, hit.evidence_key, hit.trade_id) if earlier is None else None
            if other is not None:
                _retire(cases, other, _why_gone(other, self.final_trades), self.trace_id, worked.result)
            worked.told.append((hit, _record(cases, hit, earlier, self.trace_id, worked.result)))
        worked.left = len(plan.gone) + len(plan.new)
        return worked


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


def overtaken(row: RiskAlertHit, final_trades: Mapping[str, FinalTrade]) -> bool:
    """Whether its trade was cancelled, reversed or corrected since: that is so whatever a rule says, or none."""
    return _why_gone(row, final_trades) != HitState.WITHDRAWN


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
        columns = recount(
            alert,
            cases.tally_of(alert),
            cases.effects,
            trace_id=trace_id,
            told=False,
            calendar_for=cases.calendar_for,
        )
        cases.save(alert, columns)
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
            cases.tally_of(alert),
            effects,
            trace_id=trace_id,
            confirmed=cases.confirmed_rules(alert),
            calendar_for=cases.calendar_for,
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
