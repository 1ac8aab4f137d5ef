"""What officers do with an alert: claim, assign, release, dispose, reopen.

Each act is one transaction: a conditional update on status and version that must change one row, the
`alert_action`, the audit row and the outbox row. Whoever comes second is told who was first.
"""

from __future__ import annotations

from django.contrib.auth.models import User

from config.base.clock import now
from config.base.errors import DomainError
from config.base.trace import current_trace_id
from guard.access.roles import may, tenant_of
from guard.audit.models import Decision
from risk.alerts.acting import (
    DISPOSE,
    TEXT_MIN,
    TRANSITIONS,
    act,
    admit,
    checked_text,
    conflict,
    expect,
    move,
    refuse_transition,
)
from risk.alerts.deadlines import set_deadlines
from risk.alerts.judging import Judgement, needs_four_eyes, no_proposal, put_forward, take
from risk.alerts.merging import rescore
from risk.alerts.models import DISPOSED, AlertStatus, RiskAlert, RiskAlertHit
from risk.feed.events import tell_update

_DECISION_OF_STATUS = {
    AlertStatus.CONFIRMED: Decision.CONFIRMED,
    AlertStatus.FALSE_POSITIVE: Decision.FALSE_POSITIVE,
    AlertStatus.CLOSED: Decision.CLOSED,
}


def claim(*, alert_id: str, officer: User, version: int | None = None) -> RiskAlert:
    """pending -> in_review, with `officer` as the assignee. version: the one seen, None for whichever it is.

    Errors: FORBIDDEN, ALERT_NOT_FOUND, ALERT_CONFLICT, VERSION_CONFLICT, INVALID_TRANSITION.
    """
    tenant = admit(officer, "claim", alert_id)

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.PENDING}, "claimed")
        take(alert, officer)
        tell_update(alert)

    return act(tenant, alert_id, version, work)


def assign(*, alert_id: str, officer: User, to: User, version: int | None = None, text: str = "") -> RiskAlert:
    """pending or in_review -> in_review with `to` as the assignee, by any officer: the work of one who is away goes on.

    Errors: as `claim`, and INVALID_REQUEST where `to` may not dispose of the tenant's alerts, or has this one already.
    """
    tenant = admit(officer, "assign", alert_id)
    text = checked_text(text, minimum=0)
    if not may(to, DISPOSE) or tenant_of(to) != tenant:
        raise DomainError("INVALID_REQUEST", "an alert is assigned to an officer of its tenant", field="to")

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.PENDING, AlertStatus.IN_REVIEW}, "assigned")
        if alert.assignee_id == to.pk and alert.status == AlertStatus.IN_REVIEW:
            raise DomainError("INVALID_REQUEST", f"{to.get_username()} has this alert already", field="assignee")
        move(
            alert, AlertStatus.IN_REVIEW, officer,
            action="assign", decision=Decision.ASSIGNED, text=text, changes={"assignee": to},
            summary={"to_officer": to.get_username()},
        )  # fmt: skip
        tell_update(alert)

    return act(tenant, alert_id, version, work)


def release(*, alert_id: str, officer: User, version: int | None = None, text: str = "") -> RiskAlert:
    """in_review -> pending, without an assignee. Any officer may: the alert of one who is away is not stuck.

    It does not take further hits again: its evidence has been looked at.
    Errors: as `claim`.
    """
    tenant = admit(officer, "release", alert_id)
    text = checked_text(text, minimum=0)

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.IN_REVIEW}, "released")
        move(
            alert, AlertStatus.PENDING, officer,
            action="release", decision=Decision.RELEASED, text=text, changes={"assignee": None},
        )  # fmt: skip
        tell_update(alert)

    return act(tenant, alert_id, version, work)


