"""What stands behind the masks of an alert's page."""

from __future__ import annotations

from django.contrib.auth.models import User

from guard.access.unmasking import Clear
from memory.core import selectors as core
from risk.alerts.models import AlertType
from risk.console.sight import Sight, alerts_of

KIND = "risk_alert"


def clear_alert(staff: User, tenant: str, alert_id: str) -> Clear | None:
    """The customer of an alert that this person sees as a case; None for faults in the data, which nobody acts on, and
    for alerts about an advisor. Three queries."""
    sight = Sight(staff)
    if not sight.cases:
        return None
    cases = alerts_of(tenant=tenant, sight=sight).exclude(alert_type=AlertType.DATA_QUALITY)
    customer_id = cases.filter(pk=alert_id).values_list("customer_id", flat=True).first()
    if not customer_id:
        return None
    customer = core.customer(tenant=tenant, customer_id=customer_id)
    # words: what officers and risk wrote about the case; the page shows them anew.
    return Clear(customer_id, {"customer_id": customer_id, "name": customer.name if customer else "", "words": ""})
