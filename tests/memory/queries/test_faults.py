"""Whatever happens to a statement, it is written down and answered: no text is a fault of ours to its sender."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from config.base.clock import now
from config.base.errors import DomainError
from memory.profiles.queries import running, services, slots
from memory.profiles.queries.gate import MAX_CHARS, judge
from memory.profiles.queries.models import AnalyticsQueryEnd, AnalyticsQueryLog, AnalyticsQueryText
from memory.profiles.queries.rewriting import NotAsJudged, executable
from tests.memory.queries.helpers import ANA, EAST_ANA, ask, make_facts
from tests.memory.queries.mutants import mutants

pytestmark = pytest.mark.django_db(transaction=True)


def refused(sql: str, **named: Any) -> DomainError:
    with pytest.raises(DomainError) as caught:
        ask(sql, **named)
    return caught.value


@pytest.mark.parametrize("sql", ["SELECT", f"SELECT status FROM core_trade ORDER BY {'1' * 4400}", "(SELECT)"])
def test_a_text_that_once_was_a_fault_is_refused_and_in_the_log(sql: str) -> None:
    error = refused(sql)
    assert error.code in ("SQL_INVALID", "SQL_UNKNOWN_NAME", "SQL_NOT_ONE_SELECT")
    log = AnalyticsQueryLog.objects.get()
    assert (log.query_id, log.decision, log.code) == (error.extra["query_id"], "refused", error.code)


@pytest.mark.parametrize("where", ["judge", "executable"])
@pytest.mark.parametrize("fault", [ValueError("王建国"), KeyError("x"), AssertionError(), ZeroDivisionError()])
def test_any_fault_on_the_way_is_a_refusal(where: str, fault: Exception, monkeypatch: Any, caplog: Any) -> None:
    def fail(*_arguments: Any, **_named: Any) -> Any:
        raise fault

    monkeypatch.setattr(services, where, fail)
    assert refused("SELECT COUNT(*) FROM core_trade").code == "SQL_INVALID"
    log = AnalyticsQueryLog.objects.get()
    assert (log.decision, log.code) == ("refused", "SQL_INVALID")
    assert not AnalyticsQueryEnd.objects.exists()
    assert type(fault).__name__ in caplog.text
    assert "王建国" not in caplog.text


def test_a_thousand_mutants() -> None:
    """50,000 of other seeds gave none either."""
    faults = []
    for sql in mutants(seed=20, count=1000):
        try:
            verdict = judge(sql, moment=now(), least=5)
            if verdict.statement is not None:
                for vendor in ("mysql", "sqlite"):
                    executable(verdict.statement, tenant="default", vendor=vendor, rows=10)
        except NotAsJudged:
            continue
        except Exception as error:  # each is told with its text
            faults.append((sql, repr(error)))
    assert faults == []


def test_an_unknown_dialect_is_not_kept_for_it_may_be_anything() -> None:
    assert refused("SELECT 1", dialect="C000017 张三").code == "SQL_INVALID"
    assert AnalyticsQueryLog.objects.get().dialect == ""
    ask("SELECT 1")
    assert set(AnalyticsQueryLog.objects.values_list("dialect", flat=True)) == {"", "mysql"}


def test_of_a_text_too_long_to_run_the_beginning_is_kept() -> None:
    sql = "SELECT '" + "x y " * 500_000 + "'"
    assert refused(sql).code == "SQL_TOO_COMPLEX"
    kept = AnalyticsQueryText.objects.get().text
    assert len(kept) < MAX_CHARS + 150
    assert f"({len(sql)} characters, SHA-256 " in kept
    assert kept.startswith("SELECT 'x y x y")
    AnalyticsQueryText.objects.all().delete()
    # Not within a name: half of one is what no erasure looks for.
    before = "SELECT '" + "x " * ((MAX_CHARS - 9) // 2)
    refused(f"{before}王建国王建国 and more '")
    assert "王" not in AnalyticsQueryText.objects.get().text
    exact = "SELECT 1 -- " + "x" * (MAX_CHARS - 12)
    ask(exact)
    assert AnalyticsQueryText.objects.filter(text=exact).exists()


def test_statements_at_one_time_are_bounded(settings: Any, monkeypatch: Any) -> None:
    settings.ANALYTICS_AT_ONCE, settings.ANALYTICS_AT_ONCE_ALL = 1, 2
    make_facts()
    began, go_on = threading.Event(), threading.Event()
    run = running.run

    def slow(*arguments: Any, **named: Any) -> Any:
        began.set()
        assert go_on.wait(20)
        return run(*arguments, **named)

    def work() -> None:
        try:
            ask("SELECT COUNT(*) FROM core_trade")
        finally:
            connections.close_all()

    monkeypatch.setattr(running, "run", slow)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert began.wait(20)
        busy = refused("SELECT 1")
        assert (busy.code, busy.status, busy.extra["retry_after"]) == ("SQL_BUSY", 429, 1)
        with pytest.raises(DomainError):
            services.check_query(caller=ANA, sql="SELECT 1")
        monkeypatch.setattr(running, "run", run)
        ask("SELECT 1", EAST_ANA)  # another's
        settings.ANALYTICS_AT_ONCE_ALL = 1
        assert refused("SELECT 1", caller=EAST_ANA).code == "SQL_BUSY"
    finally:
        go_on.set()
        thread.join(20)
    ask("SELECT 1")
    refused("SELECT nothing FROM core_trade")
    assert slots.slots._taken.total() == 0


def test_a_statement_that_an_operator_ended_has_not_timed_out(settings: Any) -> None:
    ended = running._ended(Exception(1317, "Query execution was interrupted"), late=False)
    assert (ended.outcome, ended.error.code) == ("failed", "SQL_FAILED")
    assert running._ended(Exception(1317, "interrupted"), late=True).error.code == "SQL_TIMEOUT"
    assert running._ended(Exception(1969, "max_statement_time"), late=False).error.code == "SQL_TIMEOUT"


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="nobody else can end a statement of SQLite's")
def test_kill_query(settings: Any) -> None:
    settings.ANALYTICS_SECONDS = 30
    make_facts(trades=200)
    marked = "SELECT COUNT(*) AS killed FROM core_trade a, core_trade b, core_trade c, core_trade d, core_trade e " \
             "WHERE a.amount + b.amount + c.amount + d.amount * e.amount < 0"  # fmt: skip
    found: list[DomainError] = []

    def work() -> None:
        try:
            found.append(refused(marked))
        finally:
            connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    name = connection.settings_dict["NAME"]
    while thread.is_alive():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE db = %s AND info LIKE '%%AS `killed`%%' AND "
                "id <> CONNECTION_ID()", [name],
            )  # fmt: skip
            for [one] in cursor.fetchall():
                cursor.execute(f"KILL QUERY {int(one)}")
        thread.join(0.05)
    assert [error.code for error in found] == ["SQL_FAILED"]
    assert AnalyticsQueryEnd.objects.get().outcome == "failed"
