"""What was served at an instant is what an as-of read says of it: around a commit, with dead writers, Redis away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from config.base.errors import DomainError
from memory.profiles import cache, recording, selectors, settling
from memory.profiles.cache import Part, Slot
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, ProfileVersion
from memory.profiles.sweeping import sweep
from tests.memory.profiles.helpers import ALICE, WEI, make_assignment, make_caller
from tests.services import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

SLOT = Slot("default", "l1", ALICE)


def make_l1(occupation: str) -> None:
    CustomerProfileL1.objects.create(
        customer_id=ALICE, payload={"schema_version": 1, "occupation": occupation}, core_synced_at=now()
    )


def change_l1(occupation: str) -> None:
    CustomerProfileL1.objects.update(payload={"schema_version": 1, "occupation": occupation})


def answer(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DomainError as error:
        return error.code


def read_l1(as_of: datetime | None = None) -> Any:
    return answer(lambda: selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE, as_of=as_of, at=None))


def occupation(as_of: datetime | None = None) -> Any:
    given = read_l1(as_of)
    return given["occupation"] if isinstance(given, dict) else given


def read_l3(as_of: datetime | None = None) -> Any:
    return answer(lambda: selectors.read_l3(caller=make_caller("risk"), customer_id=ALICE, as_of=as_of))


def killed_before_its_del(write: Callable[[], Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)
        patch.setattr(recording, "settle_quietly", lambda rows, moment: False)
        write()


WRITES: dict[str, tuple[Callable[[], Any], Any, Any]] = {
    "a change": (lambda: change_l1("judge"), "teacher", "judge"),
    "a deletion": (lambda: CustomerProfileL1.objects.all().delete(), "teacher", "PROFILE_NOT_FOUND"),
    "a first version": (lambda: make_l1("judge"), "PROFILE_NOT_FOUND", "judge"),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_writer_that_died_before_its_del_was_seen_by_who_read_mysql(what: str) -> None:
    write, before, after = WRITES[what]
    if before != "PROFILE_NOT_FOUND":
        make_l1("teacher")
    start = now()
    killed_before_its_del(write)
    between = now()
    assert occupation() == after  # the key is cold
    served = now()
    for _ in range(2):
        assert (occupation(start), occupation(between), occupation(served)) == (before, before, after)
        sweep()
    assert occupation() == after
    assert not ProfileVersion.objects.filter(visible_at=None).exists()


@pytest.mark.parametrize("what", ["a change", "a deletion"])
def test_who_is_given_the_cached_one_meanwhile_was_given_that(what: str) -> None:
    write, before, after = WRITES[what]
    make_l1("teacher")
    assert occupation() == "teacher"
    killed_before_its_del(write)
    assert occupation() == before  # the key is warm
    served = now()
    assert occupation(served) == before
    assert occupation() == after  # whoever asked about the past has done what the dead one did not
    sweep()
    assert occupation(served) == before


def test_a_redis_that_hangs_while_somebody_saves(own_redis_server: RedisServer, settings: Any) -> None:
    """Who reads while the save waits for Redis is given the new version by MySQL; so says every later question."""
    settings.REDIS_TIMEOUT = 0.3
    make_l1("teacher")
    assert occupation() == "teacher"
    seen: list[tuple[datetime, Any, Any]] = []
    drop = cache.drop_quietly

    def hung(changes: Any) -> bool:
        given, moment = occupation(), now()
        seen.append((moment, given, occupation(moment)))
        return drop(changes)

    own_redis_server.pause()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cache, "drop_quietly", hung)
            change_l1("judge")
        given, moment = occupation(), now()
        seen.append((moment, given, occupation(moment)))
    finally:
        own_redis_server.resume()
    sweep()
    assert [(given, asked) for _moment, given, asked in seen] == [("judge", "judge")] * 2
    assert [occupation(moment) for moment, _given, _asked in seen] == ["judge"] * 2


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("place", ["before its DEL", "after its DEL", "before its stamp"])
def test_readers_at_every_point_between_commit_and_stamp(place: str, warm: bool) -> None:
    """What is read between two instants is what was so at one of them; each question has one answer for good."""
    CustomerProfileL3.objects.create(customer_id=ALICE, payload={"schema_version": 1, "risk_score": 1})
    make_l1("teacher")
    if warm:
        read_l1()
    seen: list[tuple[Callable[..., Any], datetime, Any, datetime, Any]] = []

    def look() -> None:
        for read in (read_l1, read_l3):
            began = now()
            given = read()
            ended = now()
            seen.append((read, began, given, ended, read(ended)))

    def elsewhere() -> None:
        """A reader of another thread, with a connection of its own."""

        def run() -> None:
            look()
            connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    drop, settle = cache.drop_quietly, recording.settle_quietly

    def dropping(changes: Any) -> bool:
        if place == "before its DEL":
            elsewhere()
        done = drop(changes)
        if place == "after its DEL":
            elsewhere()
        return done

    def settling_(rows: Any, moment: Any) -> bool:
        if place == "before its stamp" and threading.current_thread() is threading.main_thread():
            elsewhere()
        return settle(rows, moment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "drop_quietly", dropping)
        patch.setattr(recording, "settle_quietly", settling_)
        CustomerProfileL3.objects.update(payload={"schema_version": 1, "risk_score": 2})
        change_l1("judge")
    look()
    sweep()
    assert len(seen) == 6
    for read, began, given, ended, asked in seen:
        assert asked == read(ended)  # the same question, later
        if isinstance(given, dict):
            assert given["version"] in (read(began)["version"], read(ended)["version"])
    assert occupation() == "judge"


def test_a_version_that_came_while_a_reader_was_about_to_settle_is_not_settled_by_it() -> None:
    make_l1("teacher")
    killed_before_its_del(lambda: change_l1("judge"))
    row = settling.with_unsettled(CustomerProfileL1.objects.all()).get()
    killed_before_its_del(lambda: change_l1("pilot"))
    assert settling.settle_served(SLOT, row)
    assert [bool(version.visible_at) for version in ProfileVersion.objects.order_by("version")] == [True, True, False]


def test_what_could_not_be_written_down_is_not_kept_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    make_l1("teacher")
    killed_before_its_del(lambda: change_l1("judge"))
    with monkeypatch.context() as patch:
        patch.setattr(recording, "settle_quietly", lambda rows, moment: False)
        assert occupation() == "judge"
        assert cache.read([SLOT])[0].part is Part.LOAD
    cache.drop([SLOT])
    assert occupation() == occupation() == "judge"
    assert cache.read([SLOT])[0].part is Part.HIT


def test_inside_a_transaction_nothing_is_settled_for_it_may_be_taken_back() -> None:
    make_l1("teacher")
    with transaction.atomic():
        change_l1("judge")
        assert occupation() == "judge"
        assert ProfileVersion.objects.filter(visible_at=None).count() == 1
        transaction.set_rollback(True)
    assert occupation() == "teacher"


def test_it_costs_nothing_where_all_is_settled() -> None:
    make_assignment()
    make_l1("teacher")
    CustomerProfileL2.objects.create(customer_id=ALICE, advisor_id=WEI)
    CustomerProfileL3.objects.create(customer_id=ALICE)
    read_l2 = lambda: selectors.read_l2(caller=make_caller("risk"), customer_id=ALICE, advisor_id=WEI)  # noqa: E731
    for read in (read_l1, read_l2, read_l3):
        with CaptureQueriesContext(connection) as queries:
            read()
        assert len(queries) == 1, queries.captured_queries
    killed_before_its_del(lambda: CustomerProfileL2.objects.update(payload={"stage": "met"}))
    cache.drop([Slot("default", "l2", ALICE, WEI)])
    with CaptureQueriesContext(connection) as queries:
        assert read_l2()["stage"] == "met"
    assert len(queries) == 3, queries.captured_queries
