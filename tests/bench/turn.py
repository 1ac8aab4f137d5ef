"""What one turn costs beside a bare PING of the same client: append user and assistant, read the last 20."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from config.base import redis as base_redis
from guard.access.services import Caller
from memory.sessions import selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import NewMessage

CALLER = Caller("default", "customer", "bench")
USER = "我想了解一下最近三个月收益比较稳定的债券基金，风险等级不要超过 R2，最好可以随时赎回。"
ANSWER = "好的，按您的风险等级，为您找到三只短债基金，近三个月年化收益在 2.6% 到 3.1% 之间，均支持 T+1 赎回。"


def rate_of(work: Callable[[], Any], seconds: float) -> float:
    """Calls a second, in one thread."""
    work()
    count, began = 0, time.perf_counter()
    while True:
        for _ in range(20):
            work()
        count += 20
        took = time.perf_counter() - began
        if took >= seconds:
            return count / took


def make_session() -> str:
    return services.open_session(caller=CALLER, session_id=f"bench-{uuid.uuid4().hex}").owner.session_id


def turn_rates(seconds: float) -> dict[str, float]:
    """Rates a second: PINGs, turns as two calls, turns as one call (`read_last`). Interleaved in three rounds, so
    that a busy neighbour meets them alike; the best round of each counts."""
    session = make_session()
    turn = [NewMessage("user", USER), NewMessage("assistant", ANSWER)]
    client = base_redis.state()

    def two_calls() -> None:
        services.append_messages(caller=CALLER, session_id=session, messages=turn)
        assert len(selectors.read_messages(caller=CALLER, session_id=session).messages) <= 20

    def one_call() -> None:
        services.append_messages(caller=CALLER, session_id=session, messages=turn, read_last=20)

    for _ in range(10):
        two_calls()
    best = {"ping": 0.0, "turn": 0.0, "turn_one_call": 0.0}
    for _ in range(3):
        for name, work in (("ping", client.ping), ("turn", two_calls), ("turn_one_call", one_call)):
            best[name] = max(best[name], rate_of(work, seconds / 3))
        drain()
    return best


def writers_rate(writers: int, appends: int) -> float:
    """Appends a second of so many threads on one new session; fails if one is lost."""
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
    newest = selectors.read_messages(caller=CALLER, session_id=session, limit=1).messages[-1]
    assert newest.seq == writers * appends, "a message was lost"
    return writers * appends / took
