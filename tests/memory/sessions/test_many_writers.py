"""Many writers on one session, while it expires and while Redis is killed and hangs: nothing lost, batches whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from config.base import redis as base_redis
from memory.sessions import selectors
from memory.sessions.drain import drain_batch
from memory.sessions.models import AgentMessage, MessageDeadLetter
from memory.sessions.reopen import ensure_attached
from tests.memory.sessions.helpers import (
    ALICE,
    contents,
    drain_everything,
    make_message,
    make_session,
    owner,
    put,
    stored,
)
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def write_in_threads(
    session: str, writers: int, appends: int, errors: list[BaseException], meanwhile: Callable[[], None] | None = None
) -> None:
    """meanwhile: runs in this thread (a server that a thread starts is ended with that thread)."""

    def work(writer: int) -> None:
        try:
            for n in range(appends):
                put(
                    session,
                    make_message(f"{writer}.{n}.a", entry_id=f"w{writer}-{n}-a"),
                    make_message(f"{writer}.{n}.b", "assistant", entry_id=f"w{writer}-{n}-b"),
                )
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    if meanwhile:
        meanwhile()
    for thread in threads:
        thread.join()


def check_batches(session: str, writers: int, appends: int, *, gap_free: bool) -> None:
    rows = stored(session)
    assert len(rows) == writers * appends * 2
    if gap_free:
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    heads = [content for _, content in rows]
    for n in range(0, len(heads), 2):
        writer, turn, part = heads[n].split(".")
        assert part == "a"
        assert heads[n + 1] == f"{writer}.{turn}.b"
    for number in range(writers):  # each writer's own order is kept
        turns = [int(head.split(".")[1]) for head in heads if head.startswith(f"{number}.") and head.endswith(".a")]
        assert turns == sorted(turns)


def test_sixteen_first_writers_on_one_session(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 50
    session = make_session()
    errors: list[BaseException] = []
    write_in_threads(session, 16, 25, errors)
    assert errors == []
    drain_everything()
    check_batches(session, 16, 25, gap_free=True)
    window = selectors.read_messages(caller=ALICE, session_id=session).messages
    database = list(AgentMessage.objects.order_by("-seq")[:20])[::-1]
    assert [(m.seq, m.entry_id, m.content, m.created_at) for m in window] == [
        (m.seq, m.entry_id, m.content, m.created_at) for m in database
    ]


def test_writers_while_the_session_expires_again_and_again(settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 20
    session = make_session()
    errors: list[BaseException] = []
    over = threading.Event()

    def trouble() -> None:
        try:
            n = 0
            while not over.is_set():
                n += 1
                if n % 3 == 0:
                    base_redis.state().delete(*owner(session).keys)
                else:
                    drain_batch(idle_ms=0)
                time.sleep(0.02)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    troubles = [threading.Thread(target=trouble) for _ in range(2)]
    for thread in troubles:
        thread.start()
    write_in_threads(session, 8, 15, errors)
    over.set()
    for thread in troubles:
        thread.join()
    assert errors == []
    drain_everything()
    check_batches(session, 8, 15, gap_free=False)
    assert MessageDeadLetter.objects.count() == 0


def test_writers_while_redis_is_killed_and_restarted(own_redis_server: RedisServer) -> None:
    session = make_session()
    errors: list[BaseException] = []

    def trouble() -> None:
        for _ in range(3):
            time.sleep(0.3)
            own_redis_server.kill()
            time.sleep(0.2)
            own_redis_server.start()

    write_in_threads(session, 8, 60, errors, trouble)
    assert errors == []
    ensure_attached()
    drain_everything()
    check_batches(session, 8, 60, gap_free=False)
    assert MessageDeadLetter.objects.count() == 0
    assert contents(session, 20) == [c for _, c in stored(session)][-20:]


def test_writers_while_redis_hangs(own_redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_TIMEOUT = 0.2
    base_redis.forget_clients()
    session = make_session()
    errors: list[BaseException] = []

    def trouble() -> None:
        for _ in range(3):
            time.sleep(0.2)
            own_redis_server.pause()
            time.sleep(0.4)
            own_redis_server.resume()
            time.sleep(0.8)

    write_in_threads(session, 8, 60, errors, trouble)
    assert errors == []
    base_redis.breaker.reset()
    ensure_attached()
    drain_everything()
    rows = stored(session)
    assert len(rows) == len({content for _, content in rows}) == 8 * 60 * 2
    assert contents(session, 20) == [c for _, c in rows][-20:]
