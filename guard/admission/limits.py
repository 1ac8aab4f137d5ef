"""Limits as rows: each change is a new version and an audit row; other processes follow within 5 s."""

from __future__ import annotations

from decimal import Decimal

from django.db import IntegrityError, transaction

from config.base.db import retry_conflicts
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access.models import Agent
from guard.access.people import By, admit_staff
from guard.admission.amounts import to_units
from guard.admission.models import AdmissionLimit, LimitKind
from guard.admission.policy import forget_policy_on_commit
from guard.audit import told
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

# What each kind can be narrowed to: a budget is a tenant's, and an address has no actor.
NARROWED: dict[str, frozenset[str]] = {
    LimitKind.RATE: frozenset({"agent", "actor_id"}),
    LimitKind.HOURLY: frozenset({"agent", "actor_id", "action"}),
    LimitKind.ADDRESS: frozenset(),
    LimitKind.QUOTA: frozenset({"agent", "actor_id"}),
    LimitKind.BUDGET: frozenset(),
    LimitKind.TENANT_RUNNING: frozenset(),
    LimitKind.USER_RUNNING: frozenset({"agent", "actor_id"}),
}
CHANGE = "guard.change_admissionlimit"
MOST_RATE = 10_000  # a ring of 80 KB
MOST_CALLS = 1_000_000_000


def set_limit(
    *,
    tenant: str,
    kind: str,
    value: Decimal | int | str | None,
    by: By,
    agent: str = "",
    actor_id: str = "",
    action: str = "",
    reason: str = "",
    expected_version: int | None = None,
) -> AdmissionLimit:
    """Puts a limit into force. value: whole calls, or money for the budget; None: no limit.

    expected_version: of the row that was looked at (0: none). by: a person with CHANGE, of the tenant, or a name.
    Errors: FORBIDDEN (one audit row), INVALID_REQUEST, VERSION_CONFLICT (409).
    """
    name = admit_staff(by, CHANGE, action="set", object_type="admission_limit", tenant=tenant)
    amount = _checked(tenant, kind, value, agent, actor_id, action)
    place = {"tenant": tenant, "kind": kind, "agent": agent, "actor_id": actor_id, "action": action}
    return _change(place, amount, False, name, reason, expected_version)


def retire_limit(*, limit_id: int, tenant: str, by: By, reason: str = "") -> AdmissionLimit:
    """Takes a limit away: what is less specific counts again. by: as in `set_limit`. Errors: FORBIDDEN, NOT_FOUND."""
    name = admit_staff(
        by, CHANGE, action="retire", object_type="admission_limit", object_id=str(limit_id), tenant=tenant
    )
    row = AdmissionLimit.objects.filter(pk=limit_id, tenant=tenant, current=1, retired=False).first()
    if row is None:
        raise DomainError("NOT_FOUND", "no such limit is in force")
    place = {name: getattr(row, name) for name in ("tenant", "kind", "agent", "actor_id", "action")}
    return _change(place, row.value, True, name, reason, row.version)


def _checked(
    tenant: str, kind: str, value: Decimal | int | str | None, agent: str, actor_id: str, action: str
) -> Decimal | None:
    check_id("tenant", tenant)
    if kind not in LimitKind.values:
        raise DomainError("INVALID_REQUEST", f"limit {kind!r} does not exist; use {', '.join(LimitKind.values)}")
    if agent and agent not in Agent.values:
        raise DomainError("INVALID_REQUEST", f"agent {agent!r} does not exist; use {', '.join(Agent.values)}")
    for name, given in (("agent", agent), ("actor_id", actor_id), ("action", action)):
        if given and name not in NARROWED[kind]:
            raise DomainError("INVALID_REQUEST", f"a limit {kind!r} cannot be narrowed to {name}")
        if given:
            check_id(name, given)
    if value is None:
        return None
    units = to_units(value, name="value")
    amount = Decimal(units).scaleb(-6)
    if kind == LimitKind.BUDGET:
        return amount
    most = MOST_RATE if kind == LimitKind.RATE else MOST_CALLS
    if amount != int(amount) or amount > most:
        raise DomainError("INVALID_REQUEST", f"value must be a whole number, 0 to {most}")
    return amount


def _change(
    place: dict[str, str], value: Decimal | None, retired: bool, by: str, reason: str, expected: int | None
) -> AdmissionLimit:
    def work() -> AdmissionLimit:
        with transaction.atomic():
            newest = AdmissionLimit.objects.select_for_update().filter(**place).order_by("-version").first()
            version = newest.version if newest else 0
            before = newest if newest is not None and not newest.retired else None
            if expected is not None and expected != (before.version if before else 0):
                raise DomainError("VERSION_CONFLICT", "the limit was changed meanwhile; look at it again")
            AdmissionLimit.objects.filter(**place, current=1).update(current=None)
            row = AdmissionLimit.objects.create(
                **place,
                value=value,
                version=version + 1,
                current=1,
                retired=retired,
                reason=reason[:200],
                changed_by=by[:64],
            )
            record(
                tenant=place["tenant"],
                event_type=EventType.LIMIT_CHANGE,
                decision=Decision.RETIRED if retired else Decision.CHANGED if before else Decision.ACTIVATED,
                actor_type=ActorType.STAFF,
                actor_id=by,
                agent=place["agent"],
                object_type="admission_limit",
                object_id=str(row.pk),
                code=place["kind"],
                customers=[place["actor_id"]],
                input_summary={
                    "for": place["actor_id"],
                    "action_limited": told.word(place["tenant"], place["action"]),
                    "from": None if before is None or before.value is None else str(before.value),
                    "to": None if value is None else str(value),
                    "version": row.version,
                    "reason": reason[:200],
                },
            )
            forget_policy_on_commit()
            return row

    return retry_conflicts(work, also=(IntegrityError,))
