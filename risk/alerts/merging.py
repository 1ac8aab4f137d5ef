"""Where a hit goes: which alert it joins, and which it opens (RISK.md 3, "Merging")."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from config.base.clock import business_date, now
from risk.alerts.cases import Cases
from risk.alerts.deadlines import set_deadlines
from risk.alerts.effects import Effects
from risk.alerts.levels import raise_level, tell_level
from risk.alerts.models import DISPOSED, AlertStatus, AlertType, RiskAlert, RiskAlertHit
from risk.alerts.scoring import alert_score, band
from risk.alerts.tally import Tally, pattern_of
from risk.calendar.selectors import WorkCalendar
from risk.feed.events import alert_event, update_event
from risk.rules.hit import DATA_QUALITY, Hit

MERGE_DAYS = 7  # an alert that is still pending takes further hits for so many days after opening
FOLLOW_UP_MARGIN = 10  # a disposed alert gets a follow-up from the disposed score plus this

# Rules that have a kind of alert of their own; every other rule's hits are the customer's events.
_TYPE_OF_RULE = {
    "RISK-003": AlertType.REPORT,
    "RISK-008": AlertType.PATTERN,
    DATA_QUALITY: AlertType.DATA_QUALITY,
}
# RISK-008 is an advisor's: a customer's evaluation says nothing about it.
ADVISOR_RULES = frozenset({"RISK-008"})


def alert_type_of(rule_id: str) -> AlertType:
    return _TYPE_OF_RULE.get(rule_id, AlertType.EVENT)


def anchor_of(hit: Hit) -> str:
    """`customer:rule:business day`; of advisors' conduct, `advisor:rule:business day`."""
    subject = hit.advisor_id if hit.rule_id in ADVISOR_RULES else _subject_of(hit)
    return f"{subject}:{hit.rule_id}:{business_date(hit.occurred_at).isoformat()}"


def merge_slot_of(hit: Hit) -> str | None:
    """The slot of the alert that takes this customer's hits of any rule; None for kinds that never merge."""
    kind = alert_type_of(hit.rule_id)
    if kind == AlertType.EVENT:
        return hit.customer_id
    if kind == AlertType.DATA_QUALITY:
        return f"{_subject_of(hit)}:dq"
    return None


def _subject_of(hit: Hit) -> str:
    """The customer; where nobody knows whose trade it is, the advisor who reported it, spelt as no id is."""
    return hit.customer_id or f":{hit.advisor_id}"


@dataclass(frozen=True)
class Place:
    """The alert that a hit goes to. anchor: what the hit holds, None for a repeat. raised: what its opening has set of
    its level."""

    alert: RiskAlert
    anchor: str | None
    opened: bool = False
    after_disposition: bool = False
    quieted: bool = False
    raised: tuple[str, ...] = ()


def place(cases: Cases, hit: Hit, earlier: RiskAlertHit | None, trace_id: str) -> Place:
    """Finds or opens the alert of a hit, among the cases that were read. No query but one for the holidays.

    earlier: the live revision that this hit replaces. What another scanner or an officer does meanwhile is found when
    the change is written (`Cases.write`): the caller then starts over and finds what the other has written.

    1. A new revision stays with the alert of the finding that it revises.
    2. The day's anchor is taken: its alert, or the follow-up that takes the rest; where that is disposed, marked
       `after_disposition`, unless the score calls for the one follow-up.
    3. Otherwise an alert whose disposition began a quiet period of this customer, rule and product, unless the score
       is higher by FOLLOW_UP_MARGIN. The hit takes no anchor there, for another product's that day is not quiet.
    4. Otherwise the customer's one pending alert, for 7 days after its opening.
    5. Otherwise a new alert.
    """
    anchor = anchor_of(hit)
    # 1, 2
    first = earlier or cases.holder(anchor)
    if first is not None:
        alert = cases.touch(first.alert_id)
        if alert.status not in DISPOSED:
            return Place(alert, anchor=None)
        follow_up = cases.holder(f"{anchor}:f")
        if follow_up is not None:
            alert = cases.touch(follow_up.alert_id)
            return Place(alert, anchor=None, after_disposition=alert.status in DISPOSED)
        reopens = alert.status in (AlertStatus.FALSE_POSITIVE, AlertStatus.CLOSED)
        if reopens and hit.score >= alert.score + FOLLOW_UP_MARGIN:
            opened, raised = _open(cases, hit, trace_id, parent=alert)
            return Place(opened, anchor=f"{anchor}:f", opened=True, raised=raised)
        # A revision whose day differs from its first one's leaves that day's anchor to a finding of that day.
        return Place(alert, anchor=None, after_disposition=True)
    # 3
    quiet = _quieting(cases, hit)
    if quiet is not None:
        return Place(cases.touch(quiet.alert_id), anchor=None, after_disposition=True, quieted=True)
    # 4
    slot = merge_slot_of(hit)
    pending = cases.in_slot(slot) if slot is not None else None
    if pending is not None:
        cases.touch(pending.alert_id)
        if pending.status == AlertStatus.PENDING and not _merging_is_over(pending, cases.at):
            return Place(pending, anchor=anchor)
        cases.free_slot(pending)
    # 5
    opened, raised = _open(cases, hit, trace_id, parent=None)
    return Place(opened, anchor=anchor, opened=True, raised=raised)


