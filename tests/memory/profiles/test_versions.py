"""Every write leaves an immutable version in its own transaction, numbered and dated under the row's lock."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import now
from config.base.fields import canonical_json
from config.base.trace import traced
from memory.profiles import cache, recording, selectors, services
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.models import (
    CustomerProfileL1,
    CustomerProfileL2,
    CustomerProfileL3,
    ProfileChange,
    ProfileVersion,
)
from memory.profiles.sweeping import sweep
from tests.memory.profiles.helpers import (
    ALICE,
    BOB,
    WEI,
    make_assessment,
    make_assignment,
    make_caller,
    make_core_customer,
)

pytestmark = pytest.mark.django_db(transaction=True)

TEACHER = {"schema_version": 1, "occupation": "teacher"}
JUDGE = {"schema_version": 1, "occupation": "judge"}


def write_l1(occupation: str, customer_id: str = ALICE) -> services.Written:
    return services.write_l1(
        caller=make_caller("customer", customer_id), customer_id=customer_id, payload={"occupation": occupation}
    )


def versions(customer_id: str = ALICE, layer: str = "l1") -> list[ProfileVersion]:
    return list(ProfileVersion.objects.filter(customer_id=customer_id, layer=layer).order_by("version"))


def numbers(customer_id: str = ALICE, layer: str = "l1") -> list[int]:
    return [row.version for row in versions(customer_id, layer)]


def in_thread(work: Callable[[], Any]) -> threading.Thread:
    def run() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


WAYS: dict[str, Callable[[CustomerProfileL1], Any]] = {
    "service": lambda row: write_l1("judge"),
    "save": lambda row: (setattr(row, "payload", JUDGE), row.save()),
    "save of a field": lambda row: (setattr(row, "payload", JUDGE), row.save(update_fields=["payload"])),
    "update": lambda row: CustomerProfileL1.objects.filter(pk=row.pk).update(payload=JUDGE),
    "bulk_update": lambda row: (
        setattr(row, "payload", JUDGE),
        CustomerProfileL1.objects.bulk_update([row], ["payload"]),
    ),
    "update_or_create": lambda row: CustomerProfileL1.objects.update_or_create(
        customer_id=ALICE, defaults={"payload": JUDGE}
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_write_leaves_one_version_that_holds_what_readers_are_served(
    way: str, own_redis_prefix: str
) -> None:
    write_l1("teacher")
    with traced("c" * 32):
        WAYS[way](CustomerProfileL1.objects.get())
    first, second = versions()
    row = CustomerProfileL1.objects.get()
    assert (first.version, second.version, row.version) == (1, 2, 2)
    assert (first.columns["payload"]["occupation"], second.columns["payload"]) == ("teacher", JUDGE)
    assert first.at < second.at == row.updated_at
    assert (second.trace_id, second.schema_version, second.deleted) == ("c" * 32, 1, False)
    by_service = way == "service"
    assert (second.author, second.agent) == ((ALICE, "customer") if by_service else ("", ""))
    assert row.updated_by == second.author  # a write past the services is nobody's, and not the former writer's

    CustomerProfileL1.objects.filter(pk=row.pk).update(core={"name": "王"})  # of another column nothing is lost
    cache.drop([cache.Slot("default", "l1", ALICE)])
    selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)
    held = base_redis.state().get(f"{own_redis_prefix}:profile:l1:{ALICE}")
    assert held is not None
    assert versions()[2].document_hash == hashlib.sha256(held.encode()).hexdigest()
    assert versions()[2].columns["payload"] == JUDGE


def test_all_layers_all_columns_and_each_ones_author(own_redis_prefix: str) -> None:
    make_assignment()
    make_core_customer()
    make_assessment()
    sync_l1_from_core(tenant="default", customer_id=ALICE)
    services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload={"stage": "lead"})
    CustomerProfileL2.objects.update(asset_snapshot={"total": "1.00"}, snapshot_at=now(), core_as_of=now())
    services.write_l3(
        caller=make_caller("risk"),
        customer_id=ALICE,
        payload={"risk_score": 7, "aml_rating": "B2", "flags": [{"code": "x", "visibility": "risk"}]},
    )
    assert [(row.author, row.agent) for row in versions()] == [("core-sync", "core-sync")]
    assert versions()[0].columns["core"]["name"] == "王小明"
    assert [(row.advisor_id, row.author, row.agent) for row in versions(layer="l2")] == [
        (WEI, WEI, "advisor"),
        (WEI, "", ""),
    ]
    assert versions(layer="l2")[1].columns["asset_snapshot"] == {"total": "1.00"}
    [l3] = versions(layer="l3")
    assert (l3.author, l3.agent) == ("officer-1", "risk")
    assert l3.columns["internal"] == {"aml_rating": "B2"}
    selectors.read_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI)
    selectors.read_l3(caller=make_caller("advisor"), customer_id=ALICE)
    client = base_redis.state()
    for version, name in ((versions(layer="l2")[1], f"profile:l2:{ALICE}:{WEI}"), (l3, f"profile:l3:{ALICE}")):
        held = client.get(f"{own_redis_prefix}:{name}")
        assert held is not None
        # Of l3, in its first version: its parts, and the list that is there whether risk wrote one or not.
        parts = {"customer_version", "customer_as_of", "restrictions"} if version is l3 else set()
        held = canonical_json(_less(json.loads(held), *parts))
        assert version.document_hash == hashlib.sha256(held.encode()).hexdigest()


def test_a_save_in_part_keeps_what_the_row_has_and_not_what_the_instance_had() -> None:
    write_l1("teacher")
    row = CustomerProfileL1.objects.get()
    row.core = {"name": "never saved"}
    row.payload = JUDGE
    row.save(update_fields=["payload"])
    assert versions()[1].columns["core"] == {}
    part = CustomerProfileL1.objects.only("core").get()
    part.core = {"name": "王"}
    part.save()
    assert versions()[2].columns["payload"] == JUDGE
    assert versions()[2].columns["core"] == {"name": "王"}


def test_versions_do_not_change_and_do_not_go() -> None:
    write_l1("teacher")
    [version] = versions()
    for forbidden in (
        version.save,
        version.delete,
        ProfileVersion.objects.all().delete,
        lambda: ProfileVersion.objects.update(author="someone"),
        lambda: ProfileVersion.objects.bulk_update([version], ["author"]),
    ):
        with pytest.raises(TypeError, match="versions of profiles"):
            forbidden()
    assert ProfileVersion.objects.filter(pk=version.pk).settle(now()) == 0  # told once


@pytest.mark.parametrize("how", ["instance", "queryset"])
def test_numbers_go_on_after_a_deletion_and_a_new_beginning(how: str) -> None:
    write_l1("teacher")
    write_l1("judge")
    row = CustomerProfileL1.objects.get()
    row.delete() if how == "instance" else CustomerProfileL1.objects.all().delete()
    assert [(row.version, row.deleted) for row in versions()] == [(1, False), (2, False), (3, True)]
    assert versions()[2].document_hash == ""
    assert write_l1("pilot").version == 4
    CustomerProfileL1.objects.all().delete()
    CustomerProfileL1.objects.bulk_create([CustomerProfileL1(customer_id=ALICE), CustomerProfileL1(customer_id=BOB)])
    assert (numbers(), numbers(BOB)) == ([1, 2, 3, 4, 5, 6], [1])
    assert CustomerProfileL1.objects.get(customer_id=ALICE).version == 6
    ats = [row.at for row in versions()]
    assert ats == sorted(set(ats))


def test_a_deletion_that_another_did_already_is_no_version() -> None:
    write_l1("teacher")
    mine, theirs = CustomerProfileL1.objects.get(), CustomerProfileL1.objects.get()
    theirs.delete()
    mine.delete()
    assert numbers() == [1, 2]
    # A stale instance that is saved makes the profile anew, and goes on counting.
    again = CustomerProfileL1(pk=mine.pk, customer_id=ALICE, payload=JUDGE)
    again._state.adding = False
    again.save()
    assert numbers() == [1, 2, 3]
    assert CustomerProfileL1.objects.get().version == 3


def test_an_instance_that_read_an_older_version_still_makes_the_next_one() -> None:
    write_l1("teacher")
    stale = CustomerProfileL1.objects.get()
    write_l1("judge")
    write_l1("pilot")
    stale.save()
    assert numbers() == [1, 2, 3, 4]
    assert CustomerProfileL1.objects.get().version == 4


def test_a_clock_that_went_back_leaves_instants_growing(monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_l1("teacher").updated_at
    earlier = written - timedelta(hours=1)
    monkeypatch.setattr(recording, "now", lambda: earlier)
    write_l1("judge")
    CustomerProfileL1.objects.update(payload=TEACHER)
    CustomerProfileL1.objects.all().delete()
    write_l1("pilot")
    tick = timedelta(microseconds=1)
    ats = [row.at for row in versions()]
    assert ats[:4] == [written + n * tick for n in range(4)]
    assert ats[4] > ats[3]


def test_bulk_writes_are_one_statement_of_versions_a_batch_and_each_row_has_its_own() -> None:
    rows = [CustomerProfileL1(customer_id=f"cust-{n:03}") for n in range(60)]
    with CaptureQueriesContext(connection) as queries:
        CustomerProfileL1.objects.bulk_create(rows)
    assert sum("INSERT INTO" in q["sql"] and "profile_version" in q["sql"] for q in queries) == 1
    assert ProfileVersion.objects.count() == 60
    with CaptureQueriesContext(connection) as queries:
        assert CustomerProfileL1.objects.filter(customer_id__lt="cust-040").update(payload=JUDGE) == 40
    assert sum("INSERT INTO" in q["sql"] and "profile_version" in q["sql"] for q in queries) == 1
    assert len(queries) < 14
    assert ProfileVersion.objects.filter(version=2).count() == 40
    with CaptureQueriesContext(connection) as queries:
        CustomerProfileL1.objects.all().delete()
    assert sum("INSERT INTO" in q["sql"] and "profile_version" in q["sql"] for q in queries) == 1
    assert ProfileVersion.objects.filter(deleted=True).count() == 60
    assert not ProfileVersion.objects.filter(visible_at=None).exists()


@pytest.mark.parametrize("wrong", [{"version": 9}, {"customer_id": BOB}])
def test_an_update_neither_numbers_nor_moves(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"version|move"):
        CustomerProfileL1.objects.update(**wrong)


@pytest.mark.parametrize("how", ["rollback", "savepoint", "nested"])
def test_what_is_rolled_back_leaves_no_version_and_no_number_is_lost(how: str) -> None:
    write_l1("teacher")
    read = lambda: selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)  # noqa: E731
    read()
    with transaction.atomic():
        if how != "rollback":
            CustomerProfileL3.objects.create(customer_id=ALICE)
        try:
            with transaction.atomic():
                write_l1("judge")
                CustomerProfileL1.objects.update(payload=JUDGE)
                if how == "nested":
                    with transaction.atomic():
                        CustomerProfileL1.objects.get().delete()
                raise LookupError
        except LookupError:
            pass
    assert numbers() == [1]
    assert read()["occupation"] == "teacher"
    assert numbers(layer="l3") == ([] if how == "rollback" else [1])
    assert write_l1("pilot").version == 2
    assert read()["occupation"] == "pilot"


def test_without_its_version_a_write_does_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    write_l1("teacher")
    monkeypatch.setattr(recording, "hash_of", lambda document: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_l1("judge")
    assert CustomerProfileL1.objects.get().payload["occupation"] == "teacher"


def test_two_stale_instances_saved_at_once_are_two_versions() -> None:
    write_l1("teacher")
    barrier = threading.Barrier(4)

    def save() -> None:
        row = CustomerProfileL1.objects.get()
        barrier.wait()
        row.save()

    threads = [in_thread(save) for _ in range(4)]
    for thread in threads:
        thread.join()
    assert numbers() == [1, 2, 3, 4, 5]


def test_who_creates_while_another_deletes_goes_on_from_the_deletion() -> None:
    """Forced: the creator begins before the deleter has committed, and meets the number after the deletion's."""
    write_l1("teacher")
    if connection.vendor != "mysql":
        pytest.skip("SQLite has one writer at a time")
    begun = threading.Event()

    def create() -> None:
        begun.set()
        write_l1("pilot")

    with transaction.atomic():
        CustomerProfileL1.objects.get().delete()
        creator = in_thread(create)
        begun.wait(5)
        creator.join(0.3)  # it waits for the deleter, or is about to
    creator.join(10)
    assert numbers() == [1, 2, 3]
    assert CustomerProfileL1.objects.get().version == 3


