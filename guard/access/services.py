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
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.trace import current_trace_id
from guard.access.matrix import Action, Resource, Scope, scope_of
from guard.access.models import Agent, AgentPrincipal
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

KEY_SCHEME = "xh_"
MAX_LIFETIME = timedelta(days=3660)
MAX_NOTE = 200  # characters, the column's

# A request asks twice, before its body is read and again in the service: the second question about the same
# assignment is answered from the first. A Caller that lives longer than a request asks again after a second.
ASSIGNMENT_MEMO_SECONDS = 1.0

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
    # customer id -> time.monotonic() at which the assignment was seen; kept for ASSIGNMENT_MEMO_SECONDS
    _assigned: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def actor_type(self) -> str:
        return ACTOR_TYPE_OF.get(self.agent, ActorType.SERVICE)


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
    if expires_in is not None and not timedelta(0) < expires_in <= MAX_LIFETIME:
        raise DomainError("INVALID_REQUEST", f"the key's lifetime must be over 0 and at most {MAX_LIFETIME.days} days")
    if len(note) > MAX_NOTE or KEY_SCHEME in note:
        raise DomainError("INVALID_REQUEST", f"the note may have {MAX_NOTE} characters, and no key belongs into it")
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
            transaction.on_commit(lambda: forget_principal(principal.key_digest))
            forget_principal(principal.key_digest)  # at once for whoever shares this transaction
        principal.refresh_from_db()
    return principal


# --- authentication ---------------------------------------------------------------------------------------------

_cache: dict[str, _CachedPrincipal] = {}
_cache_lock = threading.Lock()
_CACHE_SIZE = 1024
_cache_generation = 0  # raised by every forget: a row read before it is not kept after it


def forget_principals() -> None:
    """Empties this process's key cache."""
    global _cache_generation
    with _cache_lock:
        _cache_generation += 1
        _cache.clear()


def forget_principal(key_digest: str) -> None:
    """Drops one key from this process's cache."""
    global _cache_generation
    with _cache_lock:
        _cache_generation += 1
        _cache.pop(key_digest, None)


def forget_saved_principal(sender: object, instance: AgentPrincipal, **_: object) -> None:
    """post_save and post_delete of AgentPrincipal: an edit in the console counts at once in its own process."""
    forget_principal(instance.key_digest)
    transaction.on_commit(lambda: forget_principal(instance.key_digest))


def authenticate(*, key: str, actor_id: str | None) -> Caller:
    """The caller that `key` and the X-Actor-Id header make. No query when the key was read in the last 5 s.

    Errors: UNAUTHENTICATED, KEY_EXPIRED, KEY_REVOKED (401); INVALID_ID, and INVALID_REQUEST without an actor (422);
    NOT_OWNER (403, audited) when a bound key names another actor.
    """
    found = _principal(key)
    if found is None:
        raise DomainError("UNAUTHENTICATED", "the key is not known; issue one with manage.py agent_key")
    if found.revoked_at is not None:
        raise DomainError("KEY_REVOKED")
    if found.expires_at is not None and found.expires_at <= now():
        raise DomainError("KEY_EXPIRED")
    if actor_id:
        check_id("X-Actor-Id", actor_id)
    if found.actor_id:
        if actor_id and actor_id != found.actor_id:
            caller = Caller(found.tenant, found.agent, found.actor_id, found.principal_id)
            raise refuse(caller, "NOT_OWNER", "actor", actor_id, "the key is bound to another actor than X-Actor-Id")
        actor_id = found.actor_id
    if not actor_id:
        raise DomainError("INVALID_REQUEST", "the header X-Actor-Id is missing: name the person this request acts for")
    return Caller(found.tenant, found.agent, actor_id, found.principal_id)


def _principal(key: str) -> _CachedPrincipal | None:
    if not key.startswith(KEY_SCHEME) or len(key) > 200:
        return None
    key_digest = digest(key)
    found = _cache.get(key_digest)
    if found is not None and time.monotonic() - found.read_at < settings.PRINCIPAL_CACHE_SECONDS:
        return found
    generation = _cache_generation
    read_at = time.monotonic()  # before the query: what it answers may be as old as this
    row = AgentPrincipal.objects.filter(key_digest=key_digest).order_by().first()
    if row is None:
        return None
    found = _CachedPrincipal(
        row.principal_id, row.tenant, row.agent, row.actor_id, row.expires_at, row.revoked_at, read_at
    )
    with _cache_lock:
        if generation != _cache_generation:
            return found  # something was revoked meanwhile: good for this request, not for the next
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


def _caller_is_assigned(caller: Caller, customer_id: str) -> bool:
    seen = caller._assigned.get(customer_id)
    if seen is not None and time.monotonic() - seen < ASSIGNMENT_MEMO_SECONDS:
        return True
    asked = time.monotonic()
    if not is_assigned(tenant=caller.tenant, advisor_id=caller.actor_id, customer_id=customer_id):
        return False
    caller._assigned[customer_id] = asked
    return True


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
    Steps: 1. the matrix: may this agent do this at all; 2. own: the owner is the actor, and for the customer agent
    the customer too; 3. assigned: the actor has the customer now.
    Errors: AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403); ValueError where "own" has nothing to compare with.
    """
    scope = scope_of(caller.agent, resource, action)
    target = object_id or customer_id or owner_id or ""

    def no(code: str, detail: str) -> DomainError:
        return refuse(caller, code, resource.value, target, detail, action=action, customer_id=customer_id)

    if scope is None:
        raise no("AUTH_403_SCOPE", f"the {caller.agent} agent may not {action} {resource.value}")
    if scope is Scope.ANY:
        return
    if owner_id is None and customer_id is None:
        # Nothing to compare with must never mean "yes".
        raise ValueError(f"authorize {resource.value} needs owner_id or customer_id")
    if owner_id is not None and owner_id != caller.actor_id:
        raise no("NOT_OWNER", "it belongs to another actor")
    if scope is Scope.OWN:
        about_another = customer_id is not None and customer_id != caller.actor_id
        if about_another and (owner_id is None or caller.agent == Agent.CUSTOMER):
            raise no("NOT_OWNER", "it is about another customer")
        return
    if customer_id is None or not _caller_is_assigned(caller, customer_id):
        raise no("NOT_ASSIGNED", "the advisor has no current assignment of this customer")


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
