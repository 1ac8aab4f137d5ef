"""Pauses of agents: an agent that starts nothing for a tenant, for a while or until somebody lifts it.

As with blocks MySQL decides, and Redis holds a copy for 15 minutes at most, never longer than the pause.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.models import Agent
from guard.access.people import By, admit_staff
from guard.admission import keys, mirror
from guard.admission.models import AgentPause
from guard.admission.policy import forget_policy_on_commit
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

# By role or by grant alone: whoever only runs the system stops nobody and lets nobody go on.
PAUSE = "guard.change_agentpause"
LONGEST = timedelta(days=31)


def pause_agent(*, tenant: str, agent: str, reason: str, by: By, seconds: int | None = None) -> AgentPause:
    """The agent starts nothing for the tenant, at once: for so many seconds, or (None) until `lift_pause`. What runs
    goes on.

    Paused already: the row that is there; a later end that is asked for is taken (None is the latest), an earlier one
    is not. by: a person of the tenant who holds PAUSE by role, or a name.
    Errors: FORBIDDEN (one audit row), INVALID_REQUEST without a reason, for an unknown agent, or more than LONGEST.
    """
    name = admit_staff(by, PAUSE, action="pause", object_type="agent", object_id=agent, tenant=tenant, by_role=True)
    check_id("tenant", tenant)
    if agent not in Agent.values:
        raise DomainError("INVALID_REQUEST", f"agent {agent!r} does not exist; use {', '.join(Agent.values)}")
    if not reason.strip():
        raise DomainError("INVALID_REQUEST", "a pause needs a reason")
    if seconds is not None and not 1 <= seconds <= LONGEST.total_seconds():
        said = f"a pause lasts 1 to {LONGEST.total_seconds():.0f} s, or until it is lifted"
        raise DomainError("INVALID_REQUEST", said, field="seconds")

    def work() -> AgentPause:
        with transaction.atomic():
            at = now()
            until = at + timedelta(seconds=seconds) if seconds is not None else None
            row = AgentPause.objects.select_for_update().filter(tenant=tenant, agent=agent, open=1).first()
            if row is not None and row.expires_at is not None and row.expires_at <= at:
                end(row, Decision.EXPIRED, at, by="")
                row = None
            if row is None:
                row = AgentPause.objects.create(
                    tenant=tenant, agent=agent, reason=reason[:200], paused_by=name[:64], expires_at=until
                )
                _record(row, Decision.APPLIED, name, ActorType.STAFF)
            elif row.expires_at is not None and (until is None or until > row.expires_at):
                row.expires_at = until
                row.save(update_fields=["expires_at"])
                _record(row, Decision.APPLIED, name, ActorType.STAFF)
            paused = row
            transaction.on_commit(lambda: put(paused))
            forget_policy_on_commit()
            return row

    return retry_conflicts(work, also=(IntegrityError,))


def lift_pause(*, tenant: str, agent: str, by: By) -> bool:
    """Ends a pause at once. False where there is none. by: as in `pause_agent`. Errors: FORBIDDEN."""
    name = admit_staff(
        by, PAUSE, action="lift_pause", object_type="agent", object_id=agent, tenant=tenant, by_role=True
    )

    def work() -> bool:
        with transaction.atomic():
            at = now()
            row = AgentPause.objects.select_for_update().filter(tenant=tenant, agent=agent, open=1).first()
            transaction.on_commit(lambda: mirror.remove(keys.PAUSE(tenant, agent=agent)))
            forget_policy_on_commit()
            if row is None:
                return False
            over = row.expires_at is not None and row.expires_at <= at
            end(row, Decision.EXPIRED if over else Decision.LIFTED, at, by="" if over else name)
            return not over

    return retry_conflicts(work)


def end(row: AgentPause, decision: str, at: datetime, *, by: str) -> None:
    """In the caller's transaction, which holds the row. by: '' where its time was over."""
    row.open, row.ended_at, row.lifted_by = None, at, by[:64]
    row.save(update_fields=["open", "ended_at", "lifted_by"])
    _record(row, decision, by or "system", ActorType.STAFF if by else ActorType.SYSTEM)


def _record(row: AgentPause, decision: str, by: str, by_type: str) -> None:
    until = {"until": rfc3339(row.expires_at)} if row.expires_at else {}
    record(
        tenant=row.tenant,
        event_type=EventType.AGENT_PAUSE,
        decision=decision,
        actor_type=by_type,
        actor_id=by,
        agent=row.agent,
        object_type="agent",
        object_id=row.agent,
        input_summary={"reason": row.reason, **until},
    )


def in_force(at: datetime | None = None) -> QuerySet[AgentPause]:
    """Every pause that counts now."""
    return AgentPause.objects.filter(Q(expires_at=None) | Q(expires_at__gt=at or now()), open=1).order_by()


def of_agent(tenant: str, agent: str) -> AgentPause | None:
    """The pause that counts now, or None. 1 query."""
    return in_force().filter(tenant=tenant, agent=agent).first()


def put(row: AgentPause, *, quietly: bool = True) -> None:
    """The copy in Redis. Errors: RedisUnavailable, unless quietly."""
    most = keys.BLOCK_MIRROR_SECONDS * 1000
    left = most if row.expires_at is None else int((row.expires_at - now()).total_seconds() * 1000)
    if left > 0:
        mirror.put(keys.PAUSE(row.tenant, agent=row.agent), min(left, most), quietly=quietly)


def expire(at: datetime, limit: int) -> int:
    """Ends pauses whose time is over, each with its audit row; how many. Idempotent. 1 query, and 2 a pause."""
    over = AgentPause.objects.filter(open=1, expires_at__lte=at).order_by("expires_at")
    ended = 0
    for pk in list(over.values_list("pk", flat=True)[:limit]):
        with transaction.atomic():
            row = AgentPause.objects.select_for_update().filter(pk=pk, open=1, expires_at__lte=at).first()
            if row is not None:
                end(row, Decision.EXPIRED, at, by="")
                ended += 1
    return ended
