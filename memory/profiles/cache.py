"""The profile caches: read, fill, drop. One round trip each, for any number of profiles.

One loader. Of many who miss one profile the first is told to load it, and the others to wait; a loader that died, or
takes longer than its lease (1 s), has a successor, and both may fill. That MySQL has no such profile is kept beside the
generation for 5 s, so whoever creates it deletes that too.

Race safety. A reader that misses is given a generation. A writer deletes value and generation in one command after
its commit. A fill names the generation of its miss and is kept only while that is still there: a reader that read
MySQL before a writer's commit cannot put the old value back after it.

On Redis being down, slow, or refusing writes (a replica, too few replicas, a full disk): a read is a miss without a
generation (MySQL answers, nothing is filled and nobody waits), after PATIENCE once and at once for a second; a drop,
which a saver's readers rely on, is given the sessions' patience, and is tried again then (doubts.py). Whoever saw that
trusts no value before what waits in `profile_change` was looked after; who saw nothing of it can be served an old
value until the saver's next try, a tenth of a second, or, where the saver died, the sweeper's.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import redis
from django.conf import settings
from pydantic_core import from_json
from redis.exceptions import ResponseError

from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.redis import Breaker, Client, RedisUnavailable, Script, client_for
from memory.profiles import doubts, keys
from memory.profiles.doubts import doubt
from memory.profiles.models import Layer, ProfileChange
from memory.profiles.shaping import is_document, kept_json

logger = logging.getLogger(__name__)

_GENERATION_MS = keys.GENERATION_SECONDS * 1000
_LEASE_MS = int(keys.LEASE_SECONDS * 1000)
_MISSING_MS = keys.MISSING_SECONDS * 1000

# Seconds for connecting and each answer: a cache that takes longer is no cache. (Less, and a busy machine looks like a
# hanging Redis, and is made busier by all who then read MySQL.) By a client of its own: that a reader would not wait is
# no outage to the sessions, which go on waiting for theirs.
PATIENCE = 0.25

_read = Script.beside(__file__, "read")
_fill = Script.beside(__file__, "fill")
_drop = Script.beside(__file__, "drop")


def _client() -> Client:
    return client_for(settings.REDIS_URL, timeout=PATIENCE)


class Named(Protocol):
    """Whatever names one profile: a model row, an outbox row, a Slot."""

    @property
    def tenant(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def customer_id(self) -> str: ...
    @property
    def advisor_id(self) -> str: ...


class Slot(NamedTuple):
    """One profile's place in the cache. (A tuple, as Found is: they are made for every read.)"""

    tenant: str
    layer: str
    customer_id: str
    advisor_id: str = ""

    @property
    def names(self) -> tuple[str, str]:
        """The keys of value and generation. Errors: INVALID_ID (422)."""
        return _names(settings.REDIS_KEY_PREFIX, self)

    @property
    def ttl_ms(self) -> int:
        return (
            1000
            * {
                Layer.L1.value: keys.L1_SECONDS,
                Layer.L2.value: keys.L2_SECONDS,
                Layer.L3.value: keys.L3_SECONDS,
            }[self.layer]
        )


class Part(IntEnum):
    """As `lua/read.lua` gives it: the value is there; load it; somebody loads it; MySQL had none a moment ago."""

    HIT = 0
    LOAD = 1
    WAIT = 2
    NONE = 3


class Found(NamedTuple):
    """document: what the cache held, or None. generation: with which a missing one may be filled; "" for never.

    part: what to do about a missing one.
    """

    document: dict[str, Any] | None
    generation: str = ""
    part: Part = Part.LOAD


def names_of(profile: Named) -> tuple[str, str]:
    """The keys of a profile's value and generation. Errors: INVALID_ID (422)."""
    advisor_id = profile.advisor_id if profile.layer == Layer.L2 else ""
    return Slot(profile.tenant, str(profile.layer), profile.customer_id, advisor_id).names


