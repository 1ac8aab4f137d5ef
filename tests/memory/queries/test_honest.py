"""Honest statements: allowed, with exactly the columns that they reach, and equal to what the ORM says."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

import pytest

from memory.core.personal import CATALOGUE
from tests.memory.queries.helpers import ANA, ask, make_facts
from tests.memory.queries.honest import HONEST, columns_of, facts

pytestmark = pytest.mark.django_db(transaction=True)


def plain(value: Any) -> Any:
    """Numbers by their value, to 12 digits: SQLite reckons in doubles."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        return float(f"{Decimal(str(value)):.12g}")
    except InvalidOperation:
        return value


def sorted_rows(rows: Any) -> list[list[Any]]:
    return sorted(([plain(value) for value in row] for row in rows), key=repr)


def test_all_of_them() -> None:
    assert len(HONEST) >= 60
    make_facts()
    make_facts("east", customers=9, trades=90, factor=7)
    known = facts("default")
    wrong: list[tuple[object, ...]] = []
    for honest in HONEST:
        answer = ask(honest.sql, ANA)
        if answer.verdict.columns != columns_of(honest):
            wrong.append((honest.sql, answer.verdict.columns))
        tables = {name.split(".")[0] for name in answer.verdict.columns}
        assert tables <= set(answer.verdict.tables) <= set(CATALOGUE)
        expected = sorted_rows(honest.rows(known))
        if sorted_rows(answer.result.rows) != expected:
            wrong.append((honest.sql, list(answer.result.rows)[:5], expected[:5]))
    assert wrong == []
