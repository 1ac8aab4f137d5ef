"""Keys and decisions: issue, revoke, authenticate, authorize.

On Redis being down: nothing here uses Redis. On the database being down: a key seen in the last 5 s still
authenticates, everything else is refused with 503 (closed).
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.trace import current_trace_id
from guard.access.matrix import MATRIX, Action, Resource, Scope
from guard.access.models import Agent, AgentPrincipal
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

KEY_SCHEME = "xh_"

# What the person behind each agent is, in the audit's words: `agent` there means 代理人, the human advisor.
ACTOR_TYPE_OF: dict[str, str] = {
    Agent.CUSTOMER: ActorType.CUSTOMER,
    Agent.ADVISOR: ActorType.AGENT,
    Agent.ANALYST: ActorType.STAFF,
    Agent.RISK: ActorType.STAFF,
}


@dataclass(frozen=True)
class Caller:
    """Who asks: an agent service of a tenant, on behalf of one person."""

    tenant: str
    agent: str
    actor_id: str
    principal_id: str = ""

    @property
    def actor_type(self) -> str:
        return ACTOR_TYPE_OF[self.agent]


@dataclass(frozen=True)
class IssuedKey:
    key: str
    principal: AgentPrincipal


@dataclass(frozen=True)
class _CachedPrincipal:
    principal_id: str
    tenant: str
    agent: str
    actor_id: str
    expires_at: datetime | None
    revoked_at: datetime | None
    read_at: float  # time.monotonic()


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def issue_key(
    *,
    agent: str,
    tenant: str = "default",
    actor_id: str = "",
    expires_in: timedelta | None = None,
    note: str = "",
    issued_by: str = "manage.py",
) -> IssuedKey:
    """Makes a key and its principal. The key is in the answer and nowhere else.

    Errors: INVALID_REQUEST for an unknown agent or a lifetime that is not positive; INVALID_ID.
    """
    if agent not in Agent.values:
        raise DomainError("INVALID_REQUEST", f"agent {agent!r} does not exist; use {', '.join(Agent.values)}")
    check_id("tenant", tenant)
    if actor_id:
        check_id("actor", actor_id)
    if expires_in is not None and expires_in <= timedelta(0):
        raise DomainError("INVALID_REQUEST", "the key's lifetime must be positive")
    key = KEY_SCHEME + secrets.token_urlsafe(32)
    with transaction.atomic():
        principal = AgentPrincipal.objects.create(
            tenant=tenant,
            agent=agent,
            actor_id=actor_id,
            note=note,
            key_digest=digest(key),
            expires_at=now() + expires_in if expires_in else None,
        )
        record(
            tenant=tenant,
            event_type=EventType.PRINCIPAL,
            decision=Decision.ISSUED,
            actor_type=ActorType.STAFF,
            actor_id=issued_by,
            agent=agent,
            object_type="agent_principal",
            object_id=principal.principal_id,
            on_behalf_of=actor_id,
        )
    return IssuedKey(key, principal)


def revoke_key(*, principal_id: str, revoked_by: str) -> AgentPrincipal:
    """Ends a key. Other processes that used it in the last 5 s learn of it within 5 s.

    Errors: NOT_FOUND. Revoking twice is harmless and keeps the first time.
    """
    with transaction.atomic():
        principal = AgentPrincipal.objects.filter(principal_id=principal_id).first()
        if principal is None:
            raise DomainError("NOT_FOUND", f"no agent key with principal id {principal_id!r}")
        changed = AgentPrincipal.objects.filter(principal_id=principal_id, revoked_at=None).update(revoked_at=now())
        if changed:
            record(
                tenant=principal.tenant,
                event_type=EventType.PRINCIPAL,
                decision=Decision.REVOKED,
                actor_type=ActorType.STAFF,
                actor_id=revoked_by,
                agent=principal.agent,
                object_type="agent_principal",
                object_id=principal_id,
            )
        principal.refresh_from_db()
    _cache.pop(principal.key_digest, None)
    return principal


# --- authentication ---------------------------------------------------------------------------------------------

_cache: dict[str, _CachedPrincipal] = {}
_cache_lock = threading.Lock()
_CACHE_SIZE = 1024


def forget_principals() -> None:
    """Empties this process's key cache."""
    _cache.clear()


