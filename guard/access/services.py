"""The two questions of every request: who is it, and may they.

Keys and tokens: see principals.py and tokens.py, which also say what happens without Redis or the database.
Authorization uses no Redis; with the database away, what needs an assignment is refused with 503 (closed).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import check_id
from guard.access import tokens
from guard.access.callers import Caller, refuse
from guard.access.matrix import Action, Resource, Scope, scope_of
from guard.access.models import Agent
from guard.access.principals import (
    KEY_SCHEME,
    IssuedKey,
    by_key,
    forget_principals,
    forget_saved_principal,
    issue_key,
    revoke_key,
    rotate_key,
)
from guard.tokens import looks_like_token

__all__ = [
    "KEY_SCHEME",
    "Caller",
    "IssuedKey",
    "authenticate",
    "authorize",
    "forget_principals",
    "forget_saved_principal",
    "is_assigned",
    "issue_key",
    "refuse",
    "register_assignment_resolver",
    "revoke_key",
    "rotate_key",
]

# A request asks twice, before its body is read and again in the service: the second question about the same
# assignment is answered from the first. A Caller that lives longer than a request asks again after a second.
ASSIGNMENT_MEMO_SECONDS = 1.0


def authenticate(*, key: str, actor_id: str | None) -> Caller:
    """The caller that a key, or an access token, and the X-Actor-Id header make.

    No query when the key was read in the last 5 s; of a token, see `tokens.check`.
    Errors: UNAUTHENTICATED, KEY_EXPIRED, KEY_REVOKED, TOKEN_EXPIRED, TOKEN_REVOKED (401); INVALID_ID, and
    INVALID_REQUEST without an actor (422); NOT_OWNER (403, audited) when a bound key or a token names another actor.
    """
    if looks_like_token(key):
        caller = tokens.check(token=key)
        if actor_id:
            _check_actor(caller, actor_id, "the token is another actor's than X-Actor-Id")
        return caller
    found = by_key(key)
    if found is None:
        raise DomainError("UNAUTHENTICATED", "the key is not known; issue one with manage.py agent_key")
    found.check(now())
    if found.actor_id:
        caller = Caller(found.tenant, found.agent, found.actor_id, found.principal_id)
        if actor_id:
            _check_actor(caller, actor_id, "the key is bound to another actor than X-Actor-Id")
        return caller
    if not actor_id:
        raise DomainError("INVALID_REQUEST", "the header X-Actor-Id is missing: name the person this request acts for")
    return Caller(found.tenant, found.agent, check_id("X-Actor-Id", actor_id), found.principal_id)


def _check_actor(caller: Caller, actor_id: str, detail: str) -> None:
    check_id("X-Actor-Id", actor_id)
    if actor_id != caller.actor_id:
        raise refuse(caller, "NOT_OWNER", "actor", actor_id, detail)


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
        raise no("NOT_OWNER", "it belongs to another actor, or it is another agent's")
    if scope is Scope.OWN:
        about_another = customer_id is not None and customer_id != caller.actor_id
        if about_another and (owner_id is None or caller.agent == Agent.CUSTOMER):
            raise no("NOT_OWNER", "it is about another customer")
        return
    if customer_id is None or not _caller_is_assigned(caller, customer_id):
        raise no("NOT_ASSIGNED", "the advisor has no current assignment of this customer")
