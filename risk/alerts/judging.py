"""A disposition: what an officer may say, what it leaves on the alert, and how it is put forward to a second one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User

from config.base.clock import now
from config.base.errors import DomainError
from guard.audit.models import Decision
from risk.alerts.acting import SERIOUS_SCORE, TEXT_MIN, TEXT_MIN_SERIOUS, checked_text, move
from risk.alerts.models import (
    CODE_LETTER,
    DISPOSED,
    AlertStatus,
    AlertType,
    DispositionCode,
    EscalationLevel,
    RiskAlert,
)

FOUR_EYES_SCORE = 80
QUIET_DAYS = (0, 7, 30)


@dataclass(frozen=True)
class Judgement:
    """A disposition as an officer gives it; checked as far as it can be without the alert.

    quiet_days: of false_positive and closed: for so long the same customer, rule and product open no new alert.
    """

    status: AlertStatus
    code: str
    text: str
    quiet_days: int = 0

    @classmethod
    def of(cls, to_status: str, code: str, text: str, quiet_days: int = 0) -> Judgement:
        """Errors: INVALID_REQUEST for a status, code, text or period that does not do, with the way out."""
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
            said = f"code {str(code)[:8]!r} does not go with {status.value}; use {fitting}"
            raise DomainError("INVALID_REQUEST", said, field="code")
        if quiet_days not in QUIET_DAYS or (quiet_days and status == AlertStatus.CONFIRMED):
            said = "a quiet period is 0, 7 or 30 days, and none where a violation is confirmed"
            raise DomainError("INVALID_REQUEST", said, field="quiet_days")
        minimum = TEXT_MIN_SERIOUS if status == AlertStatus.CONFIRMED else TEXT_MIN
        return cls(status, code, checked_text(text, minimum=minimum), quiet_days)

    def check(self, alert: RiskAlert) -> None:
        """Errors: INVALID_REQUEST for what does not do for this alert."""
        if alert.score >= SERIOUS_SCORE:
            checked_text(self.text, minimum=TEXT_MIN_SERIOUS, why=f" because the score is {alert.score}")
        if self.quiet_days and alert.alert_type != AlertType.EVENT:
            said = "reports are a duty, and conduct is an advisor's: neither has a quiet period"
            raise DomainError("INVALID_REQUEST", said, field="quiet_days")

    def columns(self, officer: User) -> dict[str, Any]:
        """What a disposition leaves on the alert."""
        at = now()
        found: dict[str, Any] = {
            "disposition_code": self.code,
            "disposition_text": self.text,
            "disposed_by": officer,
            "disposed_at": at,
            "quiet_until": at + timedelta(days=self.quiet_days) if self.quiet_days else None,
        }
        return {**found, "confirmed_at": at} if self.status == AlertStatus.CONFIRMED else found


def needs_four_eyes(alert: RiskAlert) -> bool:
    """Whether a first disposition is only a proposal: from score 80 on, at LEVEL_2, or reopened after four eyes."""
    critical = alert.score >= FOUR_EYES_SCORE or alert.escalation_level == EscalationLevel.LEVEL_2
    return (critical or alert.four_eyes) and alert.alert_type != AlertType.DATA_QUALITY


def take(alert: RiskAlert, officer: User) -> None:
    """pending -> in_review, within an act."""
    move(
        alert, AlertStatus.IN_REVIEW, officer,
        action="claim", decision=Decision.CLAIMED, changes={"assignee": officer},
    )  # fmt: skip


def put_forward(alert: RiskAlert, officer: User, judgement: Judgement, evidence: str) -> None:
    """in_review -> escalated, with what a second officer will approve or return."""
    move(
        alert, AlertStatus.ESCALATED, officer,
        action="propose", decision=Decision.PROPOSED, code=judgement.code, text=judgement.text,
        changes={
            "proposed_status": judgement.status,
            "proposed_code": judgement.code,
            "proposed_text": judgement.text,
            "proposed_quiet_days": judgement.quiet_days,
            "proposed_hash": evidence,
            "proposed_by": officer,
            "proposed_at": now(),
            # What had come back is in hand again.
            "woken_at": None,
            "woken_by": "",
        },
        summary={
            "proposed": judgement.status.value, "evidence": evidence, "quiet_days": judgement.quiet_days,
        },
    )  # fmt: skip


def no_proposal() -> dict[str, Any]:
    return {
        "proposed_status": "",
        "proposed_code": "",
        "proposed_text": "",
        "proposed_quiet_days": 0,
        "proposed_hash": "",
        "proposed_by": None,
        "proposed_at": None,
    }
