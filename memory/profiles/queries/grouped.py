"""ONLY_FULL_GROUP_BY, held by the gate: what a grouped query shows, filters and orders by is grouped by, or aggregated.

A database that lets a bare column stand there shows whichever row it met first, which is a figure of nothing, and the
first row of an index is the first person's. Databases differ in what they let pass (SQLite everything), so none is
asked; the session has the mode too (running.py), for what might come past this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlglot import exp

from memory.core.personal import CATALOGUE
from memory.profiles.queries.allowed import Refusal
from memory.profiles.queries.figures import is_window_function


def check_grouped(tree: exp.Query) -> None:
    """tree: qualified, so that each column says whose it is. Errors: Refusal (SQL_INVALID)."""
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        if group is None and not aggregates(select):
            continue
        groups = [one.unnest() for one in group.expressions] if group is not None else []
        own = frozenset(source_names(select))
        if group is not None and group.args.get("rollup"):
            _check_rollup(select, groups)
        parts = [*(one.unalias() for one in select.selects), select.args.get("having"), select.args.get("order")]
        for part in parts:
            if part is not None:
                _check(part, groups, own)


def check_positions(tree: exp.Expr) -> None:
    """A number in ORDER BY or GROUP BY is a column's of the answer. Before names are resolved: there 0 would be taken
    for the last column, and a number past the end for a constant. Errors: Refusal (SQL_UNKNOWN_NAME)."""
    for query in tree.find_all(exp.Query):
        if isinstance(query, exp.Subquery):
            continue
        selects = query.selects
        open_ended = any(one.is_star for one in selects)
        for name in ("ORDER BY", "GROUP BY"):
            clause = query.args.get(name.split()[0].lower())
            for one in clause.expressions if clause is not None else ():
                number = (one.this if isinstance(one, exp.Ordered) else one).unnest()
                whole = number.this if isinstance(number, exp.Neg) else number
                if not isinstance(whole, exp.Literal) or whole.is_string:
                    continue
                if open_ended:
                    raise Refusal("SQL_UNKNOWN_NAME", f"{name} has a number beside a *; name the column")
                plain = number is whole and number.name.isdigit() and len(number.name) <= 4
                place = int(number.name) if plain else 0
                if not 1 <= place <= len(selects):
                    raise Refusal("SQL_UNKNOWN_NAME", f"{name} has the number of no column")


def has_query_in_group(tree: exp.Query) -> bool:
    """Whether a grouped query has one within its values: MariaDB takes what that names of the groups for bare columns,
    so its own mode would refuse what is grouped in full."""
    return any(
        select.args.get("group") is not None and next(near(part, exp.Query), None) is not None
        for select in tree.find_all(exp.Select)
        for part in (*select.selects, *filter(None, (select.args.get("having"), select.args.get("order"))))
    )


def aggregates(select: exp.Select) -> bool:
    """Whether a query without GROUP BY is of all its rows together."""
    parts = [*select.selects, *filter(None, (select.args.get("having"), select.args.get("order")))]
    return select.args.get("having") is not None or any(
        not is_window_function(one) for part in parts for one in near(part, exp.AggFunc)
    )


def near(node: exp.Expr, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Nodes of those kinds, not those of queries within."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, kinds):
            yield one
        if isinstance(one, exp.Query) and one is not node:
            continue
        stack.extend(one.iter_expressions())


def source_names(select: exp.Select) -> list[str]:
    first = select.args.get("from_")
    return [one.this.alias_or_name for one in (first, *(select.args.get("joins") or ())) if one is not None]


def _check_rollup(select: exp.Select, groups: Collection[exp.Expr]) -> None:
    """Of an expression MariaDB may give the last group's name to the total's row, and it may put a derived table's in
    its place."""
    first = select.args.get("from_")
    tables = {one.this.alias_or_name for one in (first, *(select.args.get("joins") or ()))
              if one is not None and isinstance(one.this, exp.Table) and one.this.name in CATALOGUE}  # fmt: skip
    if not all(isinstance(one, exp.Column) and one.table in tables for one in groups):
        raise Refusal(
            "SQL_FORBIDDEN", "WITH ROLLUP takes bare columns of the core's tables; ask for the total beside it"
        )


def _check(node: exp.Expr, groups: Collection[exp.Expr], own: frozenset[str]) -> None:
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(node, own)]
    while stack:
        one, names = stack.pop()
        if any(one == grouped for grouped in groups):
            continue
        if isinstance(one, exp.AggFunc) and not is_window_function(one) and names == own:
            continue
        if isinstance(one, exp.Column) and one.table in names:
            raise Refusal("SQL_INVALID", f"{one.name[:64]} is neither grouped by nor aggregated")
        if isinstance(one, exp.Select) and one is not node:
            # A query within sees this one's groups, by their own names alone.
            names = names - frozenset(source_names(one))
        stack.extend((child, names) for child in one.iter_expressions())
