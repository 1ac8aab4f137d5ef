"""Drafts of an erased customer go, sent ones too: that something was sent stays in the audit log, under a pseudonym."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.profiles.drafts.models import AdvisorDraft, AdvisorDraftRevision

NAME = "memory.drafts"
ROWS_A_STEP = 200


def _of(subject: Subject) -> QuerySet[AdvisorDraft]:
    rows = AdvisorDraft.objects.filter(tenant=subject.tenant).order_by()
    return rows if subject.whole_tenant else rows.filter(customer_id=subject.customer_id)


def _remove(job: Erasing, step: Step) -> int:
    """By a locking read: who is at a draft at this moment is waited for."""
    pks = list(_of(job.subject).select_for_update().values_list("pk", flat=True)[:ROWS_A_STEP])
    AdvisorDraftRevision.objects.filter(draft_id__in=pks).delete()
    AdvisorDraft.objects.filter(pk__in=pks).delete()
    step.count("drafts", len(pks))
    return len(pks)


def erase(job: Erasing) -> None:
    while job.step(lambda step: _remove(job, step)):
        pass


def count(subject: Subject) -> Counts:
    return {"drafts": _of(subject).count()}


def tenants() -> dict[str, Counts]:
    """1 query."""
    rows = AdvisorDraft.objects.order_by().values_list("tenant").annotate(Count("pk"))
    return {tenant: {"drafts": how_many} for tenant, how_many in rows}


PART = Part(NAME, count=count, erase=erase, tenants=tenants)
