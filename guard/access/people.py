"""People of the console at the service layer: who may, and what a refusal leaves behind."""

from __future__ import annotations

from typing import NoReturn

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.core.exceptions import PermissionDenied

from config.base.errors import DomainError
from guard.access.roles import may, tenant_of
from guard.audit import told
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

# Who acts: a person of the console, who is asked for the permission; or the name of a command, whose caller has the
# database's own credentials, and of a service that has decided already.
By = User | str


# Whose objects have names, and are kept by pseudonym, or checked by the service before it names one.
_NAMED = frozenset({"actor"})


class RefusalRecorded(PermissionDenied):
    """A refusal whose audit row is written already."""


def record_refusal(
    user: AbstractBaseUser | AnonymousUser,
    *,
    action: str,
    permission: str = "",
    object_type: str = "",
    object_id: str = "",
    tenant: str = "",
    code: str = "FORBIDDEN",
) -> None:
    """One `authz/forbidden` row about a person. tenant: theirs by default.

    object_id: as it stood in an address: one that is none of ours is not kept (told.object_id).
    """
    tenant = tenant or tenant_of(user)
    if object_type not in _NAMED:
        object_id = told.object_id(tenant, object_id)
    summary = {"code": code, "action": action[:64]}
    if permission:
        summary["permission"] = permission
    record(
        tenant=tenant,
        event_type=EventType.AUTHZ,
        decision=Decision.FORBIDDEN,
        actor_type=ActorType.STAFF,
        actor_id=user.get_username()[:64],
        object_type=object_type[:32],
        object_id=object_id[:64],
        code=code,
        input_summary=summary,
    )


def refuse_staff(user: User, *, action: str, permission: str, object_type: str, object_id: str = "") -> NoReturn:
    """Errors: FORBIDDEN (403), always; the audit row is written."""
    record_refusal(user, action=action, permission=permission, object_type=object_type, object_id=object_id)
    raise DomainError("FORBIDDEN", f"to {action} {object_type} needs the permission {permission}")


def admit_staff(
    by: By,
    permission: str,
    *,
    action: str,
    object_type: str,
    object_id: str = "",
    tenant: str = "",
    by_role: bool = False,
) -> str:
    """The name for the audit of whoever acts, once they may.

    by: a person must be active and hold the permission, and the object must be of their tenant (a superuser runs all
    of them). A name passes: services trust commands and each other.
    by_role: what decides about a person or a case: only by role or by grant, and within their tenant, superusers too.
    Cost: Django's cached permission queries, and one for the tenant. Errors: FORBIDDEN (403, one audit row).
    """
    if isinstance(by, str):
        return by
    allowed = may(by, permission) if by_role else by.is_active and by.has_perm(permission)
    if allowed and tenant and (by_role or not by.is_superuser):
        allowed = tenant_of(by) == tenant
    if not allowed:
        refuse_staff(by, action=action, permission=permission, object_type=object_type, object_id=object_id)
    return by.get_username()
