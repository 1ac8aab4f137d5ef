"""Whose the rows of a query are. Rows of which each is one person's figures may be reckoned with, and are neither
shown nor picked by their place: databases group by walking an index, so the seventeenth row is the seventeenth id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from memory.profiles.queries.grouped import near

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rows:
    """of: the linking columns by which each row is one person's; nothing where rows are not. picked: the linking
    columns by whose order a part of the rows is taken (LIMIT, OFFSET, a row number that is ordered by nothing)."""

    of: frozenset[str] = _NONE
    picked: frozenset[str] = _NONE


def rows_of(
    scope: Scope,
    linking: Mapping[int, frozenset[str]],
    outputs: Sequence[frozenset[str]],
    known: Mapping[int, Rows],
    correlated: frozenset[str],
) -> Rows:
    """linking: of each column node. outputs: of each output. known: of scopes within. correlated: linking columns of
    this query by which queries within it reckon their value."""
    query = scope.expression
    if isinstance(query, exp.SetOperation):
        of = _NONE.union(*(known[id(branch)].of for branch in scope.set_operation_scopes))
    else:
        of = _of(scope, linking, known, correlated)
    shown = _NONE.union(*outputs)
    picked = _NONE
    if query.args.get("limit") is not None or query.args.get("offset") is not None:
        picked = of | shown
    if (of or shown) and any(_by_place(window) for window in _windows(query)):
        picked |= of | shown
    return Rows(of, picked)


def _of(
    scope: Scope, linking: Mapping[int, frozenset[str]], known: Mapping[int, Rows], correlated: frozenset[str]
) -> frozenset[str]:
    query = scope.expression
    group = query.args.get("group")
    if group is not None:
        return _NONE.union(*(linking.get(id(one), _NONE) for one in group.find_all(exp.Column)))
    if _is_one_row(query):
        return _NONE
    within = [known[id(source)].of for source in scope.sources.values() if isinstance(source, Scope)
              and id(source) in known]  # fmt: skip
    distinct = _NONE
    if isinstance(query, exp.Select) and query.args.get("distinct") is not None:
        distinct = _NONE.union(*(linking.get(id(one.unalias()), _NONE) for one in query.selects))
    return correlated.union(distinct, *within)


def _is_one_row(query: exp.Expr) -> bool:
    """An aggregate without GROUP BY, which is of all rows."""
    return any(
        any(not isinstance(found.parent, exp.Window) for found in near(one, exp.AggFunc))
        for one in (query.selects if isinstance(query, exp.Select) else ())
    )


def _windows(query: exp.Expr) -> list[exp.Expr]:
    return list(near(query, exp.Window)) if isinstance(query, exp.Select) else []


def _by_place(window: exp.Expr) -> bool:
    """Whether it tells rows apart by the order in which they come: of those that do, without a column to order by."""
    order = window.args.get("order")
    if order is not None and any(order.find_all(exp.Column)):
        return False
    spec = window.args.get("spec")
    return spec is not None or isinstance(
        window.this, exp.RowNumber | exp.Ntile | exp.Lag | exp.Lead | exp.FirstValue | exp.LastValue | exp.NthValue
    )
