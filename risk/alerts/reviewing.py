"""Four eyes: one officer puts a disposition forward, another approves it or gives it back."""

from __future__ import annotations

from django.contrib.auth.models import User

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.roles import may
from guard.audit.models import Decision
from risk.alerts.acting import (
    REVIEW,
    TEXT_MIN,
    act,
    admit,
    changed,
    checked_text,
    conflict,
    expect,
    move,
    record_refused,
)
from risk.alerts.judging import Judgement, no_proposal, put_forward, take
from risk.alerts.models import AlertStatus, RiskAlert, WokenBy
from risk.feed.events import tell_update


def escalate(
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
    """pending or in_review -> escalated: a second officer is asked, also where the alert does not take two (上报).

    A disposition that takes four eyes comes here by itself (`dispose`). Arguments, errors: as `dispose`.
    """
    tenant = admit(officer, "escalate", alert_id)
    judgement = Judgement.of(to_status, code, text, quiet_days)

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.PENDING, AlertStatus.IN_REVIEW}, "escalated")
        if alert.status == AlertStatus.IN_REVIEW and alert.assignee_id != officer.pk:
            raise conflict(alert, alert.version)
        judgement.check(alert)
        if alert.status == AlertStatus.PENDING:
            take(alert, officer)
        put_forward(alert, officer, judgement, evidence_hash)
        tell_update(alert)

    return act(tenant, alert_id, version, work, seen_hash=evidence_hash)


def approve(*, alert_id: str, officer: User, version: int, evidence_hash: str, text: str = "") -> RiskAlert:
    """escalated -> what was proposed, by another officer, on the evidence that the first has judged.

    Needs the permissions `risk.dispose_alert` and `risk.review_alert`. Where there is other evidence by now the
    proposal can only be given back: whoever judged it has not seen all of it.
    Errors: as `claim`; FOUR_EYES (403, one audit row) for the officer who proposed it; VERSION_CONFLICT with
    `new_hits`, those that the proposal did not rest on.
    """
    tenant = admit(officer, "approve", alert_id, permission=REVIEW)
    text = checked_text(text, minimum=0)

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.ESCALATED}, "approved")
        if alert.proposed_by_id == officer.pk:  # type: ignore[attr-defined]
            raise DomainError("FOUR_EYES", "who proposed a disposition does not approve it; another officer does")
        if alert.proposed_hash != evidence_hash:
            raise changed(alert, _proposed_at_version(alert), alert.proposed_hash)
        judgement = Judgement(
            AlertStatus(alert.proposed_status), alert.proposed_code, alert.proposed_text, alert.proposed_quiet_days
        )
        judgement.check(alert)
        move(
            alert, judgement.status, officer,
            action="approve", decision=Decision.APPROVED, code=judgement.code, text=text,
            changes={**judgement.columns(officer), "four_eyes": True},
            summary={"evidence": evidence_hash, "quiet_days": judgement.quiet_days},
        )  # fmt: skip
        tell_update(alert)

    try:
        return act(tenant, alert_id, version, work, seen_hash=evidence_hash)
    except DomainError as refusal:
        if refusal.code == "FOUR_EYES":  # after the rollback, which would have taken the row along
            record_refused(officer, tenant, "approve", alert_id, code="FOUR_EYES", permission=REVIEW)
        raise


def give_back(*, alert_id: str, officer: User, version: int, text: str) -> RiskAlert:
    """escalated -> in_review (退回), with the officer who had it, for a reason of at least 10 characters.

    By an officer with `risk.review_alert`, or by the one who proposed it and has thought again.
    Errors: as `claim`, and INVALID_REQUEST.
    """
    tenant = admit(officer, "return", alert_id)
    text = checked_text(text, minimum=TEXT_MIN)

    def work(alert: RiskAlert) -> None:
        expect(alert, {AlertStatus.ESCALATED}, "returned")
        if alert.proposed_by_id != officer.pk and not may(officer, REVIEW):  # type: ignore[attr-defined]
            raise DomainError("FORBIDDEN", f"to return another officer's proposal needs the permission {REVIEW}")
        move(
            alert, AlertStatus.IN_REVIEW, officer,
            action="return", decision=Decision.RETURNED, text=text,
            changes={**no_proposal(), "woken_at": now(), "woken_by": WokenBy.RETURNED},
        )  # fmt: skip
        tell_update(alert)

    try:
        return act(tenant, alert_id, version, work)
    except DomainError as refusal:
        if refusal.code == "FORBIDDEN":
            record_refused(officer, tenant, "return", alert_id, code="FORBIDDEN", permission=REVIEW)
        raise


def _proposed_at_version(alert: RiskAlert) -> int:
    proposals = alert.actions.filter(action="propose").order_by("-alert_version")  # type: ignore[attr-defined]
    return int(proposals.values_list("alert_version", flat=True).first() or 0)
