"""The core is a MariaDB of its own: it sleeps over a statement, stops answering, dies and comes back."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import connections
from django.test import Client
from MySQLdb import OperationalError

from config.base import redis as base_redis
from config.base.clock import now
from config.base.errors import DomainError
from guard.access.services import Caller, issue_key
from memory.core import selectors, window
from memory.core.models import CoreAssignment, CoreCustomer
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL1
from memory.profiles.snapshots import grace, keys
from memory.profiles.snapshots import selectors as selectors_of_snapshots
from memory.profiles.snapshots.selectors import read_snapshot
from memory.profiles.snapshots.services import place_of
from risk.rules.services import scan
from tests.dripping import Dripping, dripping
from tests.memory.core.external import external_core, forget_connection
from tests.own_database import OwnDatabase
from tests.services import MariaDB, RedisServer

POSITION = (
    "INSERT INTO core_position (tenant, customer_id, product_id, as_of, market_value) "
    "VALUES ('default', 'alice', 'p5', '2026-01-30', 77)"
)
ENDS = "UPDATE core_assignment SET valid_to = '2026-01-31' WHERE advisor_id = 'wei'"
BEGINS_AGAIN = "UPDATE core_assignment SET valid_to = NULL WHERE advisor_id = 'wei'"

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def core_server(transactional_db: None, own_database: OwnDatabase, settings: Any) -> Iterator[MariaDB]:
    """The alias `core` is a server of its own, in which Wei has Alice. Statements have 1 s, connections too."""
    give_alice_to_wei(own_database)
    with external_core(settings, own_database.server.url(own_database.name)):
        yield own_database.server
        own_database.server.resume()


@pytest.fixture
def way(transactional_db: None, own_database: OwnDatabase, settings: Any) -> Iterator[Dripping]:
    """As `core_server`, reached over a way that can be made to drip."""
    give_alice_to_wei(own_database)
    server = own_database.server
    with dripping(server.port) as way:
        url = server.url(own_database.name).replace(f":{server.port}/", f":{way.port}/")
        with external_core(settings, url):
            yield way


def give_alice_to_wei(own_database: OwnDatabase) -> None:
    own_database.copy_from_default()
    own_database.reset()
    in_the_core(
        own_database,
        "INSERT INTO core_assignment (tenant, advisor_id, customer_id, valid_from) "
        "VALUES ('default', 'wei', 'alice', '2020-01-01')",
    )


def in_the_core(own_database: OwnDatabase, sql: str) -> None:
    """What the core's own people do there."""
    own = own_database.server.connect(own_database.name)
    own.cursor().execute(sql)
    own.close()


def is_assigned() -> bool:
    return selectors.is_assigned("default", "wei", "alice", now())


def raw(sql: str) -> Any:
    with connections["core"].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def refused(work: Callable[[], Any], code: str = "CORE_UNAVAILABLE") -> float:
    """Seconds that the refusal took."""
    began = time.monotonic()
    with pytest.raises(DomainError, match=code):
        work()
    return time.monotonic() - began


def test_it_is_read_there_and_the_rest_stays_here(core_server: MariaDB) -> None:
    assert is_assigned()
    assert not CoreAssignment.objects.using("default").exists()


