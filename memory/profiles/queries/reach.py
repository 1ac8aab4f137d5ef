"""Which columns of the core a qualified statement reaches, and how it uses those that stand for a person.

Scope by scope, inner ones first: each column is followed to a table of the core, or to an output of an inner query.
A personal column is reached wherever it is named, for each place where a value can stand can tell it. A linking column
is followed through derived tables, under whatever name: bare, it may meet its like, group and be counted, and nothing
else. A UNION that mixes it with anything would compare it, so that is refused as well; and rows of which each is one
person's stay within the statement (persons.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, ScopeType, traverse_scope

from memory.core.models import FACT_MODELS
from memory.core.personal import CATALOGUE, CoreColumn, Kind, Sort
from memory.profiles.queries.allowed import Refusal
from memory.profiles.queries.persons import Rows, rows_of
from memory.profiles.queries.times import check_times, is_time

MAX_WIDTH = 64 * 1024  # characters of a row: of all columns that the core has together it is some thousands
_DIGITS = 40
_OPEN_END = 4096  # where a column says no length
_WIDTHS = {
    f"{model._meta.db_table}.{one.column}": (one.max_length or _OPEN_END) if one.get_internal_type() in
    ("CharField", "TextField", "JSONField") else 80
    for model in FACT_MODELS for one in model._meta.concrete_fields
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a query's answer. kind: what its values are, None where only the database knows. width: characters
    that a value may have at most, however it was put together."""

    name: str
    kind: Kind | None
    linking: frozenset[str] = frozenset()
    width: int = 0
    time: bool = False  # a day or an instant


@dataclass
class Reached:
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()


@dataclass
class _Walk:
    outputs: dict[int, list[Output]] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    personal: set[str] = field(default_factory=set)
    # of each column node: what stands for a person in it, by full name; nothing where it is plain
    linking: dict[int, frozenset[str]] = field(default_factory=dict)
    kinds: dict[int, Kind | None] = field(default_factory=dict)
    times: set[int] = field(default_factory=set)  # column nodes that are a day or an instant
    # of each scope: what its rows are of; and what a scope's own values are reckoned by, from queries within it
    rows: dict[int, Rows] = field(default_factory=dict)
    correlated: dict[int, frozenset[str]] = field(default_factory=dict)
    # characters at most: of each column node, and of what each query within an expression gives
    widths: dict[int, int] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=dict)


def reach(tree: exp.Query) -> Reached:
    """Errors: Refusal (SQL_UNKNOWN_NAME) for a column that cannot be followed."""
    walk = _Walk()
    try:
        scopes = traverse_scope(tree)
    except Exception as error:
        raise Refusal("SQL_INVALID", "its queries cannot be told apart") from error
    seen: set[int] = set()
    for scope in scopes:
        _sources(walk, scope)
    for scope in scopes:
        own = _own_columns(scope)
        for column in own:
            if column.table:
                _follow(walk, scope, column)
            seen.add(id(column))
        walk.outputs[id(scope)] = outputs = _outputs(walk, scope)
        check_times(scope.expression, walk.times)
        width = sum(output.width for output in outputs)
        if width > MAX_WIDTH:
            raise Refusal("SQL_TOO_COMPLEX", f"a row of it may have {width} characters; at most {MAX_WIDTH}")
        walk.answers[id(scope.expression)] = width
        _bounded(walk, scope)
        _ordered_by_outputs(walk, scope, own)
        walk.rows[id(scope)] = rows_of(
            scope, walk.linking, [one.linking for one in outputs], walk.rows,
            walk.correlated.get(id(scope), frozenset()),
        )  # fmt: skip
        walk.personal |= walk.rows[id(scope)].picked
        inner = scope.scope_type in (ScopeType.DERIVED_TABLE, ScopeType.CTE)
        if inner and len({output.name for output in outputs}) != len(outputs):
            raise Refusal("SQL_FORBIDDEN", "two columns of a derived table have one name")
    if any(not isinstance(star.parent, exp.Count) for star in tree.find_all(exp.Star)):
        # Left where it stands for two columns of one name: what cannot be followed is not run.
        raise Refusal("SQL_FORBIDDEN", "a * stands for columns that cannot be told apart")
    known = {id(table) for scope in scopes for table in scope.tables}
    if any(id(table) not in known for table in tree.find_all(exp.Table)):
        raise Refusal("SQL_UNKNOWN_NAME", "a table stands where it cannot be followed")
    if any(id(column) not in seen for column in tree.find_all(exp.Column)):
        raise Refusal("SQL_UNKNOWN_NAME", "a column stands where it cannot be followed")
    for scope in scopes:
        for column in _own_columns(scope):
            if walk.linking.get(id(column)) and not _may_stand(walk, scopes, column):
                walk.personal |= walk.linking[id(column)]
    # One row for each person, in an order that may be the persons' own, shows whose each of them is.
    walk.personal |= walk.rows[id(scopes[-1])].of
    root = walk.outputs[id(scopes[-1])]
    return Reached(tuple(sorted(walk.tables)), tuple(sorted(walk.columns)), tuple(sorted(walk.personal)), tuple(root))


