"""Conversations that branch, as tests look at them; and several things done to one at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.db import connections

from config.base import redis as base_redis
from config.base.redis import RedisUnavailable
from memory.sessions import reopen, selectors, services
from memory.sessions.drain import drain
from memory.sessions.entries import Message
from memory.sessions.models import AgentMessage
from memory.sessions.reconcile import reconcile, select
from tests.memory.sessions.helpers import ALICE, append, drain_everything, make_session, owner


def said(session: str, view: str = "active", limit: int | None = None) -> list[str]:
    page = selectors.read_messages(caller=ALICE, session_id=session, view=view, limit=limit)
    return [message.content for message in page.messages]


def all_pages(session: str, limit: int, view: str = "active") -> list[Message]:
    """Everything, page by page from the newest."""
    found: list[Message] = []
    before = None
    for _ in range(1000):
        page = selectors.read_messages(caller=ALICE, session_id=session, limit=limit, before_seq=before, view=view)
        found = [*page.messages, *found]
        before = page.next
        if before is None:
            return found
    raise AssertionError("pages without end")


def make_talk(*contents: str) -> tuple[str, list[str]]:
    session = make_session()
    return session, [receipt.entry_id for receipt in append(session, *contents)]


def parents(session: str) -> dict[str, str]:
    """What each message of a session follows, by their contents."""
    drain()
    rows = list(AgentMessage.objects.filter(session_row_id=owner(session).pk))
    shared = AgentMessage.objects.exclude(session_row_id=owner(session).pk)
    content = {row.entry_id: row.content for row in (*shared, *rows)} | {"": ""}
    return {row.content: content[row.parent_entry_id] for row in rows}


def assert_clean(*sessions: str) -> None:
    drain_everything()
    for session in sessions:
        report = reconcile(rows=select(tenant="default", session_id=session), whole=False, pause=0)
        assert [finding.kind for finding in report.findings if finding.open] == []


@contextmanager
def redis_away() -> Iterator[None]:
    """As this process sees it: every call says so at once."""
    reopen.suspicion.raise_()
    base_redis.breaker._until = time.monotonic() + 3600
    try:
        yield
    finally:
        base_redis.breaker.reset()


@contextmanager
def answers_lost() -> Iterator[None]:
    """Redis does what an append asks, and the answer never comes."""
    real = services.append_in_redis

    def lost(*args: Any) -> Any:
        real(*args)
        reopen.suspicion.raise_()
        raise RedisUnavailable("the answer was lost")

    with mock.patch.object(services, "append_in_redis", lost):
        yield


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Runs these in threads that start together; answers or exceptions, in their order."""
    answers: list[Any] = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(place: int) -> None:
        try:
            start.wait(30)
            answers[place] = works[place]()
        except BaseException as error:
            answers[place] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def none_failed(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers
