"""State of a session in Redis that no script can work with: a key of another type, a number that is none, an item of
the window that is no message. Somebody wrote there by hand, or something else uses the names.

What a session is stands in MySQL and in the stream; so such state is taken out of use and made again. Of the context,
which lives in Redis alone, what is sound stays.
"""

from __future__ import annotations

import functools
import json
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from django.conf import settings
from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.ids import ID_PATTERN
from config.base.redis import RedisUnavailable, Script
from memory.sessions.entries import ROLES, Message
from memory.sessions.keys import FENCE, LOCK
from memory.sessions.numbering import given
from memory.sessions.owners import Owner

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_heal = Script.beside(__file__, "heal")

NAMES = ("ctx", "msgs", "ids", "lock", "fence")
TYPES = ("hash", "list", "hash", "string", "hash")
NUMBERS = ("seq", "ceiling", "opened_at", "updated_at", "version")
_NUMBER = re.compile(r"[0-9]{1,16}\Z", re.ASCII)
_RECEIPT = re.compile(r"[0-9]{1,16}:[0-9]{1,16}:[qc]:.+\Z", re.ASCII)
_OPTIONAL_NUMBERS = ("folded", "turn")
_JSON_FIELDS = ("intent", "step", "summary", "last_tool_result")
# What commands and Lua say of a key of another type, and of a number that is none.
_DAMAGE = re.compile(r"WRONGTYPE|DAMAGED|not an integer|attempt to \w+|(?:number|string) expected|bad argument")
_message = msgspec.json.Decoder(Message)


def keys_of(owner: Owner) -> tuple[str, ...]:
    """All keys of a session, in the order of NAMES."""
    names = {"agent": owner.agent, "session_id": owner.session_id}
    return (*owner.keys, LOCK(owner.tenant, **names), FENCE(owner.tenant, **names))


def is_number(text: str | None) -> bool:
    return text is not None and _NUMBER.match(text) is not None


def read_item(item: str) -> Message | None:
    """An item of the window, its time still counted from when the session was made; None where it is no message."""
    try:
        found = _message.decode(item.encode("utf-8", "surrogateescape"))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    sound = found.role in ROLES and 0 < found.seq < 2**53 and -(2**53) < found.at_us < 2**53 and found.cut >= 0
    return found if sound and ID_PATTERN.match(found.entry_id) else None


def broken_fields(ctx: Mapping[str, str]) -> list[str]:
    """Fields of a context whose values are not what this room writes, and that can be left out."""
    broken: list[str] = []
    for name, text in ctx.items():
        if name in _JSON_FIELDS or name.startswith("slot:"):
            try:
                json.loads(text.encode("utf-8", "surrogateescape"))
            except (ValueError, RecursionError):
                broken.append(name)
        elif name in _OPTIONAL_NUMBERS and not is_number(text):
            broken.append(name)
    return broken


def faults_of(
    owner: Owner,
    types: Sequence[str],
    ctx: Mapping[str, str],
    items: Sequence[str],
    ids: Mapping[str, str],
    lock_left: int,
    fence: Sequence[str],
) -> list[str]:
    """What is wrong with a session's keys, as look.lua shows them: one sentence a key, without anything it holds."""
    faults = [
        f"{name} is a {found}, not a {wanted}"
        for name, found, wanted in zip(NAMES, types, TYPES, strict=True)
        if found not in (wanted, "none")
    ]
    odd: list[str] = []
    if ctx.get("actor") and not ctx.get("deleted"):
        if ctx["actor"] != owner.actor_id:
            odd.append("it names another actor")
        odd += [f"{name} is no number" for name in NUMBERS if not is_number(ctx.get(name))]
        if "first" in ctx and not is_number(ctx["first"]):
            odd.append("first is no number")
        # Names of slots are the agents' own.
        broken = broken_fields(ctx)
        odd += [f"{len(broken)} fields cannot be read"] if broken else []
    elif "seq" in ctx and not is_number(ctx["seq"]):
        odd.append("seq is no number")
    if odd:
        faults.append(f"ctx: {', '.join(odd)}")
    junk = sum(read_item(item) is None for item in items)
    if junk:
        faults.append(f"msgs: {junk} of {len(items)} items are no messages")
    junk = sum(_RECEIPT.match(value) is None for value in ids.values())
    if junk:
        faults.append(f"ids: {junk} of {len(ids)} values are no receipts")
    if types[3] == "string" and lock_left == -1:
        faults.append("lock has no time to live: it would be held for ever")
    if fence[0] and not (is_number(fence[1]) and is_number(fence[2])):
        faults.append("fence: its numbers are none")
    return faults


def heal(owner: Owner, *, known: int = 0, broken: Sequence[str] = ()) -> list[str]:
    """Takes a session's damaged state out of use; it is made again from MySQL and the stream before its next use.

    known: the highest number that is known to have been given, so that it is not given again. broken: fields of the
    context to remove. Harmless to sound state too: only window and receipts are made again.
    Returns which of ctx, lock and fence were damaged. Cost: 1 round trip. Errors: RedisUnavailable.
    """
    # Names of fields are given back as they came, whatever bytes they are.
    fields = [name.encode("utf-8", "surrogateescape") for name in broken]
    args: list[Any] = [owner.actor_id, secrets.token_hex(4), known, settings.SESSION_TTL_SECONDS, *fields]
    damaged: list[str] = _heal(base_redis.state(), keys_of(owner), args)
    return damaged


def is_damage(error: ResponseError) -> bool:
    """Whether a script failed at what a key holds, and not at rights, limits or itself."""
    return _DAMAGE.search(str(error)) is not None


def heal_and_tell(owner: Owner, *, broken: Sequence[str] = ()) -> None:
    """`heal` for whoever met the damage at work. Errors: RedisUnavailable."""
    logger.error("session %s: its state in Redis is damaged and is made again", owner.pk)
    heal(owner, known=given.highest(owner.pk), broken=broken)


def healed(call: Callable[Concatenate[Owner, P], T]) -> Callable[Concatenate[Owner, P], T]:
    """A call on a session's state that damage does not stop: the state is made again once, and the call repeated.

    Should that not help (the queue itself is damaged), it is as if Redis were away: RedisUnavailable, and callers go
    to MySQL. Scripts read what they use before they write, so a call that failed has done nothing. Free otherwise.
    """

    @functools.wraps(call)
    def guarded(owner: Owner, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(owner, *args, **kwargs)
        except ResponseError as error:
            if not is_damage(error):
                raise
        heal_and_tell(owner)
        try:
            return call(owner, *args, **kwargs)
        except ResponseError as error:
            if not is_damage(error):
                raise
            raise RedisUnavailable("what Redis holds cannot be worked with; see manage.py reconcile") from error

    return guarded
