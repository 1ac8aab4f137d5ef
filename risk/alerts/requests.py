"""Requests for information: what an officer waits to hear about an alert, from whom, until when.

Whoever is asked need not be a person of the console: officers ask by whatever way they have, and record what came. A
question leaves `open` once. It changes nothing that a disposition rests on, so the alert's version stays.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.seen import seen_length
from config.base.trace import current_trace_id
from guard.access.roles import tenant_of
from risk.alerts.acting import TEXT_MIN, admit, checked_text, find
from risk.alerts.casework import InformationRequest, RecipientKind, RequestState
from risk.alerts.models import AlertAction, AlertType, RiskAlert
from risk.feed.events import tell_update

LONGEST = timedelta(days=92)
MOST_OPEN = 20  # of one alert
RECIPIENT_MAX = 80


def ask(
    *, alert_id: str, officer: User, recipient_kind: str, recipient: str, question: str, due_at: datetime
) -> InformationRequest:
    """Asks somebody something, in any status of the alert.

    recipient: of kind `staff` the user name of an active person of the tenant; else an advisor, a branch, a name.
    Errors: FORBIDDEN, ALERT_NOT_FOUND; INVALID_REQUEST with `field` for a recipient, a question of less than 10
    characters, or a due that is over or more than 92 days away.
    """
    tenant = admit(officer, "ask", alert_id)
    question = checked_text(question, minimum=TEXT_MIN)
    recipient = " ".join(recipient.split())
    _check_recipient(tenant, recipient_kind, recipient)
    if not now() < due_at <= now() + LONGEST:
        said = f"a question is due within {LONGEST.days} days from now, not at {rfc3339(due_at)}"
        raise DomainError("INVALID_REQUEST", said, field="due_at")

    def work() -> InformationRequest:
        with transaction.atomic():
            alert = find(tenant, alert_id, lock=True)
            if alert.alert_type == AlertType.DATA_QUALITY:
                raise DomainError("ALERT_NOT_FOUND", "nobody is asked about a fault in the data")
            if InformationRequest.objects.filter(alert=alert, state=RequestState.OPEN).count() >= MOST_OPEN:
                said = f"{MOST_OPEN} questions of this alert are open; close one first"
                raise DomainError("INVALID_REQUEST", said, field="question")
            row = InformationRequest.objects.create(
                tenant=tenant, alert=alert, recipient_kind=recipient_kind, recipient=recipient, question=question,
                due_at=due_at, asked_by=officer,
            )  # fmt: skip
            _tell(alert, "ask", officer, f"{recipient}: {question}")
            return row

    return retry_conflicts(work)


def answer(*, alert_id: str, request_id: str, officer: User, text: str) -> InformationRequest:
    """open -> answered, with the answer as an officer records it (any officer: who asked may be away).

    Errors: FORBIDDEN, ALERT_NOT_FOUND, QUESTION_NOT_FOUND, INVALID_REQUEST without a text; ALERT_CONFLICT with who
    closed it already.
    """
    return _close(alert_id, request_id, officer, text, "answer", RequestState.ANSWERED, minimum=1)


def withdraw(*, alert_id: str, request_id: str, officer: User, text: str) -> InformationRequest:
    """open -> withdrawn, for a reason of at least 10 characters. Errors: as `answer`."""
    return _close(alert_id, request_id, officer, text, "withdraw", RequestState.WITHDRAWN, minimum=TEXT_MIN)


def _close(
    alert_id: str, request_id: str, officer: User, text: str, action: str, state: RequestState, *, minimum: int
) -> InformationRequest:
    tenant = admit(officer, action, alert_id)
    text = checked_text(text, minimum=minimum)

    def work() -> InformationRequest:
        with transaction.atomic():
            alert = find(tenant, alert_id, lock=True)
            mine = InformationRequest.objects.filter(tenant=tenant, alert=alert, pk=request_id)
            done = mine.filter(state=RequestState.OPEN).update(
                state=state, closing=text, closed_by=officer, closed_at=now()
            )
            row = mine.select_related("closed_by").first()
            if row is None:
                raise DomainError("QUESTION_NOT_FOUND", "no such request for information of this alert")
            if done != 1:
                raise _closed_already(alert, row)
            _tell(alert, action, officer, f"{row.recipient}: {text}")
            return row

    return retry_conflicts(work)


def _closed_already(alert: RiskAlert, row: InformationRequest) -> DomainError:
    by = row.closed_by.get_username() if row.closed_by else ""
    action = "answer" if row.state == RequestState.ANSWERED else "withdraw"
    at = rfc3339(row.closed_at) if row.closed_at else ""
    return DomainError(
        "ALERT_CONFLICT",
        f"{by} closed this question at {at}: {row.state}",
        by=by,
        action=action,
        at=at,
        status_now=alert.status,
        version=alert.version,
    )


def _check_recipient(tenant: str, kind: str, recipient: str) -> None:
    if kind not in RecipientKind.values:
        said = f"a recipient is one of {', '.join(RecipientKind.values)}, not {kind[:20]!r}"
    elif not 1 <= seen_length(recipient) <= RECIPIENT_MAX or len(recipient) > RECIPIENT_MAX:
        said = f"a recipient has 1 to {RECIPIENT_MAX} characters"
    elif kind == RecipientKind.STAFF and not _is_staff(tenant, recipient):
        said = "no active person of the console has this name"
    else:
        return
    raise DomainError("INVALID_REQUEST", said, field="recipient")


def _is_staff(tenant: str, name: str) -> bool:
    person = User.objects.filter(username=name, is_active=True, is_staff=True).first()
    return person is not None and tenant_of(person) == tenant


def _tell(alert: RiskAlert, action: str, officer: User | None, text: str) -> None:
    AlertAction.objects.create(
        alert=alert,
        action=action,
        from_status=alert.status,
        to_status=alert.status,
        actor=officer,
        text=text,
        alert_version=alert.version,
        trace_id=current_trace_id(),
    )
    tell_update(alert)


def overdue(*, at: datetime, tenant: str | None = None, batch: int = 500) -> list[str]:
    """Questions that became overdue and do not stand as such in their timeline yet, the longest first. 1 query."""
    rows = InformationRequest.objects.filter(state=RequestState.OPEN, overdue_told_at=None, due_at__lt=at)
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return list(rows.order_by("due_at").values_list("pk", flat=True)[:batch])


def tell_overdue(request_id: str, at: datetime) -> bool:
    """Once for each question, whoever else does so at the same moment; whether it was this call."""
    with transaction.atomic():
        rows = InformationRequest.objects.filter(pk=request_id, state=RequestState.OPEN, overdue_told_at=None)
        if rows.filter(due_at__lt=at).update(overdue_told_at=at) != 1:
            return False
        row = InformationRequest.objects.select_related("alert", "alert__assignee").get(pk=request_id)
        _tell(row.alert, "overdue", None, f"{row.recipient}: {row.question}")
        return True


def open_questions(*, tenant: str, at: datetime | None = None) -> tuple[int, int]:
    """How many are open, and how many of them overdue, for the overview. 1 query of each, by index."""
    rows = InformationRequest.objects.filter(tenant=tenant, state=RequestState.OPEN)
    return rows.count(), rows.filter(due_at__lt=at or now()).count()
