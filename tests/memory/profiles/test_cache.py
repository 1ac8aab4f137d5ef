"""The caches: what a hit and a miss cost, what a save does to them, and who may not fill them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from config.base import redis as base_redis
from config.base.clock import now
from config.base.keys import match
from memory.profiles import cache, selectors, services
from memory.profiles.models import (
    CustomerProfileL1,
    CustomerProfileL2,
    CustomerProfileL3,
    ProfileChange,
    ProfileVersion,
)
from memory.profiles.sweeping import sweep
from tests.counting import counted_round_trips
from tests.memory.profiles.helpers import (
    ALICE,
    BOB,
    WEI,
    make_agent,
    make_assignment,
    make_caller,
)

pytestmark = pytest.mark.django_db(transaction=True)


def raw(name: str, prefix: str) -> Any:
    value = base_redis.state().get(f"{prefix}:{name}")
    return json.loads(value) if value else None


def write_l1(**fields: Any) -> services.Written:
    return services.write_l1(caller=make_caller("customer"), customer_id=ALICE, payload=fields)


def read_l1() -> dict[str, Any]:
    return selectors.read_l1(caller=make_caller("customer"), customer_id=ALICE)


def test_a_miss_fills_exactly_the_named_key_and_a_hit_costs_one_round_trip_and_no_sql(own_redis_prefix: str) -> None:
    write_l1(occupation="teacher")
    read_l1()  # the server knows the scripts from here on
    CustomerProfileL1.objects.update(core_synced_at=now())
    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        assert read_l1()["occupation"] == "teacher"
    assert (len(sent), len(queries)) == (2, 1)

    cached = raw(f"profile:l1:{ALICE}", own_redis_prefix)
    assert cached["customer_id"] == ALICE
    assert cached["occupation"] == "teacher"
    assert 590 <= base_redis.state().ttl(f"{own_redis_prefix}:profile:l1:{ALICE}") <= 600

    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        assert read_l1()["occupation"] == "teacher"
    assert (len(sent), len(queries)) == (1, 0)


def test_l2_and_l3_have_the_keys_and_lifetimes_of_the_contract(own_redis_prefix: str) -> None:
    make_assignment()
    services.write_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI, payload={"stage": "lead"})
    services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload={"risk_score": 40})
    selectors.read_l2(caller=make_caller("advisor"), customer_id=ALICE, advisor_id=WEI)
    selectors.read_l3(caller=make_caller("advisor"), customer_id=ALICE)
    client = base_redis.state()
    assert 590 <= client.ttl(f"{own_redis_prefix}:profile:l2:{ALICE}:{WEI}") <= 600
    assert 290 <= client.ttl(f"{own_redis_prefix}:profile:l3:{ALICE}") <= 300
    for name in client.scan_iter(f"{own_redis_prefix}:*"):
        kind = match(name.removeprefix(f"{own_redis_prefix}:"))
        assert kind is not None, name
        assert 0 < client.ttl(name) <= (kind.ttl or 0)


def test_a_customers_read_of_l3_is_one_round_trip_although_it_needs_two_layers() -> None:
    write_l1(occupation="teacher")
    CustomerProfileL1.objects.update(core_synced_at=now())
    services.write_l3(caller=make_caller("risk"), customer_id=ALICE, payload={"risk_score": 40})
    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)
    assert (len(sent), len(queries)) == (2, 2)
    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        selectors.read_l3(caller=make_caller("customer"), customer_id=ALICE)
    assert (len(sent), len(queries)) == (1, 0)


def test_a_write_costs_five_queries_one_round_trip_and_one_query_after_the_commit() -> None:
    write_l1(occupation="teacher")
    with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
        write_l1(occupation="judge")
    statements = [q["sql"].split()[0] for q in queries if q["sql"].split()[0] in {"SELECT", "UPDATE", "INSERT"}]
    # the row, it and its version, the outbox row, the audit row; then: from when readers are given the version
    assert statements == ["SELECT", "UPDATE", "INSERT", "INSERT", "INSERT", "UPDATE"]
    assert sent == ["EVALSHA"]  # drop.lua


def test_a_save_is_seen_by_the_next_read() -> None:
    write_l1(occupation="teacher")
    assert read_l1()["occupation"] == "teacher"
    write_l1(occupation="judge")
    assert read_l1()["occupation"] == "judge"


def test_a_slow_reader_cannot_put_back_what_a_writer_has_replaced() -> None:
    write_l1(occupation="teacher")
    slot = cache.Slot("default", "l1", ALICE)
    [miss] = cache.read([slot])  # the slow reader misses and reads MySQL ...
    old = {"customer_id": ALICE, "version": 1, "occupation": "teacher", "updated_at": ""}
    write_l1(occupation="judge")  # ... a writer replaces it ...
    assert cache.fill([(slot, miss.generation, old)]) == 0  # ... and the reader comes too late
    assert read_l1()["occupation"] == "judge"

    # also when another reader has opened a new generation meanwhile
    [second] = cache.read([cache.Slot("default", "l1", BOB)])
    cache.drop([cache.Slot("default", "l1", BOB)])
    [third] = cache.read([cache.Slot("default", "l1", BOB)])
    assert third.generation != second.generation
    assert cache.fill([(cache.Slot("default", "l1", BOB), second.generation, {**old, "customer_id": BOB})]) == 0


def test_readers_of_one_generation_may_all_fill() -> None:
    slot = cache.Slot("default", "l1", ALICE)
    [first], [second] = cache.read([slot]), cache.read([slot])
    assert first.generation == second.generation != ""
    assert cache.fill([(slot, first.generation, {"customer_id": ALICE})]) == 1


def test_a_rolled_back_write_changes_neither_cache_nor_outbox() -> None:
    write_l1(occupation="teacher")
    read_l1()
    ProfileChange.objects.all().delete()
    with transaction.atomic():
        write_l1(occupation="judge")
        assert read_l1()["occupation"] == "judge"  # its own uncommitted write, and not into the cache
        transaction.set_rollback(True)
    assert read_l1()["occupation"] == "teacher"
    assert not ProfileChange.objects.exists()


@pytest.mark.parametrize("how", ["save", "update", "bulk_update", "delete", "queryset_delete", "bulk_create"])
def test_whatever_the_orm_does_to_a_row_the_cache_hears_of_it(how: str, own_redis_prefix: str) -> None:
    write_l1(occupation="teacher")
    read_l1()
    name = f"profile:l1:{ALICE}"
    assert raw(name, own_redis_prefix)
    row = CustomerProfileL1.objects.get()
    row.payload = {"schema_version": 1, "occupation": "judge"}
    if how == "save":
        row.save()
    elif how == "update":
        CustomerProfileL1.objects.filter(customer_id=ALICE).update(payload=row.payload)
    elif how == "bulk_update":
        CustomerProfileL1.objects.bulk_update([row], ["payload"])
    elif how == "delete":
        row.delete()
    elif how == "queryset_delete":
        CustomerProfileL1.objects.filter(customer_id=ALICE).delete()
    else:
        base_redis.state().set(f"{own_redis_prefix}:profile:l1:{BOB}", "{}", ex=60)
        CustomerProfileL1.objects.bulk_create([CustomerProfileL1(customer_id=BOB)])
        name = f"profile:l1:{BOB}"
        with pytest.raises(ValueError, match="upsert"):
            CustomerProfileL1.objects.bulk_create([row], update_conflicts=True, update_fields=["payload"])
    assert raw(name, own_redis_prefix) is None
    if how in {"save", "update", "bulk_update"}:
        assert read_l1()["occupation"] == "judge"
        assert CustomerProfileL1.objects.get().version == 2


def test_a_row_that_was_refreshed_or_read_in_part_still_gets_a_new_version() -> None:
    write_l1(occupation="teacher")
    row = CustomerProfileL1.objects.get()
    write_l1(occupation="judge")
    row.refresh_from_db()
    row.save()
    assert CustomerProfileL1.objects.get().version == 3
    part = CustomerProfileL1.objects.only("payload").get()
    part.payload = {}
    part.save()
    assert CustomerProfileL1.objects.get().version == 4


def test_a_profile_cannot_be_moved_to_another_customer() -> None:
    with pytest.raises(ValueError, match="does not move"):
        CustomerProfileL3.objects.update(customer_id=BOB)
    for key in ("id", "pk"):
        with pytest.raises(ValueError, match="does not move"):
            CustomerProfileL3.objects.update(**{key: 5})


@pytest.mark.parametrize("model", [CustomerProfileL1, CustomerProfileL2, CustomerProfileL3])
def test_the_base_manager_makes_versions_too(model: Any) -> None:
    row = model.objects.create(customer_id=ALICE, **({"advisor_id": WEI} if model is CustomerProfileL2 else {}))
    model._base_manager.filter(pk=row.pk).update(payload={"schema_version": 1})
    assert list(ProfileVersion.objects.values_list("version", flat=True)) == [1, 2]
    with pytest.raises(ValueError, match="does not move"):
        model._base_manager.update(id=row.pk + 1)
    with pytest.raises(TypeError):
        ProfileVersion._base_manager.update(columns={})


def test_a_rolled_back_update_by_queryset_leaves_no_outbox_row() -> None:
    write_l1(occupation="teacher")
    ProfileChange.objects.all().delete()
    with transaction.atomic():
        CustomerProfileL1.objects.update(payload={})
        assert ProfileChange.objects.count() == 1
        transaction.set_rollback(True)
    assert not ProfileChange.objects.exists()


def test_what_a_process_left_that_died_between_commit_and_del_is_swept(
    own_redis_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_l1(occupation="teacher")
    read_l1()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "drop_quietly", lambda changes: False)  # killed here
        write_l1(occupation="judge")
    assert read_l1()["occupation"] == "teacher"  # stale until the sweeper's second
    sweep()
    assert read_l1()["occupation"] == "judge"
    # Swept once more 2 s later, then the row is gone.
    assert ProfileChange.objects.exclude(swept_at=None).exists()
    ProfileChange.objects.update(swept_at="2026-01-01T00:00:00Z")
    assert sweep() == 2
    assert not ProfileChange.objects.exists()


def test_rubbish_under_our_key_is_replaced_by_what_mysql_has(own_redis_prefix: str) -> None:
    write_l1(occupation="teacher")
    client = base_redis.state()
    for rubbish in ("not json", "[]", '{"customer_id": "someone-else"}'):
        client.set(f"{own_redis_prefix}:profile:l1:{ALICE}", rubbish, ex=60)
        assert read_l1()["occupation"] == "teacher"
        assert read_l1()["occupation"] == "teacher"
    client.delete(f"{own_redis_prefix}:profile:l1:{ALICE}")
    client.rpush(f"{own_redis_prefix}:profile:l1:{ALICE}", "a list")
    assert read_l1()["occupation"] == "teacher"
    assert raw(f"profile:l1:{ALICE}", own_redis_prefix) is None
    assert read_l1()["occupation"] == "teacher"
    assert raw(f"profile:l1:{ALICE}", own_redis_prefix)["occupation"] == "teacher"


def test_with_redis_down_reads_and_writes_go_on_and_the_sweeper_catches_up(own_redis_server: Any) -> None:
    write_l1(occupation="teacher")
    read_l1()  # cached, and on the server's disk
    own_redis_server.stop()
    assert read_l1()["occupation"] == "teacher"
    write_l1(occupation="judge")
    assert read_l1()["occupation"] == "judge"
    assert sweep() == 0
    assert ProfileChange.objects.count() >= 1  # the invalidation waits
    own_redis_server.start()
    sweep()
    assert read_l1()["occupation"] == "judge"


def test_a_hanging_redis_costs_one_time_out_and_not_one_for_each_read(own_redis_server: Any) -> None:
    """And a short one: what is read from a cache waits no longer than guard's controls do."""
    import time

    write_l1(occupation="teacher")
    read_l1()
    own_redis_server.pause()
    try:
        lasted = []
        for _ in range(20):
            started = time.monotonic()
            assert read_l1()["occupation"] == "teacher"
            lasted.append(time.monotonic() - started)
    finally:
        own_redis_server.resume()
    assert cache.PATIENCE <= lasted[0] < cache.PATIENCE + 0.2  # a query, on a busy machine
    assert sorted(lasted)[-2] < cache.PATIENCE


