"""Files of an erased customer's alerts lose their bytes and their names; the alert stays, as evidence (keeping.py), and
with it that there was a file, of what size and SHA-256."""

from __future__ import annotations

from django.db.models import Count, QuerySet

from config.base.clock import now
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from risk.alerts.casework import AlertAttachment, AttachmentChunk

NAME = "risk.attachments"
ROWS_A_STEP = 20


def _of(subject: Subject) -> QuerySet[AlertAttachment]:
    rows = AlertAttachment.objects.filter(tenant=subject.tenant, erased_at=None).order_by()
    return rows if subject.whole_tenant else rows.filter(alert__customer_id=subject.customer_id)


def _remove(job: Erasing, step: Step) -> int:
    """By a locking read: who adds one at this moment is waited for."""
    pks = list(_of(job.subject).select_for_update().values_list("pk", flat=True)[:ROWS_A_STEP])
    AttachmentChunk.objects.filter(attachment_id__in=pks).delete()
    AlertAttachment.objects.filter(pk__in=pks).update(erased_at=now(), file_name="")
    step.count("attachments", len(pks))
    return len(pks)


def erase(job: Erasing) -> None:
    while job.step(lambda step: _remove(job, step)):
        pass


def count(subject: Subject) -> Counts:
    how_many = _of(subject).count()
    return {"attachments": how_many} if how_many else {}


def tenants() -> dict[str, Counts]:
    """1 query."""
    rows = AlertAttachment.objects.filter(erased_at=None).order_by().values_list("tenant").annotate(Count("pk"))
    return {tenant: {"attachments": how_many} for tenant, how_many in rows}


PART = Part(NAME, count=count, erase=erase, tenants=tenants)
