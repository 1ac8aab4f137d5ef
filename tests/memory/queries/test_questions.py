"""Honest questions run, in either spelling, under the rule of five customers; what does not has a reason on paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.db import connection

from config.base.clock import now
from memory.profiles.queries.gate import judge
from tests.memory.queries.helpers import ask, make_facts, rows
from tests.memory.queries.questions import QUESTIONS, ROLLUP, VALUES, WITH_A_REASON
from tests.memory.queries.test_honest import sorted_rows

pytestmark = pytest.mark.django_db(transaction=True)

# Nobody's, or of fewer than five customers in these facts.
NOTHING = ("not held", "today", "without a trade")


def test_every_question_has_an_answer_and_both_spellings_the_same(settings: object) -> None:
    settings.ANALYTICS_MIN_GROUP = 5  # type: ignore[attr-defined]
    assert len(QUESTIONS) >= 80
    make_facts(customers=60, trades=600)
    wrong: list[object] = []
    for question in QUESTIONS:
        try:
            answer = ask(question.mysql)
            other = ask(question.sqlite or question.mysql)
        except Exception as error:  # each is told with its question
            wrong.append((question.what, repr(error), getattr(error, "detail", "")))
            continue
        if sorted_rows(answer.result.rows) != sorted_rows(other.result.rows):
            wrong.append((question.what, list(answer.result.rows)[:4], list(other.result.rows)[:4]))
        if not answer.result.rows and question.what not in NOTHING:
            wrong.append((question.what, "nothing", answer.withheld))
    assert wrong == []


@pytest.mark.parametrize(("sql", "expected"), VALUES)
def test_functions_give_what_mysql_gives(sql: str, expected: object) -> None:
    [[found]] = rows(f"SELECT {sql}")
    same = found == expected or (
        isinstance(found, int | str)
        and isinstance(expected, int | str)
        and str(found).rstrip("0").rstrip(".") == str(expected)
    )
    assert same, found


def test_names_stand_in_the_answer_as_they_were_written() -> None:
    make_facts()
    answer = ask('SELECT kind AS "客户 类型", COUNT(*) AS `人数(位)`, 1 AS "% of all" FROM core_customer GROUP BY 1')
    assert list(answer.result.columns) == ["客户 类型", "人数(位)", "% of all"]
    assert rows("SELECT x.`a b` FROM (SELECT COUNT(*) AS `a b` FROM core_customer) x") == [[6]]
    statement = judge("SELECT kind AS `客户 类型` FROM core_customer", moment=now()).statement
    assert statement is not None
    assert "客户 类型" not in statement.sql("mysql")


@pytest.mark.parametrize(
    "name", ["a;b", "a`b", "a\u200bb", "a\u202eb", "a b ", "_xa_1", "_xh_k1", "a\nb", "x" * 65, "a\\b"]
)
def test_names_that_could_be_mistaken_are_refused(name: str) -> None:
    assert not judge(f"SELECT amount AS `{name.replace('`', '``')}` FROM core_trade", moment=now()).allowed


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT LPAD(status, 1001, 'x') FROM core_trade",
        "SELECT LPAD(status, version, 'x') FROM core_trade",
        "SELECT REPEAT('x', 1000000000)",
        "SELECT REPEAT(status, version) FROM core_trade",
        "SELECT REPEAT(REPEAT('x', 1000), 1000)",
        "SELECT COUNT(*) FROM core_trade WHERE LENGTH(REPEAT(REPEAT(REPEAT('x', 1000), 1000), 1000)) > 1",
        "SELECT status FROM core_trade ORDER BY REPEAT(REPEAT(status, 1000), 1000)",
        "SELECT COUNT(*) FROM core_trade GROUP BY REPLACE(REPEAT('x', 1000), 'x', REPEAT('y', 1000))",
        "SELECT REPLACE(REPLACE(REPEAT('x', 1000), 'x', REPEAT('y', 99)), 'y', 'zzzzz')",
        f"SELECT CONCAT_WS(REPEAT('x', 1000), {', '.join(['1'] * 90)})",
        "SELECT COUNT(*) FROM core_trade WHERE EXISTS (SELECT REPEAT(REPEAT('x', 1000), 1000))",
        "SELECT COUNT(*) FROM core_trade a JOIN core_trade b ON REPEAT(REPEAT('x', 1000), 1000) = a.status",
    ],
)
def test_no_text_grows_within_a_row(sql: str) -> None:
    assert judge(sql, moment=now()).code in ("SQL_TOO_COMPLEX", "SQL_FORBIDDEN")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FILTER (WHERE customer_id = 'C0001') FROM core_trade",
        "SELECT SUM(amount) FILTER (WHERE name = 'x') FROM core_trade JOIN core_customer USING (customer_id)",
        "SELECT REPLACE(customer_id, 'C', '') FROM core_trade",
        "SELECT INSTR(customer_id, 'C0001') FROM core_trade",
        "SELECT STRCMP(customer_id, 'C0001') FROM core_trade",
        "SELECT COUNT(*) FROM core_trade GROUP BY LPAD(customer_id, 9, '0')",
        "SELECT COUNT(*) FROM core_customer WHERE TIMESTAMPDIFF(YEAR, birth_date, '2026-01-01') > 60",
        "SELECT EXTRACT(YEAR FROM birth_date) FROM core_customer",
        "SELECT NTH_VALUE(customer_id, 2) OVER (ORDER BY amount) FROM core_trade",
        "SELECT customer_id, SUM(amount) FROM core_trade GROUP BY customer_id WITH ROLLUP",
        "SELECT customer_id || '' FROM core_trade",
        "SELECT MID(customer_id, 1, 3) FROM core_trade",
        "SELECT total(customer_id) FROM core_trade",
        "SELECT CONCAT_WS('-', customer_id, status) FROM core_trade",
        "SELECT julianday(birth_date) FROM core_customer",
        "SELECT date(birth_date, 'start of year') FROM core_customer",
    ],
)
def test_new_functions_are_no_way_to_persons(sql: str) -> None:
    for dialect in ("mysql", "sqlite"):
        assert not judge(sql, dialect=dialect, moment=now()).allowed


@pytest.mark.parametrize("what", WITH_A_REASON)
def test_what_is_refused_has_its_reason_on_the_decision_page(what: str) -> None:
    assert not judge(WITH_A_REASON[what], dialect="sqlite" if what == "printf" else "mysql", moment=now()).allowed
    page = Path(django_settings.BASE_DIR) / "docs/decisions/0020-analysts-sql.md"
    assert what in page.read_text(encoding="utf-8")


@pytest.mark.mariadb
def test_subtotals(settings: object) -> None:
    settings.ANALYTICS_MIN_GROUP = 5  # type: ignore[attr-defined]
    make_facts(customers=60, trades=600)
    assert connection.vendor == "mysql"
    found = rows(ROLLUP)
    assert [row[0] for row in found] == ["cash", "equity", "mixed", None]
    assert float(found[-1][1]) == pytest.approx(sum(float(row[1]) for row in found[:-1]))
