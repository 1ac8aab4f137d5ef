"""What a session takes in Redis: sample sessions written the way agents write them, measured, and removed again."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import Any, cast

from config.base import redis as base_redis
from config.base.clock import now
from guard.access.services import Caller
from memory.sessions.entries import NewMessage, prepare
from memory.sessions.hot import append_in_redis
from memory.sessions.keys import SCRATCH
from memory.sessions.models import AgentSession, SessionNumbering
from memory.sessions.owners import Owner, admit, owner_of_row
from memory.sessions.services import change_context, open_session

# Scratch sessions are of tenants that begin so. What a killed measurement left behind is removed by the next one.
SCRATCH_TENANT = "_capacity-"
LEFT_BEHIND = timedelta(hours=1)

# The source's estimate: about 5 KB for ten rounds, 500 MB for 100,000 sessions.
EXPECTED_BYTES = 5 * 1024
# Means of the 8,458 recorded messages that the replay test sends, UTF-8.
USER_BYTES, ASSISTANT_BYTES = 76, 67
SLOTS, SLOT_BYTES = 10, 40

_TEXT = "您好，我想了解一下这只基金的风险等级和持有期限，另外上个月的收益什么时候到账？"


@dataclass
class Measured:
    """Bytes per session. keys: mean MEMORY USAGE of each kind of key, with its name and its entry in the keyspace.
    grown: what used_memory grew by with a session, expiry entries and allocator included: the median, for buffers and
    scripts come and go once. middle: the quartiles, which are apart where other traffic came in between.
    encodings: how Redis holds each kind; `listpack` and `quicklist` are the compact ones."""

    samples: int
    rounds: int
    keys: dict[str, float] = field(default_factory=dict)
    encodings: dict[str, list[str]] = field(default_factory=dict)
    grown: float = 0.0
    middle: tuple[float, float] = (0.0, 0.0)

    @property
    def total(self) -> float:
        return sum(self.keys.values())

    @property
    def disturbed(self) -> bool:
        """Whether `grown` says something of other traffic too: then only the keys' own sizes are to be believed."""
        low, high = self.middle
        return not (0.9 * self.total <= self.grown <= 1.5 * self.total and high <= 1.1 * low)

    @property
    def per_session(self) -> float:
        """Bytes that a projection takes for one session: the larger of both, unless the second is disturbed."""
        return self.total if self.disturbed else max(self.total, self.grown)

    def projected(self, sessions: int) -> int:
        """Bytes for so many sessions."""
        return int(sessions * self.per_session)


def _text(size: int, salt: int) -> str:
    """About `size` bytes of Chinese, another for each message."""
    start = salt % len(_TEXT)
    whole = (_TEXT[start:] + _TEXT) * (size // len(_TEXT) + 2)
    return whole.encode()[:size].decode(errors="ignore")


@contextmanager
def _scratch() -> Iterator[tuple[str, str]]:
    """A tenant and a stream for one measurement; all of it is gone afterwards."""
    run = secrets.token_hex(6)
    tenant = SCRATCH_TENANT + run
    stream = SCRATCH(run=run)
    clean_up(older_than=LEFT_BEHIND)
    try:
        yield tenant, stream
    finally:
        with base_redis.translated():
            base_redis.state().delete(stream)
        clean_up(tenant=tenant)


def clean_up(*, tenant: str = "", older_than: timedelta = timedelta(0)) -> int:
    """Removes scratch sessions: their keys and their rows, by name, and nothing else. Returns how many."""
    rows = AgentSession.objects.filter(tenant__startswith=SCRATCH_TENANT, created_at__lte=now() - older_than)
    if tenant:
        rows = rows.filter(tenant=tenant)
    removed = 0
    for row in list(rows):
        with base_redis.translated():
            base_redis.state().delete(*owner_of_row(row).keys)
        SessionNumbering.objects.filter(session_row=row).delete()
        row.delete()
        removed += 1
    return removed


def _write(caller: Caller, session_id: str, stream: str, rounds: int, given_ids: bool) -> Owner:
    """One session: a context with slots, and `rounds` of a question and an answer, past the queue."""
    open_session(caller=caller, session_id=session_id)
    slots: dict[str, Any] = {f"slot_{n}": "x" * (SLOT_BYTES - 10) for n in range(SLOTS)}
    change_context(caller=caller, session_id=session_id, intent="query_holdings", step=3, slots=slots)
    owner = admit(caller, session_id, "write")
    # Its own stream: the live queue never sees what is only measured.
    apart = replace(owner, pending=stream)
    for n in range(rounds):
        names = (f"msg-{n:06d}-user", f"msg-{n:06d}-answer") if given_ids else (None, None)
        turn = [
            NewMessage("user", _text(USER_BYTES, 2 * n), names[0]),
            NewMessage("assistant", _text(ASSISTANT_BYTES, 2 * n + 1), names[1]),
        ]
        append_in_redis(apart, prepare(turn), 0)
        # It counts as a backlog like the live one, and at its bound nothing more would be taken.
        _empty(stream)
    return owner


def _empty(stream: str) -> None:
    with base_redis.translated():
        base_redis.state().xtrim(stream, maxlen=0, approximate=False)


def measure(
    *,
    samples: int,
    rounds: int = 10,
    given_ids: bool = False,
    progress: Callable[[int], Any] = lambda count: None,
) -> Measured:
    """Writes sample sessions into the live Redis and database, measures them there, and removes them.

    given_ids: messages with entry ids of the caller's, whose receipts Redis keeps. progress: told of each session.
    The first session is not counted: with it come the scripts and whatever else a fresh server takes but once.
    Live keys are not read, changed or removed. Cost: about 26 round trips and 8 queries a sample.
    Errors: RedisUnavailable, DatabaseError; what was written is removed as far as that works, the rest by the next run.
    """
    measured = Measured(samples, rounds)
    client = base_redis.state()
    with _scratch() as (tenant, stream):
        caller = Caller(tenant, "customer", "capacity")
        with base_redis.translated():
            # There from the start, with a time to live: whatever ends this process, it goes.
            client.xadd(stream, {"k": ""})
            client.expire(stream, SCRATCH.ttl or 1)
        _empty(stream)
        _write(caller, "sample-of-warming-up", stream, rounds, given_ids)
        used = [_used(client)]
        owners = []
        for n in range(samples):
            owners.append(_write(caller, f"sample-{n:012d}", stream, rounds, given_ids))
            progress(1)
            used.append(_used(client))
        steps = sorted(float(after - before) for before, after in pairwise(used))
        measured.grown = max(0.0, median(steps))
        measured.middle = (steps[samples // 4], steps[(3 * samples - 1) // 4])
        sizes: dict[str, int] = defaultdict(int)
        encodings: dict[str, set[str]] = defaultdict(set)
        with base_redis.translated():
            for owner in owners:
                for kind, name in zip(("ctx", "msgs", "ids"), owner.keys, strict=True):
                    sizes[kind] += int(cast(int, client.memory_usage(name, samples=0) or 0))
                    encoding = client.object("encoding", name)
                    if encoding:
                        encodings[kind].add(str(encoding))
        measured.keys = {kind: sizes[kind] / samples for kind in ("ctx", "msgs", "ids")}
        measured.encodings = {kind: sorted(found) for kind, found in encodings.items()}
    return measured


def _used(client: Any) -> int:
    with base_redis.translated():
        return int(client.info("memory")["used_memory"])