def _sources(walk: _Walk, scope: Scope) -> None:
    for source in scope.sources.values():
        if isinstance(source, exp.Table):
            if source.name not in CATALOGUE:
                raise Refusal("SQL_UNKNOWN_NAME", f"there is no table {source.name}")
            walk.tables.add(source.name)


def _selects(scope: Scope) -> list[exp.Expr]:
    query = scope.expression
    return list(query.selects) if isinstance(query, exp.Query) else []


def _own_columns(scope: Scope) -> list[exp.Column]:
    """Column nodes of this query, not those of queries within it."""
    found: list[exp.Column] = []
    stack = list(scope.expression.iter_expressions())
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            continue
        if isinstance(node, exp.Column):
            found.append(node)
        stack.extend(node.iter_expressions())
    return found


def _follow(walk: _Walk, scope: Scope, column: exp.Column) -> None:
    place: Scope | None = scope
    while place is not None and column.table not in place.sources:
        # An inner query may use what is around it; a derived table or CTE may not.
        place = place.parent if place.scope_type in (ScopeType.SUBQUERY, ScopeType.SET_OPERATION) else None
    source = place.sources[column.table] if place is not None else None
    if isinstance(source, exp.Table):
        core = CATALOGUE[source.name].get(column.name)
        if core is None:
            raise Refusal("SQL_UNKNOWN_NAME", f"{source.name} has no column {column.name[:64]}")
        _note(walk, column, core)
    elif isinstance(source, Scope):
        output = next((one for one in walk.outputs.get(id(source), ()) if one.name == column.name), None)
        if output is None:
            raise Refusal("SQL_UNKNOWN_NAME", f"{column.table[:64]} has no column {column.name[:64]}")
        walk.linking[id(column)] = output.linking
        walk.kinds[id(column)] = output.kind
        walk.times |= {id(column)} if output.time else set()
        walk.widths[id(column)] = output.width
    else:
        raise Refusal("SQL_UNKNOWN_NAME", f"{column.table[:64]} is nothing that can be followed")
    linking = walk.linking[id(column)]
    if linking and place is not None and place is not scope and _is_value(scope):
        walk.correlated[id(place)] = walk.correlated.get(id(place), frozenset()) | linking


def _is_value(scope: Scope) -> bool:
    """Whether the query within stands for a value that is shown or reckoned with, not for a condition."""
    node: exp.Expr | None = scope.expression
    while node is not None and not isinstance(node, exp.Where | exp.Having | exp.Join):
        if isinstance(node.parent, exp.Select) and node.arg_key in ("expressions", "order", "group"):
            return True
        node = node.parent
    return False


def _note(walk: _Walk, column: exp.Column, core: CoreColumn) -> None:
    walk.columns.add(core.full_name)
    walk.kinds[id(column)] = core.kind
    walk.widths[id(column)] = _WIDTHS[core.full_name]
    walk.times |= {id(column)} if core.kind in (Kind.DATE, Kind.INSTANT) else set()
    walk.linking[id(column)] = frozenset({core.full_name}) if core.sort is Sort.LINKING else frozenset()
    if core.sort is Sort.PERSONAL:
        walk.personal.add(core.full_name)


