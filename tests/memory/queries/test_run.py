"""A statement from the HTTP request to its rows, and what is written down of it on the way."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from config.base.errors import DomainError
from guard.audit.models import AuditLog
from memory.core.models import CoreTrade
from memory.profiles.queries import running, services
from memory.profiles.queries.models import AnalyticsQueryEnd, AnalyticsQueryLog, AnalyticsQueryText
from memory.profiles.queries.selectors import entries
from tests.memory.queries.helpers import ANA, EAST_ANA, ask, make_facts, rows

pytestmark = pytest.mark.django_db(transaction=True)


def refused(code: str, sql: str) -> DomainError:
    with pytest.raises(DomainError) as caught:
        ask(sql)
    assert caught.value.code == code, caught.value
    return caught.value


def test_rows_and_what_is_written_down() -> None:
    make_facts()
    answer = ask(
        "SELECT trade_id, amount AS 金额, traded_at, cross_border, fee FROM core_trade ORDER BY trade_id LIMIT 2"
    )
    assert answer.result.columns == ["trade_id", "金额", "traded_at", "cross_border", "fee"]
    assert list(map(list, answer.result.rows)) == [
        ["T0000", "100.1", "2026-01-05T02:30:00.000000Z", True, None],
        ["T0001", "200.2", "2026-01-06T02:31:00.000000Z", False, "0.5"],
    ]
    log = AnalyticsQueryLog.objects.get()
    assert (log.decision, log.tables, log.actor_id, log.principal_id) == ("allowed", ["core_trade"], "ana-1", "key-1")
    assert log.columns == [f"core_trade.{name}" for name in ("amount", "cross_border", "fee", "trade_id", "traded_at")]
    assert AnalyticsQueryText.objects.get(pk=log.pk).text.startswith("SELECT trade_id, amount AS 金额")
    end = AnalyticsQueryEnd.objects.get(pk=log.pk)
    assert (end.outcome, end.rows, end.bytes) == ("done", 2, answer.result.bytes)
    row = AuditLog.objects.get(event_type="analytics_sql")
    assert (row.decision, row.object_id, row.actor_type) == ("allowed", log.pk, "staff")
    assert "T0000" not in json.dumps(row.input_summary)


def test_a_refused_one_is_written_down_too_and_does_not_run() -> None:
    make_facts()
    error = refused("SQL_PERSONAL_COLUMN", "SELECT name FROM core_customer WHERE name = '王建国'")
    assert error.extra["columns"] == ["core_customer.name"]
    log = AnalyticsQueryLog.objects.get()
    assert (log.query_id, log.decision, log.code) == (error.extra["query_id"], "refused", "SQL_PERSONAL_COLUMN")
    assert "王建国" not in log.normalised
    assert not AnalyticsQueryEnd.objects.exists()
    row = AuditLog.objects.get(event_type="analytics_sql")
    assert (row.decision, row.code) == ("refused", "SQL_PERSONAL_COLUMN")
    assert "王建国" not in json.dumps(row.input_summary, ensure_ascii=False)


def test_the_log_s_row_is_committed_before_the_statement_runs(monkeypatch: Any) -> None:
    """A process that is killed in between leaves "started": seen from another connection while it runs."""
    make_facts()
    seen: list[Any] = []

    class Killed(BaseException):
        pass

    def die(*_arguments: Any, **_named: Any) -> Any:
        def look() -> None:
            seen.append(list(AnalyticsQueryLog.objects.values_list("decision", flat=True)))
            seen.append(AuditLog.objects.filter(event_type="analytics_sql").count())
            connections.close_all()

        thread = threading.Thread(target=look)
        thread.start()
        thread.join(10)
        raise Killed

    monkeypatch.setattr(running, "run", die)
    with pytest.raises(Killed):
        ask("SELECT COUNT(*) FROM core_trade")
    assert seen == [["allowed"], 1]
    assert not AnalyticsQueryEnd.objects.exists()


def test_a_killed_process_leaves_a_row_that_says_started(monkeypatch: Any) -> None:
    make_facts()
    monkeypatch.setattr(running, "run", lambda *_a, **_n: os.kill(os.getpid(), signal.SIGKILL))
    connections.close_all()
    child = os.fork()
    if child == 0:
        ask("SELECT COUNT(*) FROM core_trade")
        os._exit(0)
    _pid, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    [entry] = entries(list(AnalyticsQueryLog.objects.all()))
    assert (entry.state, entry.log.decision) == ("running", "allowed")
    entry.log.at -= timedelta(minutes=1)
    assert entry.state == "unfinished"
    assert AuditLog.objects.filter(event_type="analytics_sql", decision="allowed").count() == 1


def test_no_transaction_of_the_caller_can_take_the_row_back() -> None:
    from django.db import transaction

    with pytest.raises(RuntimeError), transaction.atomic():
        ask("SELECT 1")


def test_the_log_accepts_insert_only() -> None:
    make_facts()
    ask("SELECT 1")
    for model in (AnalyticsQueryLog, AnalyticsQueryEnd):
        for act in (
            lambda model=model: model.objects.update(tenant="x"),
            lambda model=model: model.objects.all().delete(),
        ):
            with pytest.raises(Exception, match="accepts INSERT only"):
                act()


LONG = (
    "SELECT COUNT(*) FROM core_trade a, core_trade b, core_trade c, core_trade d, core_trade e "
    "WHERE a.amount + b.amount + c.amount + d.amount * e.amount < 0"
)


def test_time_is_bounded(settings: Any) -> None:
    make_facts(trades=200)
    settings.ANALYTICS_SECONDS = 0.3
    refused("SQL_TIMEOUT", LONG)
    end = AnalyticsQueryEnd.objects.get()
    assert (end.outcome, end.code) == ("timeout", "SQL_TIMEOUT")
    assert end.duration_ms < 3000


def test_rows_and_bytes_are_bounded(settings: Any) -> None:
    make_facts()
    settings.ANALYTICS_ROWS = 10
    for limit in ("", " LIMIT 60", " LIMIT 11"):
        result = ask(f"SELECT trade_id FROM core_trade ORDER BY trade_id{limit}").result
        assert (len(result.rows), result.truncated) == (10, True)
    assert not ask("SELECT trade_id FROM core_trade LIMIT 10").result.truncated
    settings.ANALYTICS_ROWS = 10_000
    settings.ANALYTICS_BYTES = 1024
    refused("SQL_RESULT_TOO_LARGE", "SELECT a.trade_id, b.trade_id AS b FROM core_trade a, core_trade b")
    assert AnalyticsQueryEnd.objects.order_by("-at")[0].outcome == "too_large"


def test_no_row_is_wider_than_what_is_read_at_once(settings: Any) -> None:
    """However it doubles: said before it runs. Rows come one by one, so that the bound of bytes ends the reading."""
    make_facts()
    sql = f"SELECT currency, '{'x' * 4000}' AS a FROM core_trade"
    for level in range(12):
        sql = f"SELECT currency, CONCAT(a, a) AS a FROM ({sql}) AS q{level}"
    refused("SQL_TOO_COMPLEX", sql)
    refused("SQL_TOO_COMPLEX", f"SELECT (SELECT {', '.join(['a'] * 1)} FROM ({sql}) AS z LIMIT 1) AS b")
    settings.ANALYTICS_BYTES = 20_000
    wide = f"SELECT '{'x' * 8000}' AS a FROM core_trade"
    refused("SQL_RESULT_TOO_LARGE", wide)
    assert len(rows(f"{wide} LIMIT 2")) == 2


def test_a_database_that_goes_away_has_not_timed_out(settings: Any) -> None:
    lost = running._ended(Exception(2013, "Lost connection"), late=False)
    assert (lost.outcome, lost.error.code) == ("failed", "DATABASE_UNAVAILABLE")
    settings.CORE_IS_EXTERNAL = True
    assert running._ended(Exception(2013, "Lost connection"), late=False).error.code == "CORE_UNAVAILABLE"
    assert running._ended(Exception(2013, "Lost connection"), late=True).error.code == "SQL_TIMEOUT"


def test_functions_stand_within_functions() -> None:
    make_facts()
    assert rows(
        "SELECT YEAR(DATE_SUB(traded_at, INTERVAL 1 YEAR)) AS y, LEFT(DATE_FORMAT(traded_at, '%Y-%m'), 4) AS z, "
        "FLOOR(MONTH(traded_at)/2) AS m, DATE(traded_at + INTERVAL 22 HOUR) AS d, DATEDIFF(DATE(traded_at), "
        "'2026-01-01') AS n FROM core_trade ORDER BY trade_id LIMIT 1"
    ) == [[2025, "2026", 0, "2026-01-06", 4]]


def test_days_and_hours() -> None:
    make_facts()
    assert rows(
        "SELECT HOUR(traded_at), DAYOFWEEK(traded_at), LAST_DAY(traded_at), "
        "ROUND(PERCENT_RANK() OVER (ORDER BY trade_id), 0) FROM core_trade ORDER BY trade_id LIMIT 1"
    ) == [[2, 2, "2026-01-31", "0"]]


def test_the_connection_cannot_write(monkeypatch: Any) -> None:
    """Whatever came past the gate: the statement's own connection is read-only."""
    make_facts()
    for sql in ("DELETE FROM core_trade", "UPDATE core_trade SET amount = 0", "CREATE TABLE x_evil (a INT)"):
        if connection.vendor != "sqlite" and sql.startswith("CREATE"):
            continue  # ends a transaction by itself; the account in production has no such right
        with pytest.raises(running.Ended):
            running.run(sql, [], rows=1)
    assert CoreTrade.objects.count() == 60


