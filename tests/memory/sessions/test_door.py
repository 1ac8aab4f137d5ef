"""The sessions in process: fifty at once, cancelled at any moment, page by page, and what they cost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from config.base import offload
from config.base import redis as base_redis
from config.base.errors import DomainError
from config.base.redis import Script
from config.base.trace import current_trace_id, traced
from memory.sessions import AsyncSessions, NewMessage, Sessions, services
from memory.sessions.drain import drain
from memory.sessions.locks import SessionLock
from memory.sessions.models import AgentMessage
from tests.counting import counted_round_trips
from tests.memory.sessions.helpers import drain_everything, owner, stored

pytestmark = pytest.mark.django_db(transaction=True)

ALICE = Sessions.for_agent(agent="customer", actor_id="alice", tenant="default")


def make_alice() -> AsyncSessions:
    return AsyncSessions.for_agent(agent="customer", actor_id="alice", tenant="default")


def make_session() -> str:
    return ALICE.open(f"chat-{uuid.uuid4().hex}").session_id


def said(session: str) -> list[str]:
    return [message.content for message in ALICE.read(session, limit=200).messages]


# --- what it is made of -------------------------------------------------------------------------------------------


def test_the_example_in_the_readme_runs() -> None:
    text = (Path(__file__).parents[3] / "memory" / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## From Python") :]
    examples = section.split("```python\n")[1:3]
    for example in examples:
        names: dict[str, Any] = {}
        exec(compile(example.split("```")[0], "memory/README.md", "exec"), names)
        assert names["page"].messages[-1].content == "好的"
        assert names["context"].slots == {"amount": "100"}


def test_the_package_is_imported_without_models_and_its_doors_after_setup() -> None:
    script = (
        "import memory.sessions\n"
        "import sys; assert 'memory.sessions.models' not in sys.modules\n"
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings'\n"
        "import django; django.setup()\n"
        "from memory.sessions import Sessions, AsyncSessions, NewMessage\n"
        "from memory.sessions import selectors\n"
        "try: from memory.sessions import nothing\n"
        "except ImportError: print('well')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "well"


@pytest.mark.parametrize(
    ("who", "code"),
    [
        ({"agent": "boss", "actor_id": "alice"}, "INVALID_REQUEST"),
        ({"agent": 5, "actor_id": "alice"}, "INVALID_REQUEST"),
        ({"agent": "risk", "actor_id": ""}, "INVALID_ID"),
        ({"agent": "risk", "actor_id": None}, "INVALID_ID"),
        ({"agent": "risk", "actor_id": "ａlice"}, "INVALID_ID"),
        ({"agent": "risk", "actor_id": "alice", "tenant": "a:b"}, "INVALID_ID"),
    ],
)
def test_nobody_calls_without_a_name(who: dict[str, Any], code: str) -> None:
    for door in (Sessions, AsyncSessions):
        with pytest.raises(DomainError) as refused:
            door.for_agent(**who)
        assert refused.value.code == code


def test_a_warm_call_costs_what_the_service_costs(django_assert_num_queries: Any) -> None:
    session = make_session()
    ALICE.append(session, [NewMessage("user", "a")])
    for call in (
        lambda: ALICE.append(session, [NewMessage("user", "b")]),
        lambda: ALICE.append(session, [NewMessage("user", "c")], read_last=20),
        lambda: ALICE.read(session),
        lambda: ALICE.context(session),
        lambda: ALICE.change_context(session, intent="x"),
    ):
        with counted_round_trips() as calls, django_assert_num_queries(0):
            call()
        assert len(calls) == 1


def test_a_call_is_traced_as_its_caller_is_or_by_itself() -> None:
    session = make_session()
    with traced() as trace_id:
        ALICE.append(session, [NewMessage("user", "a")])
        asyncio.run(make_alice().append(session, [NewMessage("user", "b")]))
    from contextvars import Context as Variables

    Variables().run(ALICE.append, session, [NewMessage("user", "c")])
    Variables().run(ALICE.append, session, [NewMessage("user", "d")])
    drain_everything()
    traces = list(AgentMessage.objects.order_by("seq").values_list("trace_id", flat=True))
    assert traces[:2] == [trace_id] * 2
    assert len(set(traces)) == 3
    assert all(len(trace) == 32 for trace in traces)
    assert current_trace_id()


def test_everything_is_read_page_by_page_while_others_write() -> None:
    session = make_session()
    for first in range(0, 450, 150):
        ALICE.append(session, [NewMessage("user", f"m{n}") for n in range(first, first + 150)])
    drain()
    seen: list[str] = []
    for message in ALICE.messages(session):
        if len(seen) in (10, 300):
            ALICE.append(session, [NewMessage("user", "later")])
        seen.append(message.content)
    assert seen == [f"m{n}" for n in reversed(range(450))]
    assert [len(page.messages) for page in ALICE.pages(session, limit=100)] == [100, 100, 100, 100, 52]

    async def all_of_it() -> list[str]:
        return [message.content async for message in make_alice().messages(session)]

    assert asyncio.run(all_of_it()) == ["later", "later", *seen]
    assert list(ALICE.messages(make_session())) == []


def test_the_newest_that_an_append_brings_are_counted() -> None:
    session = make_session()
    wrong: list[Any] = [-1, 201, 10**5000, -(10**5000), True, "5", 5.0, None]
    for count in wrong:
        with pytest.raises(DomainError, match="read_last is no whole number") as refused:
            ALICE.append(session, [NewMessage("user", "x")], read_last=count)
        assert refused.value.code == "INVALID_REQUEST"
    assert said(session) == []
    assert ALICE.append(session, [NewMessage("user", "a")], read_last=0).messages is None
    newest = ALICE.append(session, [NewMessage("user", "b")], read_last=200).messages
    assert [message.content for message in newest or ()] == ["a", "b"]


@pytest.mark.parametrize(
    "payload", [(1, 2), {1: "a"}, {"a": (1,)}, {None: 1}, {1: "a", "1": "b"}, {1.5}, b"x", object()]
)
def test_what_json_would_turn_into_something_else_is_refused(payload: Any) -> None:
    session = make_session()
    for call in (
        lambda: ALICE.append(session, [NewMessage("user", "x", payload=payload)]),
        lambda: ALICE.change_context(session, slots={"x": payload}),
        lambda: ALICE.change_context(session, last_tool_result=payload),
    ):
        with pytest.raises(DomainError) as refused:
            call()
        assert refused.value.code == "INVALID_REQUEST"
    assert said(session) == []


@pytest.mark.mariadb
def test_connections_that_the_server_has_closed_are_noticed_before_they_are_used() -> None:
    """No request begins here that would look at them, and an agent's process lives for weeks."""
    session, alice = make_session(), make_alice()

    async def commit_a_few() -> list[str]:
        batch = [NewMessage("user", "x")]
        done = await asyncio.gather(*(alice.append(session, batch, durability="sync") for _ in range(20)))
        return [appended.receipts[0].state for appended in done]

    assert ALICE.append(session, [NewMessage("user", "a")], durability="sync").receipts[0].state == "committed"
    assert asyncio.run(commit_a_few()) == ["committed"] * 20

    def kill() -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
            for (number,) in cursor.fetchall():
                cursor.execute(f"KILL {number}")
        connections.close_all()

    killer = threading.Thread(target=kill)
    killer.start()
    killer.join()
    assert ALICE.append(session, [NewMessage("user", "b")], durability="sync").receipts[0].state == "committed"
    assert ALICE.get(session).session_id == session
    assert asyncio.run(commit_a_few()) == ["committed"] * 20


