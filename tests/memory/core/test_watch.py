"""An external core that tells nobody what changes: rounds find it, and live hits follow."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client

from config.base.clock import now
from config.checks import core_round
from memory.core import digests, marking, watch, window
from memory.core.models import FACT_MODELS, CoreChange, CoreDigest, CoreRound
from memory.core.watch import look, look_at_all
from risk.alerts.models import HitState, RiskAlertHit
from risk.rules.services import scan
from tests.memory.core.external import external_core, forget_connection, make_sqlite_core
from tests.own_database import OwnDatabase
from tests.services import MariaDB

Write = Callable[..., None]  # SQL with %s, and its values: what the core's own people do there

DEFAULTS: dict[str, dict[str, Any]] = {
    "core_customer": {"valid_from": "2020-01-01 00:00:00", "name": "", "kind": "natural", "investor_type": "ordinary"},
    "core_product": {
        "valid_from": "2020-01-01 00:00:00", "issuer_id": "i1", "asset_class": "equity", "risk_level": 5,
        "is_cash_like": 0,
    },
    "core_assessment": {"assessed_at": "2026-01-15 02:00:00", "c_level": 3, "is_lowest": 0},
    "core_assignment": {"advisor_id": "a1", "valid_from": "2020-01-01 00:00:00"},
    "core_position": {"product_id": "p5", "as_of": "2026-05-31", "market_value": "1000.5"},
    "core_trade": {
        "version": 1, "product_id": "p5", "advisor_id": "a1", "trade_type": "buy", "traded_at": "2026-06-15 04:00:00",
        "amount": "1000", "currency": "CNY", "fx_cny": "1", "fx_usd": "0.14", "price": "1", "status": "executed",
        "channel": "online", "settle_method": "", "plan_id": "", "dual_recording_id": "", "risk_disclosure_id": "",
        "mismatch_confirm_id": "",
    },
}  # fmt: skip


def add(write: Write, table: str, **values: Any) -> None:
    row = {"tenant": "default", **DEFAULTS[table], **values}
    write(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(['%s'] * len(row))})", *row.values())


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def write(request: pytest.FixtureRequest, transactional_db: None, settings: Any, tmp_path: Path) -> Iterator[Write]:
    """A core of its own, an SQLite file or a MariaDB: one customer C3 with a trade in a product R5."""
    if request.param == "sqlite":
        path = tmp_path / "core.sqlite3"
        url = make_sqlite_core(path)
        numbers = iter(range(1, 100_000))
        own = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

        def execute(sql: str, *values: Any) -> None:
            if sql.startswith("INSERT"):
                sql = sql.replace(" (", " (id, ", 1).replace("VALUES (", f"VALUES ({next(numbers)}, ")
            own.execute(sql.replace("%s", "?"), values)

        close = own.close
    else:
        database: OwnDatabase = request.getfixturevalue("own_database")
        database.copy_from_default()
        database.reset()
        url = database.server.url(database.name)
        server = database.server.connect(database.name)

        def execute(sql: str, *values: Any) -> None:
            server.cursor().execute(sql, values)

        close = server.close
    with external_core(settings, url):
        settings.CORE_ROUND_SECONDS = 5
        a_small_core(execute)
        yield execute
        close()


def a_small_core(write: Write) -> None:
    add(write, "core_product", product_id="p5")
    add(write, "core_customer", customer_id="c1")
    add(write, "core_assessment", customer_id="c1")
    add(write, "core_assignment", customer_id="c1")
    add(write, "core_trade", trade_id="t1", customer_id="c1")


def live() -> list[tuple[str, str]]:
    rows = RiskAlertHit.objects.filter(state=HitState.LIVE).order_by("customer_id", "rule_id", "evidence_key")
    return list(rows.values_list("rule_id", "evidence_key"))


def marked() -> list[str]:
    return sorted(CoreChange.objects.values_list("customer_id", flat=True))


def all_seen() -> None:
    """Rounds until a round finds nothing more to look at."""
    for _ in range(3):
        look_at_all()
        scan()
    assert look_at_all().marked == 0


def a_round_and_a_scan() -> list[tuple[str, str]]:
    assert look_at_all().complete
    scan()
    return live()


def test_what_the_core_holds_is_found_and_nothing_is_marked_where_nothing_changed(write: Write) -> None:
    found = look_at_all()
    assert (found.customers, found.new, found.marked, found.complete) == (1, 1, 1, True)
    scan()
    assert live() == [("RISK-001", "t1@1")]
    # Once more, for what the scan read might have been there for a moment only; then it is quiet.
    assert look_at_all().marked == 1
    scan()
    for _ in range(3):
        assert look_at_all().marked == 0
        assert marked() == []
    assert live() == [("RISK-001", "t1@1")]


LATE = ("core_trade", {"trade_id": "t2", "customer_id": "c1", "traded_at": "2026-02-01 04:00:00"})


def test_late_corrected_cancelled_and_deleted_trades(write: Write) -> None:
    all_seen()
    add(write, LATE[0], **LATE[1])
    assert a_round_and_a_scan() == [("RISK-001", "t1@1"), ("RISK-001", "t2@1")]
    add(write, "core_trade", trade_id="t2", version=2, customer_id="c1", status="cancelled")
    assert a_round_and_a_scan() == [("RISK-001", "t1@1")]
    # A row that was written over, and taken back.
    write("UPDATE core_trade SET product_id = 'p1' WHERE trade_id = 't1'")
    add(write, "core_product", product_id="p1", risk_level=1)
    assert a_round_and_a_scan() == []
    write("UPDATE core_trade SET product_id = 'p5' WHERE trade_id = 't1'")
    assert a_round_and_a_scan() == [("RISK-001", "t1@1")]
    write("DELETE FROM core_trade WHERE trade_id = 't1'")
    assert a_round_and_a_scan() == []


def test_two_trades_that_exchange_their_amounts(write: Write) -> None:
    """What sums and exclusive ors of the columns would not tell."""
    add(write, "core_trade", trade_id="t2", customer_id="c1", amount="2000")
    all_seen()
    write("UPDATE core_trade SET amount = CASE trade_id WHEN 't1' THEN '2000' ELSE '1000' END")
    assert look_at_all().marked == 1


def test_a_correction_that_gives_the_trade_to_another_customer_is_both_customers_change(write: Write) -> None:
    add(write, "core_customer", customer_id="c2")
    add(write, "core_assessment", customer_id="c2")
    all_seen()
    add(write, "core_trade", trade_id="t1", version=2, customer_id="c2")
    assert a_round_and_a_scan() == [("RISK-001", "t1@2")]
    assert set(RiskAlertHit.objects.filter(state=HitState.LIVE).values_list("customer_id", flat=True)) == {"c2"}


def test_a_new_assessment_a_new_customer_and_a_product_that_is_rated_anew(write: Write) -> None:
    all_seen()
    add(write, "core_assessment", customer_id="c1", assessed_at="2026-06-01 02:00:00", c_level=5)
    assert a_round_and_a_scan() == []
    write("DELETE FROM core_assessment WHERE c_level = 5")
    assert a_round_and_a_scan() == [("RISK-001", "t1@1")]
    add(write, "core_trade", trade_id="t9", customer_id="new-one")
    look_at_all()
    assert "new-one" in marked()
    scan()
    add(write, "core_product", product_id="p5", valid_from="2026-01-01 00:00:00", risk_level=1)
    look_at_all()
    assert {"c1", "new-one"} <= set(marked())
    scan()
    assert ("RISK-001", "t1@1") not in live()


def test_positions_count_and_assignments_alone_mark_nobody_but_are_told(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_seen()
    told: list[tuple[str, set[str]]] = []
    monkeypatch.setattr(marking, "_assignment_listeners", [lambda tenant, ids: told.append((tenant, ids))])
    add(write, "core_position", customer_id="c1")
    look_at_all()
    assert marked() == ["c1"]
    assert told == []
    write("UPDATE core_assignment SET valid_to = '2026-07-01 00:00:00'")
    look_at_all()
    assert told == [("default", {"c1"})]


def test_a_customer_who_is_gone_loses_their_hits_and_then_their_digest(write: Write) -> None:
    all_seen()
    assert live()
    for model in FACT_MODELS:
        write(f"DELETE FROM {model._meta.db_table}")
    assert a_round_and_a_scan() == []
    look_at_all()
    assert not CoreDigest.objects.exists()
    scan()
    assert look_at_all().marked == 0


@pytest.mark.parametrize("asked", [{"everything": True}, {"customers": ["c1"]}])
def test_a_customer_who_is_gone_before_anybody_looked_loses_their_hits_too(write: Write, asked: Any) -> None:
    scan(tenant="default", **asked)
    assert live()
    for model in FACT_MODELS:
        write(f"DELETE FROM {model._meta.db_table}")
    assert a_round_and_a_scan() == []
    look_at_all()
    assert not CoreDigest.objects.exists()


def test_values_that_the_importer_refuses_are_findings_and_the_others_are_judged(write: Write) -> None:
    add(write, "core_trade", trade_id="t2", customer_id="c1", currency="cny")
    add(write, "core_trade", trade_id="t3", customer_id="c1", amount="-5")
    add(write, "core_trade", trade_id="t4", customer_id="c1", traded_at="9999-12-31 23:59:59")
    add(write, "core_customer", customer_id="c2")
    add(write, "core_assessment", customer_id="c2")
    add(write, "core_trade", trade_id="t5", customer_id="c2")
    report = scan(tenant="default", everything=True)
    assert report.failed == []
    assert live() == [
        ("DATA-QUALITY", "t2@1"), ("DATA-QUALITY", "t3@1"), ("DATA-QUALITY", "t4@1"),
        ("RISK-001", "t1@1"), ("RISK-001", "t5@1"),
    ]  # fmt: skip
    write("UPDATE core_trade SET currency = 'CNY' WHERE trade_id = 't2'")
    assert ("RISK-001", "t2@1") in a_round_and_a_scan()


@pytest.mark.parametrize(
    ("column", "kind", "finding"),
    [
        ("product_id", "varchar(64)", "missing_product"),
        ("amount", "decimal(48,20)", "unreadable_value"),
        ("version", "int", "unreadable_value"),
        ("traded_at", "datetime(6)", "unreadable_value"),
        ("trade_id", "varchar(64)", "unreadable_value"),
        ("status", "varchar(16)", "unreadable_value"),
    ],
)
def test_null_where_a_value_is_needed_concerns_its_trade_alone(
    write: Write, column: str, kind: str, finding: str
) -> None:
    try:
        write(f"ALTER TABLE core_trade MODIFY {column} {kind} NULL")
    except sqlite3.OperationalError:
        pytest.skip("SQLite alters no column")
    add(write, "core_trade", **{"trade_id": "t2", "customer_id": "c1", column: None})
    add(write, "core_customer", customer_id="c2")
    add(write, "core_assessment", customer_id="c2")
    add(write, "core_trade", trade_id="t5", customer_id="c2")
    assert scan(tenant="default", everything=True).failed == []
    rows = RiskAlertHit.objects.filter(state=HitState.LIVE)
    assert [row.subtypes for row in rows.filter(rule_id="DATA-QUALITY")] == [[finding]]
    judged = rows.exclude(rule_id="DATA-QUALITY")
    assert sorted(judged.values_list("evidence_key", flat=True)) == ["t1@1", "t5@1"]


def test_what_a_scan_read_in_passing_is_judged_again(write: Write) -> None:
    """The core has another state for a moment, somebody scans just then, and the digest never shows it."""
    all_seen()
    write("UPDATE core_trade SET status = 'cancelled'")
    scan(everything=True)
    assert live() == []
    write("UPDATE core_trade SET status = 'executed'")
    assert a_round_and_a_scan() == [("RISK-001", "t1@1")]


def test_two_tenants_and_pages_of_one_and_names_that_are_no_ids(write: Write) -> None:
    for number in range(7):
        for tenant in ("default", "north"):
            add(write, "core_trade", tenant=tenant, trade_id=f"x{number}", customer_id=f"k{number}")
    add(write, "core_customer", customer_id="no id", name="x")
    CoreRound.objects.create(pk=1, size=1)
    found = look_at_all()
    assert (found.new, found.marked, found.odd, found.complete) == (15, 15, 1, True)
    assert CoreChange.objects.filter(tenant="north").count() == 7
    for number in range(7):
        write("UPDATE core_trade SET amount = '7' WHERE tenant = 'north' AND customer_id = %s", f"k{number}")
    CoreChange.objects.all().delete()
    CoreDigest.objects.update(marked=0)
    look_at_all()
    assert set(CoreChange.objects.values_list("tenant", flat=True)) == {"north"}
    assert CoreChange.objects.count() == 7


def test_the_second_look_waits_until_the_first_mark_was_judged(write: Write) -> None:
    """A scanner that is far behind would take both marks for one."""
    look_at_all()
    assert look_at_all().marked == 0
    assert CoreChange.objects.count() == 1
    scan()
    assert look_at_all().marked == 1


class _Killed(BaseException):
    pass


def test_a_look_that_is_killed_at_any_write_of_a_page_loses_nothing(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_seen()
    write("UPDATE core_trade SET status = 'cancelled'")
    for name in ("insert_marks", "_compare", "_tell"):
        original = getattr(watch, name)

        def dies(*args: Any, original: Any = original) -> Any:
            original(*args)
            raise _Killed

        with monkeypatch.context() as patched:
            patched.setattr(watch, name, dies)
            with pytest.raises(_Killed):
                look_at_all()
        assert marked() == []
        # Its claim stands until it is over.
        assert look_at_all().busy
        CoreRound.objects.update(held_until=now() - timedelta(seconds=1))
    assert a_round_and_a_scan() == []


def test_a_tick_goes_on_where_the_one_before_stopped(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add(write, "core_trade", trade_id=f"x{number}", customer_id=f"k{number}")
    CoreRound.objects.create(pk=1, size=1)
    monkeypatch.setattr(watch, "MOST", 1)
    pages: list[str] = []
    original = digests.customers

    def noted(tenant: str, ids: Any) -> dict[str, str]:
        pages.extend(ids)
        return original(tenant, ids)

    monkeypatch.setattr(digests, "customers", noted)
    ticks = 0
    # A clock that lets one page in a tick.
    while not (done := one_page()).complete:
        assert not done.busy
        ticks += 1
        assert ticks < 60
    assert sorted(pages) == ["c1", *(f"k{number}" for number in range(5))]
    assert marked() == sorted(pages)
    # The next round is not begun before its time: one query says so.
    assert look().complete
    assert sorted(pages) == marked()
    CoreRound.objects.update(began_at=now() - timedelta(seconds=6))
    look(seconds=30)
    assert len(pages) == 12


def one_page() -> watch.Look:
    reads = iter([0.0, 0.0])

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return next(reads, 100.0)

    original, watch.time = watch.time, Clock  # type: ignore[assignment,misc]
    try:
        return look(seconds=1.0)
    finally:
        watch.time = original  # type: ignore[misc]


def test_two_at_once_mark_each_change_once(write: Write) -> None:
    for number in range(40):
        add(write, "core_trade", trade_id=f"x{number}", customer_id=f"k{number}")
    CoreRound.objects.create(pk=1, size=2)
    found: list[watch.Look] = []
    start = threading.Barrier(2)

    def run() -> None:
        try:
            start.wait()
            found.append(look(seconds=60))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert any(one.complete for one in found)
    assert len(set(marked())) == 41
    assert CoreDigest.objects.count() == 41


def test_who_was_slower_than_its_claim_writes_nothing(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    all_seen()
    write("UPDATE core_trade SET amount = '5'")
    original = digests.customers

    def while_another_takes_over(tenant: str, ids: Any) -> dict[str, str]:
        found = original(tenant, ids)
        CoreRound.objects.update(holder="another", held_until=now() + timedelta(seconds=60))
        write("UPDATE core_trade SET amount = '6'")
        return found

    monkeypatch.setattr(digests, "customers", while_another_takes_over)
    assert look_at_all().busy
    assert marked() == []
    assert CoreRound.objects.get().holder == "another"


def test_a_core_that_goes_away_stops_the_tick_and_nothing_counts_as_seen(
    write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    all_seen()
    write("UPDATE core_trade SET status = 'cancelled'")

    def away(*_: Any) -> Any:
        raise window.CoreUnavailable("the core system does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(digests, "customers", away)
        patched.setattr(digests, "is_there", away)
        CoreRound.objects.update(began_at=now() - timedelta(seconds=6))
        for _ in range(10):
            found = look()
            assert found.away
            assert not found.complete
            assert found.unread == 0
    assert marked() == []
    assert [record.message for record in caplog.records].count(
        "the core does not answer: the round over its customers waits, nothing is taken as seen"
    ) == 1
    assert "does not answer" in core_round().detail
    assert look().complete
    assert marked() == ["c1"]
    assert "does not answer" not in core_round().detail


def test_a_customer_whose_rows_take_too_long_is_marked_unseen_and_holds_up_nobody(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(write, "core_trade", trade_id="x", customer_id="k1")
    all_seen()
    add(write, "core_trade", trade_id="y", customer_id="k1")
    original = digests.customers

    def slow_for_c1(tenant: str, ids: Any) -> dict[str, str]:
        if "c1" in ids:
            raise window.CoreUnavailable("the statement ran over its time")
        return original(tenant, ids)

    monkeypatch.setattr(digests, "customers", slow_for_c1)
    CoreRound.objects.update(began_at=now() - timedelta(seconds=6))
    ticks = 0
    while not (found := look()).complete:
        ticks += 1
        assert ticks < 20
    assert marked() == ["c1", "k1"]
    assert found.unread == 1


def test_the_command_looks_at_everybody_and_scans(write: Write) -> None:
    out = StringIO()
    call_command("scan_trades", "--core", "--json", stdout=out, stderr=StringIO())
    report = json.loads(out.getvalue())
    assert report["core"]["marked"] == 1
    assert report["core"]["complete"] is True
    assert live() == [("RISK-001", "t1@1")]


def test_the_age_of_the_last_round_is_told(write: Write, settings: Any, client: Client) -> None:
    assert "first round" in core_round().detail
    look_at_all()
    fresh = core_round()
    assert not fresh.warning
    assert fresh.value is not None
    assert fresh.value < 30
    CoreRound.objects.update(complete_from=now() - timedelta(hours=2))
    late = core_round()
    assert late.ok
    assert late.warning
    assert "7200 s" in late.detail
    assert b"xinghuo_core_round_seconds 72" in client.get("/metrics").content


@pytest.mark.django_db
def test_a_core_of_ours_is_not_looked_at(django_assert_num_queries: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with django_assert_num_queries(0):
        assert look().customers == 0
    err = StringIO()
    with pytest.raises(SystemExit):
        call_command("scan_trades", "--core", stderr=err)
    assert "--core is for an external core" in err.getvalue()


@pytest.mark.mariadb
@pytest.mark.parametrize("write", [pytest.param("mariadb", id="mariadb")], indirect=True)
def test_a_server_that_stands_still_holds_up_the_round_and_no_more(write: Write, own_database: OwnDatabase) -> None:
    all_seen()
    write("UPDATE core_trade SET status = 'cancelled'")
    CoreRound.objects.update(began_at=now() - timedelta(seconds=6))
    own_database.server.pause()
    began = time.monotonic()
    assert look().away
    assert look().away  # told at once by the breaker
    assert time.monotonic() - began < 5
    own_database.server.resume()
    window.breaker.reset()
    assert marked() == []
    assert look(seconds=60).complete
    assert marked() == ["c1"]


@pytest.mark.mariadb
@pytest.mark.django_db(transaction=True)
def test_a_core_whose_words_are_without_case(own_database: OwnDatabase, settings: Any) -> None:
    """`A002` and `a002` are two customers to us, whatever the core's collation says."""
    own_database.copy_from_default()
    own_database.reset()
    server: MariaDB = own_database.server
    own = server.connect(own_database.name)
    cursor = own.cursor()

    def execute(sql: str, *values: Any) -> None:
        cursor.execute(sql, values)

    cursor.execute("CREATE DATABASE IF NOT EXISTS cased CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    cursor.execute("USE cased")
    for model in FACT_MODELS:
        table = model._meta.db_table
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
        cursor.execute(f"CREATE TABLE {table} LIKE {own_database.name}.{table}")
        cursor.execute(f"ALTER TABLE {table} DROP INDEX {table}_row")
        cursor.execute(f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    with external_core(settings, server.url("cased")):
        for number, name in enumerate(("A002", "a002", "B1")):
            add(execute, "core_trade", trade_id=f"t{number}", customer_id=name)
        CoreRound.objects.create(pk=1, size=1)
        assert look_at_all().new == 3
        CoreChange.objects.all().delete()
        assert look_at_all().marked == 3
        CoreChange.objects.all().delete()
        execute("UPDATE core_trade SET amount = '4' WHERE BINARY customer_id = 'a002'")
        look_at_all()
        assert marked() == ["a002"]
    own.close()
    forget_connection_quietly()


def forget_connection_quietly() -> None:
    if "core" in connections.settings:
        forget_connection()
