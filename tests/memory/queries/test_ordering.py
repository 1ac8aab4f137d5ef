"""What has C0017? Not by the id: by the place at which a database that walks an index would put that customer's rows.

The facts are written in the order of the ids, and the grants here are for other columns than an id: they show rows,
and no row may say by where it stands whose it is.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from config.base.clock import now
from memory.core.models import CoreCustomer, CorePosition, CoreTrade
from memory.profiles.queries.gate import judge
from memory.profiles.queries.models import AnalyticsGrant
from tests.memory.queries.helpers import START, ask, rows

pytestmark = pytest.mark.django_db(transaction=True)

MANY = 40
IDS = [f"C{number:04d}" for number in range(MANY)]
# No figure grows or falls with the id.
FIGURES = {one: Decimal((number * 27) % MANY + 1) * 100 for number, one in enumerate(IDS)}
GRANTS = ["core_trade.dual_recording_id", "core_customer.name"]


@pytest.fixture(autouse=True)
def forty_with_other_grants(settings: Any) -> None:
    settings.ANALYTICS_MIN_GROUP = 5
    CoreCustomer.objects.bulk_create(
        CoreCustomer(
            customer_id=one, name=f"n{FIGURES[one]:05.0f}", kind="natural",
            opened_at=START - timedelta(days=int(FIGURES[one]) // 100),
        )
        for one in IDS
    )  # fmt: skip
    for place in range(2):
        CoreTrade.objects.bulk_create(
            CoreTrade(
                trade_id=f"T{FIGURES[one]:05.0f}{place}", version=1, customer_id=one, product_id="P1", advisor_id="A1",
                trade_type="buy", traded_at=START, amount=FIGURES[one], currency="CNY", status="executed",
                channel="branch",
            )
            for one in IDS
        )  # fmt: skip
    CorePosition.objects.bulk_create(
        CorePosition(customer_id=one, product_id="P1", as_of=START.date(), market_value=FIGURES[one]) for one in IDS
    )
    AnalyticsGrant.objects.create(
        tenant="default", actor_id="ana-1", columns=GRANTS, reason="x", granted_by="root",
        expires_at=now() + timedelta(days=1),
    )  # fmt: skip


def one_each(sql: str) -> list[float]:
    return [float(row[0]) for row in rows(sql)]


IN_ORDER_OF_IDS = [float(FIGURES[one]) for one in IDS]

# Each row is one customer's figure, or the figure twice.
EACH = {
    "a table as it lies": "SELECT CAST(SUBSTRING(trade_id, 2, 5) AS SIGNED) AS s FROM core_trade WHERE "
    "RIGHT(trade_id, 1) = '0'",
    "a window over each person": "SELECT s / 2 FROM (SELECT ROW_NUMBER() OVER (PARTITION BY customer_id) AS n, "
    "SUM(amount) OVER (PARTITION BY customer_id) AS s FROM core_trade) x WHERE n = 1",
    "a row number by nothing": "SELECT s FROM (SELECT amount AS s, ROW_NUMBER() OVER () AS n FROM core_trade WHERE "
    "RIGHT(trade_id, 1) = '0') x ORDER BY n",
    "a running total": "SELECT r FROM (SELECT COUNT(*) OVER (ORDER BY one ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT "
    "ROW) AS n, s AS r FROM (SELECT amount AS s, 1 AS one FROM core_trade WHERE RIGHT(trade_id, 1) = '0') x) y "
    "ORDER BY n",
    "ordered by what is all the same": "SELECT amount FROM core_trade WHERE RIGHT(trade_id, 1) = '0' ORDER BY currency",
    "a UNION": "SELECT amount FROM core_trade WHERE RIGHT(trade_id, 1) = '0' UNION ALL SELECT amount FROM core_trade "
    "WHERE 1 = 0",
    "ids kept within": "SELECT t.amount FROM (SELECT customer_id, ROW_NUMBER() OVER (ORDER BY one) AS n FROM (SELECT "
    "customer_id, 1 AS one FROM core_customer) x) y JOIN core_trade t ON t.customer_id = y.customer_id WHERE "
    "RIGHT(t.trade_id, 1) = '0' ORDER BY y.n",
}  # fmt: skip


@pytest.mark.parametrize("how", EACH)
def test_rows_do_not_come_in_the_order_of_the_ids(how: str) -> None:
    found = one_each(EACH[how])
    assert sorted(found) == sorted(IN_ORDER_OF_IDS)
    places = sum(one == other for one, other in zip(found, IN_ORDER_OF_IDS, strict=True))
    assert places < 8, (how, places)  # of forty some stand where they would by chance


@pytest.mark.parametrize("how", EACH)
def test_the_seventeenth_is_not_the_seventeenth_customer(how: str) -> None:
    """By LIMIT around it, where a place is picked rather than shown."""
    picked = [one_each(f"{EACH[how]} LIMIT 1 OFFSET {place}") for place in (0, 9, 16, 25, 33)]
    assert [len(one) for one in picked] == [1] * 5
    hits = sum(one[0] == IN_ORDER_OF_IDS[place] for one, place in zip(picked, (0, 9, 16, 25, 33), strict=True))
    assert hits < 3, how


PICKED = [
    "SELECT MAX(s) FROM (SELECT amount AS s FROM core_trade WHERE RIGHT(trade_id, 1) = '0' LIMIT 1 OFFSET {n}) x",
    "SELECT (SELECT amount FROM core_trade WHERE RIGHT(trade_id, 1) = '0' LIMIT 1 OFFSET {n})",
    "SELECT MAX(s) FROM (SELECT amount AS s, NTH_VALUE(amount, {n} + 1) OVER (ORDER BY currency ROWS BETWEEN UNBOUNDED "
    "PRECEDING AND UNBOUNDED FOLLOWING) AS v FROM core_trade WHERE RIGHT(trade_id, 1) = '0') x WHERE s = v",
    "SELECT MAX(s) FROM (SELECT amount AS s, NTILE(40) OVER (ORDER BY currency) AS v FROM core_trade WHERE "
    "RIGHT(trade_id, 1) = '0') x WHERE v = {n} + 1",
    "SELECT MAX(s) FROM (SELECT s / 2 AS s, ROW_NUMBER() OVER (ORDER BY one) AS n FROM (SELECT SUM(amount) AS s, 1 AS "
    "one FROM core_trade GROUP BY customer_id) x) y WHERE n = {n} + 1",
]  # fmt: skip


@pytest.mark.parametrize("sql", PICKED)
def test_no_figure_is_picked_by_a_customer_s_place(sql: str) -> None:
    hits = 0
    for place in (0, 9, 16, 25, 33):
        wanted = sql.replace("{n} + 1", str(place + 1)).replace("{n}", str(place))
        if not judge(wanted, moment=now(), least=5, granted=GRANTS).allowed:
            return  # it may be refused as well
        hits += rows(wanted) == [[str(FIGURES[IDS[place]])]]
    assert hits < 3


def test_the_order_is_the_same_each_time_and_another_tenants_is_another(monkeypatch: Any) -> None:
    sql = EACH["ids kept within"]
    assert one_each(sql) == one_each(sql)
    from memory.profiles.queries.rewriting import executable

    statement = judge(sql, moment=now(), granted=GRANTS).statement
    assert statement is not None
    here, there = (executable(statement, tenant=one, vendor="mysql", rows=9) for one in ("default", "east"))
    assert here.replace("'default'", "'east'") != there


def test_what_was_asked_for_comes_first() -> None:
    found = one_each("SELECT amount FROM core_trade ORDER BY amount DESC LIMIT 6")
    assert found == [4000, 4000, 3900, 3900, 3800, 3800]
    assert one_each("SELECT amount, trade_id FROM core_trade ORDER BY trade_id DESC LIMIT 3") == [4000, 4000, 3900]
    assert rows("SELECT currency, COUNT(*) FROM core_trade GROUP BY currency WITH ROLLUP" if not _sqlite() else
                "SELECT currency, COUNT(*) FROM core_trade GROUP BY currency UNION ALL SELECT NULL, COUNT(*) FROM "
                "core_trade ORDER BY 1 DESC") == [["CNY", 80], [None, 80]]  # fmt: skip


def _sqlite() -> bool:
    from django.db import connection

    return connection.vendor == "sqlite"


# --- grouped in full ------------------------------------------------------------------------------------------------

BARE = [
    "SELECT s, COUNT(*) FROM (SELECT customer_id, SUM(amount) AS s FROM core_trade GROUP BY customer_id) x",
    "SELECT kind, s, COUNT(*) FROM (SELECT c.kind, SUM(t.amount) AS s FROM core_customer c JOIN core_trade t USING "
    "(customer_id) GROUP BY c.customer_id, c.kind) x GROUP BY kind",
    "SELECT amount, COUNT(*) FROM core_trade GROUP BY status",
    "SELECT t.amount + SUM(t.fee) FROM core_trade t",
    "SELECT status, COUNT(*) FROM core_trade GROUP BY status ORDER BY amount",
    "SELECT status, COUNT(*) FROM core_trade GROUP BY status HAVING amount > 5",
    "SELECT MAX(amount) FROM core_trade ORDER BY trade_id",
    "SELECT amount FROM core_trade HAVING amount > 5",
    "SELECT SUM(amount) OVER (ORDER BY trade_id) FROM core_trade GROUP BY status",
    "SELECT status, (SELECT COUNT(*) FROM core_trade u WHERE u.trade_id = t.trade_id) FROM core_trade t GROUP BY "
    "status",
    "SELECT UPPER(status), COUNT(*) FROM core_trade GROUP BY LOWER(status)",
]  # fmt: skip
FULL = [
    "SELECT status, COUNT(*) FROM core_trade GROUP BY status ORDER BY COUNT(*) DESC, status",
    "SELECT UPPER(status), COUNT(*) FROM core_trade GROUP BY status",
    "SELECT DATE_FORMAT(traded_at, '%Y-%m') AS m, COUNT(*) FROM core_trade GROUP BY m HAVING m > '2026' ORDER BY m",
    "SELECT status, (SELECT COUNT(*) FROM core_trade u WHERE u.status = t.status) FROM core_trade t GROUP BY status",
    "SELECT status, SUM(SUM(amount)) OVER (ORDER BY status) FROM core_trade GROUP BY status",
    "SELECT MAX(amount) - MIN(amount) FROM core_trade HAVING COUNT(*) > 0",
]


@pytest.mark.parametrize("sql", BARE)
def test_what_is_neither_grouped_by_nor_aggregated_is_no_figure(sql: str) -> None:
    found = judge(sql, moment=now(), granted=GRANTS)
    assert (found.code, "neither grouped by nor aggregated" in found.detail) == ("SQL_INVALID", True), found


@pytest.mark.parametrize("sql", FULL)
def test_what_is_grouped_in_full_runs(sql: str) -> None:
    assert ask(sql).result.rows is not None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT MAX(v) FROM (SELECT LAST_VALUE(amount) OVER (ORDER BY currency) AS v FROM core_trade) x",
        "SELECT MAX(v) FROM (SELECT NTH_VALUE(amount, 2) OVER (ORDER BY currency) AS v FROM core_trade) x",
    ],
)
def test_a_value_at_a_place_among_equals_is_refused(sql: str) -> None:
    assert judge(sql, moment=now(), granted=GRANTS).code == "SQL_FORBIDDEN"