def recount(
    alert: RiskAlert,
    hits: Tally,
    effects: Effects,
    *,
    trace_id: str,
    told: bool = True,
    confirmed: Collection[str] | None = None,
    calendar_for: Callable[[RiskAlert], WorkCalendar] | None = None,
) -> set[str]:
    """Recounts an open alert from what its live hits come to, and tells of it. The score only rises. The names of the
    columns to save. Its cost does not grow with the hits.

    Told as an `alert` when a subtype was added, the band rose or a level was reached, as an `update` otherwise. A
    higher band has shorter limits (1 query for the holidays, unless calendar_for knows them). confirmed: as
    `raise_level` takes it.
    """
    pattern = alert.alert_type == AlertType.PATTERN
    # An advisor's day always has the score of its findings: further patterns do not add up.
    score = max(alert.score, hits.highest if pattern else hits.score)
    rules = hits.rules
    subtypes = _appended(alert.subtypes, hits.subtypes)
    rose = band(score) != band(alert.score)
    news = len(subtypes) > len(alert.subtypes) or rose
    alert.score = score
    alert.subtypes = subtypes
    alert.rule_ids = _appended(alert.rule_ids, list(rules))
    alert.hit_count = hits.hits
    if pattern:
        alert.payload = {**alert.payload, "patterns": hits.patterns}
    alert.version += 1
    alert.updated_at = now()
    limits = set_deadlines(alert, calendar=calendar_for(alert) if calendar_for is not None else None) if rose else ()
    # A hit that is gone raises nothing: what time raises, the sweep finds.
    raised = raise_level(alert, rules=rules, at=alert.updated_at, confirmed=confirmed) if told else ()
    tell_level(effects, alert, raised, trace_id=trace_id)
    effects.tell(alert_event(alert, trace_id=trace_id) if (news and told) or raised else update_event(alert))
    return {"score", "subtypes", "rule_ids", "hit_count", "payload", "version", "updated_at", *limits, *raised}


def rescore(alert: RiskAlert, *, trace_id: str, told: bool = True) -> None:
    """`recount` of a locked, open alert, read and written here. Call it inside the transaction of the change."""
    hits = list(RiskAlertHit.objects.filter(alert=alert, live_key__isnull=False).order_by("detected_at", "id"))
    effects = Effects()
    alert.save(update_fields=recount(alert, Tally(hits), effects, trace_id=trace_id, told=told))
    effects.write()


def _quieting(cases: Cases, hit: Hit) -> RiskAlert | None:
    """The alert that a hit is only noted on, because an officer has asked for quiet."""
    if alert_type_of(hit.rule_id) != AlertType.EVENT or not hit.customer_id:
        return None
    alert = cases.quieted_by(hit.rule_id, hit.product_id)
    if alert is None:
        return None
    quiet = alert.status in (AlertStatus.FALSE_POSITIVE, AlertStatus.CLOSED)
    return alert if quiet and hit.score < alert.score + FOLLOW_UP_MARGIN else None


def _merging_is_over(alert: RiskAlert, at: datetime) -> bool:
    return at >= alert.opened_at + timedelta(days=MERGE_DAYS)


def _open(cases: Cases, hit: Hit, trace_id: str, parent: RiskAlert | None) -> tuple[RiskAlert, tuple[str, ...]]:
    """The new alert with its limits and its level, and what `raise_level` says of the latter."""
    slot = merge_slot_of(hit)
    if parent is not None and slot is not None and cases.in_slot(slot) is not None:
        # A follow-up is opened even where the customer has another pending alert: that one keeps the slot.
        slot = None
    kind = alert_type_of(hit.rule_id)
    pattern = kind == AlertType.PATTERN
    alert = RiskAlert(
        tenant=cases.tenant,
        alert_type=kind,
        customer_id="" if pattern else hit.customer_id,
        advisor_id=hit.advisor_id,
        merge_slot=slot,
        score=alert_score([(hit.rule_id, hit.score)]),
        subtypes=_appended([], hit.subtypes),
        rule_ids=[hit.rule_id],
        payload=_payload_of(hit, pattern),
        trace_id=trace_id,
        parent=parent,
        opened_at=cases.at,
        updated_at=cases.at,
    )
    set_deadlines(alert, calendar=cases.calendar_for(alert))
    raised = raise_level(alert, rules=[hit.rule_id], at=cases.at, confirmed=cases.confirmed_rules(alert))
    cases.open(alert)
    return alert, raised


def _payload_of(hit: Hit, pattern: bool) -> dict[str, Any]:
    """Whom the alert is about. `agent` is the audit's word for the human advisor. Never published."""
    if hit.customer_id and not pattern:
        return {"actor_type": "customer", "actor_id": hit.customer_id}
    about = {"actor_type": "agent", "actor_id": hit.advisor_id}
    return {**about, "patterns": [pattern_of(hit.figures)]} if pattern else about


def _appended(old: list[str], new: list[str] | tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys([*old, *new]))
