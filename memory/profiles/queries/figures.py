"""Figures of a group: shown where enough customers gave something to them, not only to the group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from memory.core.models import FACT_MODELS
from memory.profiles.queries.allowed import Refusal

# What is in every row, of each table.
ALWAYS = {model._meta.db_table: frozenset(one.column for one in model._meta.concrete_fields if not one.null)
          for model in FACT_MODELS}  # fmt: skip
_EXTREMES = (exp.Min, exp.Max)


def is_window_function(node: exp.Expr) -> bool:
    return isinstance(node.parent, exp.Window) and node.arg_key == "this"


class Figures:
    """least: customers. room: nodes that may be copied, so that figures within figures do not double and double."""

    def __init__(self, least: int, room: int) -> None:
        self.least, self.room = least, room

    def enough(self, person: exp.Expr, given: exp.Expr | None = None) -> exp.Expr:
        """Whether the group's rows are of enough customers; given: of those rows alone."""
        whose = person.copy()
        if given is not None:
            whose = exp.Case(ifs=[exp.If(this=given, true=whose)])
        counted = exp.Count(this=exp.Distinct(expressions=[whose]))
        return exp.GTE(this=counted, expression=exp.Literal.number(self.least))

    def guard(self, query: exp.Select, persons: Sequence[exp.Expr], sure: Mapping[str, str]) -> None:
        """Each aggregate of the query gives NULL where fewer customers gave something to it. sure: the core's tables
        that each row of the query has a row of, by their names there."""
        for node in list(query.walk(prune=lambda one: isinstance(one, exp.Query) and one is not query)):
            if not isinstance(node, exp.AggFunc) or is_window_function(node):
                continue
            given = _given(node, sure)
            if given is None:
                continue
            self.room -= sum(1 for _one in given.walk()) * len(persons) * 2
            if self.room < 0:
                raise Refusal("SQL_TOO_COMPLEX", "its figures within figures are too many")
            shown = exp.and_(*(self.enough(person, given.copy()) for person in persons))
            node.replace(exp.Case(ifs=[exp.If(this=shown, true=node.copy())]))


def _given(node: exp.Expr, sure: Mapping[str, str]) -> exp.Expr | None:
    """When a row gives something to an aggregate; None where each row of the group does."""
    inner = node.this
    parts = list(inner.expressions) if isinstance(inner, exp.Distinct) else [inner]
    if all(isinstance(one, exp.Star | exp.Literal) or _is_always_there(one, sure) for one in parts):
        return None
    tests: list[exp.Expr] = []
    for one in parts:
        tests.append(exp.Not(this=exp.Is(this=exp.paren(one.copy()), expression=exp.Null())))
        if isinstance(node, exp.Count) or isinstance(one, exp.Column):
            continue
        if isinstance(node, _EXTREMES):
            tests += [exp.NEQ(this=exp.paren(one.copy()), expression=other.copy()) for other in _otherwise(one)]
        else:
            tests.append(exp.NEQ(this=exp.paren(one.copy()), expression=exp.Literal.number(0)))
    return exp.and_(*tests)


def _is_always_there(node: exp.Expr, sure: Mapping[str, str]) -> bool:
    return isinstance(node, exp.Column) and node.name in ALWAYS.get(sure.get(node.table, ""), ())


def _otherwise(node: exp.Expr) -> list[exp.Expr]:
    """Literals that stand for "not this row" in what an extreme is taken of."""
    found: list[exp.Expr] = []
    for one in node.find_all(exp.Case, exp.If, exp.Coalesce):
        parts = one.expressions if isinstance(one, exp.Coalesce) else [one.args.get("default"), one.args.get("false")]
        found += [part for part in parts if isinstance(part, exp.Literal | exp.Neg)]
    return found
