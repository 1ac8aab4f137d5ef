"""Redis keys that name a customer, whichever room declared them: found by their names in the registry.

What a room's own part removes is gone by now; here goes the rest (hints, snapshots, answers of rooms to come). The
customer is known by the keyed hash, so this also finishes an erasure when nobody knows the id any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings

from config.base.redis import RedisUnavailable, client_for, translated
from memory.erasure.names import Name, Reader, naming, of_domains
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.erasure.tombstones import subjects_of

NAME = "redis.keys"
# What belongs to a tenant's memory; guard's limits and risk's hints are not a tenant's to clean up.
TENANT_DOMAINS = ("sess", "profile", "cache")
_AT_ONCE = 500


def _servers() -> list[str]:
    return list(dict.fromkeys([settings.REDIS_URL, settings.CACHE_REDIS_URL]))


def _of_customer(url: str, subjects: set[str]) -> Iterator[Name]:
    known: dict[tuple[str, str], bool] = {}
    for name in Reader(naming("customer_id")).scan(url):
        who = (name.tenant, name.parts["customer_id"])
        if who not in known:
            known[who] = not subjects.isdisjoint(subjects_of(*who))
        if known[who]:
            yield name


def _of_tenant(url: str, tenant: str) -> Iterator[Name]:
    for name in Reader(of_domains(*TENANT_DOMAINS)).scan(url):
        # The mark of an erased session stays for its time: it refuses late writers.
        if name.tenant == tenant and not _is_mark(url, name):
            yield name


def _is_mark(url: str, name: Name) -> bool:
    if not name.key.pattern.endswith(":ctx"):
        return False
    with translated():
        client = client_for(url)
        return client.type(name.name) == "hash" and bool(client.hexists(name.name, "deleted"))


def _found(url: str, subject: Subject, subjects: set[str]) -> Iterator[Name]:
    return _of_tenant(url, subject.tenant) if subject.whole_tenant else _of_customer(url, subjects)


def _remove(url: str, names: Iterator[Name]) -> int:
    removed = 0
    batch: list[str] = []
    for name in names:
        batch.append(name.name)
        if len(batch) == _AT_ONCE:
            removed += _delete(url, batch)
            batch = []
    return removed + _delete(url, batch)


def _delete(url: str, names: list[str]) -> int:
    if not names:
        return 0
    with translated():
        return int(client_for(url).delete(*names))


def erase(job: Erasing) -> None:
    """Walks the names of both Redis servers once. Away: open."""
    subjects = set(subjects_of(job.subject.tenant, job.subject.customer_id))
    left: dict[str, Any] = (
        {"tenant": job.subject.tenant} if job.subject.whole_tenant else {"subjects": sorted(subjects)}
    )

    def work(step: Step) -> None:
        step.remains.clear()
        try:
            for url in _servers():
                step.count("keys", _remove(url, _found(url, job.subject, subjects)))
        except RedisUnavailable:
            step.remains.update(left)
        else:
            step.again.update(left)

    job.step(work)


def finish(left: Mapping[str, Any]) -> dict[str, Any] | None:
    """Errors: RedisUnavailable."""
    for url in _servers():
        if "tenant" in left:
            _remove(url, _of_tenant(url, left["tenant"]))
        else:
            _remove(url, _of_customer(url, set(left["subjects"])))
    return None


def count(subject: Subject) -> Counts:
    """Left out while Redis is away."""
    subjects = set(subjects_of(subject.tenant, subject.customer_id))
    try:
        return {"keys": sum(1 for url in _servers() for _ in _found(url, subject, subjects))}
    except RedisUnavailable:
        return {}


PART = Part(NAME, count=count, erase=erase, finish=finish)
