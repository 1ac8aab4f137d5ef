"""Writers who are under way while their customer is erased: when the erasure has returned, nothing of theirs is left.

Each is held at its worst moment: after it has asked and before it commits, or after it has read and before it writes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
from memory.erasure import running
from memory.erasure.models import ErasureReceipt
from memory.erasure.services import erase_customer
from memory.profiles import models as profile_models
from memory.profiles import selectors as profile_reads
from memory.profiles import services as profiles
from memory.profiles.models import CustomerProfileL1
from memory.sessions import dead_letters, direct, hot, persist, reopen, selectors, services
from memory.sessions import models as session_models
from memory.sessions.drain import drain, drain_batch
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter
from tests.memory.erasure.helpers import (
    ALICE,
    ALICE_ID,
    SECRET,
    erase,
    left_of,
    make_profiles,
    make_session,
    say,
)
from tests.memory.sessions.helpers import let_expire

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[3]


class Held:
    """A function that stops: before the real one (`after` False) or when that has answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *, after: bool) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        real = getattr(module, name)
        first = threading.current_thread()

        def stops(*args: Any, **kwargs: Any) -> Any:
            answer = real(*args, **kwargs) if after else None
            if threading.current_thread() is not first and not self.reached.is_set():
                self.reached.set()
                assert self.go_on.wait(20)
            return answer if after else real(*args, **kwargs)

        monkeypatch.setattr(module, name, stops)