def _ordered_by_outputs(walk: _Walk, scope: Scope, own: list[exp.Column]) -> None:
    """A name without a table is one of the query's own outputs, and stands in its ORDER BY; so does a number."""
    outputs = walk.outputs[id(scope)]
    order = scope.expression.args.get("order")
    for column in own:
        if column.table:
            continue
        output = next((one for one in outputs if one.name == column.name), None)
        ordered = column.find_ancestor(exp.Order)
        if output is None or ordered is None or ordered is not order:
            raise Refusal("SQL_UNKNOWN_NAME", f"no table has a column {column.name[:64]}")
        walk.linking[id(column)] = output.linking
        walk.kinds[id(column)] = None
    for one in order.expressions if order is not None else ():
        number = one.this.unnest() if isinstance(one, exp.Ordered) else one
        if isinstance(number, exp.Literal) and not number.is_string:
            place = int(number.name) if number.name.isdigit() and len(number.name) <= 4 else 0
            if not 1 <= place <= len(outputs):
                raise Refusal("SQL_UNKNOWN_NAME", "ORDER BY has the number of no column")
            walk.personal |= outputs[place - 1].linking


def _linking(walk: _Walk, node: exp.Expr | None) -> frozenset[str]:
    """What stands for a person in an expression that is nothing but such columns, else nothing."""
    if isinstance(node, exp.Paren):
        return _linking(walk, node.this)
    if isinstance(node, exp.Column):
        return walk.linking.get(id(node), frozenset())
    if isinstance(node, exp.Coalesce):
        parts = [_linking(walk, part) for part in (node.this, *node.expressions)]
        return frozenset().union(*parts) if all(parts) else frozenset()
    return frozenset()


def _kind(walk: _Walk, node: exp.Expr | None) -> Kind | None:
    if isinstance(node, exp.Column):
        return walk.kinds.get(id(node))
    if isinstance(node, exp.Paren | exp.Min | exp.Max | exp.Coalesce | exp.Nullif | exp.Lag | exp.Lead):
        return _kind(walk, node.this)
    if isinstance(node, exp.FirstValue | exp.LastValue | exp.Window):
        return _kind(walk, node.this)
    if isinstance(node, exp.TsOrDsToDate | exp.Date):
        return Kind.DATE
    if isinstance(node, exp.Sum | exp.Avg) and _kind(walk, node.this) is Kind.MONEY:
        return Kind.MONEY
    return None


def _outputs(walk: _Walk, scope: Scope) -> list[Output]:
    query = scope.expression
    if isinstance(query, exp.SetOperation):
        branches = [walk.outputs[id(branch)] for branch in scope.set_operation_scopes]
        if len({len(branch) for branch in branches}) != 1:
            raise Refusal("SQL_INVALID", "the parts of a UNION have different numbers of columns")
        for column in zip(*branches, strict=True):
            if not all(one.linking for one in column):
                # What stands beside an id there is compared with it by the UNION itself, or by whoever joins it.
                walk.personal |= frozenset().union(*(one.linking for one in column))
        return [
            Output(column[0].name, column[0].kind if len({one.kind for one in column}) == 1 else None,
                   frozenset().union(*(one.linking for one in column)), max(one.width for one in column),
                   any(one.time for one in column))
            for column in zip(*branches, strict=True)
        ]  # fmt: skip
    return [
        Output(one.alias_or_name, _kind(walk, one.unalias()), _linking(walk, one.unalias()), _width(walk, one),
               is_time(one.unalias(), walk.times))
        for one in _selects(scope)
    ]  # fmt: skip


def _width(walk: _Walk, node: exp.Expr) -> int:
    """Of whatever is made of its parts: no function that is allowed gives more than all of them together, and the
    digits of a number or an instant."""
    width, stack = _DIGITS, [node]
    while stack:
        one = stack.pop()
        if isinstance(one, exp.Query) and not isinstance(one, exp.Subquery):
            width += walk.answers.get(id(one), MAX_WIDTH + 1)
        elif isinstance(one, exp.Column):
            width += walk.widths.get(id(one), 0)
        elif isinstance(one, exp.Literal):
            # A name of a month is longer than its two characters of a format.
            width += len(one.name) * (8 if isinstance(one.parent, exp.TimeToStr) else 1)
        elif (made := _multiplied(walk, one)) is not None:
            width += made
        else:
            stack.extend(one.iter_expressions())
    return width


def _bounded(walk: _Walk, scope: Scope) -> None:
    """Also what is not shown, but compared or ordered by: a text must not grow within a row."""
    stack = list(scope.expression.iter_expressions())
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Pad | exp.Repeat | exp.Replace | exp.ConcatWs) and _width(walk, node) > MAX_WIDTH:
            raise Refusal("SQL_TOO_COMPLEX", f"a text of it may have more than {MAX_WIDTH} characters")
        if not isinstance(node, exp.Query) or isinstance(node, exp.Subquery):
            stack.extend(node.iter_expressions())


