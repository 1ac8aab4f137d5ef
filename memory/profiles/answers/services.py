"""Looking an answer up, keeping one, making all of an agent's unreachable.

Of whom. An answer is `public` or made from exactly one customer's data; whoever keeps one must say which, and the
scope is part of the key: what was made from one customer's data is found by nobody who asks for another, nor in public.
A scope of a customer needs access to that customer, when it is kept and at each read (the matrix of l1), and belongs to
the actor, of whichever agent: an advisor's l2, an analyst's grants and everybody's sessions are that person's, and what
was made from them is found by nobody else who may read the customer. An agent's answers are its own: another agent of
the tenant does not find them.

On Redis being down or slow: open, each lookup is a miss without a lease and nothing is kept; 0.25 s once, then at once
for a second.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from config.base.fields import canonical_json
from config.base.ids import check_id
from config.base.redis import RedisUnavailable, Script
from guard.access.models import Agent
from guard.access.services import Caller
from memory.erasure.tombstones import customer_erased, erased_among, subject_of
from memory.profiles import leased, policies
from memory.profiles.answers import keys
from memory.profiles.answers.hashing import PUBLIC, names_id, query_hash, require_text
from memory.profiles.shaping import kept_json

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 256 * 1024
MAX_MODEL_CHARS = 200
# Whoever waits for another's answer asks again after so long.
RETRY_SECONDS = 0.5
_PAUSE = 0.1

_RESULTS = ("hit", "miss", "wait")

Scope = Literal["public", "customer"]

_look = Script.beside(__file__, "look")
_keep = Script.beside(__file__, "keep")
_purge = Script.beside(__file__, "purge")
_drop = Script.beside(__file__, "drop")
_lookups = Script.beside(__file__, "lookups")


@dataclass(frozen=True)
class Found:
    """answer: None for a miss. scope: of what was found. lease: with which a missing answer may be kept; '' where
    another is at it (`retry_after` seconds), where another knowledge version was announced, or Redis is away (None:
    there is nobody to wait for)."""

    answer: str | None = None
    scope: Scope | None = None
    made_at: datetime | None = None
    lease: str = ""
    retry_after: float | None = None


@dataclass(frozen=True)
class _Question:
    """A checked question. customer_id: '' in the public scope."""

    caller: Caller
    question: str
    model: str
    knowledge_version: str
    customer_id: str

    def hash_in(self, customer_id: str) -> str:
        return query_hash(
            tenant=self.caller.tenant, agent=self.caller.agent, model=self.model,
            knowledge_version=self.knowledge_version, question=self.question,
            scope=f"customer:{customer_id}:{self.caller.actor_id}" if customer_id else PUBLIC,
        )  # fmt: skip

    def value(self, customer_id: str) -> str:
        return keys.ANSWER(self.caller.tenant, query_hash=self.hash_in(customer_id))

    def lease(self, customer_id: str) -> str:
        return keys.ANSWER_LEASE(self.caller.tenant, query_hash=self.hash_in(customer_id))

    @property
    def epoch(self) -> str:
        return keys.EPOCH(self.caller.tenant, agent=self.caller.agent)


def get(
    *,
    caller: Caller,
    question: str,
    model: str,
    knowledge_version: str,
    customer_id: str | None = None,
    scope: Scope | None = None,
    wait: float = 0.0,
) -> Found:
    """The answer that is kept for this question, or a lease to make it.

    scope: `customer` finds what was made from this customer's data for this actor, and what is public; `public` finds
    only that.
    Default: `customer` where a customer is named, and always for the customer agent, whose customer is its actor.
    wait: seconds to wait for another who makes it just now. Cost: 1 round trip, and 1 each 0.1 s of waiting; an
    advisor's assignment is 1 SQL before it.
    Errors: INVALID_ID, INVALID_REQUEST (422); AUTH_403_SCOPE, NOT_OWNER, NOT_ASSIGNED (403, audited).
    """
    asked = _asked(caller, question, model, knowledge_version, customer_id, scope)
    deadline = time.monotonic() + wait
    while True:
        found = _once(asked)
        if found.retry_after is None or time.monotonic() + _PAUSE > deadline:
            return found
        time.sleep(_PAUSE)


def put(
    *,
    caller: Caller,
    question: str,
    model: str,
    knowledge_version: str,
    answer: str,
    made_from: Scope | None,
    customer_id: str | None = None,
    lease: str,
) -> bool:
    """Keeps an answer for an hour under the lease of a lookup that missed; whether it was kept.

    made_from: `public`, or `customer` for one that was made from that customer's data; it has to be said.
    Not kept: without a lease, when the lease has run out, when the answers were purged since, when Redis is away.
    Cost: 1 round trip; of a customer's, 1 SQL after it (was the customer erased?).
    Errors: as `get`; INVALID_REQUEST without `made_from`, or where what is public names the customer (`names_id`);
    BODY_TOO_LARGE (413) over 256 KiB; CUSTOMER_ERASED (410).
    """
    if made_from not in ("public", "customer"):
        raise DomainError("INVALID_REQUEST", "made_from: say what the answer was made from: public or customer")
    named = customer_id or (caller.actor_id if caller.agent == Agent.CUSTOMER else None)
    if made_from == "customer" and not named:
        raise DomainError("INVALID_REQUEST", "customer_id: an answer made from a customer's data names the customer")
    kind, _dot, rest = require_text("lease", lease).partition(".")
    asked = _asked(caller, question, model, knowledge_version, named, "customer" if named else "public")
    _check_answer(answer)
    if made_from == "public" and named and (names_id(answer, named) or names_id(question, named)):
        raise DomainError("INVALID_REQUEST", "made_from: question or answer names the customer, so it is not public")
    epoch = rest.partition(".")[2]
    if kind not in ("p", "c") or not epoch or (kind == "c" and not named):
        return False
    owner = asked.customer_id if made_from == "customer" else ""
    value = canonical_json(
        {
            "_epoch": epoch,
            "about": subject_of(caller.tenant, owner) if owner else "",
            "agent": caller.agent,
            "for": subject_of(caller.tenant, caller.actor_id) if owner else "",
            "answer": answer,
            "knowledge_version": knowledge_version,
            "made_at": rfc3339(now()),
            "model": model,
            "scope": made_from,
        }
    )
    names = [asked.epoch, asked.lease(asked.customer_id if kind == "c" else ""), asked.value(owner)]
    try:
        kept = bool(_keep(leased.client(), names, [lease, epoch, value, keys.ANSWER_SECONDS * 1000]))
        # Write, then ask: an erasure sets its tombstone first and looks for values afterwards, so one of the two sees
        # this one.
        if kept and owner and erased_among(caller.tenant, [owner]):
            _drop(leased.client(), [names[2]])
            raise customer_erased()
    except RedisUnavailable:
        return False
    return kept


def purge(*, tenant: str, agent: str, knowledge_version: str = "", any_version: bool = False) -> str:
    """Makes all answers of an agent unreachable, at once and in every process; they die within the hour.

    knowledge_version: with one, only callers of this version are served from now on: whoever still works with another
    finds nothing and keeps nothing, and waits for nobody. It holds through later purges without one, until one with
    any_version, and as long as the cache's Redis keeps it (30 days after the last lookup): then any version is served.
    An answer that is being made meanwhile is not kept.
    Returns the version that is served alone now, '' for any. Errors: INVALID_ID, INVALID_REQUEST (422);
    RedisUnavailable: then nothing was purged, and nobody is served either.
    """
    check_id("tenant", tenant)
    if agent not in Agent.values:
        raise DomainError("INVALID_REQUEST", f"agent {agent!r} is none of {', '.join(Agent.values)}")
    if knowledge_version:
        check_id("knowledge_version", knowledge_version)
        if any_version:
            raise DomainError("INVALID_REQUEST", "any_version: one version or any, not both")
    arguments = [secrets.token_hex(8), keys.EPOCH_SECONDS * 1000, knowledge_version, "1" if any_version else ""]
    return str(_purge(leased.client(), [keys.EPOCH(tenant, agent=agent)], arguments))


def lookups() -> dict[tuple[str, str], dict[str, int]]:
    """(tenant, agent) -> how many lookups were a `hit`, a `miss`, a `wait` (another was making it). 1 round trip.

    A wait that is asked again counts again. What others wrote there is left out. Errors: RedisUnavailable.
    """
    answer = _lookups(leased.client(), [keys.LOOKUPS()])
    table: dict[tuple[str, str], dict[str, int]] = {}
    for field, count in zip(answer[::2], answer[1::2], strict=True):
        tenant, agent, result = field.split(":")
        if agent in Agent.values and result in _RESULTS:
            table.setdefault((tenant, agent), dict.fromkeys(_RESULTS, 0))[result] = int(count)
    return table


def hit_rate(counts: Mapping[str, int]) -> float | None:
    """Hits of those lookups that ended; None before there was one."""
    ended = counts["hit"] + counts["miss"]
    return round(counts["hit"] / ended, 4) if ended else None


# --- steps --------------------------------------------------------------------------------------------------------


def _asked(
    caller: Caller, question: str, model: str, knowledge_version: str, customer_id: str | None, scope: str | None
) -> _Question:
    """Checked, and permitted."""
    if caller.agent == Agent.CUSTOMER and scope != PUBLIC:
        customer_id, scope = customer_id or caller.actor_id, "customer"
    scope = scope or ("customer" if customer_id else PUBLIC)
    if scope not in (PUBLIC, "customer"):
        raise DomainError("INVALID_REQUEST", "scope: public or customer")
    if (scope == "customer") != bool(customer_id):
        raise DomainError("INVALID_REQUEST", "customer_id: goes with the scope customer, and only with it")
    if customer_id:
        policies.may_l1(caller, "read", customer_id=customer_id)
    if not model or len(model) > MAX_MODEL_CHARS:
        raise DomainError("INVALID_REQUEST", f"model: 1 to {MAX_MODEL_CHARS} characters")
    require_text("model", model)
    check_id("knowledge_version", knowledge_version)
    return _Question(caller, question, model, knowledge_version, customer_id or "")


def _once(asked: _Question) -> Found:
    own, kind = asked.customer_id, "c" if asked.customer_id else "p"
    names = [asked.epoch, keys.LOOKUPS(), asked.lease(own), asked.value(own), *([asked.value("")] if own else [])]
    told = f"{asked.caller.tenant}:{asked.caller.agent}"
    arguments = [
        *(secrets.token_hex(8), keys.EPOCH_SECONDS * 1000, f"{kind}.{secrets.token_hex(8)}"),
        *(keys.LEASE_SECONDS * 1000, asked.knowledge_version, keys.LOOKUPS_SECONDS * 1000, told),
    ]
    try:
        answer = _look(leased.client(), names, arguments)
        if answer[0] is None or answer[0] is False:
            at_work = answer[1] is None or answer[1] is False
            return Found(lease=answer[1] or "", retry_after=RETRY_SECONDS if at_work else None)
        if found := _read(asked, answer[0]):
            return found
    except RedisUnavailable:
        return Found()
    except UnicodeDecodeError:
        pass  # bytes that begin as a value does
    logger.warning("a key of the answer cache holds something else: deleted")
    with suppress(RedisUnavailable):
        _drop(leased.client(), names[3:])
    return Found()


def _read(asked: _Question, text: str) -> Found | None:
    """None for what is no answer to this: whose it is was decided by the key, and is looked at once more."""
    try:
        value: Mapping[str, Any] = kept_json(text)
        _check_answer(value["answer"])
        made_at = datetime.fromisoformat(value["made_at"])
        if value["scope"] not in (PUBLIC, "customer") or made_at.tzinfo is None:
            return None
        rfc3339(made_at)  # an instant in UTC too
        about = subject_of(asked.caller.tenant, asked.customer_id) if value["scope"] == "customer" else ""
        reader = subject_of(asked.caller.tenant, asked.caller.actor_id) if about else ""
        fits = (value["about"], value["for"], value["agent"]) == (about, reader, asked.caller.agent)
        if not fits or (about and not asked.customer_id):
            return None
        return Found(value["answer"], value["scope"], made_at)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, DomainError):
        return None


def _check_answer(answer: str) -> None:
    size = len(require_text("answer", answer).encode())
    if not answer:
        raise DomainError("INVALID_REQUEST", "answer: is empty")
    if size > MAX_ANSWER_BYTES:
        raise DomainError("BODY_TOO_LARGE", f"the answer is {size} bytes; the limit is {MAX_ANSWER_BYTES}")
