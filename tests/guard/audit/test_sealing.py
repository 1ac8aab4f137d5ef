"""The sealer: in order, nothing twice, nothing left out, whoever comes late and however many seal."""

from __future__ import annotations

import itertools
import random
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from guard.audit import chain, links, sealing, sealkeys
from guard.audit.models import AuditLog, AuditSeal
from guard.audit.ranges import each, holds, missing_between, ranges_of, without
from guard.audit.sealing import backlog, forget_chain, seal_waiting
from guard.audit.tasks import seal as seal_task
from tests.guard.audit.sealing import (
    database_away,
    first,
    make_apart,
    make_row,
    make_rows,
    make_sealed,
    seal,
    seals,
    tamper,
    verify,
)

pytestmark = pytest.mark.django_db(transaction=True)


def members() -> list[int]:
    return [one for found in AuditSeal.objects.order_by("number") for one in each(found.members)]


class Clock:
    """Time as the sealer sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        monkeypatch.setattr(chain, "elapsed", lambda: time.monotonic() + self.ahead.total_seconds())

    def go(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


# --- order ---------------------------------------------------------------------------------------------------------


def test_seals_are_a_chain_in_order_and_a_quiet_second_makes_none() -> None:
    ids = make_sealed(3, 1)
    assert seal().seals == 0
    origin, one, two = AuditSeal.objects.order_by("number")
    assert (origin.number, origin.previous_mac, origin.count, origin.adopted) == (0, "", 0, 0)
    assert (one.number, two.number, one.previous_mac, two.previous_mac) == (1, 2, origin.mac, one.mac)
    assert (one.members, two.members) == ([[ids[0], ids[2]]], [[ids[3], ids[3]]])
    assert (two.from_id, two.head_id, two.count, two.total) == (one.head_id, ids[3], 1, 4)


def test_a_quiet_second_costs_two_queries_and_a_busy_one_few_more() -> None:
    make_sealed(1)
    with CaptureQueriesContext(connection) as queries:
        seal()
    assert len(queries) <= 3  # head, late rows (the ids before the first row are open), new rows
    make_rows(50)
    with CaptureQueriesContext(connection) as queries:
        seal()
    assert len([query for query in queries if "audit" in query["sql"].lower()]) <= 6


def test_after_an_outage_it_catches_up_in_batches_within_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "PAGE", 10)
    make_rows(35)
    assert backlog().rows == 35
    tick = seal_waiting(seconds=0)
    assert (tick.seals, tick.rows, tick.behind) == (1, 10, True)
    assert (backlog().rows, backlog().sealed) == (25, 10)
    assert seal().rows == 25
    assert backlog().rows == 0
    assert verify()["exit"] == 3


def test_the_task_seals_and_record_itself_is_one_insert() -> None:
    make_row()
    with CaptureQueriesContext(connection) as queries:
        make_row()
    assert [query["sql"].split()[0] for query in queries if "audit" in query["sql"].lower()] == ["INSERT"]
    assert seal_task() == 2


def test_rows_of_a_transaction_of_ones_own_are_never_sealed() -> None:
    """Django refuses: they might be rolled back."""
    with transaction.atomic():
        make_row()
        with pytest.raises(RuntimeError, match="durable"):
            seal()


def test_with_the_database_away_a_tick_fails_and_the_next_goes_on() -> None:
    make_sealed(1)
    make_rows(2)
    with database_away(), pytest.raises(OperationalError):
        seal_task()
    assert seal_task() == 2
    assert verify()["exit"] == 3


# --- late commits ---------------------------------------------------------------------------------------------------


def insert_late(row_id: int, **fields: Any) -> None:
    """A row with an id from before, as a transaction that began earlier commits it."""
    row = make_row(**fields)
    links.forget()  # who wrote it has written nothing since
    values = AuditLog.objects.filter(pk=row.pk).values().get()
    tamper(f"DELETE FROM audit_log WHERE id = {row.pk}")
    AuditLog.objects.bulk_create([AuditLog(**{**values, "id": row_id})])


def test_a_late_row_enters_a_later_seal_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    ids = make_apart(3)
    tamper(f"DELETE FROM audit_log WHERE id = {ids[1]}")  # not there yet
    seal()
    first = AuditSeal.objects.get(number=1)
    assert holds(first.opened, ids[1])
    assert verify()["exit"] == 3, "a missing id is no fault while it may come"
    insert_late(ids[1], code="LATE")
    told = verify()
    assert (told["exit"], told["unsealed"] > 0) == (3, True)
    clock.go(1.1)
    seal()
    assert ids[1] in members()
    assert len(members()) == len(set(members()))
    assert verify()["exit"] == 3
    tamper(f"UPDATE audit_log SET code = 'X' WHERE id = {ids[1]}")
    assert verify()["first_row"] == ids[1]


def test_missing_ids_are_looked_at_less_often_the_older_they_are_and_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    clock = Clock(monkeypatch)
    ids = make_apart(2)
    tamper(f"DELETE FROM audit_log WHERE id = {ids[0]}")
    seal()
    looked: list[float] = []
    monkeypatch.setattr(sealing, "rows_in", lambda ranges, *, limit: looked.append(clock.ahead.total_seconds()) or [])
    for _ in range(settings.AUDIT_GAP_SECONDS + 60):
        clock.go(1)
        seal()
    assert 130 <= len(looked) <= 200, "often while young, each half minute when old"
    assert max(after - before for before, after in itertools.pairwise(looked)) <= 32
    last = AuditSeal.objects.latest("number")
    assert holds(last.closed, ids[0])
    assert (last.count, last.oldest_open) == (0, 0)
    assert looked[-1] <= settings.AUDIT_GAP_SECONDS + 31, "and then no more"
    assert seals().count() == 2


def test_a_row_in_a_place_that_was_given_up_is_never_sealed_and_is_tampering(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    ids = make_rows(2)
    tamper(f"DELETE FROM audit_log WHERE id = {ids[0]}")
    seal()
    clock.go(4000)
    seal()
    insert_late(ids[0])
    clock.go(4000)
    seal()
    assert ids[0] not in members()
    told = verify()
    assert (told["exit"], told["first_row"]) == (1, ids[0])


def test_another_process_goes_on_where_the_first_stopped_with_what_is_still_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    ids = make_apart(6)
    late = [ids[1], ids[3]]
    tamper(f"DELETE FROM audit_log WHERE id IN ({late[0]}, {late[1]})")
    seal()
    make_sealed(1, 1, 1)
    insert_late(late[0])
    forget_chain()  # a new process
    clock.go(2)
    seal()
    assert late[0] in members()
    insert_late(late[1])
    forget_chain()
    clock.go(2)
    seal()
    assert late[1] in members()
    assert len(members()) == len(set(members()))
    assert verify()["exit"] == 3


@pytest.mark.mariadb
def test_a_transaction_that_commits_after_the_seal_went_by() -> None:
    inserted, sealed = threading.Event(), threading.Event()
    late: list[int] = []

    def slow() -> None:
        try:
            with transaction.atomic():
                late.append(make_row(code="SLOW").pk)
                inserted.set()
                sealed.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=slow)
    thread.start()
    inserted.wait(30)
    after = make_row().pk
    assert late[0] < after
    seal()
    assert members() == [after]
    sealed.set()
    thread.join()
    forget_chain()
    seal()
    assert members() == [after, late[0]]
    assert verify()["exit"] == 3


# --- several at once ------------------------------------------------------------------------------------------------


def test_two_sealers_at_once_make_one_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has read the same rows and comes too late with its seal: it has made nothing."""
    make_rows(3)
    real = sealing.rows_after

    def meanwhile(after_id: int, *, limit: int) -> Any:
        rows = real(after_id, limit=limit)
        monkeypatch.setattr(sealing, "rows_after", real)
        ours, sealing._known = sealing._known, None
        sealing._seal_one()  # the other process
        sealing._known = ours
        return rows

    monkeypatch.setattr(sealing, "rows_after", meanwhile)
    assert seal_waiting(seconds=0).lost is True
    assert seals().count() == 1
    make_rows(1)
    assert seal().seals == 1
    assert verify()["exit"] == 3


