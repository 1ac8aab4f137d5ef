"""Small groups: what an answer shows without a grant is of at least so many customers (ANALYTICS_MIN_GROUP).

The judged and qualified tree is rewritten, inner queries first. A row is a person's by its keys: the customer ids that
it was made of. Derived tables hand them on (in hidden columns), equal keys of joined tables are one; a query that
groups by anything else gets a HAVING that counts the distinct customers, and each figure of it that may be of fewer
than its group is NULL unless as many gave something to it (figures.py). What stays a person's row is refused as an
answer, as a value that stands for itself, and in windows over many persons. A query within that is tied to the row
around it by the customer's id is of that person anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from memory.core.personal import CATALOGUE, CUSTOMER
from memory.profiles.queries.allowed import MAX_NODES, Refusal
from memory.profiles.queries.apart import check_parts, must_part
from memory.profiles.queries.extremes import check_extremes, plain_of_table, plain_outputs, renamed
from memory.profiles.queries.figures import Figures, is_window_function
from memory.profiles.queries.grouped import aggregates, near
from memory.profiles.queries.places import Key, Place, Source, unite_equal

HIDDEN = "_xh_"  # names of ours begin so, and none of the analyst's (allowed.py)
_PLACES = (exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile)


@dataclass(frozen=True)
class Protected:
    """statement: to be run. applies: whether any of it is of persons. left_out: counts the groups that were left out
    of the answer (`n`), and whose they are (`m`, of so many customers at least); None where nothing can be told.
    one_row: an answer of one row, unless that is left out."""

    statement: exp.Query
    applies: bool = False
    left_out: exp.Query | None = None
    one_row: bool = False


@dataclass(frozen=True)
class _Use:
    """What a query stands for: the answer, a table, or (exists, in, scalar) a value. dedupe: equal rows are one, so
    that it may be grouped by what it shows. of: on the left of IN, whether that names a person."""

    kind: str
    dedupe: bool = False
    of_person: bool = False


def protect(tree: exp.Query, *, least: int, seen: Collection[str] = ()) -> Protected:
    """least: customers. seen: tables of which the analyst may see single persons' rows.

    Errors: Refusal (SQL_SINGLE_PERSON, SQL_TOO_COMPLEX).
    """
    if least < 2:
        return Protected(tree)
    whole = tree.copy()
    work = _Work(least, frozenset(table for table, columns in CATALOGUE.items()
                                  if CUSTOMER in columns and table not in seen))  # fmt: skip
    work.query(whole, None, _Use("answer"))
    return Protected(whole, work.met, work.left_out, work.one_row)


def single(detail: str) -> Refusal:
    return Refusal("SQL_SINGLE_PERSON", detail)


class _Work:
    def __init__(self, least: int, tables: frozenset[str]) -> None:
        self.least, self.tables = least, tables
        self.ctes: dict[str, tuple[str, ...]] = {}
        self._plain_ctes: dict[str, tuple[list[str], frozenset[str]]] = {}
        self._plain_of: dict[int, frozenset[str]] = {}  # of queries, by what they show
        self.figures = Figures(least, MAX_NODES * 4)
        self.met = False
        self.left_out: exp.Query | None = None
        self.one_row = False
        self._hidden = 0

    # --- queries ---------------------------------------------------------------------------------------------------

    def query(self, node: exp.Expr, around: Place | None, use: _Use) -> tuple[str, ...]:
        """Names of the columns by which its rows are persons'. Changes it in place."""
        query = node
        while isinstance(query, exp.Subquery):
            query = query.this
        with_ = query.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            self.ctes[cte.alias] = self.query(cte.this, None, _Use("table"))
            names = [one.name for one in cte.args["alias"].args.get("columns") or ()]
            names = names or [one.alias_or_name for one in cte.this.selects]
            self._plain_ctes[cte.alias] = (names, self._plain_names(cte))
            _extend(cte, self.ctes[cte.alias])
        if isinstance(query, exp.SetOperation):
            return self._set_operation(query, around, use)
        if not isinstance(query, exp.Select):
            raise single("a part of it cannot be followed")
        return self._select(query, around, use)

    def _set_operation(self, query: exp.SetOperation, around: Place | None, use: _Use) -> tuple[str, ...]:
        dedupe = bool(query.args.get("distinct")) or not isinstance(query, exp.Union)
        branch = _Use(use.kind, dedupe or use.dedupe, use.of_person)
        sides = [query.this, query.expression]
        if use.kind == "exists" and not isinstance(query, exp.Union) and self._of_persons(query):
            raise single("EXISTS over INTERSECT or EXCEPT; join them instead")
        names = [self.query(side, around, branch) for side in sides]
        if use.kind != "table":
            self.left_out, self.one_row = None, False
            return ()
        if dedupe or use.dedupe:
            # By columns that are shown: of the same places on both sides, or they would not be compared.
            places = {place for side, keys in zip(sides, names, strict=True) for place in _places(side, keys)}
            shown = _first(query).selects
            return tuple(shown[place].alias_or_name for place in sorted(places))
        most = max(len(keys) for keys in names)
        hidden = tuple(f"{HIDDEN}u{number}" for number in range(most))
        for side, keys in zip(sides, names, strict=True):
            _show_as(side, keys, hidden)
        return hidden

    def _of_persons(self, query: exp.Expr) -> bool:
        return any(one.name in self.tables or self.ctes.get(one.name) for one in query.find_all(exp.Table))

    def _select(self, query: exp.Select, around: Place | None, use: _Use) -> tuple[str, ...]:
        place = self._place(query, around)
        unite_equal(query, place)
        persons = place.open()
        self.met |= bool(persons) or bool(place.tied)
        group = query.args.get("group")
        grouped = group is not None or aggregates(query)
        groups: list[exp.Expr] = list(group.expressions) if group is not None else []
        if not grouped and persons and (query.args.get("distinct") is not None or use.dedupe):
            shown = [one.unalias() for one in query.selects]
            keyed = {place.own(one) for one in shown}
            if not set(persons) <= keyed:
                # Equal rows are one: the same as grouped by all that is shown.
                if any(one.find(exp.Window) for one in shown):
                    raise single("DISTINCT over a window is of single persons; group first")
                query.set("distinct", None)
                groups = [one.copy() for one in shown if not isinstance(one, exp.Literal | exp.Null | exp.Boolean)]
                query.set("group", exp.Group(expressions=groups) if groups else None)
                grouped = True
        made_by = {key for one in groups if (key := place.own(one)) is not None}
        self._plain_of[id(query)] = plain_outputs(query, place, grouped=grouped)
        if persons and group is not None and group.args.get("rollup"):
            raise single("WITH ROLLUP shows a total beside its parts; ask for each alone, or ask for a grant")
        if not set(persons) <= made_by:
            check_extremes(query, place)
        self._within(query, place, place.only(made_by) if grouped else place)
        if grouped:
            return self._grouped(query, place, groups, made_by, use)
        if not persons:
            return ()
        return self._plain(query, place, persons, use)

    def _grouped(
        self, query: exp.Select, place: Place, groups: list[exp.Expr], made_by: set[Key], use: _Use
    ) -> tuple[str, ...]:
        small = [key for key in place.open() if key not in made_by]
        whose = [key for key in place.open() if key in made_by]
        if small:
            enough = [self.figures.enough(place.column(key)) for key in small]
            if use.kind == "answer":
                self._count_left_out(query, place, small, enough)
            sure = {name: source.table for name, source in place.sources.items() if not source.nullable}
            self.figures.guard(query, [place.column(key) for key in small], sure)
            having = query.args.get("having")
            whole = [exp.paren(having.this, copy=False)] if having is not None else []
            query.set("having", exp.Having(this=exp.and_(*whole, *enough, copy=False)))
            if must_part(query):
                check_parts(query)
        if not whose:
            return ()
        if use.kind == "table":
            by = {key: one for one in reversed(groups) if (key := place.own(one)) is not None}
            return self._hand_on(query, place, [(key, by[key]) for key in whose])
        if use.kind == "in" and use.of_person and place.own(query.selects[0].unalias()) is not None and len(whose) == 1:
            return ()
        raise single("its rows are single customers'; aggregate them, or ask for a grant")

    def _plain(self, query: exp.Select, place: Place, persons: list[Key], use: _Use) -> tuple[str, ...]:
        self._windows(query, place, persons)
        if use.kind == "table":
            return self._hand_on(query, place, [(key, place.column(key)) for key in persons])
        if use.kind == "in":
            shown = query.selects[0].unalias()
            if use.of_person and place.own(shown) == persons[0] and len(persons) == 1:
                return ()
        if use.kind == "exists":
            return self._at_least(query, place, persons)
        raise single(
            "its rows are single customers'; aggregate them, or ask for a grant" if use.kind == "answer" else
            "a query within gives a single customer's value; aggregate it, or tie it to the row by customer_id"
        )  # fmt: skip

    def _at_least(self, query: exp.Select, place: Place, persons: list[Key]) -> tuple[str, ...]:
        """EXISTS of persons' rows: there are such rows of enough of them."""
        query.set("expressions", [exp.alias_(exp.Count(this=exp.Star()), f"{HIDDEN}n", quoted=True)])
        for name in ("distinct", "order", "limit", "offset"):
            query.set(name, None)
        query.set("having", exp.Having(this=exp.and_(*(self.figures.enough(place.column(key)) for key in persons))))
        return ()

    def _hand_on(self, query: exp.Select, place: Place, columns: Sequence[tuple[Key, exp.Expr]]) -> tuple[str, ...]:
        names = []
        for key, column in columns:
            shown = next((one for one in query.selects if place.own(one.unalias()) == key), None)
            if shown is not None:
                names.append(shown.alias_or_name)
                continue
            if query.args.get("distinct") is not None:
                raise single("DISTINCT over single customers' rows; group by what is shown")
            self._hidden += 1
            name = f"{HIDDEN}k{self._hidden}"
            query.append("expressions", exp.alias_(column.copy(), name, quoted=True))
            names.append(name)
        return tuple(names)

    # --- parts of one SELECT -----------------------------------------------------------------------------------------

    def _place(self, query: exp.Select, around: Place | None) -> Place:
        place = Place(around=around)
        first = query.args.get("from_")
        joins = query.args.get("joins") or []
        for node, side in [*([(first.this, "")] if first is not None else []), *((j.this, j.side) for j in joins)]:
            if side.upper() == "RIGHT":
                for source in place.sources.values():
                    source.nullable = True
            table = node.name if isinstance(node, exp.Table) and node.name not in self.ctes else ""
            keys = self._keys(node)
            plain = plain_of_table(table) if table else self._plain_names(node)
            place.sources[node.alias_or_name] = Source(keys, side.upper() == "LEFT", table, plain)
        return place

    def _plain_names(self, node: exp.Expr) -> frozenset[str]:
        """Of a derived table or a CTE, by the names that its alias gives them."""
        if isinstance(node, exp.Table):
            return renamed(node, *self._plain_ctes.get(node.name, ([], frozenset())))
        query = node
        while isinstance(query, exp.Subquery | exp.CTE):
            query = query.this
        if not isinstance(query, exp.Query):
            return frozenset()
        names = self._plain_of.get(id(query), frozenset())
        return renamed(node, [one.alias_or_name for one in query.selects] if names else (), names)

    def _keys(self, node: exp.Expr) -> tuple[str, ...]:
        if isinstance(node, exp.Table):
            if node.name in self.ctes:
                _extend(node, self.ctes[node.name])
                return self.ctes[node.name]
            return (CUSTOMER,) if node.name in self.tables else ()
        keys = self.query(node, None, _Use("table"))
        _extend(node, keys)
        return keys

    def _within(self, query: exp.Select, rows: Place, groups: Place) -> None:
        """Queries in its conditions and values. groups: what those see that stand where groups are already made."""
        for node, late in list(_queries(query)):
            holder: exp.Expr = node
            while isinstance(holder.parent, exp.Subquery | exp.Paren):
                holder = holder.parent
            place = groups if late else rows
            parent = holder.parent
            if isinstance(parent, exp.Exists):
                self.query(node, place, _Use("exists"))
            elif isinstance(parent, exp.In) and parent.this is not holder:
                of_person = place.own(parent.this) is not None or place.is_outer(parent.this)
                self.query(node, place, _Use("in", dedupe=True, of_person=of_person))
            else:
                self.query(node, place, _Use("scalar"))

    def _windows(self, query: exp.Select, place: Place, persons: list[Key]) -> None:
        for window in near(query, exp.Window):
            if isinstance(window.this, _PLACES):
                continue
            parts = {place.own(one) for one in window.args.get("partition_by") or ()}
            if not set(persons) <= parts:
                raise single("a window over single customers' rows is PARTITION BY customer_id; or group first")

    def _count_left_out(self, query: exp.Select, place: Place, small: list[Key], enough: list[exp.Expr]) -> None:
        group = query.args.get("group")
        self.one_row = group is None and query.args.get("having") is None
        if group is None:
            return
        inner = query.copy()
        first = exp.Min(this=place.column(small[0]))
        inner.set("expressions", [exp.alias_(first, f"{HIDDEN}p", quoted=True)])
        with_ = inner.args.get("with_")
        for name in ("order", "limit", "offset", "distinct", "with_"):
            inner.set(name, None)
        inner.args["group"].set("rollup", None)
        few = exp.Not(this=exp.paren(exp.and_(*(one.copy() for one in enough))))
        inner.set("having", exp.Having(this=few))
        person = exp.column(f"{HIDDEN}p", table=f"{HIDDEN}w", quoted=True)
        counted = exp.Count(this=exp.Distinct(expressions=[person]))
        self.left_out = exp.select(
            exp.alias_(exp.Count(this=exp.Star()), "n", quoted=True), exp.alias_(counted, "m", quoted=True)
        ).from_(inner.subquery(exp.to_identifier(f"{HIDDEN}w", quoted=True), copy=False))
        if with_ is not None:
            self.left_out.set("with_", with_)