def authenticate(*, key: str, actor_id: str | None) -> Caller:
    """The caller that `key` and the X-Actor-Id header make. No query when the key was read in the last 5 s.

    Errors: UNAUTHENTICATED, KEY_EXPIRED, KEY_REVOKED (401); INVALID_ID (422); NOT_OWNER (403) when a bound key
    names another actor.
    """
    found = _principal(key)
    if found is None:
        raise DomainError("UNAUTHENTICATED", "the key is not known; issue one with manage.py agent_key")
    if found.revoked_at is not None:
        raise DomainError("KEY_REVOKED")
    if found.expires_at is not None and found.expires_at <= now():
        raise DomainError("KEY_EXPIRED")
    if found.actor_id:
        if actor_id and actor_id != found.actor_id:
            caller = Caller(found.tenant, found.agent, found.actor_id, found.principal_id)
            raise refuse(caller, "NOT_OWNER", "actor", actor_id, "the key is bound to another actor than X-Actor-Id")
        actor_id = found.actor_id
    if not actor_id:
        raise DomainError("INVALID_REQUEST", "the header X-Actor-Id is missing: name the person this request acts for")
    check_id("X-Actor-Id", actor_id)
    return Caller(found.tenant, found.agent, actor_id, found.principal_id)


def _principal(key: str) -> _CachedPrincipal | None:
    if not key.startswith(KEY_SCHEME) or len(key) > 200:
        return None
    key_digest = digest(key)
    found = _cache.get(key_digest)
    if found is not None and time.monotonic() - found.read_at < settings.PRINCIPAL_CACHE_SECONDS:
        return found
    row = AgentPrincipal.objects.filter(key_digest=key_digest).first()
    if row is None:
        return None
    found = _CachedPrincipal(
        row.principal_id, row.tenant, row.agent, row.actor_id, row.expires_at, row.revoked_at, time.monotonic()
    )
    with _cache_lock:
        if len(_cache) >= _CACHE_SIZE:
            _cache.clear()
        _cache[key_digest] = found
    return found


# --- authorization ----------------------------------------------------------------------------------------------

AssignmentResolver = Callable[[str, str, str, datetime], bool]
_assignment_resolver: AssignmentResolver | None = None


def register_assignment_resolver(resolver: AssignmentResolver) -> None:
    """Told at ready() by the room that knows: (tenant, advisor_id, customer_id, at) -> assigned then."""
    global _assignment_resolver
    _assignment_resolver = resolver


def is_assigned(*, tenant: str, advisor_id: str, customer_id: str) -> bool:
    """Whether the advisor has the customer now. Nobody to ask means no (closed)."""
    if _assignment_resolver is None:
        return False
    return _assignment_resolver(tenant, advisor_id, customer_id, now())


def authorize(
    caller: Caller,
    resource: Resource,
    action: Action,
    *,
    object_id: str = "",
    owner_id: str | None = None,
    customer_id: str | None = None,
) -> None:
    """Lets pass or raises, and a refusal is one audit row.

    owner_id: the actor that the object belongs to (a session's actor, the advisor of an l2 or snapshot).
    customer_id: the customer that the object is about.
    Steps: 1. the matrix: may this agent do this at all; 2. own: the owner is the actor; 3. assigned: the actor
    has the customer now.
    Errors: AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403).
    """
    scope = MATRIX.get(caller.agent, {}).get(resource, {}).get(action)
    target = object_id or customer_id or owner_id or ""
    if scope is None:
        raise refuse(
            caller, "AUTH_403_SCOPE", resource.value, target,
            f"the {caller.agent} agent may not {action} {resource.value}", action=action,
        )  # fmt: skip
    if scope is Scope.ANY:
        return
    if owner_id is not None and owner_id != caller.actor_id:
        raise refuse(caller, "NOT_OWNER", resource.value, target, "it belongs to another actor", action=action)
    if scope is Scope.OWN:
        if owner_id is None and customer_id is not None and customer_id != caller.actor_id:
            raise refuse(caller, "NOT_OWNER", resource.value, target, "it is about another customer", action=action)
        return
    if customer_id is None or not is_assigned(
        tenant=caller.tenant, advisor_id=caller.actor_id, customer_id=customer_id
    ):
        raise refuse(
            caller, "NOT_ASSIGNED", resource.value, target,
            "the advisor has no current assignment of this customer", action=action, customer_id=customer_id,
        )  # fmt: skip


def refuse(
    caller: Caller,
    code: str,
    object_type: str,
    object_id: str,
    detail: str,
    *,
    action: str = "",
    customer_id: str | None = None,
) -> DomainError:
    """Writes the refusal's audit row (RISK-008 reads these) and gives back the error to raise.

    Written in a transaction of its own when none is open; inside one that is rolled back the row goes with it,
    so callers decide before they open theirs.
    """
    summary = {"code": code, "action": action, "target": object_id[:64]}
    if customer_id:
        summary["customer_id"] = customer_id
    record(
        tenant=caller.tenant,
        event_type=EventType.AUTHZ,
        decision=Decision.FORBIDDEN,
        actor_type=caller.actor_type,
        actor_id=caller.actor_id,
        agent=caller.agent,
        object_type=object_type,
        object_id=object_id[:64],
        code=code,
        trace_id=current_trace_id(),
        input_summary=summary,
    )
    return DomainError(code, detail)
