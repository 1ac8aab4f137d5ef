"""What of the answer cache an erasure removes: every answer that was made from the customer's data.

The names tell nothing, so each value's beginning is looked at: there stands the keyed hash of the customer whose it is.
A whole tenant's go with its other cached keys (memory/erasure/caches.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from django.conf import settings

from config.base.redis import RedisUnavailable, client_for, translated
from memory.erasure.names import Reader
from memory.erasure.registry import Counts, Part, Subject
from memory.erasure.running import Erasing, Step
from memory.erasure.tombstones import subjects_of
from memory.profiles.answers.keys import ANSWER

NAME = "redis.answer_cache"
_AT_ONCE = 500
# Where `about` stands in a value: keys are sorted, and an epoch is at most 16 digits, a colon and a version of 64.
_HEAD_BYTES = 200
_ABOUT = re.compile(r'^\{"_epoch":"[^"]*","about":"([0-9a-f]{64})"')


def _of(subjects: set[str]) -> Iterator[str]:
    client = client_for(settings.CACHE_REDIS_URL, decoding_errors="surrogateescape")
    names = (name.name for name in Reader([ANSWER]).scan(settings.CACHE_REDIS_URL))
    while batch := list(islice(names, _AT_ONCE)):
        with translated():
            pipeline = client.pipeline(transaction=False)
            for name in batch:
                pipeline.getrange(name, 0, _HEAD_BYTES)
            heads = pipeline.execute(raise_on_error=False)
        for name, head in zip(batch, heads, strict=True):
            found = _ABOUT.match(head) if isinstance(head, str) else None
            if found and found[1] in subjects:
                yield name


def _remove(subjects: set[str]) -> int:
    removed, names = 0, _of(subjects)
    while batch := list(islice(names, _AT_ONCE)):
        with translated():
            removed += int(client_for(settings.CACHE_REDIS_URL).delete(*batch))
    return removed


def erase(job: Erasing) -> None:
    """Away: open."""
    subject = job.subject
    if subject.whole_tenant:
        return
    subjects = subjects_of(subject.tenant, subject.customer_id)

    def work(step: Step) -> None:
        step.remains.clear()
        left = {"subjects": sorted(subjects)}
        try:
            step.count("answers", _remove(set(subjects)))
        except RedisUnavailable:
            step.remains.update(left)
        else:
            step.again.update(left)

    job.step(work)


def finish(left: Mapping[str, Any]) -> dict[str, Any] | None:
    """Errors: RedisUnavailable."""
    _remove(set(left["subjects"]))
    return None


def count(subject: Subject) -> Counts:
    """Left out while Redis is away."""
    if subject.whole_tenant:
        return {}
    try:
        return {"answers": sum(1 for _ in _of(set(subjects_of(subject.tenant, subject.customer_id))))}
    except RedisUnavailable:
        return {}


PART = Part(NAME, count=count, erase=erase, finish=finish)
