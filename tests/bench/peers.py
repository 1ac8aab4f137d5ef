"""Other session stores, doing the same in the same run. Each is used as its documentation shows, and spared what it was
not made for: RedisChatMessageHistory always reads everything, so it goes on in another session after ten turns: it
reads 12 to 30 messages, 21 on average. `naive` is no store: the least that keeps a window of 20 in one round trip."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.rates import Slice, async_slice, sync_slice
from tests.bench.turn import ANSWER, USER


@dataclass
class Peer:
    """turn: one slice of turns. writers: (writers, appends each) -> appends a second, messages lost."""

    name: str
    turn: Slice
    writers: Callable[[int, int], tuple[float, int]] | None = None
    close: Callable[[], Any] = lambda: None


_HISTORIES = 2000
TURN: list[Any] = [{"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}]


def _agents_peer(name: str, loop: asyncio.AbstractEventLoop, make: Callable[[str], Any]) -> Peer:
    """A session of openai-agents: add_items, then get_items(20)."""
    session = make(f"bench-{uuid.uuid4().hex}")

    async def turn() -> None:
        await session.add_items(TURN)
        newest = await session.get_items(limit=20)
        assert newest[-1]["content"] == ANSWER

    def writers(count: int, appends: int) -> tuple[float, int]:
        name = f"bench-{uuid.uuid4().hex}"
        sessions = [make(name) for _ in range(count)]

        async def write(session: Any) -> None:
            for n in range(appends):
                try:
                    await session.add_items([{"role": "user", "content": f"{n}"}])
                except Exception:  # whatever it raises: the message is not there, and is counted
                    continue

        async def all_of_them() -> tuple[float, int]:
            began = time.perf_counter()
            await asyncio.gather(*(write(session) for session in sessions))
            took = time.perf_counter() - began
            there = len(await sessions[0].get_items())
            return count * appends / took, count * appends - there

        return loop.run_until_complete(all_of_them())

    loop.run_until_complete(turn())
    return Peer(name, async_slice(loop, turn), writers)


def redis_session(loop: asyncio.AbstractEventLoop, redis_url: str) -> Peer:
    from agents.extensions.memory import RedisSession

    return _agents_peer("RedisSession", loop, lambda name: RedisSession.from_url(name, url=redis_url))


# Its own create_tables makes VARCHAR without a length, which MariaDB refuses; the same columns and index by hand.
_TABLES = """
CREATE TABLE agent_sessions (
    session_id VARCHAR(255) PRIMARY KEY,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE agent_messages (
    id INTEGER PRIMARY KEY AUTO_INCREMENT,
    session_id VARCHAR(255) NOT NULL,
    message_data TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    INDEX idx_agent_messages_session_time (session_id, created_at),
    FOREIGN KEY (session_id) REFERENCES agent_sessions (session_id) ON DELETE CASCADE
)
"""


def sqlalchemy_session(loop: asyncio.AbstractEventLoop, database_url: str) -> Peer:
    from agents.extensions.memory import SQLAlchemySession
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(database_url, pool_size=20)

    async def make_tables() -> None:
        async with engine.begin() as connection:
            for statement in _TABLES.split(";"):
                await connection.execute(text(statement))

    loop.run_until_complete(make_tables())
    peer = _agents_peer("SQLAlchemySession", loop, lambda name: SQLAlchemySession(name, engine=engine))
    peer.close = lambda: loop.run_until_complete(engine.dispose())
    return peer


def redis_chat_history(redis_url: str) -> Peer:
    from langchain_community.chat_message_histories import RedisChatMessageHistory
    from langchain_core.messages import AIMessage, HumanMessage

    history = RedisChatMessageHistory(f"bench-{uuid.uuid4().hex}", url=redis_url, ttl=7200)
    history.add_messages([HumanMessage(USER), AIMessage(ANSWER)] * 5)
    ten = history.redis_client.lrange(history.key, 0, -1)
    pipe = history.redis_client.pipeline(transaction=False)
    fresh = [f"bench-{uuid.uuid4().hex}" for _ in range(_HISTORIES)]
    for name in fresh:
        history.session_id = name
        pipe.rpush(history.key, *ten)
    pipe.execute()
    done = 0

    def turn() -> None:
        nonlocal done
        if done % 10 == 0:
            history.session_id = fresh[done // 10 % _HISTORIES]
        done += 1
        history.add_messages([HumanMessage(USER), AIMessage(ANSWER)])
        assert history.messages[-1].content == ANSWER

    turn()
    return Peer("RedisChatMessageHistory", sync_slice(turn))


def naive(redis_url: str) -> Peer:
    """One script through redis-py, JSON from Python: no owner, numbers, repeats, queue to a database or expiry."""
    import redis

    client = redis.Redis.from_url(redis_url, decode_responses=True)
    script = client.register_script(
        "redis.call('RPUSH', KEYS[1], unpack(ARGV)) redis.call('LTRIM', KEYS[1], -20, -1) "
        "return redis.call('LRANGE', KEYS[1], 0, -1)"
    )
    key = f"bench-naive-{uuid.uuid4().hex}"

    def turn() -> None:
        newest = [json.loads(item) for item in script([key], [json.dumps(message) for message in TURN])]
        assert newest[-1]["content"] == ANSWER

    turn()
    return Peer("naive", sync_slice(turn))


def peers(redis_url: str, database_url: str) -> tuple[list[Peer], dict[str, str]]:
    """Those that are there, and why the others are not."""
    loop = asyncio.new_event_loop()
    found: list[Peer] = []
    missing: dict[str, str] = {}
    makers: dict[str, Callable[[], Peer]] = {
        "naive": lambda: naive(redis_url),
        "RedisSession": lambda: redis_session(loop, redis_url),
        "RedisChatMessageHistory": lambda: redis_chat_history(redis_url),
        "SQLAlchemySession": lambda: sqlalchemy_session(loop, database_url),
    }
    for name, make in makers.items():
        try:
            found.append(make())
        except Exception as error:  # not installed, or not able to run here: the table says so
            missing[name] = f"{type(error).__name__}: {error}"[:70]
    return found, missing