@lru_cache(maxsize=4096)
def _names(_prefix: str, slot: Slot) -> tuple[str, str]:
    """Spelled and checked once for each profile that is read again and again: that costs as much as parsing it."""
    tenant, layer, customer_id, advisor_id = slot
    if layer == Layer.L1:
        return keys.L1(tenant, customer_id=customer_id), keys.L1_GENERATION(tenant, customer_id=customer_id)
    if layer == Layer.L2:
        ids = {"customer_id": customer_id, "advisor_id": advisor_id}
        return keys.L2(tenant, **ids), keys.L2_GENERATION(tenant, **ids)
    return keys.L3(tenant, customer_id=customer_id), keys.L3_GENERATION(tenant, customer_id=customer_id)


def read(slots: Sequence[Slot]) -> list[Found]:
    """What the cache holds of these profiles. One round trip; with Redis away, or taking no writes, all are missing and
    not to be filled. After that: as `doubts.Doubt.settled` until what waits was looked after."""
    prefix = settings.REDIS_KEY_PREFIX
    names = [name for slot in slots for name in _names(prefix, slot)]
    try:
        answer = _trusted(names)
    except RedisUnavailable:
        return [Found(None)] * len(slots)
    except (ResponseError, UnicodeDecodeError) as error:
        if isinstance(error, ResponseError) and "WRONGTYPE" not in str(error):
            raise
        # Another team's program has put a list, a hash or bytes there: MySQL answers, and the intruder goes.
        logger.warning("a profile key holds something else: deleted")
        _drop_intruder(names)
        return [Found(None)] * len(slots)
    if len(slots) == 1:
        return [_found(slots[0], *answer)]
    return [_found(slot, *answer[3 * at : 3 * at + 3]) for at, slot in enumerate(slots)]


def _trusted(names: Sequence[str]) -> list[Any]:
    """The script's answer, once there is no doubt, nor was while it was asked. Errors: RedisUnavailable."""
    for _again in range(2):
        if doubt.standing and not doubt.settled(_drop_rows, patience=PATIENCE):
            break
        count = doubt.count
        answer: list[Any] = _asked(names)
        if count == doubt.count:
            return answer
    raise RedisUnavailable("what Redis holds may be older than MySQL")


class _Heard:
    """When this process last heard of Redis, on its monotonic clock."""

    at = 0.0


def _asked(names: Sequence[str]) -> list[Any]:
    """One round trip. A time-out is Redis's only if it answered nobody meanwhile: else the machine is busy, and a
    reader who went to MySQL now would be one more to keep it so. Such a one asks once more."""
    client, began = _client(), time.monotonic()
    # (Not a secret: it must be one that no other reader has. Python seeds anew in a forked child.)
    arguments = (f"{random.getrandbits(64):016x}", _GENERATION_MS, _LEASE_MS)
    try:
        answer: list[Any] = _read(client, names, arguments)
    except RedisUnavailable as error:
        if not isinstance(error.__cause__, redis.exceptions.TimeoutError | TimeoutError) or _Heard.at <= began:
            doubt.raise_it(pausing=True)
            raise
        client.breaker.reset()
        try:
            answer = _read(client, names, arguments)
        except RedisUnavailable:
            doubt.raise_it(pausing=True)
            raise
    _Heard.at = time.monotonic()
    if client.breaker.tripped:  # by one who was not as lucky a moment ago
        client.breaker.reset()
    return answer


def _found(slot: Slot, value: str | None, generation: str | None, part: int) -> Found:
    if value is None:
        return Found(None, generation or "", Part(part) if generation else Part.LOAD)
    try:
        # What has its checksum beside it we wrote as it is; of anything else the whole shape is looked at.
        if generation is not None and generation.endswith(_checksum(value)):
            return Found(from_json(value), "", Part.HIT)  # in half the time of `json`
        document = kept_json(value)
        ours = is_document(slot.layer, document) and _is_of(slot, document)
    except (ValueError, RecursionError):
        ours = False
    if not ours:
        logger.warning("a %s profile key holds something else: deleted", slot.layer)
        _drop_intruder(slot.names)
        return Found(None)
    return Found(document, "", Part.HIT)


