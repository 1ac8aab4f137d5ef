"""What stands behind the masks of a customer's page."""

from __future__ import annotations

from django.contrib.auth.models import User

from config.base.errors import DomainError
from guard.access.unmasking import Clear
from memory.core import selectors as core
from risk.console.customers.refs import customer_of
from risk.console.customers.shown import PERSONAL
from risk.console.sight import Sight

KIND = "customer"


def clear_customer(staff: User, tenant: str, object_id: str) -> Clear | None:
    """The customer that a page is about (`l1-17`), for who sees cases. The page reads the fields anew; named here is
    what it shows, and the name, so that a reason which tells it is kept without it. Two queries."""
    kind, _dash, key = object_id.partition("-")
    if not Sight(staff).cases:
        return None
    customer_id = customer_of(tenant=tenant, kind=kind, key=key)
    if not customer_id:
        return None
    try:
        fact = core.customer(tenant=tenant, customer_id=customer_id)
    except DomainError:
        fact = None
    return Clear(
        customer_id,
        {**dict.fromkeys((*PERSONAL, "words"), ""), "customer_id": customer_id, "name": fact.name if fact else ""},
    )
