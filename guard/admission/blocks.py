"""Blocks of actors, and what blocks and pauses (pauses.py) share.

MySQL decides; Redis holds a copy, of a block as long as it lasts, of a pause for 15 minutes at most, which admission
meets in its one round trip: a block, a pause and their end count at once. Redis away or emptied: closed, by each
process's copy of the tables (5 s). Redis has a block that this copy has not: the tables are asked, so that an end
that could not be told counts all the same. Nobody waits longer than a tenth of a second for Redis here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import cast

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from config.base.clock import now, rfc3339
from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.people import By, admit_staff
from guard.access.services import Caller
from guard.admission import keys, mirror, pauses, wires
from guard.admission.models import ActorBlock, AgentPause
from guard.admission.pauses import PAUSE, lift_pause, pause_agent
from guard.admission.policy import forget_policy, forget_policy_on_commit
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

__all__ = [
    "BLOCK", "PAUSE", "block_actor", "in_force", "is_lifted", "lift_block", "lift_pause", "pause_agent", "put_back",
    "sweep",
]  # fmt: skip

REPEAT_WITHIN = timedelta(days=30)
_SWEPT_AT_ONCE = 500
# By role or by grant alone: whoever only runs the system stops nobody and lets nobody go on.
BLOCK = "guard.change_actorblock"


def block_actor(
    *,
    tenant: str,
    actor_id: str,
    code: str,
    by: By,
    by_type: str = ActorType.STAFF,
    reason: str = "",
    risk_score: int | None = None,
    seconds: int | None = None,
) -> ActorBlock:
    """Blocks an actor: 15 minutes (ADMISSION_BLOCK_SECONDS), twice as long each further time within 30 days, at most
    ADMISSION_BLOCK_MOST_SECONDS. Blocks that somebody lifted do not count as times.

    seconds: an officer's own choice. An actor that is blocked already stays so: of many inputs at once one counts; a
    later end that `seconds` asks for is taken.
    by: a person of the tenant who holds BLOCK by role (a superuser's standing is none), or the name of a command or a
    service, with its by_type.
    Errors: FORBIDDEN (one audit row), INVALID_ID, INVALID_REQUEST.
    """
    name = admit_staff(by, BLOCK, action="block", object_type="actor", object_id=actor_id, tenant=tenant, by_role=True)
    kind = ActorType.STAFF if isinstance(by, User) else by_type
    check_id("tenant", tenant)
    check_id("actor", actor_id)
    if seconds is not None and not 1 <= seconds <= settings.ADMISSION_BLOCK_MOST_SECONDS:
        raise DomainError("INVALID_REQUEST", f"a block lasts 1 to {settings.ADMISSION_BLOCK_MOST_SECONDS} s")

    def work() -> ActorBlock:
        with transaction.atomic():
            at = now()
            row = ActorBlock.objects.select_for_update().filter(tenant=tenant, actor_id=actor_id, open=1).first()
            if row is not None and row.expires_at <= at:
                _end(row, Decision.EXPIRED, at, by="")
                row = None
            if row is not None:
                wanted = at + timedelta(seconds=seconds or 0)
                if wanted <= row.expires_at:
                    return row
                row.expires_at = wanted
                row.save(update_fields=["expires_at"])
            else:
                row = _new_block(tenant, actor_id, code, name, reason, seconds, at)
            _record_block(row, Decision.APPLIED, name, kind, risk_score)
            block = row
            transaction.on_commit(lambda: _mirror_block(block))
            forget_policy_on_commit()
            return row

    return retry_conflicts(work, also=(IntegrityError,))


def _new_block(
    tenant: str, actor_id: str, code: str, by: str, reason: str, seconds: int | None, at: datetime
) -> ActorBlock:
    before = ActorBlock.objects.filter(
        tenant=tenant, actor_id=actor_id, started_at__gt=at - REPEAT_WITHIN, lifted_by=""
    ).count()
    # Past 30 doublings the cap is reached whatever it is.
    doubled = settings.ADMISSION_BLOCK_SECONDS * 2 ** min(before, 30)
    lasts = seconds if seconds is not None else min(doubled, settings.ADMISSION_BLOCK_MOST_SECONDS)
    return ActorBlock.objects.create(
        tenant=tenant,
        actor_id=actor_id,
        code=code[:32],
        reason=reason[:200],
        blocked_by=by[:64],
        repeat=before + 1,
        started_at=at,
        expires_at=at + timedelta(seconds=lasts),
    )


def lift_block(*, tenant: str, actor_id: str, by: By) -> bool:
    """Ends an actor's block at once. False where there is none. by: as in `block_actor`. Errors: FORBIDDEN."""
    name = admit_staff(
        by, BLOCK, action="lift_block", object_type="actor", object_id=actor_id, tenant=tenant, by_role=True
    )

    def work() -> bool:
        with transaction.atomic():
            at = now()
            row = ActorBlock.objects.select_for_update().filter(tenant=tenant, actor_id=actor_id, open=1).first()
            # The key goes also where the table has no block: what somebody put there by hand is lifted with it.
            transaction.on_commit(lambda: mirror.remove(keys.BLOCK(tenant, actor_id=actor_id)))
            forget_policy_on_commit()
            if row is None:
                return False
            over = row.expires_at <= at
            _end(row, Decision.EXPIRED if over else Decision.LIFTED, at, by="" if over else name)
            return not over

    return retry_conflicts(work)


def _end(row: ActorBlock, decision: str, at: datetime, *, by: str) -> None:
    row.open, row.ended_at, row.lifted_by = None, at, by[:64]
    row.save(update_fields=["open", "ended_at", "lifted_by"])
    _record_block(row, decision, by or "system", ActorType.STAFF if by else ActorType.SYSTEM, None)


def _record_block(row: ActorBlock, decision: str, by: str, by_type: str, risk_score: int | None) -> None:
    record(
        tenant=row.tenant,
        event_type=EventType.ACTOR_BLOCK,
        decision=decision,
        actor_type=by_type,
        actor_id=by,
        object_type="actor",
        object_id=row.actor_id,
        code=row.code,
        risk_score=risk_score,
        customers=[row.actor_id],
        input_summary={"until": rfc3339(row.expires_at), "time": row.repeat, "reason": row.reason},
    )


# --- the copy in Redis ------------------------------------------------------------------------------------------


def _open_block(tenant: str, actor_id: str) -> ActorBlock | None:
    rows = ActorBlock.objects.filter(tenant=tenant, actor_id=actor_id, open=1, expires_at__gt=now())
    return rows.order_by().first()


def in_force(caller: Caller) -> tuple[str, float]:
    """What the database has against this caller now: 'block', 'pause' or '', and for how many seconds at least.

    Cost: 1 or 2 queries."""
    row = _open_block(caller.tenant, caller.actor_id)
    if row is not None:
        return "block", max(1.0, (row.expires_at - now()).total_seconds())
    if (pause := pauses.of_agent(caller.tenant, caller.agent)) is not None:
        most = float(keys.BLOCK_MIRROR_SECONDS)
        left = most if pause.expires_at is None else (pause.expires_at - now()).total_seconds()
        return "pause", max(1.0, min(left, most))
    return "", 0.0


def put_back(caller: Caller) -> None:
    """Redis has no block and no pause where this process's copy of the tables has one: the tables decide, and Redis
    gets what they say. Errors: RedisUnavailable, and the database's."""
    row = _open_block(caller.tenant, caller.actor_id)
    if row is not None:
        _mirror_block(row, quietly=False)
    pause = pauses.of_agent(caller.tenant, caller.agent)
    if pause is not None:
        pauses.put(pause, quietly=False)
    forget_policy()
    # Lifted between the look and the copy: its end has been told to Redis before the copy came.
    if row is not None and _open_block(caller.tenant, caller.actor_id) is None:
        mirror.remove(keys.BLOCK(caller.tenant, actor_id=caller.actor_id))
    if pause is not None and pauses.of_agent(caller.tenant, caller.agent) is None:
        mirror.remove(keys.PAUSE(caller.tenant, agent=caller.agent))


def is_lifted(caller: Caller) -> bool:
    """Redis has a block that this process's copy of the tables has not: is it new, or could its end not be told? The
    copy in Redis of one that was lifted is removed.

    Cost: 1 or 2 queries; 1 more and 1 round trip where it is removed. Errors: the database's."""
    if _open_block(caller.tenant, caller.actor_id) is not None:
        return False
    ended = ActorBlock.objects.filter(tenant=caller.tenant, actor_id=caller.actor_id, open=None, expires_at__gt=now())
    if not ended.exclude(lifted_by="").order_by().exists():
        return False
    mirror.remove(keys.BLOCK(caller.tenant, actor_id=caller.actor_id))
    if (row := _open_block(caller.tenant, caller.actor_id)) is not None:  # made between the look and the removal
        _mirror_block(row)
        return False
    return True


def _mirror_block(row: ActorBlock, *, quietly: bool = True) -> None:
    left = int((row.expires_at - now()).total_seconds() * 1000)
    if left > 0:
        name = keys.BLOCK(row.tenant, actor_id=row.actor_id)
        mirror.put(name, left, quietly=quietly)


# --- the sweep --------------------------------------------------------------------------------------------------


def sweep() -> dict[str, int]:
    """Ends blocks and pauses whose time is over, with their audit rows, and removes from Redis what was lifted while it
    was away.

    Idempotent; from beat. Cost: 3 queries, and 2 a block or pause that is over.
    """
    at = now()
    over = ActorBlock.objects.filter(open=1, expires_at__lte=at).order_by("expires_at")
    expired = 0
    for pk in list(over.values_list("pk", flat=True)[:_SWEPT_AT_ONCE]):
        with transaction.atomic():
            row = ActorBlock.objects.select_for_update().filter(pk=pk, open=1, expires_at__lte=at).first()
            if row is not None:
                _end(row, Decision.EXPIRED, at, by="")
                expired += 1
    expired += pauses.expire(at, _SWEPT_AT_ONCE)
    return {"expired": expired, "removed": _remove_lifted(at)}


def _remove_lifted(at: datetime) -> int:
    since = at - timedelta(seconds=keys.BLOCK_MIRROR_SECONDS + 60)
    blocks = ActorBlock.objects.filter(ended_at__gt=since).exclude(lifted_by="").order_by()
    lifted = AgentPause.objects.filter(ended_at__gt=since).order_by()
    names = [
        keys.BLOCK(tenant, actor_id=actor_id)
        for tenant, actor_id in blocks.values_list("tenant", "actor_id").distinct()[:_SWEPT_AT_ONCE]
        if _open_block(tenant, actor_id) is None
    ]
    names += [
        keys.PAUSE(tenant, agent=agent)
        for tenant, agent in lifted.values_list("tenant", "agent").distinct()[:_SWEPT_AT_ONCE]
        if pauses.of_agent(tenant, agent) is None
    ]
    if not names:
        return 0
    with wires.translated() as client:
        return int(cast(int, client.delete(*names)))