def _multiplied(walk: _Walk, node: exp.Expr) -> int | None:
    """Of a function that may give more than all of its parts together."""
    if isinstance(node, exp.Pad):
        return int(node.expression.name)
    if isinstance(node, exp.Repeat):
        return _width(walk, node.this) * int(node.args["times"].name)
    if isinstance(node, exp.Replace):
        # Each character may be one that is replaced.
        other = node.args.get("replacement")
        by = len(other.name) if isinstance(other, exp.Literal) else _width(walk, other) if other is not None else 0
        return _width(walk, node.this) * max(1, by)
    if isinstance(node, exp.ConcatWs):
        between, *parts = node.expressions
        return _width(walk, between) * len(parts) + sum(_width(walk, part) for part in parts)
    return None


def _may_stand(walk: _Walk, scopes: list[Scope], column: exp.Column) -> bool:
    """Whether a linking column is used as one: joined, grouped, counted, or handed to a query around it."""
    node: exp.Expr = column
    while isinstance(node.parent, exp.Paren) or (isinstance(node.parent, exp.Coalesce) and _linking(walk, node.parent)):
        node = node.parent
    parent = node.parent
    if isinstance(parent, exp.EQ | exp.NullSafeEQ):
        return bool(_linking(walk, parent.this)) and bool(_linking(walk, parent.expression))
    if isinstance(parent, exp.In):
        return parent.this is node and _answers_linking(walk, scopes, parent.args.get("query"))
    if isinstance(parent, exp.Is):
        return parent.this is node and isinstance(parent.expression, exp.Null)
    if isinstance(parent, exp.Group):
        return True
    if isinstance(parent, exp.Window):
        return any(node is one for one in parent.args.get("partition_by") or ())
    if isinstance(parent, exp.Alias) or (isinstance(parent, exp.Select) and node.arg_key == "expressions"):
        return _handed_on(walk, node)
    return _counted(node)


def _counted(node: exp.Expr) -> bool:
    """Also COUNT(DISTINCT CASE WHEN … THEN customer_id END), where nothing else is among what it may become."""
    inner = node
    if isinstance(node.parent, exp.If) and node.arg_key == "true":
        inner = node.parent
        if isinstance(inner.parent, exp.Case):
            inner = inner.parent
        if any(not isinstance(one, exp.Column | exp.Null) for one in _becomes(inner)):
            return False
        if any(one is not node and isinstance(one, exp.Column) for one in _becomes(inner)):
            return False
    if isinstance(inner.parent, exp.Distinct):
        inner = inner.parent
    return isinstance(inner.parent, exp.Count)


def _becomes(node: exp.Expr) -> list[exp.Expr]:
    """What a CASE or an IF may give."""
    branches = node.args.get("ifs") or () if isinstance(node, exp.Case) else (node,)
    last = node.args.get("default") if isinstance(node, exp.Case) else node.args.get("false")
    return [*(one.args["true"] for one in branches), *([last] if last is not None else [])]


def _handed_on(walk: _Walk, node: exp.Expr) -> bool:
    """A column of a query's answer: good where the query stands in a FROM, a WITH, an EXISTS, or an IN of its like."""
    query: exp.Expr | None = node.find_ancestor(exp.Select)
    while query is not None and isinstance(query.parent, exp.SetOperation | exp.Subquery):
        if isinstance(query.parent, exp.Subquery) and isinstance(query.parent.parent, exp.From | exp.Join):
            # As a table of it, not in a join's condition.
            return query.parent.arg_key == "this"
        query = query.parent
    around = query.parent if query is not None else None
    if isinstance(around, exp.CTE | exp.Exists | exp.From | exp.Join):
        return True
    return isinstance(around, exp.In) and around.this is not query and bool(_linking(walk, around.this))


def _answers_linking(walk: _Walk, scopes: list[Scope], query: exp.Expr | None) -> bool:
    if query is None:
        return False
    inner = query.this if isinstance(query, exp.Subquery) else query
    scope = next((one for one in scopes if one.expression is inner), None)
    return scope is not None and all(output.linking for output in walk.outputs[id(scope)])