def test_what_the_database_refuses_says_no_value() -> None:
    make_facts()
    sql = "SELECT amount FROM core_trade WHERE trade_id = (SELECT trade_id FROM core_trade)"
    if connection.vendor == "sqlite":
        pytest.skip("SQLite takes the first row")
    error = refused("SQL_FAILED", sql)
    assert "T0" not in error.detail
    assert AnalyticsQueryEnd.objects.get().outcome == "failed"


# --- tenants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*), SUM(amount) FROM core_trade",
        "SELECT COUNT(*), SUM(x.amount) FROM (SELECT * FROM (SELECT amount FROM core_trade) y) x",
        "WITH x AS (SELECT amount FROM core_trade), y AS (SELECT * FROM x) SELECT COUNT(*), SUM(amount) FROM y",
        "SELECT COUNT(*), SUM(t.amount) FROM core_trade t JOIN core_customer USING (customer_id)",
        "SELECT COUNT(*), SUM(t.amount) FROM core_trade t WHERE EXISTS (SELECT 1 FROM core_customer c "
        "WHERE c.customer_id = t.customer_id)",
        "SELECT SUM(n), SUM(s) FROM (SELECT COUNT(*) n, SUM(amount) s FROM core_trade WHERE status = 'executed' "
        "UNION ALL SELECT COUNT(*), SUM(amount) FROM core_trade WHERE NOT status = 'executed') u",
        "SELECT (SELECT COUNT(*) FROM core_trade), (SELECT SUM(amount) FROM core_trade)",
        "SELECT COUNT(*), SUM(amount) FROM core_trade WHERE 1 = 1 OR 1 = 1",
        "SELECT COUNT(*), SUM(t.amount) FROM core_trade t LEFT JOIN core_trade s ON s.trade_id = t.trade_id",
        "SELECT COUNT(*), SUM(core_trade.amount) FROM core_trade",
    ],
)
def test_an_analyst_sees_the_tenant_s_rows_alone(sql: str) -> None:
    make_facts(trades=24)
    make_facts("east", trades=12, factor=1000)
    [here], [there] = rows(sql), rows(sql, EAST_ANA)
    assert (int(here[0]), int(there[0])) == (24, 12)
    assert float(here[1]) == pytest.approx(100.10 * 300)
    assert float(there[1]) == pytest.approx(100.10 * 78 * 1000)


def test_checks_say_what_would_be_and_are_written_down() -> None:
    asked = services.check_query(caller=ANA, sql="SELECT name FROM core_customer")
    assert (asked.verdict.code, asked.verdict.personal) == ("SQL_PERSONAL_COLUMN", ("core_customer.name",))
    assert services.check_query(caller=ANA, sql="SELECT 1").verdict.allowed
    assert list(AnalyticsQueryLog.objects.values_list("mode", "decision").order_by("query_id")) == [
        ("check", "refused"), ("check", "allowed"),
    ]  # fmt: skip
    assert not AnalyticsQueryEnd.objects.exists()


def test_costs() -> None:
    """1 SQL for the grants, 3 INSERTs in the transaction, 1 INSERT at the end; the statement on its own connection."""
    make_facts()
    with CaptureQueriesContext(connection) as queries:
        ask("SELECT COUNT(*) FROM core_trade")
    told = [one["sql"] for one in queries if one["sql"].startswith(("SELECT", "INSERT"))]
    assert len(told) == 5, told
