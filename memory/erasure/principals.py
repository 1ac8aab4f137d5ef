"""Agent keys: of a customer those that are bound to that customer, of a tenant all. They are revoked first."""

from __future__ import annotations

from django.db.models import QuerySet

from guard.access.models import Agent, AgentPrincipal
from guard.access.services import revoke_key
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.erasure.tombstones import is_pseudonym, pseudonym, subject_of

NAME = "guard.access"


def _of(subject: Subject) -> QuerySet[AgentPrincipal]:
    keys = AgentPrincipal.objects.filter(tenant=subject.tenant).order_by("principal_id")
    return keys if subject.whole_tenant else keys.filter(agent=Agent.CUSTOMER, actor_id=subject.customer_id)


def erase(job: Erasing) -> None:
    """A key that is bound to a customer no longer says to whom. Other processes learn of a revocation within 5 s."""

    def work(step: Step) -> None:
        for key in _of(job.subject).select_for_update():
            if key.revoked_at is None:
                revoke_key(principal_id=key.principal_id, revoked_by="erasure")
                step.count("keys_revoked", 1)
            bound = key.agent == Agent.CUSTOMER and key.actor_id
            if bound and not is_pseudonym(key.actor_id):
                name = pseudonym(subject_of(key.tenant, key.actor_id))
                AgentPrincipal.objects.filter(pk=key.pk).update(actor_id=name)

    job.step(work)


def count(subject: Subject) -> Counts:
    return {"keys_revoked": _of(subject).filter(revoked_at=None).count()}


PART = Part(NAME, count=count, erase=erase)