class Thread(threading.Thread):
    """Runs something with a database connection of its own, and keeps what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self.work, self.answer, self.error = work, None, None
        self.start()

    def run(self) -> None:
        try:
            self.answer = self.work()
        except BaseException as error:
            self.error = error
        finally:
            connections.close_all()

    def end(self) -> Any:
        self.join(30)
        assert not self.is_alive()
        return self


@contextmanager
def in_flight(held: Held, work: Callable[[], Any]) -> Iterator[Thread]:
    writer = Thread(work)
    assert held.reached.wait(10), writer.error
    yield writer
    held.go_on.set()
    writer.end()


def erase_beside(held: Held) -> None:
    """Erases while the writer stands still. One that holds a lock is waited for, so it is let go meanwhile."""
    eraser = Thread(erase)
    eraser.join(1.0)  # done, or waiting for the writer's lock
    held.go_on.set()
    eraser.end()
    assert eraser.error is None
    code, receipt = eraser.answer
    assert (code, receipt["state"]) == (0, "done")


def nothing_left() -> None:
    assert left_of(SECRET, ALICE_ID) == []
    assert AgentMessage.objects.count() == 0
    assert MessageDeadLetter.objects.count() == 0


def code_of(error: BaseException | None) -> str:
    assert isinstance(error, DomainError), error
    return error.code


# --- messages -----------------------------------------------------------------------------------------------------


def test_a_drain_that_has_taken_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    for n in range(5):
        say(session, f"{SECRET} {n}")
    held = Held(monkeypatch, persist, "_store", after=False)
    with in_flight(held, drain_batch) as drainer:
        code, _ = erase()
        assert code == 0
    assert drainer.error is None
    assert drainer.answer.erased == 5
    nothing_left()


@pytest.mark.mariadb  # SQLite has one writer at a time: the eraser waits for the whole transaction
def test_a_drain_that_has_asked_and_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    say(session)
    held = Held(monkeypatch, persist, "refuse_strays", after=True)
    with in_flight(held, drain_batch) as drainer:
        erase_beside(held)
    assert drainer.end().answer.stored == 1
    nothing_left()


@pytest.mark.mariadb
def test_a_drain_that_has_written_and_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    say(session)
    held = Held(monkeypatch, persist, "refuse_strays", after=False)
    with in_flight(held, drain_batch) as drainer:
        erase_beside(held)
    assert drainer.end().error is None
    nothing_left()


@pytest.mark.parametrize("after", [False, True])
def test_a_committing_append(monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    if after and connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    session = make_session()
    held = Held(monkeypatch, persist, "refuse_strays" if after else "_store", after=after)
    with in_flight(held, lambda: say(session, durability="sync")) as writer:
        erase_beside(held) if after else erase()
    if not after:
        assert code_of(writer.end().error) == "CUSTOMER_ERASED"
    nothing_left()


@pytest.mark.mariadb
@pytest.mark.parametrize("late", [False, True])
def test_an_append_past_redis(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    session = make_session()

    def away(*_: Any) -> None:
        raise RedisUnavailable("away")

    monkeypatch.setattr(services, "append_in_redis", away)
    held = Held(monkeypatch, direct, "locked" if late else "insert_entries", after=False)
    with in_flight(held, lambda: say(session)) as writer:
        erase() if late else erase_beside(held)
    if late:
        assert code_of(writer.end().error) == "CUSTOMER_ERASED"
    nothing_left()


def test_an_append_that_leases_numbers(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.SESSION_SEQ_LEASE = 2
    session = make_session()
    held = Held(monkeypatch, hot, "lease", after=False)

    def work() -> None:
        for _ in range(5):
            say(session)

    with in_flight(held, work) as writer:
        erase()
    assert code_of(writer.end().error) == "CUSTOMER_ERASED"
    nothing_left()


def test_a_reader_that_makes_the_window_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    say(session, durability="sync")
    let_expire(session)
    # It has read the text in MySQL, and brings it to Redis late.
    held = Held(monkeypatch, reopen, "_open", after=False)
    with in_flight(held, lambda: selectors.read_messages(caller=ALICE, session_id=session)) as reader:
        erase()
    assert code_of(reader.end().error) == "CUSTOMER_ERASED"
    nothing_left()


@pytest.mark.parametrize("after", [False, True])
def test_a_dead_letter_on_its_way(monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    if after and connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    session = make_session()
    say(session, durability="sync")
    pk = AgentSession.objects.get(session_id=session).pk
    say(session)
    AgentMessage.objects.filter(session_row=pk).update(seq=2)  # the queued one finds its number taken
    held = Held(monkeypatch, persist, "is_erased" if after else "bury", after=after)
    if not after:
        from memory.sessions import drain as drain_module

        held = Held(monkeypatch, drain_module, "bury", after=False)
    with in_flight(held, drain_batch) as drainer:
        erase_beside(held) if after else erase()
    assert drainer.end().error is None
    nothing_left()


def test_an_operator_who_retries_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session()
    say(session, durability="sync")
    say(session)
    AgentMessage.objects.update(seq=2)
    drain(seconds=0.2)
    letter = MessageDeadLetter.objects.get()
    held = Held(monkeypatch, dead_letters, "retry_conflicts", after=False)
    with in_flight(held, lambda: dead_letters.retry_letter(letter_id=letter.pk, by="op")) as operator:
        erase()
    assert code_of(operator.end().error) == "NOT_FOUND"
    nothing_left()


# --- new sessions and profiles --------------------------------------------------------------------------------------


@pytest.mark.mariadb
@pytest.mark.parametrize("asked", [False, True])
def test_a_session_that_is_being_opened(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    held = Held(monkeypatch, session_models, "refuse_erased", after=asked)

    def work() -> None:
        say(make_session())

    with in_flight(held, work) as opener:
        erase_beside(held)
    assert code_of(opener.end().error) == "CUSTOMER_ERASED"
    nothing_left()
    assert set(AgentSession.objects.values_list("actor_id", flat=True)) <= {""}


@pytest.mark.mariadb
@pytest.mark.parametrize("asked", [False, True])
def test_a_first_profile_that_is_being_written(monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    held = Held(monkeypatch, profile_models, "refuse_erased", after=asked)
    with in_flight(held, lambda: profiles.write_l1(caller=ALICE, customer_id=ALICE_ID, payload={})) as writer:
        erase_beside(held)
    writer.end()
    assert writer.error is None if asked else code_of(writer.error) == "CUSTOMER_ERASED"
    nothing_left()
    assert CustomerProfileL1.objects.count() == 0


@pytest.mark.mariadb
def test_a_later_profile_that_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    make_profiles()
    held = Held(monkeypatch, profiles, "save_version", after=True)
    with in_flight(held, lambda: profiles.write_l1(caller=ALICE, customer_id=ALICE_ID, payload={})):
        erase_beside(held)
    nothing_left()
    assert CustomerProfileL1.objects.count() == 0


def test_a_slow_reader_fills_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    make_profiles()
    held = Held(monkeypatch, profile_reads.cache, "fill", after=False)
    with in_flight(held, lambda: profile_reads.read_l1(caller=ALICE, customer_id=ALICE_ID)):
        erase()
    nothing_left()


# --- a storm --------------------------------------------------------------------------------------------------------


@pytest.mark.slow  # two seconds of real writers beside the erasure
@pytest.mark.mariadb
def test_writers_of_every_kind_at_once() -> None:
    sessions = [make_session() for _ in range(4)]
    make_profiles()
    stop = threading.Event()
    refusals: dict[str, int] = {}

    def keep(name: str, work: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            while not stop.is_set():
                try:
                    work()
                except DomainError as error:
                    if error.status != 410:
                        raise
                    refusals[name] = refusals.get(name, 0) + 1
                    time.sleep(0.01)

        return run

    kinds: dict[str, Callable[[], Any]] = {
        "async": lambda: say(sessions[0], SECRET * 20),
        "sync": lambda: say(sessions[1], durability="sync"),
        "context": lambda: services.change_context(caller=ALICE, session_id=sessions[2], intent=SECRET),
        "open": lambda: say(make_session()),
        "profile": lambda: profiles.write_l1(caller=ALICE, customer_id=ALICE_ID, payload={}),
        "read": lambda: selectors.read_messages(caller=ALICE, session_id=sessions[0]),
        "drain": lambda: (drain(seconds=0.05), time.sleep(0.005)),
    }
    writers = [Thread(keep(name, work)) for name, work in kinds.items()]
    time.sleep(0.5)
    receipt = erase_customer(customer_id=ALICE_ID, by="dpo")
    # At the very moment when it returns, with everybody still at it.
    left = left_of(SECRET)
    time.sleep(0.3)
    stop.set()
    for writer in writers:
        writer.end()
        assert writer.error is None, writer.error
    assert receipt.state == "done"
    assert receipt.removed["memory.sessions"]["messages"] > 0
    assert left == []
    nothing_left()
    assert set(refusals) >= {"async", "sync", "context", "open", "profile", "read"}


# --- an eraser that is killed -----------------------------------------------------------------------------------------


class Killed(BaseException):
    """As SIGKILL: nobody catches it."""


def a_life() -> None:
    for _ in range(3):
        session = make_session()
        for n in range(3):
            say(session, durability="sync" if n else "async")
    drain(seconds=0.2)
    say(session)
    make_profiles()


def test_killed_after_any_step_the_next_run_finishes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = running.Erasing.step
    monkeypatch.setattr("memory.sessions.erasing.SESSIONS_A_STEP", 2)
    monkeypatch.setattr("memory.sessions.erasing.ROWS_A_STEP", 4)
    steps = 0
    kills = 0
    for die_at in range(1, 60):
        customer_id = f"{ALICE_ID}-{die_at}"
        caller = type(ALICE)("default", "customer", customer_id)
        for _ in range(3):
            session = make_session(caller, customer_id)
            for n in range(3):
                say(session, caller=caller, durability="sync" if n else "async")
        make_profiles(customer_id)
        steps = 0

        def step(job: Any, work: Any, die_at: int = die_at) -> Any:
            nonlocal steps
            answer = real(job, work)
            steps += 1
            if steps == die_at:
                raise Killed
            return answer

        monkeypatch.setattr(running.Erasing, "step", step)
        try:
            erase_customer(customer_id=customer_id, by="dpo")
        except Killed:
            kills += 1
        else:
            break
        monkeypatch.setattr(running.Erasing, "step", real)
        said = 9
        try:  # refused, or, where the dead run had not come to this session yet, removed by the next one
            say(session, caller=caller)
            said += 1
        except DomainError as error:
            if error.code != "CUSTOMER_ERASED":
                raise
        receipt = erase_customer(customer_id=customer_id, by="dpo")
        removed = receipt.removed["memory.sessions"]
        assert receipt.state == "done"
        assert (removed["sessions"], removed["messages"] + removed.get("queued", 0)) == (3, said), (die_at, removed)
        assert receipt.removed["memory.profiles"] == {"l1": 1, "l2": 1, "l3": 1}
        assert left_of(customer_id, SECRET) == [], die_at
    assert kills > 8


ERASER = """
import os, sys
import django
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
settings.REDIS_KEY_PREFIX = sys.argv[2]
django.setup()
from memory.erasure import running
from memory.erasure.services import erase_customer
from memory.sessions import erasing
erasing.ROWS_A_STEP = 2
remove = erasing._remove_messages
def slowly(pks, step):
    found = remove(pks, step)
    print("removed, not committed", flush=True)
    sys.stdin.readline()
    return found
