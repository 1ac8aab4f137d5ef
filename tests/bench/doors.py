"""The doors to the sessions in process: what they add to the service, and threads beside an asynchronous client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis.asyncio
from django.conf import settings

from config.base import redis as base_redis
from memory.sessions import AsyncSessions, Sessions, hot, services
from memory.sessions.entries import prepare
from memory.sessions.limits import limits
from memory.sessions.owners import admit
from tests.bench.rates import Slice, sync_slice
from tests.bench.turn import CALLER, TURN, make_session


def tasks_slice(loop: asyncio.AbstractEventLoop, tasks: int, work: Callable[[], Awaitable[Any]]) -> Slice:
    """`work`, called again and again by so many tasks at once."""

    async def run(seconds: float) -> float:
        began = time.perf_counter()
        until = began + seconds

        async def one() -> int:
            count = 0
            while time.perf_counter() < until:
                await work()
                count += 1
            return count

        counts = await asyncio.gather(*(one() for _ in range(tasks)))
        return sum(counts) / (time.perf_counter() - began)

    return lambda seconds: loop.run_until_complete(run(seconds))


def door_slices() -> dict[str, Slice]:
    """An append of a turn: the service, `Sessions`, and with 1 and 50 tasks `AsyncSessions` and the least that an
    asynchronous client of Redis would have to do (the checks and one EVALSHA: no repeats, leases, reopening)."""
    session, loop = make_session(), asyncio.new_event_loop()
    sessions, awaited = Sessions(CALLER), AsyncSessions(CALLER)
    sessions.append(session, TURN)
    run_id = base_redis.state().info("server")["run_id"]
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.REDIS_URL, decode_responses=True, max_connections=50, timeout=60
    )
    client = redis.asyncio.Redis(connection_pool=pool)

    async def by_client() -> None:
        owner = admit(CALLER, session, "write")
        arguments: list[Any] = [
            run_id, owner.actor_id, limits.ttl, limits.max_age_us, limits.windows[owner.agent], owner.ident,
            "0" * 32, "0", limits.backlog_refuse,
        ]  # fmt: skip
        for one in prepare(TURN):
            arguments += (one.entry_id, one.origin, one.digest, one.body, one.head)
        reply: Any = await client.evalsha(hot._append.sha, 4, *owner.keys, owner.pending, *arguments)
        if reply[0] == "LEASE":  # once in SESSION_SEQ_LEASE messages
            await asyncio.to_thread(sessions.append, session, TURN)

    def append() -> None:
        services.append_messages(caller=CALLER, session_id=session, messages=TURN)

    return {
        "service": sync_slice(append),
        "Sessions": sync_slice(lambda: sessions.append(session, TURN)),
        "AsyncSessions, 1 task": tasks_slice(loop, 1, lambda: awaited.append(session, TURN)),
        "redis.asyncio, 1 task": tasks_slice(loop, 1, by_client),
        "AsyncSessions, 50 tasks": tasks_slice(loop, 50, lambda: awaited.append(session, TURN)),
        "redis.asyncio, 50 tasks": tasks_slice(loop, 50, by_client),
    }
