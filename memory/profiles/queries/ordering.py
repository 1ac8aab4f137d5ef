"""Rows come in an order that says nothing: an order of the database's own is that of an index, and there the
seventeenth row is the seventeenth customer's, whether the id is shown or not.

On the statement that is about to run: what is picked by place (LIMIT, OFFSET, a value of several rows) and the answer
itself are ordered by all that is shown, after what was asked for; row numbers and their like are settled by the
customers' ids mixed with a secret, and by what else the rows have. Rows that are alike in all of that are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.crypto import salted_hmac
from sqlglot import exp

from memory.core.personal import CATALOGUE, Sort
from memory.profiles.queries.allowed import Refusal, forbidden
from memory.profiles.queries.grouped import aggregates, near

_BY_PLACE = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue)
_BY_FRAME = (exp.LastValue, exp.NthValue)
_HIDDEN = "_xh_"
MIXED = "xh_mixed"  # on SQLite, a function of ours


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column of a query's answer, or of a source. linking: it stands for a person."""

    name: str
    linking: bool


def check_windows(tree: exp.Query) -> None:
    """What no order could settle without another meaning. Errors: Refusal (SQL_FORBIDDEN)."""
    for window in tree.find_all(exp.Window):
        spec = window.args.get("spec")
        kind = str(spec.args.get("kind") or "").upper() if spec is not None else ""
        sides = (spec.args.get("start"), spec.args.get("end")) if spec is not None else ()
        whole = all(side == "UNBOUNDED" for side in sides) and len(sides) == 2
        if isinstance(window.this, _BY_FRAME) and kind != "ROWS" and not whole:
            raise forbidden("LAST_VALUE and NTH_VALUE take ROWS BETWEEN … AND …; else rows of equal order are one")
        if isinstance(window.this, _BY_PLACE) and kind == "RANGE" and not all(isinstance(one, str) for one in sides):
            raise forbidden("what stands at a place takes ROWS, not RANGE")


def settle(tree: exp.Query, *, tenant: str, vendor: str) -> None:
    """In place; `tree` is qualified. The secret is the tenant's, so a statement that is run again comes alike."""
    salt = salted_hmac("memory.profiles.queries.ordering", tenant, algorithm="sha256").hexdigest()[:32]
    work = _Work(salt, vendor)
    work.query(tree)
    work.by_what_is_shown(tree)


