"""What a turn costs (append user and assistant, then read the last 20), and many writers on one session."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from config.base import redis as base_redis
from guard.access.services import Caller
from memory.sessions import selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import NewMessage
from tests.bench.rates import Slice, sync_slice

CALLER = Caller("default", "customer", "bench")
USER = "我想了解一下最近三个月收益比较稳定的债券基金，风险等级不要超过 R2，最好可以随时赎回。"
ANSWER = "好的，按您的风险等级，为您找到三只短债基金，近三个月年化收益在 2.6% 到 3.1% 之间，均支持 T+1 赎回。"
TURN = [NewMessage("user", USER), NewMessage("assistant", ANSWER)]


def make_session() -> str:
    return services.open_session(caller=CALLER, session_id=f"bench-{uuid.uuid4().hex}").owner.session_id


def turn_slices() -> dict[str, Slice]:
    """PING as redis-py's own client does it, a script that does nothing without that client's layers, and turns."""
    session = make_session()
    client = base_redis.state()
    nothing = base_redis.Script.beside(__file__, "nothing")

    def two_calls() -> None:
        services.append_messages(caller=CALLER, session_id=session, messages=TURN)
        newest = selectors.read_messages(caller=CALLER, session_id=session).messages
        assert newest[-1].content == ANSWER

    def one_call() -> None:
        newest = services.append_messages(caller=CALLER, session_id=session, messages=TURN, read_last=20).messages
        assert newest is not None
        assert newest[-1].content == ANSWER

    for _ in range(10):
        two_calls()
    return {
        "PING": sync_slice(client.ping),
        "EVALSHA return 1": sync_slice(lambda: nothing(client, [])),
        "two calls": sync_slice(two_calls),
        "one call": sync_slice(one_call),
    }


def writers_rate(writers: int, appends: int) -> tuple[float, int]:
    """Appends a second of so many threads that write first to one new session, and how many messages were lost."""
    from django.db import connections

    session = make_session()
    barrier = threading.Barrier(writers + 1)

    def work() -> None:
        try:
            barrier.wait()
            for n in range(appends):
                services.append_messages(caller=CALLER, session_id=session, messages=[NewMessage("user", f"{n}")])
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(writers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    drain(seconds=30)
    from memory.sessions.models import AgentMessage

    there: Any = AgentMessage.objects.filter(session_id=session).count()
    return writers * appends / took, writers * appends - there
