"""Writers who are under way while their customer is erased: when the erasure has returned, nothing of theirs is left.

Each is held at its worst moment: after it has asked and before it commits, or after it has read and before it writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from config.base.errors import DomainError
from config.base.redis import RedisUnavailable
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
    Thread,
    erase,
    left_of,
    make_profiles,
    make_session,
    nothing_left,
    say,
)
from tests.memory.sessions.helpers import let_expire

pytestmark = pytest.mark.django_db(transaction=True)


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
