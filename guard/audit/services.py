"""The one door into the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from config.base.fields import canonical_json
from config.base.trace import current_trace_id
from guard.audit.models import VOCABULARY, ActorType, AuditLog

MAX_SUMMARY_BYTES = 2048


def record(
    *,
    tenant: str,
    event_type: str,
    decision: str,
    actor_type: str = ActorType.SYSTEM,
    actor_id: str,
    on_behalf_of: str = "",
    agent: str = "",
    object_type: str = "",
    object_id: str = "",
    code: str = "",
    risk_score: int | None = None,
    trace_id: str | None = None,
    input_summary: Mapping[str, Any] | None = None,
) -> AuditLog:
    """Inserts one row, in the caller's transaction: if the row cannot be written, the decision does not happen.

    Errors: ValueError for a word outside the vocabulary (a fault of the caller's code). A summary over 2 KB is
    replaced by its size, never cut in the middle.
    """
    if decision not in VOCABULARY.get(event_type, frozenset()):
        raise ValueError(f"audit vocabulary has no {event_type}/{decision}")
    summary = dict(input_summary or {})
    size = len(canonical_json(summary).encode())
    if size > MAX_SUMMARY_BYTES:
        summary = {"omitted_bytes": size, **({"code": summary["code"]} if "code" in summary else {})}
    return AuditLog.objects.create(
        tenant=tenant,
        event_type=event_type,
        decision=decision,
        actor_type=actor_type,
        actor_id=actor_id[:64],
        on_behalf_of=on_behalf_of[:64],
        agent=agent,
        object_type=object_type,
        object_id=object_id[:64],
        code=code,
        risk_score=risk_score,
        trace_id=current_trace_id() if trace_id is None else trace_id,
        input_summary=summary,
    )
