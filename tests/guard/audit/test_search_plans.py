"""A page of the audit log costs what a page costs, whatever is asked and however long the log is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.base.clock import now
from guard.audit import pseudonyms
from guard.audit.models import AuditLog, CustomerPseudonym
from guard.audit.selectors import Place, Search, find, page_of, stream
from tests.guard.audit.sealing import without_triggers
from tests.risk.console.make import make_auditor, make_client

pytestmark = pytest.mark.django_db
LOG = "/admin/guard/auditlog/"
MANY = 20_000
PAGE = 51
TRACE = "a" * 32
BEGIN = now() - timedelta(days=100)


def make_long_log() -> None:
    """20,000 rows, ten seconds apart, nearly all alike; what is searched for stands at the far end of the log."""
    alike: dict[str, Any] = {
        "tenant": "default", "event_type": "authz", "decision": "forbidden", "actor_type": "agent", "actor_id": "wei",
        "agent": "advisor", "object_type": "session", "code": "NOT_OWNER",
    }  # fmt: skip
    rare: dict[int, dict[str, Any]] = {
        10: {"actor_id": "lin"},
        11: {"on_behalf_of": "lin"},
        12: {"object_id": "s-rare"},
        13: {"code": "RARE", "event_type": "alert_viewed", "decision": "viewed", "actor_type": "staff"},
        14: {"trace_id": TRACE},
        15: {"customer": pseudonyms.of("default", "cust-7")},
        16: {"actor_id": pseudonyms.of("default", "cust-7"), "actor_type": "customer"},
        17: {"tenant": "east"},
    }
    rows = [
        AuditLog(**{**alike, "object_id": f"s-{n}", "at": BEGIN + timedelta(seconds=10 * n), **rare.get(n, {})})
        for n in range(MANY)
    ]
    AuditLog.objects.bulk_create(rows, batch_size=1000)
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE TABLE audit_log")
            cursor.fetchall()


@pytest.fixture(scope="module", autouse=True)
def long_log(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """One for the module, for nobody changes it; taken away past the triggers."""
    with django_db_blocker.unblock():
        make_long_log()
    yield
    with django_db_blocker.unblock():
        with without_triggers() as cursor:
            cursor.execute("DELETE FROM audit_log")
        CustomerPseudonym.objects.all().delete()


# What is asked, and how many rows of the log answer.
QUESTIONS: list[tuple[str, dict[str, Any], int]] = [
    ("all", {}, MANY - 1),
    ("a busy actor", {"actor": "wei"}, MANY - 3),
    ("a rare actor, or for whom", {"actor": "lin"}, 2),
    ("nobody", {"actor": "nobody"}, 0),
    ("anywhere, a name", {"q": "lin"}, 2),
    ("anywhere, a customer", {"q": "cust-7"}, 2),
    ("anywhere, a trace", {"q": TRACE}, 1),
    ("anywhere, nothing", {"q": "nobody"}, 0),
    ("an object", {"object": "s-rare"}, 1),
    ("a code", {"code": "RARE"}, 1),
    ("no such code", {"code": "NONE"}, 0),
    ("a decision", {"decision": "viewed"}, 1),
    ("a decision that nobody took", {"decision": "revoked"}, 0),
    ("a kind of actor", {"actor_type": "staff"}, 1),
    ("an event", {"event": "alert_viewed"}, 1),
    ("a trace", {"trace": TRACE}, 1),
    ("a customer", {"customer": "cust-7"}, 1),
    ("a customer whom nobody knows", {"customer": "cust-9"}, 0),
    ("the first hour", {"until": BEGIN + timedelta(hours=1)}, 359),
    ("an actor's first hour", {"actor": "wei", "until": BEGIN + timedelta(hours=1)}, 357),
    ("two of a busy actor's", {"actor": "wei", "object": "s-20"}, 1),
]  # fmt: skip
EACH = pytest.mark.parametrize(("search", "many"), [one[1:] for one in QUESTIONS], ids=[one[0] for one in QUESTIONS])


@contextmanager
def work() -> Iterator[Callable[[], int]]:
    """What the database has done meanwhile: rows that MariaDB read, steps of SQLite's machine, in units of 100."""
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:

            def read() -> int:
                cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
                return sum(int(value) for _name, value in cursor.fetchall())

            before = read()
            yield lambda: read() - before
        return
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    connection.connection.set_progress_handler(step, 100)
    try:
        yield lambda: steps[0]
    finally:
        connection.connection.set_progress_handler(None, 0)


def table_read_without_index(sql: str) -> list[Any]:
    """Steps of the plan that read `audit_log` from end to end."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            return [row for row in cursor.fetchall() if row[3].startswith("SCAN audit_log")]
        cursor.execute(f"EXPLAIN {sql}")
        names = [column[0] for column in cursor.description]
        plan = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return [row for row in plan if row["table"] == "audit_log" and (row["type"] in ("ALL", "index"))]


@EACH
def test_each_question_walks_an_index_and_no_more_of_it_than_a_page(search: dict[str, Any], many: int) -> None:
    asked = Search(**search)
    with CaptureQueriesContext(connection) as queries, work() as done:
        found = page_of(find("default", asked), size=PAGE)
        cost = done()
    assert len(found) == min(many, PAGE)
    assert found == sorted(found, key=lambda row: (row.at, row.pk), reverse=True)
    own = [query["sql"] for query in queries if not query["sql"].startswith("SHOW")]
    of_the_log = [sql for sql in own if "audit_log" in sql]
    assert len(own) <= 6
    assert len(of_the_log) <= 2
    assert [plan for sql in of_the_log for plan in table_read_without_index(sql)] == []
    # Eight alternatives of a page each, three reads a row; the table has 20,000 rows.
    assert cost < 1500, cost


@EACH
def test_an_export_has_each_row_once_oldest_first(
    monkeypatch: pytest.MonkeyPatch, search: dict[str, Any], many: int
) -> None:
    monkeypatch.setattr("guard.audit.selectors.PAGE", 7 if many < 1000 else 2000)
    rows = list(stream("default", Search(**search)))
    assert len(rows) == many
    assert rows == sorted(rows, key=lambda row: (row.at, row.pk))


def test_the_page_in_the_admin_is_a_few_queries_and_the_last_one_costs_what_the_first_does() -> None:
    client = make_client(make_auditor())
    client.get(LOG)
    far = AuditLog.objects.filter(tenant="default").order_by("at")[1000]
    deep = str(Place(far.at, far.pk))
    for query in ({"q": "lin"}, {"actor": "wei"}, {"actor": "wei", "before": deep}, {}, {"before": deep}):
        with CaptureQueriesContext(connection) as queries, work() as done:
            listing = client.get(LOG, query).context["cl"]
            cost = done()
        statements = [one["sql"] for one in queries if not one["sql"].startswith("SHOW")]
        assert len(statements) <= 10, statements
        assert not [sql for sql in statements if "COUNT(" in sql.upper() and "audit_log" in sql]
        assert [plan for sql in statements if "FROM `audit_log`" in sql for plan in table_read_without_index(sql)] == []
        assert cost < 2500, (query, cost)
        assert len(listing.result_list) == (2 if "q" in query else 50)