erasing._remove_messages = slowly
erase_customer(customer_id=sys.argv[3], by="dpo")
"""


@pytest.mark.slow  # starts and kills a real process
@pytest.mark.mariadb
def test_a_killed_process_leaves_what_the_next_one_finishes(settings: Any) -> None:
    a_life()
    process = subprocess.Popen(
        [sys.executable, "-c", ERASER, connection.settings_dict["NAME"], settings.REDIS_KEY_PREFIX, ALICE_ID],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        env={**os.environ, "REDIS_URL": settings.REDIS_URL},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == b"removed, not committed\n"
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert process.stdout.readline() == b"removed, not committed\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert ErasureReceipt.objects.get().state == "running"
    code, receipt = erase()
    assert (code, receipt["state"]) == (0, "done")
    assert receipt["removed"]["memory.sessions"]["sessions"] == 3
    nothing_left()


@pytest.mark.mariadb
def test_two_erasers_at_once_count_everything_once() -> None:
    a_life()
    erasers = [Thread(erase) for _ in range(3)]
    answers = [eraser.end() for eraser in erasers]
    assert [eraser.error for eraser in answers] == [None] * 3
    receipt = ErasureReceipt.objects.get()
    assert receipt.state == "done"
    removed = receipt.removed["memory.sessions"]
    assert (removed["sessions"], removed["messages"], removed["queued"]) == (3, 9, 1)
    nothing_left()
