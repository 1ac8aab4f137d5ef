"""What every act on an alert shares: who may, the lock, the conditional update and its rows, who was first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from django.contrib.auth.models import User
from django.db import transaction

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.seen import seen_length
from config.base.trace import current_trace_id
from guard.access.roles import may, tenant_of
from guard.audit import told
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.alerts.evidence import evidence_hash, hits_since
from risk.alerts.models import DISPOSED, AlertAction, AlertStatus, RiskAlert, RiskAlertHit

DISPOSE = "risk.dispose_alert"
REVIEW = "risk.review_alert"

TEXT_MIN = 10  # characters of reason for any disposition ...
TEXT_MIN_SERIOUS = 30  # ... for `confirmed`, and from this score on
SERIOUS_SCORE = 60
TEXT_MAX = 4000

# RISK.md 3. What leads to `escalated` and out of it is in `reviewing`.
TRANSITIONS: dict[str, frozenset[str]] = {
    AlertStatus.PENDING: frozenset({AlertStatus.IN_REVIEW, AlertStatus.ESCALATED}),
    AlertStatus.IN_REVIEW: frozenset({AlertStatus.PENDING, AlertStatus.ESCALATED, *DISPOSED}),
    AlertStatus.ESCALATED: frozenset({AlertStatus.IN_REVIEW, *DISPOSED}),
    AlertStatus.CONFIRMED: frozenset({AlertStatus.CLOSED, AlertStatus.IN_REVIEW}),
    AlertStatus.FALSE_POSITIVE: frozenset({AlertStatus.IN_REVIEW}),
    AlertStatus.CLOSED: frozenset({AlertStatus.IN_REVIEW}),
}
# What stands in the timeline and changes nothing that a disposition rests on: nobody is overtaken by it.
REMARKS = ("note", "ask", "answer", "withdraw", "overdue", "stop", "go_on")
_DEEDS = {
    "claim": "claimed",
    "assign": "assigned",
    "release": "released",
    "dispose": "disposed of",
    "propose": "escalated",
    "approve": "approved",
    "return": "returned",
    "reopen": "reopened",
    "snooze": "put aside",
    "wake": "took up again",
    "handover": "handed over",
}


def admit(officer: User, action: str, alert_id: str, *, permission: str = DISPOSE) -> str:
    """The officer's tenant. Errors: FORBIDDEN, with an audit row that stays whatever happens to the caller's work.

    risk_manager looks and does not touch, and neither does whoever only runs the system.
    """
    tenant = tenant_of(officer)
    lacking = next((name for name in (DISPOSE, permission) if not may(officer, name)), None)
    if lacking is None:
        return tenant
    record_refused(officer, tenant, action, alert_id, code="FORBIDDEN", permission=lacking)
    raise DomainError("FORBIDDEN", f"to {action} alerts needs the permission {lacking} (role risk_officer)")


def record_refused(
    officer: User, tenant: str, action: str, alert_id: str, *, code: str, permission: str = DISPOSE
) -> None:
    record(
        tenant=tenant,
        event_type=EventType.AUTHZ,
        decision=Decision.FORBIDDEN,
        actor_type=ActorType.STAFF,
        actor_id=officer.get_username(),
        object_type="risk_alert",
        object_id=told.object_id(tenant, alert_id),
        code=code,
        input_summary={"code": code, "action": action, "permission": permission},
    )


def checked_text(text: str, *, minimum: int, why: str = "") -> str:
    """Errors: INVALID_REQUEST that tells how long it is, to a reader, and how long it must be."""
    text = text.strip()
    if (length := seen_length(text)) < minimum:
        raise DomainError(
            "INVALID_REQUEST",
            f"the text has {length} characters; it needs at least {minimum}{why}",
            field="text",
            minimum=minimum,
        )
    if len(text) > TEXT_MAX:
        raise DomainError(
            "INVALID_REQUEST", f"the text has {len(text)} characters; at most {TEXT_MAX} are kept", field="text"
        )
    return text


def find(tenant: str, alert_id: str, *, lock: bool = False) -> RiskAlert:
    rows = RiskAlert.objects.select_for_update() if lock else RiskAlert.objects.all()
    alert = rows.filter(tenant=tenant, alert_id=alert_id).first()
    if alert is None:
        raise DomainError("ALERT_NOT_FOUND", f"no alert {alert_id[:64]!r} in this tenant")
    return alert


def act(
    tenant: str,
    alert_id: str,
    version: int | None,
    work: Callable[[RiskAlert], None],
    *,
    seen_hash: str | None = None,
) -> RiskAlert:
    """Reads the alert, lets `work` change it, all in one transaction that is tried again after a deadlock.

    seen_hash: the evidence that the officer judges; None where nothing is judged.
    """

    def attempt() -> RiskAlert:
        with transaction.atomic():
            # Locked, so that a hit that joins at this moment is before or after the act, not in the middle of it.
            alert = find(tenant, alert_id, lock=True)
            if version is not None and alert.version != version:
                raise conflict(alert, version, seen_hash)
            if seen_hash is not None and seen_hash != evidence_hash(alert):
                raise changed(alert, alert.version if version is None else version, seen_hash)
            work(alert)
            return alert

    return retry_conflicts(attempt)


def expect(alert: RiskAlert, statuses: set[AlertStatus], deed: str) -> None:
    if alert.status in statuses:
        return
    # Somebody else's act is the reason, so that is what is told; a status that no act explains is told as such.
    last = _last_act(alert)
    if last is not None and last.to_status == alert.status:
        raise conflict(alert, alert.version)
    refuse_transition(alert, deed)


def refuse_transition(alert: RiskAlert, wanted: str) -> NoReturn:
    raise DomainError(
        "INVALID_TRANSITION",
        f"the alert is {alert.status} and cannot become {wanted} from there",
        status_now=alert.status,
        version=alert.version,
    )


def move(
    alert: RiskAlert,
    to: AlertStatus,
    officer: User,
    *,
    action: str,
    decision: str,
    changes: dict[str, Any],
    code: str = "",
    text: str = "",
    summary: dict[str, Any] | None = None,
) -> None:
    """One arrow: the conditional update, its action and its audit row. `alert` afterwards is as stored.

    Who moves an alert has it before them: it is not aside any more.
    """
    before = AlertStatus(alert.status)
    at = now()
    values = {**changes, "status": to, "version": alert.version + 1, "updated_at": at}
    if before == AlertStatus.PENDING and to != AlertStatus.PENDING:
        # Leaving pending ends merging for good: what an officer looks at does not grow under their hands.
        values["merge_slot"] = None
    if alert.snoozed_until is not None:
        values.setdefault("snoozed_until", None)
    moved = RiskAlert.objects.filter(
        tenant=alert.tenant, alert_id=alert.alert_id, status=before, version=alert.version
    ).update(**values)
    if moved != 1:
        raise conflict(find(alert.tenant, alert.alert_id), alert.version)
    for name, value in values.items():
        setattr(alert, name, value)
    trace_id = current_trace_id()
    AlertAction.objects.create(
        alert=alert,
        action=action,
        from_status=before,
        to_status=to,
        actor=officer,
        code=code,
        text=text,
        alert_version=alert.version,
        trace_id=trace_id,
        at=at,
    )
    record(
        tenant=alert.tenant,
        event_type=EventType.ALERT_STATUS,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=officer.get_username(),
        object_type="risk_alert",
        object_id=alert.alert_id,
        code=code,
        risk_score=alert.score,
        trace_id=trace_id,
        input_summary={"from": before.value, "to": to.value, "version": alert.version, **(summary or {})},
    )


def _last_act(alert: RiskAlert, after_version: int = 0) -> AlertAction | None:
    acts = AlertAction.objects.select_related("actor").filter(
        alert_id=alert.alert_id, actor__isnull=False, alert_version__gt=after_version
    )
    return acts.exclude(action__in=REMARKS).order_by("-alert_version", "-id").first()


def conflict(alert: RiskAlert, seen_version: int, seen_hash: str | None = None) -> DomainError:
    """Who was first: ALERT_CONFLICT names the officer, the act and the time; where only evidence has come since,
    VERSION_CONFLICT says so."""
    last = _last_act(alert, seen_version) or (_last_act(alert) if seen_version == alert.version else None)
    if last is None or last.actor is None:
        return changed(alert, seen_version, seen_hash)
    by, at = last.actor.get_username(), rfc3339(last.at)
    outcome = f" as {last.to_status} {last.code}" if last.action in ("dispose", "approve") else ""
    return DomainError(
        "ALERT_CONFLICT",
        f"{by} {_DEEDS.get(last.action, last.action)} this alert{outcome} at {at}; it is {alert.status} now, "
        f"version {alert.version}",
        by=by,
        action=last.action,
        at=at,
        code_given=last.code,
        status_now=alert.status,
        version=alert.version,
        seen_version=seen_version,
    )


def changed(alert: RiskAlert, seen_version: int, seen_hash: str | None = None) -> DomainError:
    """VERSION_CONFLICT with `new_hits`: what has come since the evidence that the officer saw (`hits_since`)."""
    hits = RiskAlertHit.objects.filter(alert_id=alert.alert_id, live_key__isnull=False).count()
    return DomainError(
        "VERSION_CONFLICT",
        f"the alert's evidence has changed: version {alert.version} with {hits} hits, you saw version "
        f"{seen_version}; read it again",
        hits=hits,
        new_hits=hits_since(alert, seen_version, seen_hash),
        status_now=alert.status,
        version=alert.version,
        seen_version=seen_version,
    )