def dispose(
    *,
    alert_id: str,
    officer: User,
    version: int,
    evidence_hash: str,
    to_status: str,
    code: str,
    text: str,
    quiet_days: int = 0,
) -> RiskAlert:
    """in_review -> confirmed, false_positive or closed; confirmed -> closed when the follow-up is done.

    1. Who may: permission `risk.dispose_alert`; an alert in review is its assignee's.
    2. The code fits the status (C confirmed, F false positive, K closed); the text has 10 characters, 30 for
       confirmed or from score 60 on.
    3. `evidence_hash` (risk.alerts.evidence) is that of the evidence as it stands.
    4. From pending it is claimed first, in the same transaction.
    5. Where it takes four eyes (needs_four_eyes) the alert becomes `escalated`, with this as the proposal.
    6. Conditional update on status and version; action, audit row and outbox row with it.

    Errors: as `claim`; VERSION_CONFLICT with `new_hits` where there is other evidence; INVALID_REQUEST for a status,
    code, text or quiet period that does not do.
    """
    tenant = admit(officer, "dispose", alert_id)
    judgement = Judgement.of(to_status, code, text, quiet_days)

    def work(alert: RiskAlert) -> None:
        decide(alert, officer, judgement, evidence_hash)

    return act(tenant, alert_id, version, work, seen_hash=evidence_hash)


def decide(alert: RiskAlert, officer: User, judgement: Judgement, evidence_hash: str, *, at_once: int = 1) -> None:
    """Steps 1 to 6 of `dispose` on a locked alert, within an act. at_once: how many share the reason."""
    if alert.status == AlertStatus.ESCALATED:
        raise conflict(alert, alert.version)
    claimed = AlertStatus.IN_REVIEW if alert.status == AlertStatus.PENDING else alert.status
    if judgement.status not in TRANSITIONS.get(claimed, frozenset()):
        refuse_transition(alert, judgement.status.value)
    if alert.status == AlertStatus.IN_REVIEW and alert.assignee_id != officer.pk:
        raise conflict(alert, alert.version)
    judgement.check(alert)
    if alert.status == AlertStatus.PENDING:
        take(alert, officer)
    if alert.status == AlertStatus.IN_REVIEW and needs_four_eyes(alert):
        put_forward(alert, officer, judgement, evidence_hash)
    else:
        together = {"at_once": at_once} if at_once > 1 else {}
        move(
            alert, judgement.status, officer,
            action="dispose", decision=_DECISION_OF_STATUS[judgement.status],
            code=judgement.code, text=judgement.text, changes=judgement.columns(officer),
            summary={"evidence": evidence_hash, "quiet_days": judgement.quiet_days, **together},
        )  # fmt: skip
    tell_update(alert)


def reopen(*, alert_id: str, officer: User, version: int, text: str) -> RiskAlert:
    """confirmed, false_positive or closed -> in_review with `officer`, for a reason of at least 10 characters.

    The disposition stays in the timeline and leaves the alert, with its quiet period; the clock starts anew. What has
    come after the disposition is evidence from now on. Errors: as `claim`, and INVALID_REQUEST.
    """
    tenant = admit(officer, "reopen", alert_id)
    text = checked_text(text, minimum=TEXT_MIN)

    def work(alert: RiskAlert) -> None:
        expect(alert, set(DISPOSED), "reopened")
        move(
            alert, AlertStatus.IN_REVIEW, officer,
            action="reopen", decision=Decision.REOPENED, text=text,
            changes={
                "assignee": officer,
                "disposition_code": "",
                "disposition_text": "",
                "disposed_by": None,
                "disposed_at": None,
                "confirmed_at": None,
                "quiet_until": None,
                "reopened_at": now(),
                **no_proposal(),
            },
        )  # fmt: skip
        alert.save(update_fields=set_deadlines(alert))
        late = RiskAlertHit.objects.filter(alert=alert, alert_version=None)
        if late.update(alert_version=alert.version + 1):
            rescore(alert, trace_id=current_trace_id())
        else:
            tell_update(alert)

    return act(tenant, alert_id, version, work)
