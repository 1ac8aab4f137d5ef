"""A core whose statistics are from before a large import: what is asked of a few customers reads their rows alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from memory.core.around import facts_around
from memory.core.models import CoreTrade
from memory.core.selectors import customers_facts
from tests.bench.scans import trades_of

pytestmark = [pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]

EACH, CUSTOMERS = 250, 40


@pytest.fixture
def old_statistics() -> Iterator[None]:
    """Of an empty table; ten thousand trades came since, and nobody has counted them."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE core_trade STATS_PERSISTENT=1, STATS_AUTO_RECALC=0")
        cursor.execute("ANALYZE TABLE core_trade")
        cursor.fetchall()
    rng = random.Random(3)
    for number in range(CUSTOMERS):
        CoreTrade.objects.bulk_create(trades_of("default", f"c{number:02d}", EACH, rng))
    moved = CoreTrade.objects.get(trade_id="c00-0000003")
    moved.pk, moved.version, moved.customer_id = None, 2, "c39"
    moved.save(force_insert=True)
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE core_trade STATS_PERSISTENT=DEFAULT, STATS_AUTO_RECALC=DEFAULT")


def rows_read(work: Callable[[], Any]) -> int:
    """By index or in a scan of a table."""

    def total() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            wanted = ("Handler_read_next", "Handler_read_rnd_next", "Handler_read_rnd")
            return sum(int(value) for name, value in cursor.fetchall() if name in wanted)

    began = total()
    work()
    return total() - began


@pytest.mark.parametrize("many", [1, 5])
def test_a_chunk_reads_its_own_rows(old_statistics: None, many: int) -> None:
    names = [f"c{number:02d}" for number in range(many)]
    found = {}
    read = rows_read(lambda: found.update(customers_facts(tenant="default", customer_ids=names)))
    assert sum(len(rows.trades) for rows in found.values()) == EACH * many + 1
    assert {row.customer_id for row in found["c00"].trades} == {"c00", "c39"}
    assert read < 4 * EACH * many + 500


def test_one_trade_reads_its_customers_rows(old_statistics: None) -> None:
    read = rows_read(lambda: facts_around(tenant="default", trade_id="c01-0000005"))
    assert read < 4 * EACH + 500
