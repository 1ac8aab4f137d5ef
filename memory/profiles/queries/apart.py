"""A window over groups stands apart from their HAVING: grouped in a derived table, ranked outside of it.

MariaDB answers a grouped query of several tables that has both with too few rows, or none, once the HAVING counts
distinct values. Apart, it is the same question, and what comes is right.
"""

from __future__ import annotations

from sqlglot import exp

from memory.profiles.queries.allowed import Refusal
from memory.profiles.queries.figures import is_window_function
from memory.profiles.queries.grouped import near

_NAME = "_xh_g"
_INNER = ("from_", "joins", "where", "group", "having")


def must_part(query: exp.Select) -> bool:
    shown = [*query.selects, *filter(None, [query.args.get("order")])]
    return query.args.get("having") is not None and any(next(near(one, exp.Window), None) for one in shown)


def check_parts(query: exp.Select) -> None:
    """Errors: Refusal (SQL_FORBIDDEN) for what cannot be parted."""
    for one in (*query.selects, *filter(None, [query.args.get("order")])):
        if one.find(exp.Query) is not None:
            raise Refusal("SQL_FORBIDDEN", "a window over groups beside a query within; group in a derived table, and "
                          "rank outside of it")  # fmt: skip


def part_windows(tree: exp.Query) -> None:
    """In place; tree: judged, its orders settled."""
    for query in list(tree.find_all(exp.Select)):
        if must_part(query):
            check_parts(query)
            _part(query)


def _part(query: exp.Select) -> None:
    group = query.args.get("group")
    groups = [one.unnest() for one in group.expressions if not isinstance(one, exp.Literal)] if group else []
    kept: list[exp.Expr] = []

    def apart(node: exp.Expr) -> None:
        if node in groups or (isinstance(node, exp.AggFunc) and not is_window_function(node)):
            if node not in kept:
                kept.append(node.copy())
            node.replace(exp.column(f"{_NAME}{kept.index(node)}", table=_NAME, quoted=True))
            return
        if isinstance(node, exp.Column) and node.table:
            raise Refusal("SQL_FORBIDDEN", "a window over groups cannot be told apart from them; group in a derived "
                          "table, and rank outside of it")  # fmt: skip
        for child in list(node.iter_expressions()):
            apart(child)

    for one in (*query.selects, *filter(None, [query.args.get("order")])):
        if isinstance(one, exp.Column):
            # Else its name would be ours.
            one.replace(exp.alias_(one.copy(), one.name, quoted=True))
    for one in (*query.selects, *filter(None, [query.args.get("order")])):
        apart(one)
    values = kept or [exp.Literal.number(1)]
    inner = exp.Select(
        expressions=[exp.alias_(one, f"{_NAME}{place}", quoted=True) for place, one in enumerate(values)]
    )
    for name in _INNER:
        inner.set(name, query.args.get(name))
        query.set(name, None)
    query.set("from_", exp.From(this=inner.subquery(exp.to_identifier(_NAME, quoted=True), copy=False)))
