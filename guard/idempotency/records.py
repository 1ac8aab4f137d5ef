"""What became of the request that has a key: taken, renewed, kept, given back."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.ids import check_id
from config.base.redis import Client, RedisUnavailable, Script
from guard.access.services import Caller
from guard.idempotency.keys import IDEM

logger = logging.getLogger(__name__)

_STATUS = re.compile(r"[1-5][0-9]{2}")

_begin = Script.beside(__file__, "begin")
_renew = Script.beside(__file__, "renew")
_save = Script.beside(__file__, "save")
_free = Script.beside(__file__, "free")

# Seconds for connecting and for each answer: a hanging server costs a caller this wait, the next ones nothing.
TIMEOUT = 0.08
# For what no caller waits for, in the keeper's thread: a server that is only slow must not take a lease or an answer.
PATIENCE = 1.0
MAX_BODY = 256 * 1024  # bytes of an answer that are kept; of a larger one it is kept that the work was done
RETRY_AFTER = 1  # s, for who comes while the first is at work

SubjectResolver = Callable[[Caller, Mapping[str, Any], Any], str]
_subject_resolver: SubjectResolver | None = None


def register_subject_resolver(resolver: SubjectResolver) -> None:
    """Told at ready() by the room that knows: (caller, the path's parameters, the body as parsed) -> a keyed hash of
    the customer that the request is about, '' for none. By it an erasure finds the answers that are kept."""
    global _subject_resolver
    _subject_resolver = resolver


def subject_of(caller: Caller, path: Mapping[str, Any], body: Any) -> str:
    return _subject_resolver(caller, path, body) if _subject_resolver is not None else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. body: None where it was too large to keep, or may not be kept."""

    status: int
    headers: dict[str, str]
    body: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A key that this request has taken and now has to `save` or to `free`."""

    key: str
    agent: str
    token: str

    def renew(self) -> bool:
        """Once; the keeper does it while the work runs. False where the key is not ours any more.

        Errors: RedisUnavailable within PATIENCE.
        """
        return bool(_renew(_redis(PATIENCE), [self.key], [self.agent, self.token, lease_ms()]))

    def put(self, answer: Answer, *, patience: float = TIMEOUT) -> bool:
        """The work was done and this was answered. False where the key is not ours any more, or has this answer.

        Errors: RedisUnavailable within `patience` s; it may have been put all the same.
        """
        kept = settings.IDEMPOTENCY_KEPT_SECONDS * 1000
        args: list[Any] = [self.agent, self.token, kept, answer.status, canonical_json(answer.headers)]
        if answer.body is not None:
            args.append(answer.body)
        return bool(_save(_redis(patience), [self.key], args))

    def save(self, answer: Answer) -> bool:
        """As `put`; False too where it could not be kept: a repeat, once the lease is over, does the work anew. Never
        raises for an outage: what was done was done, and its caller is told so."""
        try:
            return self.put(answer)
        except RedisUnavailable:
            tell_not_kept()
            return False

    def free(self) -> bool:
        """Nothing was done. Harmless when Redis is away: the lease ends it."""
        try:
            return bool(_free(_redis(TIMEOUT), [self.key], [self.agent, self.token]))
        except RedisUnavailable:
            return False


def digest_of(method: str, route: str, body: Any, *conditions: str) -> str:
    """What makes two requests the same, 64 hex digits.

    route: the path with its parameters, and the query. body: as parsed, so that spelling does not matter, or bytes.
    conditions: headers that change what the request means.
    """
    try:
        text = "" if isinstance(body, bytes) else canonical_json(body)
        body = b"" if text else body
    except (ValueError, RecursionError, TypeError):  # no JSON that has one spelling
        text, body = "", repr(body).encode("utf-8", "surrogatepass")
    head = json.dumps([method, route, *conditions])
    return hashlib.sha256(head.encode() + b"\0" + text.encode("utf-8", "surrogatepass") + body).hexdigest()


def begin(caller: Caller, key: str, digest: str, about: str = "") -> Claim | Answer:
    """The key for this request; or the answer that the same request got before.

    about: the customer, see `register_subject_resolver`.
    Cost: 1 round trip. Errors: INVALID_ID, IDEMPOTENCY_KEY_REUSED (422); IDEMPOTENCY_IN_FLIGHT (409, `retry_after` s),
    IDEMPOTENCY_ANSWER_GONE (409, `original_status`); RedisUnavailable (503) within TIMEOUT.
    """
    name = IDEM(caller.tenant, actor_id=caller.actor_id, key=check_id("Idempotency-Key", key))
    token = secrets.token_hex(16)
    args = [caller.agent, token, digest, lease_ms(), about, settings.IDEMPOTENCY_KEPT_SECONDS * 1000]
    reply: list[Any] = _begin(_redis(TIMEOUT), [name], args)
    if reply[0] == "DONE" and _read(reply) is None:
        # Somebody else's writing: as if there was none. Whoever meets it at once finds it taken.
        logger.warning("what was kept for repeats of a request is not of our making: the request is done")
        with base_redis.translated(_redis(TIMEOUT).breaker):
            _redis(TIMEOUT).hdel(name, f"{caller.agent}:status", f"{caller.agent}:until")
        reply = _begin(_redis(TIMEOUT), [name], args)
    if reply[0] == "RUN":
        return Claim(name, caller.agent, token)
    if reply[0] == "OTHER":
        raise DomainError("IDEMPOTENCY_KEY_REUSED")
    if reply[0] == "BUSY":
        raise DomainError("IDEMPOTENCY_IN_FLIGHT", retry_after=RETRY_AFTER)
    answer = _read(reply)
    if answer is None:
        raise RedisUnavailable("what is kept for repeats is written by somebody else")
    if answer.body is None:
        raise DomainError("IDEMPOTENCY_ANSWER_GONE", original_status=answer.status)
    return answer


def _read(reply: list[Any]) -> Answer | None:
    """The answer that was kept; None for what is none."""
    status, headers, body = reply[1], reply[2], reply[3]
    try:
        found = json.loads(headers)
    except (TypeError, ValueError, RecursionError):
        return None
    if not _STATUS.fullmatch(status) or not isinstance(found, dict):
        return None
    if not all(isinstance(value, str) and value.isprintable() for value in found.values()):
        return None
    return Answer(int(status), found, body)


def tell_not_kept() -> None:
    logger.warning("an answer could not be kept for repeats of its request")


def lease() -> float:
    """Seconds that a key stays taken when its holder died. Renewed at a third of it."""
    return float(settings.IDEMPOTENCY_LEASE_SECONDS)


def lease_ms() -> int:
    return max(1, int(lease() * 1000))


def _redis(timeout: float) -> Client:
    return base_redis.client_for(settings.REDIS_URL, timeout=timeout)
