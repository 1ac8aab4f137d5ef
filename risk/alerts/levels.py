"""How far an alert is escalated: RISK.md 3, "Escalation (C5)". Levels call people; they never change a status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from config.base.trace import current_trace_id
from guard.audit.models import Decision, EventType
from risk.alerts.deadlines import OPEN
from risk.alerts.effects import Effects
from risk.alerts.models import (
    AlertStatus,
    AlertType,
    EscalationLevel,
    RiskAlert,
    WokenBy,
)
from risk.alerts.scoring import band

SWEEPER = "risk.alerts"  # who acts in the audit when time or evidence escalates an alert

LEVEL_1_SCORE = 80
LEVEL_1_REPEATS = 3  # hits of one rule
LEVEL_2_SCORE = 90
LEVEL_2_RULES = 3
LEVEL_2_HITS = 10
CONFIRMED_WITHIN = timedelta(days=90)  # the same customer and rule

# Faults in the data are the operators'; a report is a filing duty and no suspicion, with a limit of its own.
NEVER_ESCALATED = (AlertType.DATA_QUALITY, AlertType.REPORT)

_ORDER = {EscalationLevel.NONE: 0, EscalationLevel.LEVEL_1: 1, EscalationLevel.LEVEL_2: 2}
_DECISION = {EscalationLevel.LEVEL_1: Decision.LEVEL_1, EscalationLevel.LEVEL_2: Decision.LEVEL_2}


@dataclass(frozen=True)
class Standing:
    """What a level depends on. hits: live ones by rule. confirmed_before: the same customer and rule was confirmed
    within CONFIRMED_WITHIN. Deadlines: None where there is none."""

    status: str
    score: int
    claim_due_at: datetime | None = None
    dispose_due_at: datetime | None = None
    hits: Counter[str] = field(default_factory=Counter)
    confirmed_before: bool = False


def level_of(standing: Standing, at: datetime) -> EscalationLevel:
    """The level that holds at an instant, whatever it was before. Pure. A deadline is past after it, not at it."""
    if band(standing.score) == "low" or standing.status not in OPEN:
        return EscalationLevel.NONE
    if (
        (standing.dispose_due_at is not None and at > standing.dispose_due_at)
        or standing.score >= LEVEL_2_SCORE
        or len(standing.hits) >= LEVEL_2_RULES
        or standing.hits.total() >= LEVEL_2_HITS
        or standing.confirmed_before
    ):
        return EscalationLevel.LEVEL_2
    unclaimed = standing.status == AlertStatus.PENDING and standing.claim_due_at is not None
    if (
        (unclaimed and standing.claim_due_at is not None and at > standing.claim_due_at)
        or standing.score >= LEVEL_1_SCORE
        or max(standing.hits.values(), default=0) >= LEVEL_1_REPEATS
    ):
        return EscalationLevel.LEVEL_1
    return EscalationLevel.NONE


def raise_level(
    alert: RiskAlert,
    *,
    rules: Iterable[str] | Mapping[str, int],
    at: datetime,
    confirmed: Collection[str] | None = None,
) -> tuple[str, ...]:
    """Sets the level of a locked or new alert, if it is higher than it was; the names of the columns to save.

    rules: of every live hit, one each, or how many of each. confirmed: the rules of the customer's other alerts that
    were confirmed within CONFIRMED_WITHIN, where the caller has read them. Empty: nothing rose. At most one query, none
    for low alerts.
    The caller saves, then calls `record_level`, then tells of it.
    """
    if alert.alert_type in NEVER_ESCALATED or alert.escalation_level == EscalationLevel.LEVEL_2:
        return ()
    if band(alert.score) == "low" or alert.status not in OPEN:
        return ()
    hits = Counter(rules)
    standing = Standing(
        status=alert.status,
        score=alert.score,
        claim_due_at=alert.claim_due_at,
        dispose_due_at=alert.dispose_due_at,
        hits=hits,
        confirmed_before=not hits.keys().isdisjoint(
            _confirmed_rules(alert, at) if confirmed is None else confirmed,
        ),
    )
    level = level_of(standing, at)
    if _ORDER[level] <= _ORDER[EscalationLevel(alert.escalation_level)]:
        return ()
    alert.escalation_level = level
    if alert.snoozed_until is None:
        return ("escalation_level",)
    alert.snoozed_until, alert.woken_at, alert.woken_by = None, at, WokenBy.LEVEL
    return ("escalation_level", "snoozed_until", "woken_at", "woken_by")


def record_level(alert: RiskAlert, raised: tuple[str, ...], *, trace_id: str) -> None:
    """The timeline's and the audit's rows of what `raise_level` has set. Call it in the same transaction."""
    effects = Effects()
    tell_level(effects, alert, raised, trace_id=trace_id)
    effects.write()


def tell_level(effects: Effects, alert: RiskAlert, raised: tuple[str, ...], *, trace_id: str) -> None:
    """As `record_level`, written with the rest of the change."""
    if not raised:
        return
    level = EscalationLevel(alert.escalation_level)
    effects.note(alert, level.value.lower(), trace_id=trace_id)
    effects.record(
        tenant=alert.tenant,
        event_type=EventType.ALERT_ESCALATED,
        decision=_DECISION[level],
        actor_id=SWEEPER,
        agent="risk",
        object_type="risk_alert",
        object_id=alert.alert_id,
        risk_score=alert.score,
        trace_id=trace_id or current_trace_id(),
        input_summary={"status": alert.status, "version": alert.version, "hits": alert.hit_count},
    )
    if "woken_by" in raised:
        _tell_woken(effects, alert, trace_id)


def record_woken(alert: RiskAlert, *, trace_id: str = "") -> None:
    """The rows of an alert that is back, with why, when it was not an officer who took it up."""
    effects = Effects()
    _tell_woken(effects, alert, trace_id)
    effects.write()


def _tell_woken(effects: Effects, alert: RiskAlert, trace_id: str) -> None:
    effects.note(alert, "wake", text=alert.woken_by, trace_id=trace_id)
    effects.record(
        tenant=alert.tenant,
        event_type=EventType.ALERT_STATUS,
        decision=Decision.WOKEN,
        actor_id=SWEEPER,
        agent="risk",
        object_type="risk_alert",
        object_id=alert.alert_id,
        risk_score=alert.score,
        trace_id=trace_id or current_trace_id(),
        input_summary={"because": str(alert.woken_by), "version": alert.version},
    )


def _confirmed_rules(alert: RiskAlert, at: datetime) -> set[str]:
    if not alert.customer_id:
        return set()
    others = RiskAlert.objects.filter(
        tenant=alert.tenant, customer_id=alert.customer_id, confirmed_at__gte=at - CONFIRMED_WITHIN
    ).exclude(pk=alert.pk)
    return {rule for rules in others.values_list("rule_ids", flat=True) for rule in rules}
