"""Answers that guard keeps for repeats of a request: which customer they are about, and their erasure.

They hold what was answered, for a day: a context's words, a compaction's. An answer is the customer's whose name is the
actor's in the key, or whom it is about, which stands in it as the keyed hash that the tombstone has too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from django.conf import settings

from config.base.redis import RedisUnavailable, client_for, translated
from guard.access.models import Agent
from guard.access.services import Caller
from guard.idempotency.keys import IDEM
from memory.erasure.names import Name, Reader
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.erasure.tombstones import subject_of, subjects_of
from memory.profiles.drafts.models import AdvisorDraft
from memory.sessions.owners import find_owner

NAME = "redis.answers"
_AT_ONCE = 500
_ABOUT = [f"{agent}:about" for agent in Agent.values]


def subject_of_request(caller: Caller, path: Mapping[str, Any], body: Any) -> str:
    """The keyed hash of the customer that a request is about, '' for none.

    Cost: no query for a session that was admitted, one for a draft.
    Errors: CUSTOMER_ERASED.
    """
    customer_id = path.get("customer_id")
    if not customer_id and "session_id" in path:
        owner = find_owner(caller.tenant, path["session_id"])
        customer_id = owner.customer_id if owner is not None else ""
    if not customer_id and "draft_id" in path:
        drafts = AdvisorDraft.objects.filter(tenant=caller.tenant, draft_id=path["draft_id"])
        customer_id = drafts.values_list("customer_id", flat=True).first()
    if not customer_id and isinstance(body, dict):
        customer_id = body.get("customer_id")
    return subject_of(caller.tenant, customer_id) if customer_id and isinstance(customer_id, str) else ""


def _of_tenant(tenant: str) -> Iterator[str]:
    return (name.name for name in _all() if name.tenant == tenant)


def _of_customer(subjects: set[str]) -> Iterator[str]:
    """Walks every name on the server, and looks into each kept answer."""
    names = _all()
    known: dict[tuple[str, str], bool] = {}
    while batch := list(islice(names, _AT_ONCE)):
        with translated():
            pipeline = client_for(settings.REDIS_URL, decoding_errors="surrogateescape").pipeline(transaction=False)
            for name in batch:
                pipeline.hmget(name.name, _ABOUT)
            told = pipeline.execute(raise_on_error=False)
        for name, about in zip(batch, told, strict=True):
            who = (name.tenant, name.parts["actor_id"])
            if who not in known:
                known[who] = not subjects.isdisjoint(subjects_of(*who))
            # What is no hash (somebody wrote there by hand) is nobody's answer.
            if known[who] or (isinstance(about, list) and not subjects.isdisjoint(filter(None, about))):
                yield name.name


def _all() -> Iterator[Name]:
    return Reader([IDEM]).scan(settings.REDIS_URL)


def _found(left: Mapping[str, Any]) -> Iterator[str]:
    return _of_tenant(left["tenant"]) if "tenant" in left else _of_customer(set(left["subjects"]))


def _remove(left: Mapping[str, Any]) -> int:
    """Also what is at work: what it answers is not kept then."""
    removed, names = 0, _found(left)
    while batch := list(islice(names, _AT_ONCE)):
        with translated():
            removed += int(client_for(settings.REDIS_URL, decoding_errors="surrogateescape").delete(*batch))
    return removed


def _left(subject: Subject) -> dict[str, Any]:
    if subject.whole_tenant:
        return {"tenant": subject.tenant}
    return {"subjects": sorted(subjects_of(subject.tenant, subject.customer_id))}


def erase(job: Erasing) -> None:
    """Away: open."""
    left = _left(job.subject)

    def work(step: Step) -> None:
        step.remains.clear()
        try:
            step.count("answers", _remove(left))
        except RedisUnavailable:
            step.remains.update(left)
        else:
            step.again.update(left)

    job.step(work)


def finish(left: Mapping[str, Any]) -> dict[str, Any] | None:
    """Errors: RedisUnavailable."""
    _remove(left)
    return None


def count(subject: Subject) -> Counts:
    """Left out while Redis is away."""
    try:
        return {"answers": sum(1 for _ in _found(_left(subject)))}
    except RedisUnavailable:
        return {}


PART = Part(NAME, count=count, erase=erase, finish=finish)