# --- many at once -------------------------------------------------------------------------------------------------


async def test_fifty_tasks_append_to_one_session_and_none_is_lost() -> None:
    alice = make_alice()
    session = (await alice.open()).session_id

    async def work(task: int) -> list[int]:
        numbers: list[int] = []
        for n in range(4):
            batch = [NewMessage("user", f"{task}-{n}-{i}", entry_id=f"e-{task}-{n}-{i}") for i in range(2)]
            mode = "sync" if (task + n) % 5 == 0 else "async"
            first, second = (await alice.append(session, batch, durability=mode)).receipts
            assert second.seq == first.seq + 1
            numbers += [first.seq, second.seq]
        return numbers

    numbers = [seq for part in await asyncio.gather(*(work(task) for task in range(50))) for seq in part]
    assert sorted(numbers) == list(range(1, 401))
    await offload.in_thread(drain_everything)
    rows = await offload.in_thread(lambda: stored(session))
    assert [seq for seq, _ in rows] == list(range(1, 401))
    assert {content for _, content in rows} == {f"{t}-{n}-{i}" for t in range(50) for n in range(4) for i in range(2)}
    read = [message.content async for message in alice.messages(session)]
    assert read == [content for _, content in reversed(rows)]


async def test_fifty_tasks_of_different_slots_lose_none() -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    await asyncio.gather(*(alice.change_context(session, slots={f"s{n}": n}) for n in range(50)))
    context = await alice.context(session)
    assert context.slots == {f"s{n}": n for n in range(50)}
    assert context.version.endswith("-50")


