"""The one door into the audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from config.base.fields import canonical_json
from config.base.redact import redact
from config.base.trace import current_trace_id
from guard.audit.models import VOCABULARY, ActorType, AuditLog

MAX_SUMMARY_BYTES = 2048

# What RISK-008 and the console look for: kept even where the rest of a summary is too large.
_KEPT = ("code", "action", "target", "customer_id", "trade_id", "product_id")
_KEPT_BYTES = 200


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

    input_summary: JSON, at most 2 KB in its canonical spelling; a larger one is replaced by its size and the fields
        of _KEPT, never cut in the middle. What looks like an agent key is hidden.
    Errors: ValueError for a word outside the vocabulary, an actor type that does not exist, or a score outside
    0 to 100 (faults of the caller's code).
    """
    if decision not in VOCABULARY.get(event_type, frozenset()):
        raise ValueError(f"audit vocabulary has no {event_type}/{decision}")
    if actor_type not in ActorType.values:
        raise ValueError(f"audit vocabulary has no actor type {actor_type!r}")
    if risk_score is not None and not 0 <= risk_score <= 100:
        raise ValueError(f"a risk score is 0 to 100, not {risk_score}")
    return AuditLog.objects.create(
        tenant=tenant,
        event_type=event_type,
        decision=decision,
        actor_type=actor_type,
        actor_id=actor_id[:64],
        on_behalf_of=on_behalf_of[:64],
        agent=agent[:16],
        object_type=object_type,
        object_id=object_id[:64],
        code=code,
        risk_score=risk_score,
        trace_id=current_trace_id() if trace_id is None else trace_id,
        input_summary=_bounded(input_summary or {}),
    )


def _bounded(summary: Mapping[str, Any]) -> dict[str, Any]:
    text = redact(canonical_json(dict(summary)))
    size = len(text.encode("utf-8", "surrogatepass"))
    whole: dict[str, Any] = json.loads(text)
    if size <= MAX_SUMMARY_BYTES:
        return whole
    kept = {name: whole[name] for name in _KEPT if name in whole}
    small = {name: value for name, value in kept.items() if len(canonical_json(value).encode()) <= _KEPT_BYTES}
    return {"omitted_bytes": size, **small}
