"""Who may ask: analyst agents, each for the analyst it names. Personal columns need a grant for that analyst."""

from __future__ import annotations

from config.base.clock import now
from guard.access.matrix import Action, Resource
from guard.access.services import Caller, authorize
from memory.profiles.queries.models import AnalyticsGrant


def may_ask(caller: Caller, action: Action) -> None:
    """Errors: AUTH_403_SCOPE (403, one audit row)."""
    authorize(caller, Resource.ANALYTICS, action, owner_id=caller.actor_id)


def granted_columns(*, tenant: str, actor_id: str) -> frozenset[str]:
    """Full names of columns that this analyst may see now. 1 query."""
    rows = AnalyticsGrant.objects.filter(tenant=tenant, actor_id=actor_id, revoked_at=None, expires_at__gt=now())
    return frozenset(name for columns in rows.values_list("columns", flat=True) for name in columns)