def test_a_row_that_was_held_in_another_transaction_is_read_again() -> None:
    write_l1("teacher")
    with transaction.atomic():
        row, _created = services.locked(CustomerProfileL1, "default", {"customer_id": ALICE})
    write_l1("judge")
    row.save()
    assert numbers() == [1, 2, 3]


def test_a_fixture_invalidates_and_brings_its_versions_along() -> None:
    from django.core import serializers

    write_l1("teacher")
    told = serializers.serialize("json", [*CustomerProfileL1.objects.all(), *ProfileVersion.objects.all()])
    write_l1("judge")
    assert selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)["occupation"] == "judge"
    ProfileVersion.objects.all().erase()
    for thing in serializers.deserialize("json", told):
        thing.save()
    assert selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)["occupation"] == "teacher"
    assert numbers() == [1]


def test_a_database_that_does_not_tell_the_keys_of_many_rows_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(connection.features), "can_return_rows_from_bulk_insert", False)
    CustomerProfileL1.objects.bulk_create([CustomerProfileL1(customer_id=f"cust-{n}") for n in range(3)])
    assert ProfileVersion.objects.exclude(visible_at=None).count() == 3
    rows = set(ProfileVersion.objects.values_list("pk", flat=True))
    assert set(ProfileChange.objects.values_list("version_row", flat=True)) == rows


