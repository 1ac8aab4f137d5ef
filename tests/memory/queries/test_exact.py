"""Figures that would be silently another are refused, or mean the same on each database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from config.base.clock import now
from memory.core.models import CoreTrade
from memory.profiles.queries import services
from memory.profiles.queries.gate import judge
from tests.memory.queries.helpers import ask, make_facts, rows

pytestmark = pytest.mark.django_db(transaction=True)

NOT_RECKONED = [
    "SELECT COUNT(*) FROM core_trade WHERE traded_at > CURRENT_DATE - 30",
    "SELECT COUNT(*) FROM core_trade WHERE traded_at > NOW() - 30",
    "SELECT COUNT(*) FROM core_trade WHERE traded_at > CURDATE() + 1",
    "SELECT AVG(traded_at - 1) FROM core_trade",
    "SELECT AVG(d + 1) FROM (SELECT DATE(traded_at) AS d FROM core_trade) x",
    "SELECT SUM(traded_at) FROM core_trade",
    "SELECT ROUND(MAX(as_of), 0) FROM core_position",
    "SELECT -MAX(as_of) FROM core_position",
    "SELECT MAX(c.opened_at) - MIN(c.opened_at) FROM core_customer c",
    "SELECT '2026-03-01' - '2026-02-01'",
    "SELECT '2026-03-01' + 0",
    "SELECT DATE('2026-03-01') - DATE('2026-02-01')",
    "SELECT CAST('2026-03-01' AS DATE) + 1",
    "SELECT CAST(CURRENT_DATE AS SIGNED)",
    "SELECT COALESCE(MAX(traded_at), NOW()) / 2 FROM core_trade",
    "SELECT CASE WHEN 1 = 1 THEN CURRENT_DATE END - 1",
    "SELECT (SELECT MAX(traded_at) FROM core_trade) - 1",
    "SELECT LAST_DAY('2026-03-01') - 1",
    "SELECT CURRENT_DATE - INTERVAL 1 DAY - 1",
    "SELECT COUNT(*) FROM core_trade WHERE traded_at > 20260101",
    "SELECT COUNT(*) FROM core_trade WHERE traded_at BETWEEN 20260101 AND 20260201",
    "SELECT COUNT(*) FROM core_trade WHERE DATE(traded_at) IN (20260101)",
    "SELECT CURRENT_DATE - INTERVAL '1 day 2 hours'",
    "SELECT CURRENT_DATE - INTERVAL 1.5 DAY",
    "SELECT INTERVAL 1 DAY - CURRENT_DATE",
    "SELECT DATE_ADD(CURRENT_DATE, INTERVAL '1 2' DAY_HOUR)",
    "SELECT 'a' || 'b'",
]  # fmt: skip


@pytest.mark.parametrize("sql", NOT_RECKONED)
def test_a_day_is_no_number(sql: str) -> None:
    assert judge(sql, moment=now()).code in ("SQL_FORBIDDEN", "SQL_INVALID")


MOMENT = datetime(2026, 3, 10, 4, 0, tzinfo=UTC)  # noon in Shanghai
RECKONED: list[tuple[str, object]] = [
    ("COUNT(*) FROM core_trade WHERE traded_at >= CURRENT_DATE - INTERVAL 30 DAY", 26),
    ("COUNT(*) FROM core_trade WHERE traded_at >= INTERVAL -30 DAY + CURRENT_DATE", 26),
    ("COUNT(*) FROM core_trade WHERE traded_at >= DATE_SUB(NOW(), INTERVAL 30 DAY)", 25),
    ("COUNT(*) FROM core_trade WHERE traded_at > NOW() - INTERVAL 4 WEEK", 23),
    ("COUNT(*) FROM core_trade WHERE DATEDIFF(CURRENT_DATE, traded_at) <= 30", 26),
    ("COUNT(*) FROM core_trade WHERE DATE(traded_at) = CURRENT_DATE - INTERVAL 6 DAY", 1),
    ("CURRENT_DATE - INTERVAL 30 DAY", "2026-02-08"),
    ("CURRENT_DATE + INTERVAL 1 MONTH", "2026-04-10"),
    ("DATEDIFF(CURRENT_DATE, '2026-02-08')", 30),
    ("LAST_DAY(CURRENT_DATE)", "2026-03-31"),
    ("DATE_FORMAT(NOW(), '%Y-%m-%d %H')", "2026-03-10 04"),
    ("YEAR(CURRENT_DATE) + 1", 2027),
    ("TIMESTAMPDIFF(HOUR, CURRENT_DATE, NOW())", 4),
    ("'2' + 1", "3"), ("7 / 2", "3.5"), ("7 DIV 2", 3), ("CAST(2.7 AS SIGNED)", 3), ("CAST(-2.5 AS SIGNED)", -3),
    ("CAST('12abc' AS SIGNED)", 12), ("CAST(2.2 AS SIGNED)", 2),
    ("GREATEST(1, NULL)", None), ("1 XOR 1", 0), ("1 XOR 0", 1), ("1 XOR NULL", None), ("(2 XOR 0) + 1", 2),
    ("DATE('2026-03-05', 'start of month', '-1 month')", "2026-02-01"),
    ("CONCAT('a', 'b')", "ab"), ("'a' 'b'", "ab"), ("CONCAT('a', NULL)", None),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), RECKONED)
def test_the_same_on_each_database(sql: str, expected: object, monkeypatch: Any) -> None:
    if "core_trade" in sql:
        make_facts()
        assert CoreTrade.objects.filter(traded_at__gte=MOMENT - timedelta(days=30)).count() == 25
    monkeypatch.setattr(services, "now", lambda: MOMENT)
    [[found]] = rows(f"SELECT {sql}")
    if isinstance(found, str) and isinstance(expected, str):
        found = found.removesuffix("000").rstrip("0").rstrip(".") if "." in found else found
    assert (str(found) if isinstance(expected, str) else found) == expected


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "tsql", "", "MYSQL", "C000017 张三"])
def test_there_is_one_language(dialect: str) -> None:
    assert judge("SELECT 1", moment=now(), dialect=dialect).code == "SQL_INVALID"


@pytest.mark.parametrize(
    "sql",
    [
        "LENGTH(status, 1)", "DATEDIFF(traded_at, '2026-01-01', 1)", "FLOOR(amount, 1)", "MONTHNAME(traded_at, 1)",
        "LPAD(status, 9, 'x', 1)", "MOD(1, 2, 3)", "DATE(traded_at, 'weekday 0')", "DATE(traded_at, 1)", "COUNT()",
        "LOCATE('a', status, 1, 2)", "DATE_FORMAT(traded_at, '%Y', 'x')", "LAST_DAY(traded_at, 1)",
    ],
)  # fmt: skip
def test_no_argument_is_dropped_unsaid(sql: str) -> None:
    assert judge(f"SELECT {sql} FROM core_trade", moment=now()).code in ("SQL_FORBIDDEN", "SQL_INVALID")


PLACES = [
    "SELECT status, amount FROM core_trade ORDER BY 0",
    "SELECT status, amount FROM core_trade ORDER BY 3",
    "SELECT status, amount FROM core_trade ORDER BY -1",
    "SELECT status, amount FROM core_trade ORDER BY 1.0",
    "SELECT status, amount FROM core_trade ORDER BY (3)",
    f"SELECT status FROM core_trade ORDER BY {'1' * 4400}",
    "SELECT status, COUNT(*) FROM core_trade GROUP BY 0",
    "SELECT status, COUNT(*) FROM core_trade GROUP BY 3",
    "SELECT status, COUNT(*) FROM core_trade GROUP BY status, 7",
    "SELECT * FROM core_trade ORDER BY 99",
    "SELECT COUNT(*) FROM (SELECT status, amount FROM core_trade ORDER BY 0 LIMIT 5) x",
    "SELECT status FROM core_trade UNION SELECT channel FROM core_trade ORDER BY 2",
]


@pytest.mark.parametrize("sql", PLACES)
def test_a_number_is_a_column_s_place(sql: str) -> None:
    assert judge(sql, moment=now()).code == "SQL_UNKNOWN_NAME"


def test_numbers_that_are_places_are() -> None:
    make_facts()
    found = rows("SELECT status, COUNT(*) FROM core_trade GROUP BY 1 ORDER BY 2 DESC, 1")
    assert found == [["executed", 30], ["cancelled", 15], ["reversed", 15]]


def test_spread_on_sqlite_is_reckoned_row_by_row() -> None:
    from memory.profiles.queries import local

    for least, root, expected in ((1, False, 4.0), (2, False, 32 / 7), (1, True, 2.0), (2, True, (32 / 7) ** 0.5)):
        spread = local._spread(least, root)()
        for value in (2, 4, 4, None, 4, 5, 5, 7, 9):
            spread.step(value)
        assert spread.finalize() == pytest.approx(expected)
        assert not any(isinstance(kept, list) for kept in vars(spread).values())
    assert local._spread(1, True)().finalize() is None


@pytest.mark.parametrize("sql", ["SELECT 1e308 * 1e10", "SELECT FLOOR(1e308 * 1e10)"])
def test_a_number_out_of_range_is_said_to_be(sql: str) -> None:
    from config.base.errors import DomainError

    with pytest.raises(DomainError) as caught:
        ask(sql)
    assert caught.value.code == "SQL_FAILED"


def test_a_large_whole_number_is_one() -> None:
    [[found]] = rows("SELECT FLOOR(1e30)")
    assert float(found) == 1e30
