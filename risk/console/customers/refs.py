"""A customer in an address: by a row of theirs, so that no customer id is ever in a log, a bookmark or a history."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import QuerySet

from config.base.asked import number
from memory.core.models import CoreCustomer
from memory.profiles.drafts.models import AdvisorDraft
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3
from memory.sessions.models import AgentSession
from risk.alerts.models import AlertType, RiskAlert

# Kind of row -> the tenant's rows of that kind that name a customer. Looked through in this order.
_KINDS: dict[str, Callable[[str], QuerySet]] = {  # type: ignore[type-arg]
    "l1": lambda tenant: CustomerProfileL1.objects.filter(tenant=tenant),
    "l3": lambda tenant: CustomerProfileL3.objects.filter(tenant=tenant),
    "l2": lambda tenant: CustomerProfileL2.objects.filter(tenant=tenant),
    # An alert about faults in the data is nobody's case, and leads to no customer.
    "alert": lambda tenant: RiskAlert.objects.filter(tenant=tenant).exclude(alert_type=AlertType.DATA_QUALITY),
    "draft": lambda tenant: AdvisorDraft.objects.filter(tenant=tenant),
    "session": lambda tenant: AgentSession.objects.filter(tenant=tenant),
    "core": lambda tenant: CoreCustomer.objects.filter(tenant=tenant),
}
KINDS = tuple(_KINDS)
_NUMBERED = {"l1", "l2", "l3", "session", "core"}


def customer_of(*, tenant: str, kind: str, key: str) -> str:
    """The customer that a row of the tenant's is about; '' where there is no such row, or it names none. One query.

    Errors: CORE_UNAVAILABLE for a row of a core that does not answer.
    """
    if kind not in _KINDS or not key.isascii() or "\0" in key or len(key) > 64:
        return ""
    if kind in _NUMBERED and number(key) is None:
        return ""
    found = _KINDS[kind](tenant).filter(pk=key).values_list("customer_id", flat=True).first()
    return str(found or "")


def ref_of(*, tenant: str, customer_id: str) -> tuple[str, str] | None:
    """Kind and key of the first row that names this customer; None for one of whom nothing is known. Up to 7 queries,
    one for whoever has a profile of their own.

    Errors: CORE_UNAVAILABLE where nothing of ours names the customer and the core does not answer.
    """
    for kind, rows in _KINDS.items():
        key = rows(tenant).filter(customer_id=customer_id).order_by("pk").values_list("pk", flat=True).first()
        if key is not None:
            return kind, str(key)
    return None
