"""The agent x resource matrix, as data: which agent reads and writes what, and of whom."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Literal

from django.conf import settings

from guard.access.models import Agent

Action = Literal["read", "write"]


class Resource(Enum):
    SESSION = "session"
    L1 = "profile_l1"
    L2 = "profile_l2"
    L3 = "profile_l3"
    SNAPSHOT = "advisor_snapshot"
    ALERT = "risk_alert"
    OBSERVATION = "observation"
    DRAFT = "advisor_draft"
    DRAFT_REVIEW = "draft_review"
    ANALYTICS = "analytics_query"


class Scope(Enum):
    """Of whom: the actor's own, of customers assigned to the actor, or of anyone in the tenant."""

    OWN = "own"
    ASSIGNED = "assigned"
    ANY = "any"


_OWN_SESSIONS: dict[Action, Scope] = {"read": Scope.OWN, "write": Scope.OWN}

# What is not written here is forbidden.
MATRIX: Mapping[str, Mapping[Resource, Mapping[Action, Scope]]] = {
    Agent.CUSTOMER: {
        Resource.SESSION: _OWN_SESSIONS,
        Resource.L1: {"read": Scope.OWN, "write": Scope.OWN},
        Resource.L3: {"read": Scope.OWN},
    },
    Agent.ADVISOR: {
        Resource.SESSION: _OWN_SESSIONS,
        Resource.L1: {"read": Scope.ASSIGNED},
        Resource.L2: {"read": Scope.ASSIGNED, "write": Scope.ASSIGNED},
        Resource.L3: {"read": Scope.ASSIGNED},
        Resource.SNAPSHOT: {"read": Scope.ASSIGNED, "write": Scope.ASSIGNED},
        Resource.OBSERVATION: {"write": Scope.OWN},
        Resource.DRAFT: {"read": Scope.ASSIGNED, "write": Scope.ASSIGNED},
    },
    Agent.ANALYST: {
        Resource.SESSION: _OWN_SESSIONS,
        Resource.ANALYTICS: {"read": Scope.OWN, "write": Scope.OWN},
    },
    Agent.RISK: {
        Resource.SESSION: _OWN_SESSIONS,
        Resource.L1: {"read": Scope.ANY},
        Resource.L2: {"read": Scope.ANY},
        Resource.L3: {"read": Scope.ANY, "write": Scope.ANY},
        Resource.ALERT: {"read": Scope.ANY, "write": Scope.ANY},
    },
}

# What the setting ANALYST_READS_PROFILES adds; the room that answers masks what it gives.
_ANALYST_GRANT: Mapping[Resource, Mapping[Action, Scope]] = {
    Resource.L1: {"read": Scope.ANY},
    Resource.L3: {"read": Scope.ANY},
}

# What the setting DRAFT_PEER_REVIEW adds: an advisor may review what another wrote for a customer that both have.
_PEER_REVIEW: Mapping[Resource, Mapping[Action, Scope]] = {
    Resource.DRAFT_REVIEW: {"read": Scope.ASSIGNED, "write": Scope.ASSIGNED},
}


def scope_of(agent: str, resource: Resource, action: Action) -> Scope | None:
    """Of whom this agent may do this; None where it may not at all."""
    scope = MATRIX.get(agent, {}).get(resource, {}).get(action)
    if scope is None and agent == Agent.ANALYST and settings.ANALYST_READS_PROFILES:
        return _ANALYST_GRANT.get(resource, {}).get(action)
    if scope is None and agent == Agent.ADVISOR and settings.DRAFT_PEER_REVIEW:
        return _PEER_REVIEW.get(resource, {}).get(action)
    return scope
