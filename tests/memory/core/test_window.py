"""The window onto an external core: nothing is written through it, whoever tries and however."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.test import Client

from config.base.clock import now
from config.base.env import core_database
from config.base.errors import DomainError
from guard.access.services import Caller, issue_key
from memory.core import selectors, window
from memory.core.models import CoreAssignment, CoreCustomer
from memory.profiles.core_sync import sync_l1_from_core
from memory.profiles.models import CustomerProfileL1
from memory.profiles.selectors import read_l1
from tests.memory.core.external import external_core, make_sqlite_core, sqlite_assignment

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def file_core(settings: Any, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "core.sqlite3"
    url = make_sqlite_core(path, sqlite_assignment("wei", "alice"))
    with external_core(settings, url, statement_ms=300):
        yield path


def raw(sql: str, params: Any = None) -> Any:
    with connections["core"].cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchall()


WRITES = {
    "insert": "INSERT INTO core_assignment (id, tenant, advisor_id, customer_id, valid_from) VALUES (2,'d','a','c','')",
    "update": "  update core_assignment SET advisor_id = 'x'",
    "delete": "DELETE FROM core_assignment",
    "with": "WITH x AS (SELECT 1) DELETE FROM core_assignment",
    "ddl": "CREATE TABLE mine (id INTEGER)",
    "drop": "DROP TABLE core_assignment",
    "comment": "/* a read? */ DELETE FROM core_assignment",
    "second": "SELECT 1; DELETE FROM core_assignment",
    "undo": "PRAGMA query_only = OFF",
    "set": "SET SESSION TRANSACTION READ WRITE",
    "begin": "BEGIN IMMEDIATE",
    "lock": "SELECT * FROM core_assignment FOR UPDATE",
    "file": "SELECT * FROM core_assignment INTO OUTFILE '/tmp/x'",
    "call": "CALL something()",
}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM core_customer FOR/**/UPDATE",
        "SELECT * FROM core_customer for -- x\n update",
        "SELECT * FROM core_customer FOR # x\n share",
        "SELECT * FROM core_customer lock in /**/ share mode",
        "SELECT 1 into/**/outfile '/tmp/out'",
        "SELECT 1 into /*x*/ dumpfile '/tmp/out'",
        "SELECT 1 into/**/@a",
        "SELECT @a:=1",
        "SELECT @a /**/ := 1",
        "/*!insert into*/ t values(2)",
        "/*M!100100 delete from t */",
        "SELECT 1 /*M! into outfile '/tmp/out'*/",
        "SELECT /*+ SET_VAR(transaction_read_only=0) */ 1",
        "SELECT 1 --1 into outfile '/tmp/out'",
        "SELECT 'no end",
        "SELECT 1 /* no end",
        "-- x\nDELETE FROM t",
        "# SELECT\nDELETE FROM t",
        "/**/;DELETE FROM t",
        "SELECT 1;/**/DELETE FROM t",
        "",
    ],
)
def test_a_remark_hides_nothing(sql: str) -> None:
    with pytest.raises(DomainError) as refusal:
        window.refuse_unless_read(sql, "mysql")
    assert refusal.value.code == "CORE_READ_ONLY"


@pytest.mark.parametrize("vendor", ["mysql", "sqlite"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM core_customer WHERE name = 'for update'",
        "SELECT `into`, \"for update\" FROM t WHERE a = 'lock in share mode; x' AND b = '/*!'",
        "-- c\nSELECT 1",
        "/* for update */ SELECT 1;",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT 'it''s; fine' , 2 * 3 / 4 - 1, %s",
        "WITH a AS (SELECT 1) SELECT * FROM a ;  ",
    ],
)
def test_what_is_quoted_or_remarked_is_no_word(sql: str, vendor: str) -> None:
    window.refuse_unless_read(sql, vendor)


def test_each_server_reads_quotes_its_own_way() -> None:
    window.refuse_unless_read("SELECT 1 WHERE a LIKE %s ESCAPE '\\' AND b = 'x'", "sqlite")
    with pytest.raises(DomainError):
        window.refuse_unless_read("SELECT 'a\\'; DELETE FROM t; -- '", "sqlite")
    window.refuse_unless_read("SELECT 'a\\'; DELETE FROM t; -- '", "mysql")


def test_a_long_statement_is_read_in_a_moment() -> None:
    began = time.perf_counter()
    window.refuse_unless_read(f"SELECT * FROM t WHERE id IN ({', '.join(['%s'] * 20_000)})", "mysql")
    with pytest.raises(DomainError):
        window.refuse_unless_read("SELECT " + "''" * 50_000 + "'", "mysql")
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("sql", WRITES.values(), ids=WRITES.keys())
def test_no_statement_writes(file_core: Path, sql: str) -> None:
    with pytest.raises(DomainError, match="CORE_READ_ONLY"):
        raw(sql)
    assert raw("SELECT advisor_id FROM core_assignment") == [("wei",)]


def test_the_database_refuses_what_our_eyes_would_miss(file_core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "refuse_unless_read", lambda sql, vendor: None)
    for sql in ("DELETE FROM core_assignment", "CREATE TABLE mine (id INTEGER)"):
        with pytest.raises(DomainError, match="CORE_READ_ONLY"):
            raw(sql)
    # Even where somebody lifts the session's own guard, the file is open for reading only.
    raw("PRAGMA query_only = OFF")
    with pytest.raises(DomainError, match="CORE_READ_ONLY"):
        raw("DELETE FROM core_assignment")


def test_the_orm_is_refused_by_whatever_name(file_core: Path) -> None:
    from django.contrib.auth.models import Group

    row = CoreAssignment.objects.get()
    attempts: list[Callable[[], Any]] = [
        lambda: row.save(),
        lambda: row.save(using="core"),
        lambda: row.delete(using="core"),
        lambda: CoreAssignment.objects.using("core").update(advisor_id="x"),
        lambda: CoreAssignment.objects.using("core").bulk_create([CoreAssignment(advisor_id="a", customer_id="c")]),
        lambda: CoreAssignment.objects.using("core").all()._raw_delete("core"),
        lambda: super(CoreAssignment, row).save_base(using="core", force_update=True),
        lambda: Group.objects.using("core").create(name="x"),
        lambda: connections["core"].cursor().executemany("DELETE FROM core_assignment WHERE id = %s", [(1,)]),
    ]
    for attempt in attempts:
        with pytest.raises(DomainError, match="CORE_READ_ONLY"):
            attempt()
    with transaction.atomic(using="core"):
        CoreAssignment.objects.using("core").select_for_update().get()  # no lock is taken, and this alone is a read
        with pytest.raises(DomainError, match="CORE_READ_ONLY"):
            raw("UPDATE core_assignment SET advisor_id = 'x'")
    assert CoreAssignment.objects.get().advisor_id == "wei"


def test_a_statement_is_ended_after_its_time_and_the_next_callers_are_told_at_once(file_core: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    began = time.monotonic()
    with pytest.raises(DomainError, match="CORE_UNAVAILABLE"):
        raw(endless)
    assert 0.25 < time.monotonic() - began < 1.5
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(DomainError, match="CORE_UNAVAILABLE"):
            selectors.is_assigned("default", "wei", "alice", selectors.now())
    assert time.monotonic() - began < 2


def test_after_a_failure_one_caller_each_five_seconds_asks(file_core: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    window.breaker.trip()
    with pytest.raises(DomainError, match="CORE_UNAVAILABLE"):
        raw("SELECT 1")
    clock[0] += window.HOLD_SECONDS + 0.1
    assert raw("SELECT 1") == [(1,)]
    assert not window.breaker.open


def test_a_file_that_is_gone_is_unavailable_and_not_an_empty_core(settings: Any, tmp_path: Path) -> None:
    with external_core(settings, f"sqlite://{tmp_path}/nowhere.sqlite3"):
        with pytest.raises(DomainError, match="CORE_UNAVAILABLE"):
            selectors.positions(tenant="default", customer_id="alice")
        assert not (tmp_path / "nowhere.sqlite3").exists()


def test_a_table_that_the_core_lacks_is_said_and_trips_nothing(file_core: Path) -> None:
    with pytest.raises(DomainError, match="CORE_UNAVAILABLE"):
        raw("SELECT * FROM missing")
    assert not window.breaker.open
    assert CoreCustomer.objects.count() == 0


def test_an_advisor_whose_assignment_cannot_be_asked_gets_503_and_the_code(file_core: Path) -> None:
    key = issue_key(agent="advisor").key
    file_core.rename(file_core.with_suffix(".away"))
    connections["core"].close()
    answer = Client().get(
        "/api/v1/profiles/l2/alice/wei", headers={"Authorization": f"Bearer {key}", "X-Actor-Id": "wei"}
    )
    assert (answer.status_code, answer.json()["code"]) == (503, "CORE_UNAVAILABLE")
    assert answer["Retry-After"]


def test_threads_meet_the_same_door(file_core: Path) -> None:
    told: list[str] = []

    def work() -> None:
        try:
            raw("DELETE FROM core_assignment")
        except DomainError as error:
            told.append(error.code)
        finally:
            connections["core"].close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == ["CORE_READ_ONLY"] * 4


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root@db:33o6/core",
        "mysql://root@db:99999/core",
        "mysql://root@[::1/core",
        "mysql://root@db:3306",
        "mysql://root@db:3306//core",
        "mysql:////core",
        "mysql://root@db/core?connect_timeout=soon",
        "sqlite://///srv/core.sqlite3",
        "sqlite://srv/core.sqlite3",
        "sqlite:///",
        "postgres://db/core",
    ],
)
def test_an_address_that_is_none_is_told_in_one_sentence_that_names_the_setting(url: str) -> None:
    with pytest.raises(ImproperlyConfigured) as told:
        core_database("CORE_DATABASE_URL", url, 1, 1000)
    sentence = str(told.value)
    assert sentence.startswith("CORE_DATABASE_URL ")
    assert not [word for word in ("\n", "root", "srv") if word in sentence]  # it may hold a password
    assert told.value.__suppress_context__ or told.value.__context__ is None


def test_what_the_core_takes_back_is_not_shown_as_valid(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "core.sqlite3"
    assessed = (
        "INSERT INTO core_assessment (id, tenant, customer_id, assessed_at, c_level) VALUES (1,'default','alice',?,4)",
        (f"{now() - timedelta(days=9):%Y-%m-%d %H:%M:%S}",),
    )
    with external_core(settings, make_sqlite_core(path, assessed)):
        assert sync_l1_from_core(tenant="default", customer_id="alice")
        assert CustomerProfileL1.objects.get().core["c_level"] == "C4"
        own = sqlite3.connect(path)
        own.execute("DELETE FROM core_assessment")
        own.commit()
        own.close()
        assert sync_l1_from_core(tenant="default", customer_id="alice")
        assert CustomerProfileL1.objects.get().core == {}
        assert not sync_l1_from_core(tenant="default", customer_id="alice")
        CustomerProfileL1.objects.update(core_synced_at=now())
        caller = Caller("default", "customer", "alice")
        assert read_l1(caller=caller, customer_id="alice")["assessment_status"] == "missing"
