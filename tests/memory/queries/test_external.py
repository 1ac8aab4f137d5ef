"""The core on another server: statements run there, and its being away is an end of the statement like another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.services import Caller
from memory.core.selectors import is_assigned
from memory.profiles.queries import running
from memory.profiles.queries.models import AnalyticsQueryEnd
from tests.dripping import Dripping, dripping
from tests.memory.core.external import external_core, make_sqlite_core
from tests.memory.queries.helpers import ask, make_facts, rows
from tests.own_database import OwnDatabase

pytestmark = pytest.mark.django_db(transaction=True)

PRODUCT = (
    "INSERT INTO core_product (id, tenant, product_id, valid_from, issuer_id, asset_class, risk_level) "
    "VALUES (1, 'default', 'P-far', '2020-01-01 00:00:00', 'I', 'cash', 2)"
)


def test_it_runs_on_the_core_s_server(settings: Any, tmp_path: Path) -> None:
    make_facts()
    with external_core(settings, make_sqlite_core(tmp_path / "core.sqlite3", (PRODUCT, ()))):
        assert rows("SELECT product_id, valid_from FROM core_product") == [["P-far", "2020-01-01T00:00:00.000000Z"]]
        with pytest.raises(running.Ended):
            running.run("DELETE FROM core_product", [], rows=1)
        assert rows("SELECT COUNT(*) FROM core_product") == [[1]]
    assert rows("SELECT COUNT(*) FROM core_product") == [[5]]


def test_with_the_core_away_it_is_told_and_written_down(settings: Any, tmp_path: Path) -> None:
    with external_core(settings, f"sqlite://{tmp_path}/none.sqlite3"), pytest.raises(DomainError) as caught:
        ask("SELECT COUNT(*) FROM core_product")
    assert caught.value.status == 503
    [end] = AnalyticsQueryEnd.objects.all()
    assert (end.outcome, end.code) == ("failed", caught.value.code)


@pytest.mark.mariadb
def test_a_core_that_folds_case_gives_nobody_what_is_another_s(settings: Any) -> None:
    make_facts()
    given = connection.settings_dict
    columns = ("core_customer.tenant", "core_assignment.tenant", "core_assignment.advisor_id")
    was: dict[str, str] = {}
    with connection.cursor() as cursor:
        for table, column in (one.split(".") for one in columns):
            cursor.execute(f"SHOW FULL COLUMNS FROM {table} WHERE Field = %s", [column])
            was[f"{table}.{column}"] = "{1} COLLATE {2}".format(*cursor.fetchone())
            cursor.execute(f"ALTER TABLE {table} MODIFY {column} VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL")
    try:
        url = f"mysql://{given['USER']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"
        with external_core(settings, url):
            assert rows("SELECT COUNT(*) FROM core_customer") == [[6]]
            other = Caller("Default", "analyst", "ana-1", "key-1")
            assert rows("SELECT COUNT(*) FROM core_customer", other) == [[0]]
            assert is_assigned("default", "A0", "C0000", now())
            assert not is_assigned("default", "a0", "C0000", now())
            assert not is_assigned("Default", "A0", "C0000", now())
    finally:
        with connection.cursor() as cursor:
            for table, column in (one.split(".") for one in columns):
                cursor.execute(f"ALTER TABLE {table} MODIFY {column} {was[f'{table}.{column}']} NOT NULL")


@pytest.mark.mariadb
def test_on_another_mariadb_the_session_is_read_only_and_its_time_is_bounded(settings: Any) -> None:
    make_facts(trades=200)
    given = connection.settings_dict
    url = f"mysql://{given['USER']}@{given['HOST']}:{given['PORT']}/{given['NAME']}"
    with external_core(settings, url, statement_ms=300):
        assert rows("SELECT COUNT(*) FROM core_trade") == [[200]]
        for sql in ("DELETE FROM core_trade", "UPDATE core_trade SET amount = 0"):
            with pytest.raises(running.Ended):
                running.run(sql, [], rows=1)
        with pytest.raises(DomainError) as caught:
            ask(
                "SELECT COUNT(*) FROM core_trade a, core_trade b, core_trade c, core_trade d "
                "WHERE a.amount + b.amount * c.amount - d.amount < 0"
            )
        assert caught.value.code == "SQL_TIMEOUT"


def dripping_once_open(way: Dripping, reading: Callable[..., AbstractContextManager[Any]]) -> Callable[..., Any]:
    @contextmanager
    def slowly(*arguments: Any) -> Iterator[Any]:
        way.drip.set()
        with reading(*arguments) as cursor:
            yield cursor

    return slowly


@pytest.mark.mariadb
def test_an_answer_that_drips_has_one_deadline(own_database: OwnDatabase, settings: Any) -> None:
    """Each byte comes within the driver's time-out, and the whole never."""
    settings.ANALYTICS_SECONDS = 1.0
    own_database.copy_from_default()
    own_database.reset()
    server = own_database.server
    with dripping(server.port, pause=2.0) as way:
        url = server.url(own_database.name).replace(f":{server.port}/", f":{way.port}/")
        with external_core(settings, url):
            assert rows("SELECT COUNT(*) FROM core_product") == [[0]]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(running, "_reading", dripping_once_open(way, running._reading))
                with pytest.raises(DomainError) as caught:
                    ask("SELECT COUNT(*) FROM core_product")
            assert caught.value.code == "SQL_TIMEOUT"
            assert way.dripped < 11  # not even the first of four answers came whole
            way.drip.clear()
            assert rows("SELECT COUNT(*) FROM core_product") == [[0]]
