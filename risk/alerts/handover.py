"""One officer's open work given to another, whole: who falls ill or leaves is not the end of their alerts.

Each alert is a transaction of its own. One that somebody acted on meanwhile stays as it is and is named.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.db.models import QuerySet

from config.base.errors import DomainError
from guard.access.roles import may, tenant_of
from guard.audit.models import Decision
from risk.alerts.acting import DISPOSE, TEXT_MIN, act, admit, checked_text, conflict, move
from risk.alerts.bulk import Outcome, Picked
from risk.alerts.models import AlertStatus, AlertType, RiskAlert
from risk.feed.events import tell_update

MOST = 200  # alerts that one page lists and one submission moves
_HELD = (AlertStatus.IN_REVIEW, AlertStatus.ESCALATED)


def open_work(*, tenant: str, of: User) -> QuerySet[RiskAlert]:
    """What an officer has in hand, most urgent first: their alerts in review, those aside too, and those that they had
    before they went to a second officer. By index."""
    held = RiskAlert.objects.filter(tenant=tenant, assignee=of, status__in=_HELD)
    return held.exclude(alert_type=AlertType.DATA_QUALITY).order_by("queue_at", "alert_id")


def holders_of(tenant: str, limit: int = 200) -> list[str]:
    """Names of those who have alerts of the tenant in hand, also of people who are gone. 1 query, by index."""
    held = RiskAlert.objects.filter(tenant=tenant, status__in=_HELD, assignee__isnull=False)
    held = held.exclude(alert_type=AlertType.DATA_QUALITY).order_by()
    return list(
        User.objects.filter(pk__in=held.values("assignee_id").distinct())
        .order_by("username")
        .values_list("username", flat=True)[:limit]
    )


def hand_over(*, officer: User, of: User, to: User, text: str, picked: Sequence[Picked]) -> list[Outcome]:
    """Gives each picked alert of `of` to `to`, for one reason of at least 10 characters; by any officer, for whoever is
    away cannot do it. Status, clock and time aside go on as they are.

    A proposal stays its proposer's: an alert that waits for a second officer changes hands, so that what is given back
    comes to `to`, and `of` still cannot approve it, nor can `to` approve what they had proposed themselves.

    Errors: FORBIDDEN (one audit row); INVALID_REQUEST for `to` (no officer of the tenant, or the same one), the text,
    or none or more than MOST alerts. What was overtaken is in the outcomes.
    """
    tenant = admit(officer, "handover", picked[0].alert_id if picked else "")
    text = checked_text(text, minimum=TEXT_MIN)
    if of.pk == to.pk or not may(to, DISPOSE) or tenant_of(to) != tenant:
        raise DomainError("INVALID_REQUEST", "work is handed to another officer of the tenant", field="to")
    if not picked or len(picked) > MOST or len({one.alert_id for one in picked}) < len(picked):
        said = f"{len(picked)} alerts are chosen; 1 to {MOST} different ones are moved at once"
        raise DomainError("INVALID_REQUEST", said, field="pick")
    return [_one(tenant, officer, of, to, text, one) for one in picked]


def _one(tenant: str, officer: User, of: User, to: User, text: str, picked: Picked) -> Outcome:
    def work(alert: RiskAlert) -> None:
        if alert.assignee_id != of.pk or alert.status not in _HELD:  # type: ignore[attr-defined]
            raise conflict(alert, alert.version)
        move(
            alert, AlertStatus(alert.status), officer,
            action="handover", decision=Decision.ASSIGNED, text=text,
            changes={"assignee": to, "snoozed_until": alert.snoozed_until},
            summary={"from_officer": of.get_username(), "to_officer": to.get_username(), "handover": True},
        )  # fmt: skip
        tell_update(alert)

    try:
        act(tenant, picked.alert_id, picked.version, work)
    except DomainError as error:
        if error.code == "FORBIDDEN" or error.status >= 500:
            raise
        return Outcome(picked.alert_id, error)
    return Outcome(picked.alert_id)