def test_a_first_read_of_a_process_waits_no_longer(own_redis_server: Any) -> None:
    """With no connection there yet: to connect, and for the first answer."""
    import time

    from config.base import redis as base_redis

    write_l1(occupation="teacher")
    base_redis.forget_clients()
    own_redis_server.pause()
    try:
        started = time.monotonic()
        assert read_l1()["occupation"] == "teacher"
        assert time.monotonic() - started < cache.PATIENCE + 0.2
    finally:
        own_redis_server.resume()


def test_a_readers_impatience_is_no_outage_to_the_sessions(own_redis_server: Any) -> None:
    from tests.memory.sessions.helpers import append, make_session

    write_l1(occupation="teacher")
    session_id = make_session()
    own_redis_server.pause()
    try:
        read_l1()
    finally:
        own_redis_server.resume()
    assert [receipt.state for receipt in append(session_id, "hello")] == ["queued"]


def test_other_tenants_have_keys_and_rows_of_their_own(own_redis_prefix: str) -> None:
    write_l1(occupation="teacher")
    other = make_caller("customer", tenant="acme")
    services.write_l1(caller=other, customer_id=ALICE, payload={"occupation": "pilot"})
    assert selectors.read_l1(caller=other, customer_id=ALICE)["occupation"] == "pilot"
    assert read_l1()["occupation"] == "teacher"
    assert raw(f"acme:profile:l1:{ALICE}", own_redis_prefix)["occupation"] == "pilot"