class _Work:
    def __init__(self, salt: str, vendor: str) -> None:
        self.salt, self.vendor = salt, vendor
        self.ctes: dict[str, list[_Shown]] = {}

    def query(self, node: exp.Expr) -> list[_Shown]:
        """Settles it and what is within; its columns."""
        query = node
        while isinstance(query, exp.Subquery):
            query = query.this
        with_ = query.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            self.ctes[cte.alias] = _renamed(cte, self.query(cte.this))
        if isinstance(query, exp.SetOperation):
            shown = self.query(query.this)
            self.query(query.expression)
        elif isinstance(query, exp.Select):
            shown = self._select(query)
        else:
            raise Refusal("SQL_INVALID", "a part of it is no query")
        if query.args.get("limit") is not None or query.args.get("offset") is not None:
            self.by_what_is_shown(query)
        return shown

    def _select(self, query: exp.Select) -> list[_Shown]:
        first = query.args.get("from_")
        tables = [one.this for one in (first, *(query.args.get("joins") or ())) if one is not None]
        sources = {table.alias_or_name: self._source(table) for table in tables}
        for name, value in query.args.items():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, exp.Expr) and name not in ("from_", "with_"):
                    self._within(part.args.get("on") if name == "joins" else part)
        linking = {(table, one.name) for table, shown in sources.items() for one in shown if one.linking}
        settled: list[exp.Expr] | None = None
        for part in (*query.selects, *filter(None, [query.args.get("order")])):
            for window in near(part, exp.Window):
                if isinstance(window.this, _BY_PLACE) or _is_of_rows(window):
                    settled = self._ties(query, sources, linking) if settled is None else settled
                    _append(window, settled)
        return [_Shown(one.alias_or_name, _is_linking(one.unalias(), linking)) for one in query.selects]

    def _source(self, table: exp.Expr) -> list[_Shown]:
        if not isinstance(table, exp.Table):
            return _renamed(table, self.query(table))
        if table.name in self.ctes:
            return _renamed(table, self.ctes[table.name])
        # A person's rows are told apart by whose they are, and need no more; a product is nobody's.
        return [_Shown(one.name, True) for one in CATALOGUE[table.name].values() if one.sort is Sort.LINKING]

    def _within(self, part: exp.Expr | None) -> None:
        stack = [part] if part is not None else []
        while stack:
            node = stack.pop()
            if isinstance(node, exp.Query):
                self.query(node)
                inner = node.this if isinstance(node, exp.Subquery) else node
                if isinstance(node.parent, exp.Exists | exp.In):
                    continue
                self.by_what_is_shown(inner)  # of several rows SQLite takes the first
                continue
            stack.extend(node.iter_expressions())

    def _ties(
        self, query: exp.Select, sources: dict[str, list[_Shown]], linking: set[tuple[str, str]]
    ) -> list[exp.Expr]:
        group = query.args.get("group")
        if group is not None:
            return [self._mixed(one) if _is_linking(one, linking) else one.copy() for one in group.expressions
                    if not isinstance(one, exp.Literal)]  # fmt: skip
        if aggregates(query):
            return []  # one row
        columns = [(one, exp.column(one.name, table=table, quoted=True)) for table, shown in sources.items()
                   for one in shown]  # fmt: skip
        return [
            *(self._mixed(column) for one, column in columns if one.linking),
            *(column for one, column in columns if not one.linking),
        ]

    def _mixed(self, column: exp.Expr) -> exp.Expr:
        salt = exp.Literal.string(self.salt)
        if self.vendor == "sqlite":
            return exp.Anonymous(this=MIXED, expressions=[salt, column.copy()])
        whole = exp.Concat(expressions=[salt, column.copy()], safe=False, coalesce=False)
        return exp.SHA2(this=whole, length=exp.Literal.number(256))

    def by_what_is_shown(self, query: exp.Expr) -> None:
        if isinstance(query, exp.Select):
            if query.args.get("group") is None and aggregates(query):
                return  # one row
            if query.args.get("group") is not None and query.args["group"].args.get("rollup"):
                return  # it comes in the order of its groups, and takes no other
        if not isinstance(query, exp.Select | exp.SetOperation):
            return
        places: list[exp.Expr] = [
            exp.Literal.number(place) for place, one in enumerate(query.selects, 1)
            if not one.alias_or_name.startswith(_HIDDEN)
        ]  # fmt: skip
        _append(query, places)


def _append(node: exp.Expr, ties: Sequence[exp.Expr]) -> None:
    """At the end of its ORDER BY, each once."""
    order = node.args.get("order")
    known = [one.this for one in order.expressions] if order is not None else []
    more = [exp.Ordered(this=one.copy(), nulls_first=True) for one in ties if one not in known]
    if more:
        node.set("order", exp.Order(expressions=[*(order.expressions if order is not None else ()), *more]))


def _is_of_rows(window: exp.Expr) -> bool:
    spec = window.args.get("spec")
    return spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"


def _is_linking(node: exp.Expr, linking: set[tuple[str, str]]) -> bool:
    if isinstance(node, exp.Paren):
        return _is_linking(node.this, linking)
    if isinstance(node, exp.Coalesce):
        return any(_is_linking(one, linking) for one in (node.this, *node.expressions))
    return isinstance(node, exp.Column) and (node.table, node.name) in linking


def _renamed(node: exp.Expr, shown: list[_Shown]) -> list[_Shown]:
    alias = node.args.get("alias")
    columns = alias.args.get("columns") or () if isinstance(alias, exp.TableAlias) else ()
    named = [_Shown(to.name, one.linking) for to, one in zip(columns, shown, strict=False)]
    return [*named, *shown[len(named) :]]
