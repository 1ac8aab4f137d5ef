"""Who may touch a snapshot: asked before the body, and again in the selector."""

from __future__ import annotations

from config.base.ids import check_id
from guard.access.matrix import Action, Resource
from guard.access.services import Caller, authorize
from memory.core.window import CoreUnavailable
from memory.profiles.snapshots import grace


def may_snapshot(caller: Caller, action: Action, *, advisor_id: str, customer_id: str) -> None:
    """Errors: INVALID_ID (422), AUTH_403_SCOPE, NOT_OWNER (another advisor's), NOT_ASSIGNED (403, one audit row);
    CORE_UNAVAILABLE (503) where the core is away and the pair was not seen in the last SNAPSHOT_GRACE_SECONDS, or the
    assignment is known to have ended since."""
    check_id("advisor_id", advisor_id)
    check_id("customer_id", customer_id)
    try:
        authorize(
            caller, Resource.SNAPSHOT, action, object_id=customer_id, owner_id=advisor_id, customer_id=customer_id
        )
    except CoreUnavailable:
        # The assignments are the core's too. Whoever had the customer at the last load goes on for a bounded time,
        # or "the last copy" could be read by nobody. (Agent and owner were compared before the core was asked.)
        if action != "read" or not grace.had(caller.tenant, advisor_id, customer_id):
            raise