def test_cascades_and_second_models_are_swept_by_layer(own_redis_prefix: str) -> None:
    make_assignment()
    caller = make_caller("advisor")
    services.write_l2(caller=caller, customer_id=ALICE, advisor_id=WEI, payload={"stage": "lead"})
    selectors.read_l2(caller=caller, customer_id=ALICE, advisor_id=WEI)
    CustomerProfileL2.objects.update(payload={"schema_version": 1, "stage": "client"})
    assert selectors.read_l2(caller=caller, customer_id=ALICE, advisor_id=WEI)["stage"] == "client"


def test_customers_whose_ids_differ_by_case_are_different_customers() -> None:
    for customer_id in ("cust-a", "cust-A", "CUST-A"):
        caller = make_caller("customer", customer_id)
        services.write_l1(caller=caller, customer_id=customer_id, payload={"occupation": customer_id})
    for customer_id in ("cust-a", "cust-A", "CUST-A"):
        caller = make_caller("customer", customer_id)
        for _ in range(2):
            assert selectors.read_l1(caller=caller, customer_id=customer_id)["occupation"] == customer_id


def test_over_http_a_hit_is_one_round_trip_and_only_an_advisor_costs_a_query() -> None:
    make_assignment()
    write_l1(occupation="teacher")
    CustomerProfileL1.objects.update(core_synced_at=now())
    for agent, sql in (("customer", 0), ("risk", 0), ("advisor", 1)):
        http = make_agent(agent)
        assert http.get(f"/profiles/l1/{ALICE}").status_code == 200
        with counted_round_trips() as sent, CaptureQueriesContext(connection) as queries:
            assert http.get(f"/profiles/l1/{ALICE}").status_code == 200
        assert (len(sent), len(queries)) == (1, sql), [query["sql"] for query in queries]
