"""The statement that runs: the judged tree with each table narrowed to one tenant, and a limit on its rows."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from memory.core.personal import CATALOGUE, Kind
from memory.profiles.queries.allowed import Refusal
from memory.profiles.queries.apart import part_windows
from memory.profiles.queries.local import for_sqlite
from memory.profiles.queries.ordering import settle


class NotAsJudged(Exception):
    """The text that was made does not read as the tree it was made from: a fault of ours, and nothing runs."""


def executable(statement: exp.Query, *, tenant: str, vendor: str, rows: int) -> str:
    """SQL for the database. rows: at most so many come back.

    Each table stands behind a derived table that holds the tenant's rows and the columns that analysts may name, so
    whatever the statement does with it, other tenants' rows are not there. The text is parsed once more and compared:
    a table that is not narrowed, or a text literal that would end early, runs never (NotAsJudged).
    """
    tree = statement.copy()
    settle(tree, tenant=tenant, vendor=vendor)
    try:
        part_windows(tree)
    except Refusal:
        raise NotAsJudged("parts") from None
    for table in list(tree.find_all(exp.Table)):
        if table.name in CATALOGUE:
            table.replace(_narrowed(table, tenant, vendor))
    _limit(tree, rows)
    if vendor != "sqlite":
        _name_in_having(tree)
    if vendor == "sqlite":
        if tree.find(exp.Rollup):
            raise NotAsJudged("rollup")  # it has none
        tree = for_sqlite(tree)
    dialect = "sqlite" if vendor == "sqlite" else "mysql"
    sql = tree.sql(dialect, comments=False, identify=True)
    _check(sql, tree, dialect, tenant)
    return sql


def _narrowed(table: exp.Table, tenant: str, vendor: str) -> exp.Subquery:
    wanted: list[exp.Expr] = []
    for column in CATALOGUE[table.name].values():
        plain: exp.Expr = exp.column(column.name, quoted=True)
        if vendor == "sqlite" and column.kind is Kind.MONEY:
            # There it is text, which compares and adds up as text.
            plain = exp.alias_(exp.cast(plain, "REAL"), column.name, quoted=True)
        wanted.append(plain)
    own: exp.Expr = exp.EQ(this=exp.column("tenant", quoted=True), expression=exp.Literal.string(tenant))
    if vendor != "sqlite":
        # A core of the firm's own may compare without regard to case or to blanks at the end: `East` is not `east`.
        exact = exp.cast(exp.column("tenant", quoted=True), "BINARY")
        own = exp.And(this=own, expression=exp.EQ(this=exact, expression=exp.Literal.string(tenant)))
    narrow = exp.select(*wanted).from_(exp.Table(this=exp.to_identifier(table.name, quoted=True))).where(own)
    return exp.Subquery(this=narrow, alias=exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True)))


def _name_in_having(tree: exp.Query) -> None:
    """MySQL finds in HAVING what is grouped by as a column or an alias, and no expression of the rows: where one is
    shown, its alias stands there."""
    known = {name for columns in CATALOGUE.values() for name in columns}
    for select in tree.find_all(exp.Select):
        having = select.args.get("having")
        if having is None or select.args.get("group") is None:
            continue
        named = [(one.this, one.alias) for one in select.selects if isinstance(one, exp.Alias)
                 and one.alias not in known and not isinstance(one.this, exp.Column | exp.Literal)
                 and not one.find(exp.AggFunc, exp.Query)]  # fmt: skip
        stack = list(having.iter_expressions())
        while stack:
            node = stack.pop()
            if isinstance(node, exp.AggFunc | exp.Query):
                continue
            alias = next((name for expression, name in named if expression == node), None)
            if alias is not None:
                node.replace(exp.column(alias, quoted=True))
            else:
                stack.extend(node.iter_expressions())


def _limit(tree: exp.Query, rows: int) -> None:
    limit = tree.args.get("limit")
    asked = int(limit.expression.name) if limit is not None else rows
    tree.set("limit", exp.Limit(expression=exp.Literal.number(min(asked, rows))))


def _check(sql: str, tree: exp.Query, dialect: str, tenant: str) -> None:
    try:
        again = sqlglot.parse(sql, read=dialect)
    except (SqlglotError, ValueError, AttributeError, TypeError, IndexError, KeyError):
        raise NotAsJudged("it does not read") from None
    read = again[0]
    if len(again) != 1 or read is None:
        raise NotAsJudged("statements")
    ctes = {cte.alias for cte in read.find_all(exp.CTE)}
    for table in read.find_all(exp.Table):
        if table.name in CATALOGUE and not table.args.get("db"):
            select = table.parent_select
            where = select.args.get("where") if select is not None else None
            own = where.this if where is not None else None
            own = own.this if isinstance(own, exp.And) and dialect == "mysql" else own
            narrow = isinstance(own, exp.EQ) and own.this.name == "tenant" and own.expression.name == tenant
            if not narrow or table.alias or select is None or select.args.get("joins"):
                raise NotAsJudged("tenant")
        elif table.name not in ctes:
            raise NotAsJudged("table")
    if _texts(read) != _texts(tree):
        raise NotAsJudged("texts")


def _texts(tree: exp.Expr) -> list[str]:
    return sorted(
        one.name for one in tree.find_all(exp.Literal)
        if one.is_string and not isinstance(one.parent, exp.Interval | exp.TimeToStr)
    )  # fmt: skip
