"""The demo's advisors, as rows of the audit log: the rows that a refusal and a report write, at the story's times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from config.base.trace import new_trace_id
from guard.access.callers import Caller, refusal
from guard.access.matrix import Resource
from guard.audit.models import AuditLog, EventType
from guard.audit.services import record_all
from memory.core.demo.stage import Deed
from risk.conduct.services import trade_request

AT_ONCE = 500


def tell(*, tenant: str, deeds: Sequence[Deed]) -> int:
    """Writes the rows of a story, all or none, once: the log cannot be told twice. How many were written.

    Who these advisors are says which story it is (see cases_008.plant).
    """
    advisors = {deed.advisor_id for deed in deeds}
    with transaction.atomic():
        known = AuditLog.objects.filter(tenant=tenant, actor_id__in=advisors, event_type=EventType.AUTHZ)
        if not advisors or known.exists():
            return 0
        for start in range(0, len(deeds), AT_ONCE):
            record_all([entry_of(tenant, deed) for deed in deeds[start : start + AT_ONCE]])
    return len(deeds)


def entry_of(tenant: str, deed: Deed) -> dict[str, Any]:
    """The row of one deed, as `record_all` takes it."""
    caller = Caller(tenant, "advisor", deed.advisor_id)
    if deed.trade_id:
        entry = trade_request(caller, trade_id=deed.trade_id, code=deed.code)
    elif deed.product_id:
        entry = refusal(caller, deed.code, "core_product", deed.product_id, action="read")
    else:
        entry = refusal(
            caller, deed.code, Resource.L2.value, deed.customer_id, action="read", customer_id=deed.customer_id
        )
    return {**entry, "at": deed.at, "trace_id": new_trace_id()}
