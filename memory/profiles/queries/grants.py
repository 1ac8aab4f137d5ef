"""Who may see personal columns in SQL, until when, and why. A person of the console decides; both acts are on record.

A grant is for an analyst (tenant and actor id), as everything "own" is: it outlives a rotated key. A key that is not
bound speaks for whomever it names, here as everywhere; bind it where that is too much.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.seen import seen_length
from guard.access.people import admit_staff
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.core.personal import GRANTABLE
from memory.profiles.queries.models import AnalyticsGrant

GRANT = "memory.change_analyticsgrant"
OBJECT = "analytics_grant"
MOST_DAYS = 90
MAX_REASON = 200


def grant_columns(
    *, by: User, tenant: str, actor_id: str, columns: Collection[str], reason: str, days: int
) -> AnalyticsGrant:
    """Lets an analyst reach these columns for so many days (1 to 90).

    Errors: FORBIDDEN (403, one audit row); INVALID_ID, INVALID_REQUEST (422).
    """
    name = admit_staff(by, GRANT, action="grant", object_type=OBJECT, object_id=actor_id[:64], tenant=tenant)
    check_id("actor_id", actor_id)
    wanted = sorted(set(columns))
    if not wanted or not set(wanted) <= set(GRANTABLE):
        raise DomainError("INVALID_REQUEST", f"columns: choose among {', '.join(GRANTABLE)}")
    if not 1 <= days <= MOST_DAYS or not seen_length(reason) or len(reason.strip()) > MAX_REASON:
        raise DomainError("INVALID_REQUEST", f"a grant is for 1 to {MOST_DAYS} days, with a reason")
    with transaction.atomic():
        made = AnalyticsGrant.objects.create(
            tenant=tenant, actor_id=actor_id, columns=wanted, reason=reason.strip(), granted_by=name[:64],
            expires_at=now() + timedelta(days=days),
        )  # fmt: skip
        _record(made, Decision.GRANTED, name)
    return made


def revoke_grant(*, by: User, tenant: str, grant_id: int) -> bool:
    """At once, for the next statement. False where it was over already. Errors: FORBIDDEN (403, one audit row)."""
    name = admit_staff(by, GRANT, action="revoke", object_type=OBJECT, object_id=str(grant_id), tenant=tenant)
    with transaction.atomic():
        rows = AnalyticsGrant.objects.filter(pk=grant_id, tenant=tenant, revoked_at=None)
        if not rows.update(revoked_at=now(), revoked_by=name[:64]):
            return False
        _record(AnalyticsGrant.objects.get(pk=grant_id), Decision.REVOKED, name)
    return True


def _record(grant: AnalyticsGrant, decision: Decision, by: str) -> None:
    record(
        tenant=grant.tenant,
        event_type=EventType.PRINCIPAL,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=by[:64],
        on_behalf_of=grant.actor_id,
        object_type=OBJECT,
        object_id=str(grant.pk),
        input_summary={"columns": grant.columns, "until": rfc3339(grant.expires_at)},
    )
