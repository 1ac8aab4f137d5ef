"""Blocks and limits of admission that name a customer as their actor: a block ends and loses its name, a limit goes.

What a customer's calls cost stays in `budget_ledger`, which takes no change (see keeping.py).
"""

from __future__ import annotations

from django.db import transaction

from guard.admission.blocks import lift_block
from guard.admission.models import ActorBlock, AdmissionLimit, BudgetLedger
from guard.admission.policy import forget_policy_on_commit
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.erasure.tombstones import pseudonym, subject_of

NAME = "guard.admission"


def _blocks(subject: Subject) -> list[ActorBlock]:
    rows = ActorBlock.objects.filter(tenant=subject.tenant, actor_id=subject.customer_id)
    return list(rows.order_by("pk").select_for_update())


def _limits(subject: Subject) -> int:
    rows = AdmissionLimit.objects.filter(tenant=subject.tenant, actor_id=subject.customer_id)
    return int(rows.count())


def erase(job: Erasing) -> None:
    """Of a tenant nothing: what its actors and agents did wrong is the firm's own record, as its limits are."""
    subject = job.subject
    if subject.whole_tenant:
        return

    def work(step: Step) -> None:
        lift_block(tenant=subject.tenant, actor_id=subject.customer_id, by="erasure")
        name = pseudonym(subject_of(subject.tenant, subject.customer_id))
        blocks = _blocks(subject)
        for row in blocks:
            ActorBlock.objects.filter(pk=row.pk).update(actor_id=name, reason="")
        step.count("blocks", len(blocks))
        gone, _kinds = AdmissionLimit.objects.filter(tenant=subject.tenant, actor_id=subject.customer_id).delete()
        step.count("limits", gone)
        forget_policy_on_commit()

    job.step(work)


def count(subject: Subject) -> Counts:
    if subject.whole_tenant:
        return {}
    with transaction.atomic():
        found = {"blocks": len(_blocks(subject)), "limits": _limits(subject)}
    return {what: how_many for what, how_many in found.items() if how_many}


def spent(subject: Subject) -> int:
    """Rows of the ledger that name the customer."""
    rows = BudgetLedger.objects.filter(tenant=subject.tenant)
    return int((rows if subject.whole_tenant else rows.filter(actor_id=subject.customer_id)).count())


PART = Part(NAME, count=count, erase=erase)