def test_a_number_cannot_be_given_twice() -> None:
    write_l1("teacher")
    [version] = versions()
    version.pk = None
    version._state.adding = True
    with pytest.raises(IntegrityError):
        version.save()


def test_a_version_whose_writer_died_is_settled_by_the_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)
        patch.setattr(recording, "settle_quietly", lambda rows, moment: None)  # killed here
        write_l1("teacher")
    assert versions()[0].visible_at is None
    before = now()
    sweep()
    settled = versions()[0].visible_at
    assert settled is not None
    assert settled >= before
    sweep()
    assert versions()[0].visible_at == settled
    assert ProfileChange.objects.exclude(version_row=None).exists()


def test_the_profiles_that_were_there_before_versions_get_their_first_one(own_redis_prefix: str) -> None:
    from importlib import import_module

    from django.apps import apps

    make_assignment()
    write_l1("teacher")
    write_l1("judge")
    services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload={"stage": "lead"})
    CustomerProfileL3.objects.create(
        customer_id=ALICE,
        payload={"schema_version": 1, "flags": [{"code": "x", "visibility": "risk"}], "risk_score": 1},
        internal={"aml_rating": "B"},
    )
    # That migration came before the versions of parts: a row without them has its own.
    kept = [(row.layer, row.version, _less(row.columns, "shown"), row.document_hash) for row in _newest()]
    ProfileVersion.objects.all().erase()
    first = import_module("memory.migrations.0007_first_versions")
    for _ in range(2):  # interrupted, and run again
        first.first_versions(apps, type("Editor", (), {"connection": connection}))
    made = [(row.layer, row.version, _less(row.columns, "shown"), row.document_hash) for row in _newest()]
    assert json.loads(json.dumps(made)) == json.loads(json.dumps(kept))
    assert ProfileVersion.objects.count() == 3
    assert all(row.visible_at == row.at for row in _newest())


def _less(columns: dict[str, Any], *names: str) -> dict[str, Any]:
    return {column: value for column, value in columns.items() if column not in names}


def _newest() -> list[ProfileVersion]:
    return [versions(layer=layer)[-1] for layer in ("l1", "l2", "l3")]