@pytest.mark.mariadb
def test_writers_that_roll_back_and_come_late_beside_sealers_that_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each committed row is in exactly one seal, whatever commits when."""
    written: list[int] = []
    writing, done = threading.Lock(), threading.Event()
    errors: list[BaseException] = []

    def writer(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(25):
                mine: list[int] = []
                with transaction.atomic():
                    mine = [make_row(actor_id=f"w{seed}").pk for _ in range(chance.randint(1, 3))]
                    if chance.random() < 0.3:
                        transaction.set_rollback(True)
                        mine = []
                with writing:
                    written.extend(mine)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    def sealer() -> None:
        # Each as a process of its own: nothing is known of what the others have made.
        try:
            while not done.is_set():
                with sealing._known_lock:
                    sealing._known = None
                    sealing._seal_one()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    writers = [threading.Thread(target=writer, args=(seed,)) for seed in range(12)]
    sealers = [threading.Thread(target=sealer) for _ in range(2)]
    for thread in writers + sealers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in sealers:
        thread.join()
    assert not errors
    clock = Clock(monkeypatch)
    clock.go(60)
    forget_chain()
    seal()
    assert sorted(members()) == sorted(written)
    assert sorted(written) == list(AuditLog.objects.order_by("pk").values_list("pk", flat=True))
    assert verify()["exit"] == 3


@pytest.mark.mariadb
def test_verifying_beside_writers_and_a_sealer_finds_nothing(tmp_path: Any, settings: Any) -> None:
    """What is written, sealed and anchored while it reads is none of its business."""
    settings.AUDIT_ANCHOR_FILE, settings.AUDIT_ANCHOR_SECONDS = str(tmp_path / "anchors"), 0
    done, errors = threading.Event(), []

    def writer(seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not done.is_set():
                with transaction.atomic():
                    make_rows(chance.randint(1, 3))
                    if chance.random() < 0.3:
                        transaction.set_rollback(True)
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    def sealer() -> None:
        try:
            while not done.is_set():
                seal_task()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    make_sealed(1)
    seal_task()
    threads = [threading.Thread(target=writer, args=(seed,)) for seed in range(3)] + [threading.Thread(target=sealer)]
    for thread in threads:
        thread.start()
    try:
        told = [verify() for _ in range(8)]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert [(one["exit"], one["findings"]) for one in told] == [(0, [])] * 8
    assert told[-1]["seals"] > told[0]["seals"]


def test_a_head_that_was_tampered_with_or_whose_key_is_gone_stops_no_sealing(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    make_sealed(1, 1)
    tamper("UPDATE audit_seal SET mac = 'x' WHERE number = 2")
    assert make_sealed(1)
    assert seals().count() == 3
    assert "seal 2 is not there any more" in caplog.text
    assert first(verify()) == (None, 2)
    settings.SECRET_KEY = "another"
    forget_chain()
    assert make_sealed(1)
    assert "cannot be checked" in caplog.text
    assert seals().count() == 4


# --- keys -----------------------------------------------------------------------------------------------------------


def test_keys_rotate_and_old_seals_still_verify(settings: Any) -> None:
    make_sealed(2)
    derived = next(iter(sealkeys.ring()))
    settings.AUDIT_SEAL_KEYS = [("2027", b"n" * 32)]
    make_sealed(2)
    settings.AUDIT_SEAL_KEYS = [("2028", b"m" * 32), ("2027", b"n" * 32)]
    make_sealed(2)
    assert list(seals().order_by("number").values_list("key_id", flat=True)) == [derived, "2027", "2028"]
    assert verify()["exit"] == 3
    settings.AUDIT_SEAL_KEYS = [("2028", b"m" * 32)]
    told = verify()
    assert (told["exit"], told["unknown_keys"]) == (2, ["2027"]), "without its key nobody can tell"
    settings.AUDIT_SEAL_KEYS = [("2028", b"m" * 32), ("2027", b"x" * 32)]
    assert verify()["exit"] == 1


def test_a_new_secret_key_needs_the_old_one_among_the_fallbacks(settings: Any) -> None:
    make_sealed(2)
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    assert verify()["exit"] == 2
    settings.SECRET_KEY_FALLBACKS = [old]
    make_sealed(1)
    assert verify()["exit"] == 3


@pytest.mark.parametrize(
    "value", ["k1", "k1:", "k1:zz", "k1:00ff", ":" + "0" * 64, "a b:" + "0" * 64, "k:" + "0" * 64 + ",k:" + "1" * 64]
)
def test_a_wrong_key_stops_the_start_and_is_not_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.exceptions import ImproperlyConfigured

    from config.base.env import envkeys

    monkeypatch.setenv("AUDIT_SEAL_KEYS", value)
    with pytest.raises(ImproperlyConfigured) as refused:
        envkeys("AUDIT_SEAL_KEYS")
    assert "0000" not in str(refused.value)


# --- what is older than the seals ---------------------------------------------------------------------------------


def test_seals_accept_insert_only() -> None:
    make_sealed(1)
    found = seals().get()
    found.total = 9
    for work in (found.save, found.delete, lambda: AuditSeal.objects.update(total=9)):
        with pytest.raises(DatabaseError, match="INSERT only"), transaction.atomic():
            work()


# --- ranges ---------------------------------------------------------------------------------------------------------


def test_ranges() -> None:
    assert ranges_of([1, 2, 3, 7, 9, 10]) == [[1, 3], [7, 7], [9, 10]]
    assert missing_between(0, [1, 2, 5, 9]) == [[3, 4], [6, 8]]
    chance = random.Random(7)
    for _ in range(300):
        one = {chance.randint(1, 40) for _ in range(chance.randint(0, 30))}
        other = {chance.randint(1, 40) for _ in range(chance.randint(0, 30))}
        left = without(ranges_of(sorted(one)), ranges_of(sorted(other)))
        assert list(each(left)) == sorted(one - other)
        assert {number for number in range(45) if holds(left, number)} == one - other
