"""Names that a SELECT gives its own columns, put in place where GROUP BY and HAVING use them, as MySQL reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from memory.core.personal import CATALOGUE
from memory.profiles.queries.allowed import MAX_NODES, Refusal


def expand_aliases(tree: exp.Expr) -> None:
    """GROUP BY takes a column before an alias of the same name, HAVING an alias first unless it is grouped by.

    Projections are left alone: there an alias is no name yet. So each alias is put in place once for each use. What an
    aggregate of HAVING takes is of the rows, where an alias is no name either unless nothing else is called so.
    Errors: Refusal (SQL_TOO_COMPLEX), before anything is copied that would make the whole too large.
    """
    ctes = {cte.alias: cte for cte in tree.find_all(exp.CTE)}
    left = MAX_NODES

    def put(aliased: exp.Expr, column: exp.Column) -> None:
        nonlocal left
        left -= sum(1 for _node in aliased.walk())
        if left < 0:
            raise Refusal("SQL_TOO_COMPLEX", f"its names stand for more than {MAX_NODES} parts")
        column.replace(_in_place(aliased, column))

    for select in list(tree.find_all(exp.Select)):
        aliases = {one.alias: one.this for one in select.selects if isinstance(one, exp.Alias)}
        if not aliases:
            continue
        grouped: set[str] = set()
        group = select.args.get("group")
        if group is not None:
            sources = _source_names(select, ctes)
            for column in list(_bare_columns(group)):
                if column.name in sources:
                    grouped.add(column.name)
                elif column.name in aliases:
                    put(aliases[column.name], column)
        having = select.args.get("having")
        if having is not None:
            sources = _source_names(select, ctes)
            for column in list(_bare_columns(having)):
                if column.name not in aliases or column.name in grouped:
                    continue
                if column.find_ancestor(exp.AggFunc, exp.Having) is not having and column.name in sources:
                    continue
                put(aliases[column.name], column)


def move_having(tree: exp.Expr) -> None:
    """sqlglot finds the tables of columns in WHERE, and leaves those in HAVING alone: HAVING stands there meanwhile."""
    for select in list(tree.find_all(exp.Select)):
        having = select.args.get("having")
        if having is None:
            continue
        where = select.args.get("where")
        kept = where.this if where is not None else exp.true()
        select.set("having", None)
        select.set("where", exp.Where(this=exp.And(this=exp.Paren(this=kept), expression=exp.Paren(this=having.this))))
        select.meta["having"] = "only" if where is None else "both"


def move_having_back(tree: exp.Expr) -> None:
    for select in list(tree.find_all(exp.Select)):
        how = select.meta.pop("having", None)
        if how is None:
            continue
        both = select.args["where"].this
        kept, having = both.this.this, both.expression.this
        select.set("where", exp.Where(this=kept) if how == "both" else None)
        select.set("having", exp.Having(this=having))


def _in_place(expression: exp.Expr, column: exp.Column) -> exp.Expr:
    copy = expression.copy()
    return copy if isinstance(column.parent, exp.Group) else exp.paren(copy, copy=False)


def _bare_columns(node: exp.Expr) -> Iterator[exp.Column]:
    """Columns without a table, not those of queries within."""
    stack = list(node.iter_expressions())
    while stack:
        child = stack.pop()
        if isinstance(child, exp.Query):
            continue
        if isinstance(child, exp.Column):
            if not child.table:
                yield child
            continue
        stack.extend(child.iter_expressions())


def _source_names(select: exp.Select, ctes: Mapping[str, exp.CTE]) -> set[str]:
    """Whatever a source of this SELECT may call a column: too many rather than too few, for then a name is looked for
    among the columns, and refused where it is none."""
    names: set[str] = set()
    sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
    for source in filter(None, sources):
        for table in source.find_all(exp.Table):
            names.update(CATALOGUE.get(table.name, ()))
            if table.name in ctes:
                names.update(_made_up(ctes[table.name]))
        for subquery in source.find_all(exp.Subquery):
            names.update(_made_up(subquery))
    return names


def _made_up(node: exp.Expr) -> set[str]:
    names: set[str] = set()
    query = node.this
    while isinstance(query, exp.SetOperation):
        query = query.this
    if isinstance(query, exp.Query):
        names.update(one.alias_or_name for one in query.selects)
        if any(isinstance(one, exp.Star) or one.find(exp.Star) for one in query.selects):
            for table in query.find_all(exp.Table):
                names.update(CATALOGUE.get(table.name, ()))
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias):
        names.update(column.name for column in alias.args.get("columns") or ())
    return names
