"""The core system's facts stay when a customer is erased: they are evidence, and not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer, CorePosition, CoreTrade
from memory.erasure.keeping import EVIDENCE
from memory.erasure.registry import Kept, Subject, register_kept


def _rows(model: Any) -> Callable[[Subject], int]:
    def count(subject: Subject) -> int:
        rows = model.objects.filter(tenant=subject.tenant)
        return int((rows if subject.whole_tenant else rows.filter(customer_id=subject.customer_id)).count())

    return count


def register_own() -> None:
    for model in (CoreCustomer, CoreAssessment, CoreAssignment, CorePosition, CoreTrade):
        register_kept(Kept(model._meta.db_table, f"facts of the core system: {EVIDENCE}", _rows(model)))
