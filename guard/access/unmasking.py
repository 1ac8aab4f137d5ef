"""Whom a person may see in clear: asked for one object at a time, with a reason, and each time on the record.

Rooms that hold customers' names register how an object's are found; they know no permission and write no row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction

from config.base.errors import DomainError
from config.base.seen import seen_length
from guard.access.masking import STARS
from guard.access.roles import may, tenant_of
from guard.audit import told
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

UNMASK = "guard.unmask_customer"
MIN_REASON, MAX_REASON = 5, 200  # characters


@dataclass(frozen=True)
class Clear:
    """customer_id: whom it is about, '' for nobody. values: what was masked, by field: for whoever asked, only."""

    customer_id: str
    values: Mapping[str, str]


# (staff, tenant, object_id) -> what stands behind the masks; None where the person cannot see the object itself
Finder = Callable[[User, str, str], Clear | None]
_finders: dict[str, tuple[Finder, str]] = {}


def register_unmasking(kind: str, finder: Finder, *, permission: str = UNMASK) -> None:
    """Told at ready() by the room that has such objects. permission: who may, where that is not whoever may see
    customers in clear at large."""
    _finders[kind] = finder, permission


def may_unmask(staff: User, kind: str = "") -> bool:
    """By role or by grant; being a superuser is no role. For pages that offer it: `unmask` decides. kind: of what
    object; any that has no permission of its own."""
    return may(staff, _finders[kind][1] if kind in _finders else UNMASK)


def unmask(*, staff: User, kind: str, object_id: str, reason: str) -> Mapping[str, str]:
    """What is masked of this object, for one look.

    reason: why this person has to see it; kept in the row, without the values themselves.
    The row (`unmask/granted`) is committed before the values are given: no row, no values. Whoever may not, or names
    what is not there for them, leaves `unmask/refused`.
    Cost: the finder's queries and 1 INSERT. Errors: INVALID_REQUEST for a reason of less than 5 or more than 200
    characters; FORBIDDEN; NOT_FOUND, for another tenant's object as well.
    """
    if kind not in _finders:
        raise ValueError(f"nothing of the kind {kind!r} is masked")
    finder, permission = _finders[kind]
    tenant = tenant_of(staff)
    if not may(staff, permission):
        _record(staff, tenant, Decision.REFUSED, kind, object_id, "FORBIDDEN", None, "")
        raise DomainError("FORBIDDEN", f"to see this in clear needs the permission {permission}")
    reason = reason.strip()
    length = seen_length(reason)
    if length < MIN_REASON or len(reason) > MAX_REASON:
        raise DomainError(
            "INVALID_REQUEST", f"the reason has {length} characters; it needs {MIN_REASON} to {MAX_REASON}",
            field="reason",
        )  # fmt: skip
    clear = finder(staff, tenant, object_id)
    if clear is None:
        _record(staff, tenant, Decision.REFUSED, kind, object_id, "NOT_FOUND", None, "")
        raise DomainError("NOT_FOUND", f"no such {kind}")
    with transaction.atomic(durable=True):
        _record(staff, tenant, Decision.GRANTED, kind, object_id, "", clear, reason)
    return clear.values


def _record(
    staff: User, tenant: str, decision: Decision, kind: str, object_id: str, code: str, clear: Clear | None, reason: str
) -> None:
    summary: dict[str, object] = {"code": code} if code else {}
    if clear is not None:
        # The log keeps names of nobody: also not where the reason tells them.
        for value in sorted(filter(None, clear.values.values()), key=len, reverse=True):
            reason = re.sub(re.escape(value), STARS, reason)
        summary = {"reason": reason, "fields": sorted(clear.values), "customer_id": clear.customer_id}
    record(
        tenant=tenant,
        event_type=EventType.UNMASK,
        decision=decision,
        actor_type=ActorType.STAFF,
        actor_id=staff.get_username()[:64],
        object_type=kind[:32],
        object_id=told.object_id(tenant, object_id),
        code=code,
        input_summary=summary,
    )
