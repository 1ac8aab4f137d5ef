"""What officers do with an alert: claim, release, dispose, reopen, note.

Each act is one transaction: a conditional update on status and version that must change one row, the
`alert_action`, the audit row and the outbox row. Whoever comes second is told who was first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from django.contrib.auth.models import User
from django.db import transaction

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.trace import current_trace_id
from guard.access.roles import may, tenant_of
from guard.audit import told
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.alerts.models import (
    CODE_LETTER,
    DISPOSED,
    AlertAction,
    AlertStatus,
    DispositionCode,
    RiskAlert,
    RiskAlertHit,
)
from risk.feed.events import tell_update

DISPOSE = "risk.dispose_alert"

TEXT_MIN = 10  # characters of reason for any disposition ...
TEXT_MIN_SERIOUS = 30  # ... for `confirmed`, and from this score on
SERIOUS_SCORE = 60
TEXT_MAX = 4000

# RISK.md 3. What leads to `escalated` and out of it belongs to the four eyes.
TRANSITIONS: dict[str, frozenset[str]] = {
    AlertStatus.PENDING: frozenset({AlertStatus.IN_REVIEW}),
    AlertStatus.IN_REVIEW: frozenset({AlertStatus.PENDING, *DISPOSED}),
    AlertStatus.CONFIRMED: frozenset({AlertStatus.CLOSED, AlertStatus.IN_REVIEW}),
    AlertStatus.FALSE_POSITIVE: frozenset({AlertStatus.IN_REVIEW}),
    AlertStatus.CLOSED: frozenset({AlertStatus.IN_REVIEW}),
}
_DECISION_OF_STATUS = {
    AlertStatus.CONFIRMED: Decision.CONFIRMED,
    AlertStatus.FALSE_POSITIVE: Decision.FALSE_POSITIVE,
    AlertStatus.CLOSED: Decision.CLOSED,
}


def claim(*, alert_id: str, officer: User, version: int | None = None) -> RiskAlert:
    """pending -> in_review, with `officer` as the assignee. version: the one seen, None for whichever it is.

    Errors: FORBIDDEN, ALERT_NOT_FOUND, ALERT_CONFLICT, VERSION_CONFLICT, INVALID_TRANSITION.
    """
    tenant = _admit(officer, "claim", alert_id)

    def work(alert: RiskAlert) -> None:
        _expect(alert, {AlertStatus.PENDING}, "claimed")
        _claim(alert, officer)
        tell_update(alert)

    return _act(tenant, alert_id, version, work)


def release(*, alert_id: str, officer: User, version: int | None = None, text: str = "") -> RiskAlert:
    """in_review -> pending, without an assignee. Any officer may: the alert of one who is away is not stuck.

    It does not take further hits again: its evidence has been looked at.
    Errors: as `claim`.
    """
    tenant = _admit(officer, "release", alert_id)
    text = _text(text, minimum=0)

    def work(alert: RiskAlert) -> None:
        _expect(alert, {AlertStatus.IN_REVIEW}, "released")
        _move(
            alert, AlertStatus.PENDING, officer,
            action="release", decision=Decision.RELEASED, text=text, changes={"assignee": None},
        )  # fmt: skip
        tell_update(alert)

    return _act(tenant, alert_id, version, work)


def dispose(*, alert_id: str, officer: User, version: int, to_status: str, code: str, text: str) -> RiskAlert:
    """in_review -> confirmed, false_positive or closed; confirmed -> closed when the follow-up is done.

    1. Who may: permission `risk.dispose_alert`; an alert in review is its assignee's.
    2. The code fits the status (C confirmed, F false positive, K closed); the text has 10 characters, 30 for
       confirmed or from score 60 on.
    3. From pending it is claimed first, in the same transaction.
    4. Conditional update on status and version; action, audit row and outbox row with it.

    Errors: as `claim`, and INVALID_REQUEST for a status, code or text that does not do.
    """
    tenant = _admit(officer, "dispose", alert_id)
    if to_status not in CODE_LETTER:
        raise DomainError(
            "INVALID_REQUEST",
            f"status {str(to_status)[:20]!r} is no disposition; use {', '.join(s.value for s in DISPOSED)}",
            field="to_status",
        )
    status = AlertStatus(to_status)
    letter = CODE_LETTER[status]
    if code not in DispositionCode.values or not code.startswith(letter):
        fitting = ", ".join(value for value in DispositionCode.values if value.startswith(letter))
        raise DomainError(
            "INVALID_REQUEST", f"code {str(code)[:8]!r} does not go with {status.value}; use {fitting}", field="code"
        )
    text = _text(text, minimum=TEXT_MIN_SERIOUS if status == AlertStatus.CONFIRMED else TEXT_MIN)

    def work(alert: RiskAlert) -> None:
        claimed = AlertStatus.IN_REVIEW if alert.status == AlertStatus.PENDING else alert.status
        if status not in TRANSITIONS.get(claimed, frozenset()):
            _refuse_transition(alert, status.value)
        if alert.status == AlertStatus.IN_REVIEW and alert.assignee_id != officer.pk:
            raise _conflict(alert, alert.version)
        if alert.score >= SERIOUS_SCORE:
            _text(text, minimum=TEXT_MIN_SERIOUS, why=f" because the score is {alert.score}")
        if alert.status == AlertStatus.PENDING:
            _claim(alert, officer)
        _move(
            alert, status, officer,
            action="dispose", decision=_DECISION_OF_STATUS[status], code=code, text=text,
            changes={
                "disposition_code": code,
                "disposition_text": text,
                "disposed_by": officer,
                "disposed_at": now(),
            },
        )  # fmt: skip
        tell_update(alert)

    return _act(tenant, alert_id, version, work)


def reopen(*, alert_id: str, officer: User, version: int, text: str) -> RiskAlert:
    """confirmed, false_positive or closed -> in_review with `officer`, for a reason of at least 10 characters.

    The disposition stays in the timeline and leaves the alert. Errors: as `claim`, and INVALID_REQUEST.
    """
    tenant = _admit(officer, "reopen", alert_id)
    text = _text(text, minimum=TEXT_MIN)

    def work(alert: RiskAlert) -> None:
        _expect(alert, set(DISPOSED), "reopened")
        _move(
            alert, AlertStatus.IN_REVIEW, officer,
            action="reopen", decision=Decision.REOPENED, text=text,
            changes={
                "assignee": officer,
                "disposition_code": "",
                "disposition_text": "",
                "disposed_by": None,
                "disposed_at": None,
            },
        )  # fmt: skip
        tell_update(alert)

    return _act(tenant, alert_id, version, work)


def add_note(*, alert_id: str, officer: User, text: str) -> AlertAction:
    """A note on the timeline, in any status. It changes nothing that a disposition rests on: the version stays.

    Errors: FORBIDDEN, ALERT_NOT_FOUND, INVALID_REQUEST for an empty text.
    """
    tenant = _admit(officer, "note", alert_id)
    text = _text(text, minimum=1)
    with transaction.atomic():
        alert = _find(tenant, alert_id)
        action = AlertAction.objects.create(
            alert=alert,
            action="note",
            from_status=alert.status,
            to_status=alert.status,
            actor=officer,
            text=text,
            alert_version=alert.version,
            trace_id=current_trace_id(),
        )
        tell_update(alert)
    return action


# --- the parts ----------------------------------------------------------------------------------------------------


def _admit(officer: User, action: str, alert_id: str) -> str:
    """The officer's tenant. Errors: FORBIDDEN, with an audit row that stays whatever happens to the caller's work.

    risk_manager looks and does not touch, and neither does whoever only runs the system.
    """
    tenant = tenant_of(officer)
    if may(officer, DISPOSE):
        return tenant
    record(
        tenant=tenant,
        event_type=EventType.AUTHZ,
        decision=Decision.FORBIDDEN,
        actor_type=ActorType.STAFF,
        actor_id=officer.get_username(),
        object_type="risk_alert",
        object_id=told.object_id(tenant, alert_id),
        code="FORBIDDEN",
        input_summary={"code": "FORBIDDEN", "action": action, "permission": DISPOSE},
    )
    raise DomainError("FORBIDDEN", f"to {action} alerts needs the permission {DISPOSE} (role risk_officer)")


def _text(text: str, *, minimum: int, why: str = "") -> str:
    """Errors: INVALID_REQUEST that tells how long it is and how long it must be."""
    text = text.strip()
    if len(text) < minimum:
        raise DomainError(
            "INVALID_REQUEST",
            f"the text has {len(text)} characters; it needs at least {minimum}{why}",
            field="text",
            minimum=minimum,
        )
    if len(text) > TEXT_MAX:
        raise DomainError(
            "INVALID_REQUEST", f"the text has {len(text)} characters; at most {TEXT_MAX} are kept", field="text"
        )
    return text


def _find(tenant: str, alert_id: str, *, lock: bool = False) -> RiskAlert:
    rows = RiskAlert.objects.select_for_update() if lock else RiskAlert.objects.all()
    alert = rows.filter(tenant=tenant, alert_id=alert_id).first()
    if alert is None:
        raise DomainError("ALERT_NOT_FOUND", f"no alert {alert_id[:64]!r} in this tenant")
    return alert


def _act(tenant: str, alert_id: str, version: int | None, work: Callable[[RiskAlert], None]) -> RiskAlert:
    """Reads the alert, lets `work` change it, all in one transaction that is tried again after a deadlock."""

    def attempt() -> RiskAlert:
        with transaction.atomic():
            # Locked, so that a hit that joins at this moment is before or after the act, not in the middle of it.
            alert = _find(tenant, alert_id, lock=True)
            if version is not None and alert.version != version:
                raise _conflict(alert, version)
            work(alert)
            return alert

    return retry_conflicts(attempt)


def _expect(alert: RiskAlert, statuses: set[AlertStatus], deed: str) -> None:
    if alert.status in statuses:
        return
    # Somebody else's act is the reason, so that is what is told; a status that no act explains is told as such.
    last = _last_act(alert)
    if last is not None and last.to_status == alert.status:
        raise _conflict(alert, alert.version)
    _refuse_transition(alert, deed)


def _refuse_transition(alert: RiskAlert, wanted: str) -> NoReturn:
    raise DomainError(
        "INVALID_TRANSITION",
        f"the alert is {alert.status} and cannot become {wanted} from there",
        status_now=alert.status,
        version=alert.version,
    )


def _claim(alert: RiskAlert, officer: User) -> None:
    _move(
        alert, AlertStatus.IN_REVIEW, officer,
        action="claim", decision=Decision.CLAIMED, changes={"assignee": officer},
    )  # fmt: skip


def _move(
    alert: RiskAlert,
    to: AlertStatus,
    officer: User,
    *,
    action: str,
    decision: str,
    changes: dict[str, Any],
    code: str = "",
    text: str = "",
) -> None:
    """One arrow: the conditional update, its action and its audit row. `alert` afterwards is as stored."""
    before = AlertStatus(alert.status)
    at = now()
    # Leaving pending ends merging for good: what an officer looks at does not grow under their hands.
    slot: dict[str, Any] = {"merge_slot": None} if before == AlertStatus.PENDING else {}
    values = {**changes, **slot, "status": to, "version": alert.version + 1, "updated_at": at}
    moved = RiskAlert.objects.filter(
        tenant=alert.tenant, alert_id=alert.alert_id, status=before, version=alert.version
    ).update(**values)
    if moved != 1:
        raise _conflict(_find(alert.tenant, alert.alert_id), alert.version)
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
        input_summary={"from": before.value, "to": to.value, "version": alert.version},
    )


def _last_act(alert: RiskAlert, after_version: int = 0) -> AlertAction | None:
    acts = AlertAction.objects.select_related("actor").filter(
        alert_id=alert.alert_id, actor__isnull=False, alert_version__gt=after_version
    )
    return acts.exclude(action="note").order_by("-alert_version", "-id").first()


def _conflict(alert: RiskAlert, seen_version: int) -> DomainError:
    """Who was first: ALERT_CONFLICT names the officer, the act and the time; where only evidence has come since,
    VERSION_CONFLICT says so."""
    last = _last_act(alert, seen_version) or (_last_act(alert) if seen_version == alert.version else None)
    extra: dict[str, Any] = {"status_now": alert.status, "version": alert.version, "seen_version": seen_version}
    if last is not None and last.actor is not None:
        by, at = last.actor.get_username(), rfc3339(last.at)
        deed = {"claim": "claimed", "release": "released", "dispose": "disposed of", "reopen": "reopened"}.get(
            last.action, last.action
        )
        outcome = f" as {last.to_status} {last.code}" if last.action == "dispose" else ""
        return DomainError(
            "ALERT_CONFLICT",
            f"{by} {deed} this alert{outcome} at {at}; it is {alert.status} now, version {alert.version}",
            by=by,
            action=last.action,
            at=at,
            code_given=last.code,
            **extra,
        )
    hits = RiskAlertHit.objects.filter(alert_id=alert.alert_id, live_key__isnull=False).count()
    return DomainError(
        "VERSION_CONFLICT",
        f"the alert's evidence has changed: version {alert.version} with {hits} hits, you saw version "
        f"{seen_version}; read it again",
        hits=hits,
        **extra,
    )
