"""A write with an `Idempotency-Key` while Redis goes away, and in asynchronous code."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.urls import path
from ninja import NinjaAPI

from config.api import on_domain_error, on_fault
from config.base.errors import DomainError
from guard.access.http import AgentAuth
from guard.idempotency import keeper
from guard.idempotency.http import honour
from memory.sessions.models import AgentMessage
from tests.guard.idempotency import (
    ALICE,
    Agent,
    Slow,
    code_of,
    make_agent,
    replayed,
    sessions_made,
    timed,
)
from tests.memory.sessions.helpers import make_session
from tests.services import RedisServer
from tests.stack import until
from tests.threads import Threads

pytestmark = pytest.mark.django_db(transaction=True)


# --- a Redis that goes ------------------------------------------------------------------------------------------------


def test_redis_down_a_request_with_a_key_is_refused_at_once_and_one_without_goes_on(
    own_redis_server: RedisServer,
) -> None:
    alice, session = make_agent(), make_session(ALICE)
    body = {"messages": [{"role": "user", "content": "a", "entry_id": "e-1"}], "durability": "sync"}
    own_redis_server.kill()
    alice.post(f"/sessions/{session}/messages", body)
    with timed(0.1):
        refused = alice.post(f"/sessions/{session}/messages", {**body, "durability": "async"}, once="k")
    assert (code_of(refused), refused["Retry-After"]) == ((503, "REDIS_UNAVAILABLE"), "1")
    assert alice.post(f"/sessions/{session}/messages", body).status_code == 200
    own_redis_server.start()
    assert alice.post(f"/sessions/{session}/messages", body, once="k").status_code == 200
    assert AgentMessage.objects.count() == 1


def test_a_hanging_redis_costs_a_tenth_of_a_second(own_redis_server: RedisServer) -> None:
    alice = make_agent()
    assert alice.post("/sessions", {}, once="before").status_code == 201
    own_redis_server.pause()
    try:
        with timed(0.1):
            refused = alice.post("/sessions", {}, once="k")
        with timed(0.0):
            alice.post("/sessions", {}, once="k")
    finally:
        own_redis_server.resume()
    assert code_of(refused) == (503, "REDIS_UNAVAILABLE")
    assert sessions_made() == 1


@pytest.mark.parametrize("in_time", [True, False])
def test_redis_going_away_during_the_work_does_not_take_its_answer(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, settings: Any, in_time: bool
) -> None:
    """Back before the lease is over, it is given the answer for repeats; later, a repeat does the work anew."""
    settings.IDEMPOTENCY_LEASE_SECONDS = 15 if in_time else 0.6
    alice, slow = make_agent(), Slow(monkeypatch)
    working = Threads(1, lambda: alice.post("/sessions", {"session_id": "a-session-of-alice"}, once="k"))
    assert slow.entered.wait(30)
    own_redis_server.kill()
    slow.go.set()
    (answer,) = working.end()
    assert answer.status_code == 201
    if not in_time:
        time.sleep(0.7)
    own_redis_server.start()
    again = until(lambda: (r := alice.post("/sessions", {"session_id": "a-session-of-alice"}, once="k")).status_code
                  not in (409, 503) and r)  # fmt: skip
    assert again.json() == answer.json()
    assert (again.status_code, replayed(again)) == ((201, True) if in_time else (200, False))  # done anew, and borne
    until(lambda: not keeper.keeper._held)


def test_a_restart_keeps_the_answers_and_a_loss_has_the_work_done_anew(own_redis_server: RedisServer) -> None:
    alice, session = make_agent(), make_session(ALICE)
    body = {"messages": [{"role": "user", "content": "a", "entry_id": "e-1"}], "durability": "sync"}
    first = alice.post(f"/sessions/{session}/messages", body, once="k")
    own_redis_server.restart()
    again = alice.post(f"/sessions/{session}/messages", body, once="k")
    own_redis_server.empty()
    anew = alice.post(f"/sessions/{session}/messages", body, once="k")
    assert first.json() == again.json() == anew.json()
    assert [replayed(r) for r in (first, again, anew)] == [False, True, False]
    assert AgentMessage.objects.count() == 1


# --- asynchronous -----------------------------------------------------------------------------------------------------


class Ran:
    calls = 0
    gate: asyncio.Event | None = None


async_api = NinjaAPI(urls_namespace="idempotency-test", docs_url=None)
async_api.exception_handler(DomainError)(on_domain_error)
async_api.exception_handler(Exception)(on_fault)


@async_api.post("/slow", auth=AgentAuth())
async def slow_route(request: HttpRequest) -> Any:
    Ran.calls += 1
    if Ran.gate is not None:
        await Ran.gate.wait()
    return {"call": Ran.calls}


@async_api.post("/sync", auth=AgentAuth())
def sync_route(request: HttpRequest) -> Any:
    Ran.calls += 1
    return HttpResponse(f"{Ran.calls}", status=201)


honour(async_api)
urlpatterns = [path("t/", async_api.urls)]


async def post(where: str, agent: Agent, once: str) -> httpx.Response:
    """Through Django's own ASGI handler, in which each request has a thread of its own for what is synchronous."""
    transport = httpx.ASGITransport(app=get_asgi_application())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30) as client:
        headers = {"Authorization": f"Bearer {agent.key}", "X-Actor-Id": agent.actor_id, "Idempotency-Key": once}
        return await client.post(where, headers=headers)


async def test_asynchronous_views_and_synchronous_ones_under_asgi(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__
    alice = await sync_to_async(make_agent)()
    Ran.calls, Ran.gate = 0, asyncio.Event()
    working = [asyncio.create_task(post("/t/slow", alice, "k")) for _ in range(20)]
    while sum(task.done() for task in working) < 19:
        await asyncio.sleep(0.01)
    Ran.gate.set()
    answers = await asyncio.gather(*working)
    assert sorted(r.status_code for r in answers) == [200] + [409] * 19
    again = await post("/t/slow", alice, "k")
    assert (again.json(), replayed(again), Ran.calls) == ({"call": 1}, True, 1)
    answers = [await post("/t/sync", alice, "s") for _ in range(2)]
    assert [(r.status_code, r.content, replayed(r)) for r in answers] == [(201, b"2", False), (201, b"2", True)]
    await sync_to_async(connections.close_all)()


async def test_a_client_that_goes_away_frees_its_key(settings: Any) -> None:
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []  # synchronous ones would hold the cancellation up
    alice = await sync_to_async(make_agent)()
    Ran.calls, Ran.gate = 0, asyncio.Event()
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    incoming.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    headers = {
        "host": "localhost",
        "authorization": f"Bearer {alice.key}",
        "x-actor-id": "alice",
        "idempotency-key": "k",
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/t/slow",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def send(message: dict[str, Any]) -> None:
        raise AssertionError("nobody is there")

    request = asyncio.create_task(get_asgi_application()(scope, incoming.get, send))
    while not Ran.calls:
        await asyncio.sleep(0.01)
    incoming.put_nowait({"type": "http.disconnect"})
    await asyncio.wait_for(request, 10)
    Ran.gate = None
    answer = await post("/t/slow", alice, "k")
    assert (answer.status_code, Ran.calls) == (200, 2)
    assert keeper.keeper._held == {}
    await sync_to_async(connections.close_all)()
