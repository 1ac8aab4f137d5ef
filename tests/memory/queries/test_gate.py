"""Two corpora (what is refused, what is allowed with what it reaches), and random statements."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from config.base.clock import now
from memory.core.models import FACT_MODELS
from memory.core.personal import CATALOGUE, GRANTABLE, HIDDEN, LINKING, PERSONAL, Sort
from memory.profiles.queries.gate import Verdict, judge
from memory.profiles.queries.rewriting import executable
from tests.memory.queries import attacks

EVERY_ATTACK = [(why, sql) for why, sqls in attacks.ATTACKS.items() for sql in sqls]


def verdict(sql: str, **named: Any) -> Verdict:
    return judge(sql, moment=now(), **named)


def test_there_are_enough_of_them() -> None:
    assert len(EVERY_ATTACK) >= 80
    assert len(attacks.PERSONAL) >= 80


@pytest.mark.parametrize(("why", "sql"), EVERY_ATTACK)
def test_attacks_are_refused_whoever_asks(why: str, sql: str) -> None:
    """Also to an analyst who has every grant."""
    found = verdict(sql, granted=GRANTABLE)
    assert not found.allowed, why
    assert found.code != "SQL_PERSONAL_COLUMN"
    assert found.statement is None


@pytest.mark.parametrize("sql", attacks.PERSONAL)
def test_personal_columns_are_refused_without_the_grant(sql: str) -> None:
    found = verdict(sql)
    assert found.code in ("SQL_PERSONAL_COLUMN", "SQL_FORBIDDEN"), (found.code, found.detail)
    assert found.statement is None


@pytest.mark.parametrize("sql", attacks.PERSONAL)
def test_with_the_grant_they_are_allowed(sql: str) -> None:
    found = verdict(sql, granted=GRANTABLE)
    assert found.allowed or found.code == "SQL_FORBIDDEN"


def test_a_grant_is_for_its_columns_alone() -> None:
    sql = "SELECT name, birth_date FROM core_customer"
    assert verdict(sql, granted=["core_customer.name"]).code == "SQL_PERSONAL_COLUMN"
    assert verdict(sql, granted=["core_customer.name", "core_customer.birth_date"]).allowed
    assert not verdict("SELECT customer_id FROM core_trade", granted=["core_customer.customer_id"]).allowed


def test_every_column_of_the_core_is_in_one_group() -> None:
    for model in FACT_MODELS:
        table = model._meta.db_table
        known = {field.column for field in model._meta.concrete_fields}
        assert HIDDEN & known <= known
        assert PERSONAL.get(table, frozenset()) <= known
        assert LINKING.get(table, frozenset()) <= known
        assert not PERSONAL.get(table, frozenset()) & LINKING.get(table, frozenset())
        assert set(CATALOGUE[table]) == known - HIDDEN
    # An id column that is new and stands for a person must be thought of.
    plain = {c.name for columns in CATALOGUE.values() for c in columns.values() if c.sort is Sort.PLAIN}
    assert {name for name in plain if name.endswith("_id")} == {"product_id", "issuer_id", "trade_id", "advisor_id"}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT amount FROM core_trade WHERE trade_id = '王建国'",
        "SELECT '王建国' FROM core_trade",
        "SELECT amount AS 王建国 FROM core_trade",
        "SELECT 王建国.amount FROM core_trade 王建国",
        "WITH 王建国 AS (SELECT amount FROM core_trade) SELECT amount FROM 王建国",
        "SELECT amount FROM core_trade /* 王建国 */ -- 王建国",
        "SELECT x.王建国 FROM (SELECT amount FROM core_trade) AS x(王建国)",
        "SELECT name FROM core_customer WHERE name IN ('王建国', 'x')",
        "SELECT amount FROM core_trade WHERE amount = 440106199001011234",
        "SELECT DATE_FORMAT(traded_at, '440106199001011234') FROM core_trade",
        "SELECT DATE_FORMAT(traded_at, '%Y440106199001011234') FROM core_trade",
        "SELECT CAST(trade_id AS CHAR(440106199001011234)) FROM core_trade",
        "SELECT CAST(amount AS DECIMAL(44, 440106199001011234)) FROM core_trade",
        "SELECT traded_at + INTERVAL '440106199001011234' DAY FROM core_trade",
        "SELECT traded_at + INTERVAL 440106199001011234 DAY FROM core_trade LIMIT 5 OFFSET 440106199",
        "SELECT amount FROM 王建国",
        "SELECT 王建国 FROM core_trade",
    ],
)
def test_the_normalised_form_holds_nothing_that_was_made_up(sql: str) -> None:
    found = verdict(sql)
    assert "王建国" not in found.normalised
    assert "440106199001011234" not in found.normalised


def test_a_format_of_codes_stays_in_the_normalised_form() -> None:
    assert "'%Y-%m'" in verdict("SELECT DATE_FORMAT(traded_at, '%Y-%m') FROM core_trade").normalised


def test_one_fingerprint_for_statements_that_differ_in_their_literals_and_names() -> None:
    same = [
        "SELECT amount AS a FROM core_trade t WHERE t.status IN ('executed') AND amount > 10",
        "select  amount as b from core_trade x where x.status in ('cancelled', 'reversed') and amount > 99 -- x",
        "SELECT AMOUNT c FROM core_trade WHERE STATUS IN ('a','b','c') AND Amount > 1.5",
    ]
    assert len({verdict(sql).fingerprint for sql in same[:2]}) == 1
    assert verdict(same[0]).fingerprint != verdict("SELECT amount FROM core_trade").fingerprint


ONES, NAMES = ",".join(["1"] * 1400), ",".join(["a"] * 740)
JOINS = " ".join(f"JOIN core_trade t{n} USING (customer_id, trade_id)" for n in range(14))
LARGE = [
    f"SELECT COALESCE({ONES}) a FROM core_trade HAVING COALESCE({NAMES})",
    f"SELECT COALESCE({ONES[:300]}) a FROM core_trade GROUP BY {NAMES[:800]}",
    f"SELECT {','.join(['trade_id'] * 300)} FROM core_trade t {JOINS}",
    "SELECT " + ",".join(["(SELECT 1 a HAVING a)"] * 200),
    "SELECT " + "+".join(["1"] * 3000),
    " UNION ALL ".join(["SELECT 1"] * 400),
]


@pytest.mark.parametrize("sql", LARGE)
def test_a_short_text_never_makes_a_large_tree(sql: str, monkeypatch: Any) -> None:
    """By what was copied, for a clock would tell of the machine."""
    copied = 0
    copy = exp.Expr.copy

    def counting(node: exp.Expr) -> exp.Expr:
        nonlocal copied
        copied += sum(1 for _one in node.walk())
        return copy(node)

    monkeypatch.setattr(exp.Expr, "copy", counting)
    assert verdict(sql).code == "SQL_TOO_COMPLEX"
    assert copied < 20_000


def test_having_takes_an_alias_where_the_database_does() -> None:
    def having(shown: str, test: str) -> str:
        found = verdict(f"SELECT currency, {shown} FROM core_trade GROUP BY currency HAVING {test}")
        assert found.statement is not None, found.detail
        return str(found.statement.args["having"].sql("mysql")).replace("`", "").replace("core_trade.", "")

    assert having("MAX(fee) AS amount", "SUM(amount) > 1") == "HAVING SUM(amount) > 1"
    assert having("-1 AS amount", "SUM(amount) > 1 AND amount < 0") == "HAVING SUM(amount) > 1 AND (-1) < 0"
    assert having("SUM(amount) AS total", "total > 1") == "HAVING (SUM(amount)) > 1"


def test_no_text_goes_into_a_log(caplog: Any) -> None:
    for _why, sql in EVERY_ATTACK:
        verdict(sql)
    assert caplog.text == ""


# --- random ones --------------------------------------------------------------------------------------------------

_COLUMNS = [column for columns in CATALOGUE.values() for column in columns.values()]


@st.composite
def selects(draw: Any, depth: int = 0) -> tuple[str, set[str]]:
    """A statement over one or two tables, perhaps derived ones, and the columns that it names."""
    tables = draw(st.lists(st.sampled_from(sorted(CATALOGUE)), min_size=1, max_size=2))
    names: set[str] = set()
    sources, usable = [], []
    for place, table in enumerate(tables):
        alias = f"t{depth}_{place}"
        columns = draw(st.lists(st.sampled_from(sorted(CATALOGUE[table])), min_size=1, max_size=3, unique=True))
        if draw(st.booleans()):
            inner = ", ".join(f"{column} AS k{number}" for number, column in enumerate(columns))
            sources.append(f"(SELECT {inner} FROM {table}) AS {alias}")
            usable += [f"{alias}.k{number}" for number in range(len(columns))]
        else:
            sources.append(f"{table} AS {alias}")
            usable += [f"{alias}.{column}" for column in columns]
        names |= {f"{table}.{column}" for column in columns}
    forms = ["{}", "MAX({})", "COUNT({})", "COALESCE({}, NULL)", "({})", "CASE WHEN {} IS NULL THEN 1 END"]
    shown = [draw(st.sampled_from(forms)).format(one) for one in usable]
    where = draw(st.sampled_from(["", f" WHERE {usable[0]} = 'x'", f" WHERE {usable[-1]} IS NOT NULL"]))
    order = draw(st.sampled_from(["", f" ORDER BY {usable[0]}"]))
    return (
        f"SELECT {', '.join(f'{one} AS o{n}' for n, one in enumerate(shown))} FROM {', '.join(sources)}{where}{order}",
        names,
    )


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(selects())
def test_whatever_is_allowed_reaches_what_it_names_and_nothing_personal(made: tuple[str, set[str]]) -> None:
    sql, names = made
    found = verdict(sql)
    assert set(found.columns) == names
    personal = {f"{table}.{column}" for table, columns in PERSONAL.items() for column in columns}
    # SQL_INVALID: an aggregate beside a bare column.
    assert found.allowed or found.code in ("SQL_PERSONAL_COLUMN", "SQL_INVALID")
    if found.allowed:
        assert not names & personal
        assert not any(output.linking for output in found.outputs)
        assert found.statement is not None
        for vendor in ("mysql", "sqlite"):
            assert executable(found.statement, tenant="default", vendor=vendor, rows=10).count("'default'") >= 1


_WORDS = """SELECT FROM WHERE core_trade core_customer name amount customer_id ( ) , ; * = 'x' 1 UNION ALL JOIN ON USING
AS a b GROUP BY HAVING ORDER LIMIT EXISTS IN NOT WITH /* */ -- ` \" @ := INTO OUTFILE FOR UPDATE tenant . sleep
information_schema"""


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(_WORDS.split()), max_size=25).map(" ".join))
def test_no_text_makes_it_raise_or_lets_it_past(sql: str) -> None:
    found = verdict(sql)
    if found.allowed:
        assert "core_customer.name" not in found.columns
        assert "tenant" not in found.normalised
