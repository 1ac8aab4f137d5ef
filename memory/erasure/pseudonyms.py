"""The key of the customer's pseudonym in the audit log: destroyed, so that nobody can tell whose its rows are."""

from __future__ import annotations

from guard.audit import pseudonyms
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step

NAME = "guard.audit"


def erase(job: Erasing) -> None:
    """Processes that have just used the name forget it within 5 s; what they write till then has no key either."""

    def work(step: Step) -> None:
        step.count("pseudonym_keys", pseudonyms.destroy(job.subject.tenant, job.subject.customer_id))

    job.step(work)


def count(subject: Subject) -> Counts:
    return {"pseudonym_keys": pseudonyms.count(subject.tenant, subject.customer_id)}


PART = Part(NAME, count=count, erase=erase)