# --- the tree --------------------------------------------------------------------------------------------------------


def _queries(query: exp.Select) -> Iterator[tuple[exp.Expr, bool]]:
    """Outermost queries in its expressions, and whether each stands where groups are already made."""
    for name, value in query.args.items():
        if name in ("from_", "with_"):
            continue
        late = name in ("expressions", "having", "order")
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, exp.Expr):
                continue
            stack = [(part.args["on"], False)] if name == "joins" and part.args.get("on") is not None else []
            stack += [(part, late)] if name != "joins" else []
            while stack:
                node, after = stack.pop()
                if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query):
                    yield node.this, after
                elif isinstance(node, exp.Query):
                    yield node, after
                else:
                    after = after and not (isinstance(node, exp.AggFunc) and not is_window_function(node))
                    stack.extend((child, after) for child in node.iter_expressions())


def _first(query: exp.Expr) -> exp.Select:
    """Whose names a UNION's columns have."""
    while not isinstance(query, exp.Select):
        query = query.this
    return query


def _leaves(query: exp.Expr) -> Iterator[exp.Select]:
    if isinstance(query, exp.Select):
        yield query
    elif isinstance(query, exp.SetOperation):
        yield from _leaves(query.this)
        yield from _leaves(query.expression)
    else:
        yield from _leaves(query.this)


def _places(query: exp.Expr, keys: Collection[str]) -> set[int]:
    return {place for place, one in enumerate(_first(query).selects) if one.alias_or_name in keys}


def _show_as(query: exp.Expr, keys: Sequence[str], names: Sequence[str]) -> None:
    """Hidden columns at the end of each part, in one order; NULL where there is no such person."""
    places = [next(n for n, one in enumerate(_first(query).selects) if one.alias_or_name == key) for key in keys]
    for select in _leaves(query):
        shown = list(select.selects)
        kept = [one for one in shown if not one.alias_or_name.startswith(HIDDEN)]
        values: list[exp.Expr] = [shown[place].unalias().copy() for place in places]
        values += [exp.Null() for _more in range(len(names) - len(values))]
        hidden = [exp.alias_(value, name, quoted=True) for value, name in zip(values, names, strict=True)]
        select.set("expressions", [*kept, *hidden])


def _extend(node: exp.Expr, keys: Sequence[str]) -> None:
    """A list of columns that an alias has gets the hidden ones too."""
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias) and (columns := alias.args.get("columns")):
        known = {one.name for one in columns}
        for key in keys:
            if key.startswith(HIDDEN) and key not in known:
                alias.append("columns", exp.to_identifier(key, quoted=True))
