"""Cached values that cost much to make: one maker for each key, and no old value over a newer one.

On the cache Redis (CACHE_REDIS_URL), which may evict whatever it likes: a value that goes is made again, a lease that
goes only means that its maker keeps nothing. A reader that misses is given a lease (a random token) and makes the
value; others wait for it. Whoever invalidates deletes value and lease in one call, so that a maker who began before
that cannot keep what it made; and holds the place before, so that it may die at any point.

On Redis being down or slow: every look is a miss that may not be kept, after 0.25 s once and at once for a second.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from redis.exceptions import ResponseError

from config.base.redis import Client, RedisUnavailable, Script, client_for

logger = logging.getLogger(__name__)

# Seconds for connecting and each command: a cache that takes longer is no cache.
TIMEOUT = 0.25
# Waiters look again after these seconds, the last one again and again.
_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.1)

_look = Script.beside(__file__, "look")
_keep = Script.beside(__file__, "keep")
_drop = Script.beside(__file__, "drop")
_note = Script.beside(__file__, "note")
_deny = Script.beside(__file__, "deny")
_hold = Script.beside(__file__, "hold")
_HELD = "!"


@dataclass(frozen=True, slots=True)
class Place:
    """The keys of one value and of its lease."""

    value: str
    lease: str


@dataclass(frozen=True, slots=True)
class Look:
    """value: what the cache held. token: the lease, '' for none: somebody else is at it, unless the value can not be
    kept at present, because Redis is away or the place is held."""

    value: str | None
    token: str = ""
    away: bool = False
    held: bool = False


def client() -> Client:
    """The cache Redis, with a breaker of its own: that the cache hangs says nothing about the sessions' server."""
    return client_for(settings.CACHE_REDIS_URL, timeout=TIMEOUT)


def look(place: Place, *, lease_seconds: float) -> Look:
    """The value, or the lease to make it. One round trip."""
    try:
        answer = _look(client(), [place.value, place.lease], [secrets.token_hex(8), int(lease_seconds * 1000)])
    except RedisUnavailable:
        return Look(None, away=True)
    except (ResponseError, UnicodeDecodeError) as error:
        if isinstance(error, ResponseError) and "WRONGTYPE" not in str(error):
            raise
        # Another team's program has put a list, a hash or bytes there: it goes, and the value is made.
        logger.warning("a cache key holds something else: deleted")
        drop_quietly([place])
        return Look(None, away=True)
    if answer[0] is not None:
        return Look(answer[0])
    return Look(None, held=True) if answer[1] == _HELD else Look(None, answer[1] or "")


def keep(place: Place, token: str, value: str, *, seconds: float) -> bool:
    """Keeps a value under its lease; False where that is gone, or Redis is away. One round trip."""
    try:
        return bool(_keep(client(), [place.value, place.lease], [token, value, int(seconds * 1000)]))
    except RedisUnavailable:
        return False


def give_up(place: Place, token: str) -> bool:
    """Gives a lease back without a value: the next one may try. One round trip."""
    return keep(place, token, "", seconds=0)


def drop(places: Iterable[Place]) -> int:
    """Deletes values and leases. One round trip. Errors: RedisUnavailable."""
    names = [name for place in places for name in (place.value, place.lease)]
    return int(_drop(client(), names)) if names else 0


def drop_quietly(places: Iterable[Place]) -> bool:
    """As `drop`; False where Redis is away: then the values live as long as they may."""
    try:
        drop(places)
    except RedisUnavailable:
        logger.warning("the cache Redis is away: cached values live to their end")
        return False
    return True


def hold_quietly(places: Sequence[Place], *, seconds: float) -> bool:
    """Before a change of what the values are made from is committed: they go, and until `drop` (or so many seconds)
    nothing is kept in their places. So a process that dies between its commit and its `drop` leaves no old value.
    One round trip. False where Redis is away."""
    names = [name for place in places for name in (place.value, place.lease)]
    try:
        _hold(client(), names, [int(seconds * 1000)])
    except RedisUnavailable:
        logger.warning("the cache Redis is away: cached values live to their end")
        return False
    return True


def note(name: str, *, seconds: float) -> bool:
    """Notes for so long that something was so; 0 asks only. False where nothing is noted, it was denied, or Redis is
    away. One round trip."""
    try:
        return bool(_note(client(), [name], [int(seconds * 1000)]))
    except RedisUnavailable:
        return False


def deny(name: str, *, seconds: float) -> bool:
    """Takes a note back; for so long nothing is noted in its place, for whoever comes with it may have begun before.
    False where Redis is away. One round trip."""
    try:
        return bool(_deny(client(), [name], [int(seconds * 1000)]))
    except RedisUnavailable:
        return False


def through(
    place: Place, make: Callable[[], str | None], *, seconds: float, lease_seconds: float, patience: float
) -> str | None:
    """The value from the cache, else made by `make`: by one caller for each key, while the others wait for it.

    make: gives the value, or None for one that is not to be kept. patience: seconds to wait for another maker;
    past them the value is made here too, and not kept.
    Cost: a hit 1 round trip, a miss 2; a waiter 1 each 0.1 s. Errors: whatever `make` raises.
    """
    deadline = time.monotonic() + patience
    turn = 0
    while True:
        seen = look(place, lease_seconds=lease_seconds)
        if seen.value is not None:
            return seen.value
        if seen.token:
            return _made(place, seen.token, make, seconds)
        if seen.away or seen.held or time.monotonic() > deadline:
            return make()
        time.sleep(_PAUSES[min(turn, len(_PAUSES) - 1)])
        turn += 1


def _made(place: Place, token: str, make: Callable[[], str | None], seconds: float) -> str | None:
    try:
        value = make()
    except BaseException:
        give_up(place, token)
        raise
    keep(place, token, value or "", seconds=seconds)
    return value
