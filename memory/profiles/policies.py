"""Who may touch which layer: the one place that turns a profile into a question to the access matrix.

HTTP asks before the body is parsed, services and selectors ask again: Python callers meet the same answer.
"""

from __future__ import annotations

from config.base.ids import check_id
from guard.access.matrix import Action, Resource
from guard.access.services import Caller, authorize


def may_l1(caller: Caller, action: Action, *, customer_id: str) -> None:
    """Errors: INVALID_ID (422), AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403, each one audit row)."""
    check_id("customer_id", customer_id)
    authorize(caller, Resource.L1, action, object_id=customer_id, customer_id=customer_id)


def may_l2(caller: Caller, action: Action, *, customer_id: str, advisor_id: str) -> None:
    """Errors: as `may_l1`; an l2 belongs to the advisor it names, so another advisor's is NOT_OWNER."""
    check_id("customer_id", customer_id)
    check_id("advisor_id", advisor_id)
    authorize(caller, Resource.L2, action, object_id=customer_id, owner_id=advisor_id, customer_id=customer_id)


def may_l3(caller: Caller, action: Action, *, customer_id: str) -> None:
    """Errors: as `may_l1`."""
    check_id("customer_id", customer_id)
    authorize(caller, Resource.L3, action, object_id=customer_id, customer_id=customer_id)