async def test_the_event_loop_goes_on_while_redis_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    entered, go = threading.Event(), threading.Event()
    original = Script.__call__

    def slow(self: Script, *args: Any) -> Any:
        if self.name == "append":
            entered.set()
            go.wait(10)
        return original(self, *args)

    monkeypatch.setattr(Script, "__call__", slow)
    task = asyncio.create_task(alice.append(session, [NewMessage("user", "a")]))
    while not entered.is_set():
        await asyncio.sleep(0.005)  # were the loop held up, this would never come back
    assert not task.done()
    go.set()
    assert (await task).receipts[0].seq == 1


@pytest.mark.mariadb
async def test_connections_are_no_more_than_threads(settings: Any) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id

    def open_now() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()")
            return int(cursor.fetchone()[0])

    before = await offload.in_thread(open_now)
    for _ in range(3):
        batch = [NewMessage("user", "x")]
        await asyncio.gather(*(alice.append(session, batch, durability="sync") for _ in range(40)))
    assert await offload.in_thread(open_now) <= max(before, settings.ASYNC_THREADS + 2)


# --- cancelled ----------------------------------------------------------------------------------------------------


class Gate:
    """Holds a script at its door until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool = False) -> None:
        self.entered, self.go, self.calls = threading.Event(), threading.Event(), 0
        original = Script.__call__

        def held(script: Script, *args: Any) -> Any:
            if script.name != name:
                return original(script, *args)
            self.calls += 1
            answer = original(script, *args) if after else None
            self.entered.set()
            assert self.go.wait(20)
            return answer if after else original(script, *args)

        monkeypatch.setattr(Script, "__call__", held)

    async def reached(self) -> None:
        while not self.entered.is_set():
            await asyncio.sleep(0.005)


async def test_a_cancelled_append_that_has_begun_is_whole_when_the_cancellation_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    gate = Gate(monkeypatch, "append")
    batch = [NewMessage("user", "a", entry_id="a"), NewMessage("assistant", "b", entry_id="b")]
    task = asyncio.create_task(alice.append(session, batch, durability="sync"))
    await gate.reached()
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    gate.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    # Both, in MySQL; and the same call again answers the same receipts.
    assert await offload.in_thread(lambda: stored(session)) == [(1, "a"), (2, "b")]
    again = (await alice.append(session, batch, durability="sync")).receipts
    assert [(r.seq, r.state) for r in again] == [(1, "committed"), (2, "committed")]


async def test_a_second_cancellation_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    gate = Gate(monkeypatch, "append")
    task = asyncio.create_task(alice.append(session, [NewMessage("user", "a")]))
    await gate.reached()
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.go.set()
    while not (await alice.read(session)).messages:
        await asyncio.sleep(0.01)


async def test_a_cancelled_append_that_waits_for_a_thread_never_begins(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    gate = Gate(monkeypatch, "append")
    busy = [
        asyncio.create_task(alice.append(session, [NewMessage("user", f"busy {n}")]))
        for n in range(settings.ASYNC_THREADS)
    ]
    while gate.calls < settings.ASYNC_THREADS:
        await asyncio.sleep(0.005)
    waiting = asyncio.create_task(alice.append(session, [NewMessage("user", "never")]))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(waiting), 1)
    gate.go.set()
    await asyncio.gather(*busy)
    contents = [m.content for m in (await alice.read(session)).messages]
    assert sorted(contents) == sorted(f"busy {n}" for n in range(settings.ASYNC_THREADS))


async def test_a_timeout_ends_an_append_honestly(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    gate = Gate(monkeypatch, "append")
    asyncio.get_running_loop().call_later(0.2, gate.go.set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await alice.append(session, [NewMessage("user", "a")])
    assert [m.content for m in (await alice.read(session)).messages] == ["a"]


# --- locks --------------------------------------------------------------------------------------------------------


def is_locked(session: str) -> bool:
    from memory.sessions.keys import LOCK

    found = owner(session)
    key = LOCK(found.tenant, agent=found.agent, session_id=found.session_id)
    return bool(base_redis.state().exists(key))


def test_a_lock_for_with() -> None:
    session = make_session()
    with ALICE.lock(session, ttl=5) as lock:
        assert isinstance(lock, SessionLock)
        with pytest.raises(DomainError) as refused, ALICE.lock(session):
            pass
        assert (refused.value.code, refused.value.status) == ("SESSION_LOCKED", 409)
    assert not is_locked(session)


@pytest.mark.parametrize(
    "bad", [{"ttl": 0}, {"ttl": 31}, {"ttl": "x"}, {"ttl": None}, {"wait": -1}, {"wait": "x"}, {"wait": float("nan")}]
)
def test_odd_times_of_a_lock_are_refused(bad: dict[str, Any]) -> None:
    session = make_session()
    for door in (ALICE, make_alice()):
        with pytest.raises(DomainError) as refused:
            door.lock(session, **bad)
        assert refused.value.code == "INVALID_REQUEST"


async def test_thirty_tasks_hold_a_lock_one_by_one() -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    inside, fences = 0, []

    async def work() -> None:
        nonlocal inside
        async with alice.lock(session, wait=60) as lock:
            inside += 1
            assert inside == 1
            fences.append(lock.fence)
            await alice.append(session, [NewMessage("user", "mine")])
            inside -= 1

    await asyncio.gather(*(work() for _ in range(30)))
    assert fences == sorted(set(fences))
    assert len(fences) == 30
    assert not await offload.in_thread(lambda: is_locked(session))


async def test_cancelled_in_the_block_the_lock_is_free_when_the_cancellation_arrives() -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    holding = asyncio.Event()

    async def work() -> None:
        async with alice.lock(session):
            holding.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await holding.wait()
    assert await offload.in_thread(lambda: is_locked(session))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await offload.in_thread(lambda: is_locked(session))


@pytest.mark.parametrize("cancellations", [1, 2])
async def test_cancelled_while_it_is_taken_the_lock_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, cancellations: int
) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    async with alice.lock(session):
        pass  # there are fencing numbers now: the next call of the script takes the lock
    gate = Gate(monkeypatch, "lock", after=True)  # taken in Redis, not yet handed over
    entered = False

    async def work() -> None:
        nonlocal entered
        async with alice.lock(session):
            entered = True

    task = asyncio.create_task(work())
    await gate.reached()
    for _ in range(cancellations):
        task.cancel()
        await asyncio.sleep(0.02)
    assert await offload.in_thread(lambda: is_locked(session))
    gate.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not entered
    deadline = time.monotonic() + 5
    while await offload.in_thread(lambda: is_locked(session)):
        assert cancellations == 2  # once: it was given back before the cancellation went on
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert not [t for t in threading.enumerate() if t.name == f"lock-{session}"]


def test_a_lock_is_given_back_though_the_loop_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    with ALICE.lock(session):
        pass
    gate = Gate(monkeypatch, "lock", after=True)

    async def abandoned() -> None:
        async def work() -> None:
            async with make_alice().lock(session):
                pass

        task = asyncio.create_task(work())
        await gate.reached()
        task.cancel()
        await asyncio.sleep(0)
        # The loop's end cancels it a second time, which waits for nothing.

    asyncio.run(abandoned())
    gate.go.set()
    deadline = time.monotonic() + 5
    while is_locked(session):
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_waiting_for_a_lock_takes_no_thread_from_its_holder(settings: Any) -> None:
    alice = make_alice()
    session = (await alice.open()).session_id
    async with alice.lock(session):
        waiting = [asyncio.create_task(_hold_once(alice, session)) for _ in range(settings.ASYNC_THREADS * 2)]
        await asyncio.sleep(0.1)
        await asyncio.wait_for(alice.append(session, [NewMessage("user", "a")]), 5)
    await asyncio.gather(*waiting)


async def _hold_once(alice: AsyncSessions, session: str) -> None:
    async with alice.lock(session, wait=60):
        pass


def test_services_say_the_same_to_who_calls_them_directly() -> None:
    session = make_session()
    for message, code in (
        (NewMessage(["user"], "x"), "INVALID_REQUEST"),  # type: ignore[arg-type]
        (NewMessage("user", 5), "INVALID_REQUEST"),  # type: ignore[arg-type]
        (NewMessage("user", "x", 7), "INVALID_ID"),  # type: ignore[arg-type]
    ):
        with pytest.raises(DomainError) as refused:
            services.append_messages(caller=ALICE.caller, session_id=session, messages=[message])
        assert refused.value.code == code
