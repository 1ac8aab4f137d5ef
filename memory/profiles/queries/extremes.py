"""The largest and the smallest of many customers' values is somebody's: shown where that says nothing of whose.

An expression can make one row the largest (`amount * (opened_at = …)`), or name it beside its value, so an extreme is
taken of a bare column of numbers or instants, or of a figure of each customer over such a column.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from memory.core.personal import CATALOGUE, Kind
from memory.profiles.queries.allowed import Refusal
from memory.profiles.queries.figures import is_window_function
from memory.profiles.queries.grouped import near
from memory.profiles.queries.places import Place

_KINDS = (Kind.WHOLE, Kind.MONEY, Kind.DATE, Kind.INSTANT)
_FIGURES = (exp.Sum, exp.Avg, exp.Min, exp.Max)


def plain_of_table(table: str) -> frozenset[str]:
    return frozenset(name for name, column in CATALOGUE.get(table, {}).items() if column.kind in _KINDS)


def plain_outputs(query: exp.Select, place: Place, *, grouped: bool) -> frozenset[str]:
    """Names of what it shows that is such a column, or, grouped, such a figure."""
    return frozenset(
        one.alias_or_name for one in query.selects
        if _is_plain(one.unalias(), place) or (grouped and _is_plain_figure(one.unalias(), place))
    )  # fmt: skip


def renamed(node: exp.Expr, shown: Sequence[str], plain: frozenset[str]) -> frozenset[str]:
    """By the names that an alias with a list of columns gives them."""
    alias = node.args.get("alias")
    columns = alias.args.get("columns") or () if isinstance(alias, exp.TableAlias) else ()
    by = {name: to.name for name, to in zip(shown, columns, strict=False)}
    return frozenset(by.get(name, name) for name in plain)


def check_extremes(query: exp.Select, place: Place) -> None:
    """query: its rows, or groups, are of several customers. Errors: Refusal (SQL_SINGLE_PERSON)."""
    for part in (*query.selects, *filter(None, (query.args.get("having"), query.args.get("order")))):
        for node in near(part, exp.Min, exp.Max):
            if not is_window_function(node) and not _is_plain(node.this, place):
                raise Refusal("SQL_SINGLE_PERSON", "MIN and MAX over several customers take one bare column of numbers "
                              "or instants, not an expression, a text or a UNION's column")  # fmt: skip


def _is_plain(node: exp.Expr, place: Place) -> bool:
    if isinstance(node, exp.Paren):
        return _is_plain(node.this, place)
    if isinstance(node, exp.Distinct):
        return len(node.expressions) == 1 and _is_plain(node.expressions[0], place)
    if not isinstance(node, exp.Column):
        return False
    source = place.sources.get(node.table)
    return source is not None and node.name in source.plain


def _is_plain_figure(node: exp.Expr, place: Place) -> bool:
    if isinstance(node, exp.Paren):
        return _is_plain_figure(node.this, place)
    if isinstance(node, _FIGURES):
        return _is_plain(node.this, place)
    if isinstance(node, exp.Count):
        # An outer join would make it 0 for all but one.
        inner = node.this
        bare = inner.expressions if isinstance(inner, exp.Distinct) else [inner]
        return all(isinstance(one, exp.Star | exp.Literal | exp.Column) for one in bare) and not any(
            source.nullable for source in place.sources.values()
        )
    return False
