"""Two tenants with the same facts about different people: whatever is allowed answers the same in both. What an
analyst sees does not depend on who the customers are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.base.clock import now
from memory.core.personal import CATALOGUE
from memory.profiles.queries import running
from memory.profiles.queries.gate import judge
from memory.profiles.queries.rewriting import executable
from tests.memory.queries.helpers import make_facts

pytestmark = pytest.mark.django_db(transaction=True)

CODES = ("", "SQL_PERSONAL_COLUMN", "SQL_FORBIDDEN", "SQL_UNKNOWN_NAME", "SQL_INVALID", "SQL_TOO_COMPLEX")
TABLES = ("core_customer", "core_assessment", "core_position", "core_trade")
VALUES = ["{}", "{}", "({})", "MAX({})", "COUNT({})", "COUNT(DISTINCT {})", "COALESCE({}, 'x')", "LENGTH({})",
          "CASE WHEN {} IS NULL THEN 1 END", "CASE WHEN {} > 'M' THEN 1 END", "COUNT(*)", "{} = {}"]  # fmt: skip
TESTS = ["{} = {}", "{} IS NOT NULL", "{} = 'C0001'", "{} > 'M'", "{} IN (SELECT customer_id FROM core_trade)",
         "{} IN (SELECT trade_id FROM core_trade)",
         "EXISTS (SELECT 1 FROM core_trade z WHERE z.customer_id = {})"]  # fmt: skip


@st.composite
def queries(draw: Any, depth: int = 2) -> str:
    sources, names = [], []
    for place in range(draw(st.integers(1, 2))):
        alias = f"q{depth}{place}"
        if depth and draw(st.booleans()):
            inner = draw(queries(depth - 1))
            sources.append(f"({inner}) AS {alias}")
            names += [f"{alias}.k{number}" for number in range(2)]
            if draw(st.booleans()):
                names.append(f"{alias}.*")
        else:
            table = draw(st.sampled_from(TABLES))
            sources.append(f"{table} AS {alias}")
            # Ids come often: they are what this is about.
            some = st.sampled_from([*["customer_id"] * 8, *sorted(CATALOGUE[table])])
            names += [f"{alias}.{column}" for column in draw(st.lists(some, min_size=2, max_size=3))]
    plain = [name for name in names if not name.endswith("*")]
    column = st.sampled_from(plain)
    filled = [draw(st.sampled_from(VALUES)).replace("{}", "\0") for _each in range(2)]
    shown = []
    for form in filled:
        while "\0" in form:
            form = form.replace("\0", draw(column), 1)
        shown.append(form)
    outputs = ", ".join(f"{one} AS k{number}" for number, one in enumerate(shown))
    if draw(st.integers(0, 9)) == 0:
        outputs = draw(st.sampled_from(["*", *[name for name in names if name.endswith("*")]]))
    sql = f"SELECT {draw(st.sampled_from(['', '', 'DISTINCT ']))}{outputs} FROM {', '.join(sources)}"
    if draw(st.booleans()):
        test = draw(st.sampled_from(TESTS))
        while "{}" in test:
            test = test.replace("{}", draw(column), 1)
        sql += f" WHERE {test}"
    if draw(st.integers(0, 2)) == 0:
        sql += f" GROUP BY {draw(column)}"
    if draw(st.integers(0, 5)) == 0 and depth < 2:
        sql += f" UNION SELECT {draw(column)}, {draw(column)} FROM {', '.join(sources)}"
    return sql


def answer(verdict: Any, tenant: str) -> Any:
    sql = executable(verdict.statement, tenant=tenant, vendor=running.vendor(), rows=5000)
    try:
        result = running.run(sql, verdict.outputs, rows=5000)
    except running.Ended as ended:
        return ended.error.code
    return sorted((list(row) for row in result.rows), key=repr)


def test_what_is_allowed_does_not_tell_who_the_customers_are() -> None:
    make_facts(customers=4, trades=8)
    make_facts("east", customers=4, trades=8, other_people=True)
    seen = {"allowed": 0, "refused": 0, "rows": 0}

    @settings(max_examples=800, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(queries())
    def same_for_both(sql: str) -> None:
        verdict = judge(sql, moment=now())
        assert verdict.code in CODES, (sql, verdict)
        if not verdict.allowed:
            seen["refused"] += 1
            return
        here, there = answer(verdict, "default"), answer(verdict, "east")
        # A column that is neither grouped nor counted is any row's: which one, the database chooses.
        if "GROUP BY" not in sql and not any(word in sql for word in ("MAX(", "COUNT(")):
            assert here == there, sql
        assert "C000" not in repr(here), sql
        assert "Z99" not in repr(there), sql
        seen["allowed"] += 1
        seen["rows"] += bool(here) and isinstance(here, list)

    same_for_both()
    assert seen["allowed"] > 20, seen
    assert seen["refused"] > 20, seen
    assert seen["rows"] > 10, seen
