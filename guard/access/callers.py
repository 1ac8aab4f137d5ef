"""Who asks, and what it leaves behind when they are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from config.base.errors import DomainError
from config.base.trace import current_trace_id
from guard.access.models import Agent
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record

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
    # of the token that the request came with, '' where it came with the key itself
    token_id: str = ""
    token_family: str = ""
    # customer id -> time.monotonic() at which the assignment was seen; kept for ASSIGNMENT_MEMO_SECONDS
    _assigned: dict[str, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def actor_type(self) -> str:
        return ACTOR_TYPE_OF.get(self.agent, ActorType.SERVICE)


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
    record(**refusal(caller, code, object_type, object_id, action=action, customer_id=customer_id))
    return DomainError(code, detail)


def refusal(
    caller: Caller, code: str, object_type: str, object_id: str, *, action: str = "", customer_id: str | None = None
) -> dict[str, Any]:
    """The row that `refuse` writes, as `record` takes it."""
    summary = {"code": code, "action": action, "target": object_id[:64]}
    if customer_id:
        summary["customer_id"] = customer_id
    return {
        "tenant": caller.tenant,
        "event_type": EventType.AUTHZ,
        "decision": Decision.FORBIDDEN,
        "actor_type": caller.actor_type,
        "actor_id": caller.actor_id,
        "agent": caller.agent,
        "object_type": object_type,
        "object_id": object_id[:64],
        "code": code,
        "trace_id": current_trace_id(),
        "input_summary": summary,
    }