def _checksum(text: str) -> str:
    """Of accidents and other programs, not of an enemy, who could write it too. Cost: a microsecond for a KiB."""
    return f" {crc32(text.encode())}"


def _is_of(slot: Slot, document: dict[str, Any]) -> bool:
    return (document["customer_id"], document.get("advisor_id", "")) == (slot.customer_id, slot.advisor_id)


def fill(entries: Iterable[tuple[Slot, str, dict[str, Any] | None]]) -> int:
    """Keeps documents, or that there is none, under the generations of their misses.

    One round trip; answers how many were kept.
    """
    wanted = [(slot, generation, document) for slot, generation, document in entries if generation]
    if not wanted:
        return 0
    names = [name for slot, _generation, _document in wanted for name in slot.names]
    values: list[Any] = []
    for slot, generation, document in wanted:
        if document is None:
            values += (generation, "", _MISSING_MS, "")
        else:
            text = canonical_json(document)
            values += (generation, text, slot.ttl_ms, _checksum(text)[1:])
    try:
        return int(_fill(_client(), names, values))
    except RedisUnavailable:
        doubt.raise_it()
        return 0


def give_up(misses: Iterable[tuple[Slot, str]]) -> None:
    """Of who was told to load and could not: the next reader need not wait for the lease's end. One round trip."""
    names: list[str] = []
    values: list[Any] = []
    for slot, generation in misses:
        if generation:
            names += slot.names
            values += (generation, "", 0, "")
    if names:
        with suppress(RedisUnavailable):
            _fill(_client(), names, values)


def drop(profiles: Iterable[Named]) -> None:
    """Deletes values and generations of these profiles in one call. Errors: RedisUnavailable; then this process trusts
    no cached value, and tries again by itself, until what waits in `profile_change` was looked after."""
    names = sorted({name for profile in profiles for name in names_of(profile)})
    if not names:
        return
    try:
        _drop_names(names)
    except RedisUnavailable:
        doubt.raise_it()
        doubts.retrying.add(names, _drop_names)
        raise


def drop_quietly(profiles: Iterable[Named]) -> bool:
    """As `drop`; with Redis away it is left to the sweeper, and the answer is False."""
    try:
        drop(profiles)
    except RedisUnavailable:
        logger.warning("Redis is away: cached profiles are left to the sweeper")
        return False
    return True


def droppable(rows: Iterable[ProfileChange]) -> list[ProfileChange]:
    """Without rows whose ids are no key parts (written past the models): they name no cached copy."""
    good = []
    for row in rows:
        try:
            names_of(row)
        except DomainError:
            continue
        good.append(row)
    return good


def drop_at_once(profiles: Iterable[Named]) -> bool:
    """As `drop_quietly`, of a reader: with its patience, and left to the sweeper without a word."""
    names = sorted({name for profile in profiles for name in names_of(profile)})
    try:
        _drop(_client(), names)
    except RedisUnavailable:
        doubt.raise_it()
        return False
    return True


_hasty = Breaker()


def _drop_names(names: Sequence[str]) -> None:
    """Each time, whatever became of the call before: that another call timed out says nothing about this one, and what
    a save leaves undone its readers see. After a failure with the readers' patience for a second."""
    timeout = PATIENCE if _hasty.tripped else settings.REDIS_TIMEOUT
    try:
        _drop(client_for(settings.REDIS_URL, timeout=timeout, breaks=False), names)
    except RedisUnavailable:
        _hasty.trip()
        raise


def _drop_rows(rows: list[ProfileChange]) -> None:
    _drop(_client(), sorted({name for row in droppable(rows) for name in names_of(row)}))


def _drop_intruder(names: Sequence[str]) -> None:
    with suppress(RedisUnavailable):
        _drop(_client(), names)