def test_the_session_is_read_only_for_whoever_gets_past_our_eyes(
    core_server: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(lambda: raw("DELETE FROM core_assignment"), "CORE_READ_ONLY") < 1
    monkeypatch.setattr(window, "refuse_unless_read", lambda sql, vendor: None)
    for sql in (
        "DELETE FROM core_assignment",
        "UPDATE core_assignment SET advisor_id = 'x'",
        "INSERT INTO core_customer (tenant, customer_id, valid_from, name, kind, investor_type) "
        "VALUES ('default', 'c', '2020-01-01', '', '', '')",
        "CREATE TABLE mine (id INTEGER)",
        "TRUNCATE TABLE core_assignment",
    ):
        refused(lambda sql=sql: raw(sql), "CORE_READ_ONLY")  # type: ignore[misc]
    with pytest.raises(DomainError, match=r"CORE_READ_ONLY|CORE_UNAVAILABLE"):
        raw("SELECT 1; SET SESSION TRANSACTION READ WRITE")
    assert is_assigned()


def test_a_statement_that_sleeps_is_ended_by_the_server(core_server: MariaDB) -> None:
    is_assigned()
    assert 0.9 < refused(lambda: raw("SELECT SLEEP(30) FROM core_assignment")) < 2.5
    assert refused(is_assigned) < 0.5
    window.breaker.reset()
    assert is_assigned()  # on the same connection: it was the statement that ended


def test_a_locked_table_costs_one_wait(core_server: MariaDB, own_database: OwnDatabase) -> None:
    is_assigned()
    other = core_server.connect(own_database.name)
    other.cursor().execute("LOCK TABLES core_assignment WRITE")
    assert refused(is_assigned) < 2.5
    assert max(refused(is_assigned) for _ in range(20)) < 0.5
    other.close()


def test_a_server_that_says_nothing_costs_one_bounded_wait(core_server: MariaDB) -> None:
    assert is_assigned()
    core_server.pause()
    assert refused(is_assigned) < 5  # the driver gives up after 2 s
    assert max(refused(is_assigned) for _ in range(50)) < 0.5
    # The one that tries again needs a new connection, and waits for that.
    window.breaker.reset()
    assert refused(is_assigned) < 3
    core_server.resume()
    window.breaker.reset()
    assert is_assigned()


def test_a_server_that_died_is_read_again_when_it_is_back(core_server: MariaDB) -> None:
    assert is_assigned()
    core_server.kill()
    assert refused(is_assigned) < 2
    assert refused(is_assigned) < 0.5
    core_server.start()
    window.breaker.reset()
    assert is_assigned()


def test_a_connection_that_the_server_dropped_meanwhile_is_made_anew(
    core_server: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_assigned()
    core_server.kill()
    core_server.start()
    monkeypatch.setattr(window, "IDLE_SECONDS", 0.0)
    assert is_assigned()
    assert not window.breaker.open


def test_a_new_process_with_a_core_that_is_away_hears_it_in_time(core_server: MariaDB) -> None:
    core_server.pause()
    forget_connection()
    assert refused(is_assigned) < 3


def test_a_server_that_greets_a_byte_at_a_time_is_none(settings: Any) -> None:
    """Each byte comes in time, the whole greeting in a minute."""
    over = threading.Event()

    def drip(listening: socket.socket) -> None:
        with suppress(OSError):
            peer, _address = listening.accept()
            with peer:
                for byte in b"\x4a\x00\x00\x00\x0a10.6.0-MariaDB\x00" + b"a" * 100:
                    if over.wait(0.5):
                        return
                    peer.send(bytes([byte]))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=drip, args=(listening,), daemon=True).start()
        url = f"mysql://root@127.0.0.1:{listening.getsockname()[1]}/core"
        with external_core(settings, url, connect_seconds=1):
            began = time.monotonic()
            refused(is_assigned)
            assert time.monotonic() - began < 2.5
            assert refused(is_assigned) < 0.5
        over.set()


def test_a_statement_whose_answer_drips_has_one_deadline(way: Dripping) -> None:
    assert is_assigned()
    assert is_assigned()
    assert way.connections == 1
    before = threading.active_count()
    way.drip.set()
    assert 1.5 < refused(is_assigned) < 3  # 1 s for the statement, 1 for its answer
    assert refused(is_assigned) < 0.5
    way.drip.clear()
    window.breaker.reset()
    assert is_assigned()
    assert way.connections == 2  # the one that was cut is not used again
    assert threading.active_count() <= before + 2  # those of the way's second connection: none is left hanging


def test_the_check_of_an_idle_connection_has_one_deadline_too(way: Dripping, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_assigned()
    monkeypatch.setattr(window, "IDLE_SECONDS", 0.0)
    way.drip.set()
    assert refused(is_assigned) < 5  # 2 s for the check, 1 s for a new connection
    assert refused(is_assigned) < 0.5


def test_a_caller_that_takes_its_time_over_the_rows_is_not_cut(way: Dripping) -> None:
    for _row in CoreAssignment.objects.all().iterator():
        threading.Event().wait(2.5)
    assert is_assigned()
    assert way.connections == 1


def test_past_djangos_cursor_there_is_no_way_to_write_either(
    core_server: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = (
        "INSERT INTO core_assignment (tenant, advisor_id, customer_id, valid_from) VALUES ('d','x','y','2020-01-01')"
    )
    lift = "SET SESSION TRANSACTION READ WRITE"
    with connections["core"].cursor() as cursor:
        for reached in (cursor.cursor, cursor.cursor.cursor):
            for sql in (lift, insert):
                with pytest.raises(DomainError, match="CORE_READ_ONLY"):
                    reached.execute(sql)
                with pytest.raises(DomainError, match="CORE_READ_ONLY"):
                    reached.executemany(sql, [()])
            with pytest.raises(DomainError, match="CORE_READ_ONLY"):
                reached.callproc("p")
    # Whoever takes the driver's connection itself lifts the session's guard, until the connection is checked next.
    connections["core"].connection.query(lift)
    connections["core"].health_check_done = False  # type: ignore[attr-defined]
    with connections["core"].cursor(), pytest.raises(OperationalError) as refusal:
        connections["core"].connection.query(insert)
    assert refusal.value.args[0] == 1792
    assert CoreAssignment.objects.count() == 1


def test_an_idle_connection_to_a_server_that_stands_still_costs_its_check_too(
    core_server: MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_assigned()
    monkeypatch.setattr(window, "IDLE_SECONDS", 0.0)
    core_server.pause()
    assert refused(is_assigned) < 5  # 2 s for the check, 1 s for a new connection
    assert refused(is_assigned) < 0.5


def test_who_needs_the_core_says_so_and_who_does_not_goes_on(core_server: MariaDB) -> None:
    customer = issue_key(agent="customer").key
    advisor = issue_key(agent="advisor").key

    def get(key: str, actor: str, path: str) -> Any:
        return Client().get(f"/api/v1{path}", headers={"Authorization": f"Bearer {key}", "X-Actor-Id": actor})

    CustomerProfileL1.objects.create(customer_id="alice", payload={"occupation": "teacher"})
    assert get(advisor, "wei", "/profiles/l1/alice").status_code == 200
    core_server.kill()
    window.breaker.reset()
    answer = get(advisor, "wei", "/profiles/l1/alice")
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")
    # A customer's own profile is shown as it is kept: the sync of the core's part waits.
    assert get(customer, "alice", "/profiles/l1/alice").json()["occupation"] == "teacher"
    ready = Client().get("/health/ready").json()
    assert ready["checks"]["core_window"]["ok"]
    assert any(line.startswith("core_window: ") for line in ready["warnings"])
    assert not any(line.startswith("core_window") for line in ready["reasons"])


def test_a_scan_of_the_rules_fails_and_the_next_one_does_it(core_server: MariaDB) -> None:
    from memory.core.importer import mark
    from memory.core.models import CoreChange

    mark(tenant="default", customer_ids=["alice"])
    core_server.kill()
    window.breaker.reset()
    refused(scan)  # the tick fails, and what it had claimed is free again after 30 s
    assert CoreChange.objects.filter(customer_id="alice").exists()
    core_server.start()
    window.breaker.reset()
    CoreChange.objects.update(claim=None, claimed_until=None)
    assert not scan().failed
    assert not CoreChange.objects.exists()
    assert CoreCustomer.objects.count() == 0


def test_a_core_that_stands_still_leaves_the_last_snapshot(core_server: MariaDB, own_database: OwnDatabase) -> None:
    in_the_core(own_database, POSITION)

    def snapshot(advisor: str = "wei", customer: str = "alice") -> dict[str, Any]:
        caller = Caller("default", "advisor", advisor)
        return read_snapshot(caller=caller, advisor_id=advisor, customer_id=customer)

    assert (snapshot()["total"], snapshot()["stale"]) == ("77.00", False)
    core_server.pause()
    began = time.monotonic()
    # Who had the customer at the last load goes on for an hour; nobody else is let in meanwhile.
    assert (snapshot()["total"], snapshot()["stale"]) == ("77.00", False)
    leased.drop([place_of("default", "wei", "alice")])
    assert (snapshot()["total"], snapshot()["stale"]) == ("77.00", True)
    refused(lambda: snapshot(customer="bob"))
    refused(lambda: snapshot("lin"))
    assert time.monotonic() - began < 5
    leased.client().delete(keys.SNAPSHOT_SEEN(advisor_id="wei", customer_id="alice"))
    refused(snapshot)


def snapshot_of_alice() -> dict[str, Any]:
    return read_snapshot(caller=Caller("default", "advisor", "wei"), advisor_id="wei", customer_id="alice")


def stand_still(core_server: MariaDB) -> None:
    core_server.pause()
    leased.drop([place_of("default", "wei", "alice")])


def go_on(core_server: MariaDB) -> None:
    core_server.resume()
    forget_connection()
    window.breaker.reset()


@pytest.mark.parametrize("asked", ["the snapshot", "a profile"])
def test_whoever_was_told_no_is_not_let_in_when_the_core_stands_still(
    core_server: MariaDB, own_database: OwnDatabase, asked: str
) -> None:
    in_the_core(own_database, POSITION)
    assert not snapshot_of_alice()["stale"]
    in_the_core(own_database, ENDS)
    if asked == "the snapshot":
        refused(snapshot_of_alice, "NOT_ASSIGNED")
    else:
        advisor = issue_key(agent="advisor").key
        headers = {"Authorization": f"Bearer {advisor}", "X-Actor-Id": "wei"}
        assert Client().get("/api/v1/profiles/l1/alice", headers=headers).status_code == 403
    stand_still(core_server)
    refused(snapshot_of_alice)
    go_on(core_server)
    # Assigned again, and loaded again: the last copy may be read once more.
    in_the_core(own_database, BEGINS_AGAIN)
    leased.client().delete(keys.SNAPSHOT_SEEN(advisor_id="wei", customer_id="alice"))  # the "no" runs out in a minute
    assert not snapshot_of_alice()["stale"]
    stand_still(core_server)
    assert snapshot_of_alice()["stale"]


def test_a_load_that_began_before_the_no_does_not_undo_it(
    core_server: MariaDB, own_database: OwnDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_core(own_database, POSITION)
    load = selectors_of_snapshots.load_snapshot

    def overtaken(**ids: str) -> Any:
        document = load(**ids)
        in_the_core(own_database, ENDS)
        refused(snapshot_of_alice, "NOT_ASSIGNED")
        return document

    monkeypatch.setattr(selectors_of_snapshots, "load_snapshot", overtaken)
    assert not snapshot_of_alice()["stale"]
    stand_still(core_server)
    refused(snapshot_of_alice)


def test_a_no_that_the_cache_could_not_be_told_stands_all_the_same(
    core_server: MariaDB, own_database: OwnDatabase, settings: Any, own_redis_server: RedisServer
) -> None:
    settings.CACHE_REDIS_URL = own_redis_server.url.replace("/0", "/1")
    in_the_core(own_database, POSITION)
    assert not snapshot_of_alice()["stale"]
    in_the_core(own_database, ENDS)
    own_redis_server.pause()
    refused(snapshot_of_alice, "NOT_ASSIGNED")
    own_redis_server.resume()
    base_redis.forget_clients()
    stand_still(core_server)
    refused(snapshot_of_alice)
    grace.forget()  # another process: Redis has been told meanwhile
    window.breaker.reset()
    refused(snapshot_of_alice)
