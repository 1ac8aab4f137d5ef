"""What a statement may be made of: a list of what is allowed, so that what nobody thought of is refused.

sqlglot parses whatever it knows; each node of the tree must be of a kind named here, and of the kinds that carry
options (a SELECT's `INTO`, a table's `USE INDEX`) each option too. Functions are nodes: what is not here, sleeps,
locks, files, sessions, regular expressions, is refused by not being here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from sqlglot import exp

from memory.core.personal import CATALOGUE, Sort

MAX_NODES = 1500
MAX_SELECTS = 40
MAX_DEPTH = 60
MAX_TABLES = 16
MAX_STARS = 8  # each stands for all columns of its sources, and may be of a query that has several itself

_SHAPE: tuple[type[exp.Expr], ...] = (
    exp.Select, exp.Union, exp.Intersect, exp.Except, exp.Subquery, exp.With, exp.CTE, exp.From, exp.Join, exp.Table,
    exp.TableAlias, exp.Column, exp.Identifier, exp.Alias, exp.Star, exp.Where, exp.Group, exp.Having, exp.Order,
    exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.Exists,
)  # fmt: skip
_OPERATORS: tuple[type[exp.Expr], ...] = (
    exp.And, exp.Or, exp.Xor, exp.Not, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Is,
    exp.In, exp.Between, exp.Like, exp.Escape, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg,
    exp.Case, exp.If, exp.Interval, exp.Var,
)  # fmt: skip
_FUNCTIONS: tuple[type[exp.Expr], ...] = (
    exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.StddevPop, exp.Stddev, exp.StddevSamp, exp.Variance,
    exp.VariancePop, exp.Abs, exp.Round, exp.Floor, exp.Ceil, exp.Coalesce, exp.Nullif, exp.Greatest, exp.Least,
    exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.Left, exp.Right, exp.Trim, exp.Concat, exp.Year, exp.Month,
    exp.Day, exp.DayOfMonth, exp.Quarter, exp.Date, exp.TsOrDsToDate, exp.TsOrDsToTimestamp, exp.TimeToStr,
    exp.DateDiff, exp.DateAdd, exp.DateSub, exp.Cast, exp.DataType, exp.DataTypeParam, exp.CurrentDate,
    exp.CurrentTimestamp, exp.UtcTimestamp, exp.Window, exp.WindowSpec, exp.RowNumber, exp.Rank, exp.DenseRank,
    exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.Ntile,
    exp.PercentRank, exp.CumeDist, exp.NthValue, exp.Hour, exp.Minute, exp.Second, exp.DayOfWeek, exp.DayOfYear,
    exp.Week, exp.WeekOfYear, exp.LastDay, exp.Extract, exp.TimestampDiff, exp.TimestampAdd, exp.Pad, exp.Repeat,
    exp.Replace, exp.Reverse, exp.ConcatWs, exp.DPipe, exp.StrPosition, exp.SubstringIndex, exp.Trunc, exp.Sign,
    exp.Pow, exp.Sqrt, exp.Ln, exp.Log, exp.Exp, exp.NumberToStr, exp.Filter, exp.Rollup,
)  # fmt: skip
NODES: frozenset[type[exp.Expr]] = frozenset((*_SHAPE, *_OPERATORS, *_FUNCTIONS))
# Functions that sqlglot has no node for; all but YEARWEEK are put otherwise before they are judged (spelling.py).
NAMED = frozenset(
    {
        "now", "weekday", "adddate", "subdate", "date", "datetime", "julianday", "strftime", "mid", "total", "yearweek",
    }
)  # fmt: skip
MAX_TIMES = 1000  # characters that LPAD fills up to, and times that REPEAT repeats
TYPES = frozenset(
    {
        exp.DataType.Type.DECIMAL, exp.DataType.Type.BIGINT, exp.DataType.Type.UBIGINT, exp.DataType.Type.INT,
        exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR, exp.DataType.Type.TEXT, exp.DataType.Type.DATE,
        exp.DataType.Type.DATETIME, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.DOUBLE,
    }
)  # fmt: skip
UNITS = frozenset({"DAY", "WEEK", "MONTH", "QUARTER", "YEAR", "HOUR", "MINUTE", "SECOND"})
_OPTIONS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Select: frozenset(
        {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "offset", "distinct", "with_"}
    ),
    exp.Floor: frozenset({"this"}),
    exp.Ceil: frozenset({"this"}),
    exp.Table: frozenset({"this", "alias"}),
    exp.Column: frozenset({"this", "table"}),
    exp.Join: frozenset({"this", "side", "kind", "on", "using"}),
    exp.Group: frozenset({"expressions", "rollup"}),
    exp.Rollup: frozenset(),
    exp.StrPosition: frozenset({"this", "substr"}),
    exp.Filter: frozenset({"this", "expression"}),
    exp.Subquery: frozenset({"this", "alias"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Star: frozenset(),
    exp.Limit: frozenset({"expression"}),
    exp.Offset: frozenset({"expression"}),
    **dict.fromkeys(
        (exp.Union, exp.Intersect, exp.Except),
        frozenset({"this", "expression", "distinct", "order", "limit", "offset", "with_"}),
    ),
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "over"}),
    exp.In: frozenset({"this", "expressions", "query"}),
}
# ASCII, or Chinese: no two of these are the same to a database and different to us.
_NAME = re.compile(r"[A-Za-z0-9_\u4e00-\u9fff]{1,64}\Z")
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}\Z")
_STRFTIME = re.compile(r"(?:%[YmdHMSjyuwBbMI-]|[-/ :.年月日A-Za-z0-9])*\Z")
# Columns that are more than plain somewhere: nothing else may be called so, or a database might take one for the other.
SPECIAL_NAMES = frozenset(
    column.name for columns in CATALOGUE.values() for column in columns.values() if column.sort is not Sort.PLAIN
)


class Refusal(Exception):
    """Why a statement is not run. detail: a sentence without anything that the statement holds but its own names."""

    def __init__(self, code: str, detail: str, columns: tuple[str, ...] = ()) -> None:
        super().__init__(code)
        self.code, self.detail, self.columns = code, detail, columns


def forbidden(detail: str) -> Refusal:
    return Refusal("SQL_FORBIDDEN", detail)


def check_tree(tree: exp.Expr) -> None:
    """Errors: Refusal (SQL_FORBIDDEN, SQL_TOO_COMPLEX)."""
    tables = stars = selects = 0
    names: set[str] = set()
    named: Counter[str] = Counter()
    using: Counter[str] = Counter()
    for number, (node, depth) in enumerate(_walk(tree)):
        if number > MAX_NODES or depth > MAX_DEPTH:
            raise Refusal("SQL_TOO_COMPLEX", f"at most {MAX_NODES} parts, {MAX_DEPTH} deep")
        tables += isinstance(node, exp.Table)
        stars += isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count)
        selects += isinstance(node, exp.Select)
        if tables > MAX_TABLES or stars > MAX_STARS or selects > MAX_SELECTS:
            raise Refusal(
                "SQL_TOO_COMPLEX", f"at most {MAX_TABLES} tables, {MAX_STARS} stars and {MAX_SELECTS} queries"
            )
        _check_node(node)
        if isinstance(node, exp.Column):
            named[node.name.lower()] += 1
        elif isinstance(node, exp.Join):
            using.update(one.name.lower() for one in node.args.get("using") or ())
        if isinstance(node, exp.CTE):
            # Which of two a name means, databases and the parser might see differently.
            if node.alias.lower() in names:
                raise forbidden(f"two parts of WITH are called {node.alias}")
            names.add(node.alias.lower())
    # Each use of a name of USING stands for the columns of all the tables that it joins.
    if sum(count * named[name] for name, count in using.items()) > MAX_NODES // 4:
        raise Refusal("SQL_TOO_COMPLEX", f"its names stand for more than {MAX_NODES} parts")


def _walk(tree: exp.Expr) -> Iterator[tuple[exp.Expr, int]]:
    stack: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack.extend((child, depth + 1) for child in node.iter_expressions())


def _check_node(node: exp.Expr) -> None:
    kind = type(node)
    if kind is exp.Anonymous:
        if str(node.this).lower() not in NAMED:
            raise forbidden(f"the function {str(node.this)[:40]} is not among those allowed")
        if str(node.this).lower() == "yearweek" and not (
            len(node.expressions) == 1 or (len(node.expressions) == 2 and _is_whole(node.expressions[1], 3)
                                           and node.expressions[1].name != "2")
        ):  # fmt: skip
            raise forbidden("YEARWEEK takes a day, and one of the modes 0, 1 and 3")
        return
    if kind not in NODES:
        raise forbidden(f"{kind.__name__} is not among what a statement may have")
    options = _OPTIONS.get(kind)
    if options is not None and (extra := {name for name, value in node.args.items() if value} - options):
        raise forbidden(f"{kind.__name__} with {', '.join(sorted(extra))} is not allowed")
    check = _CHECKS.get(kind)
    if check is not None:
        check(node)


def _check_identifier(node: exp.Expr) -> None:
    if not _NAME.match(node.name):
        raise forbidden("a name has other characters than letters, digits and _, or more than 64")


def _check_alias(node: exp.Expr) -> None:
    if node.alias.lower() in SPECIAL_NAMES and not _is_called(node.this, node.alias.lower()):
        raise forbidden(f"nothing else may be called {node.alias}")


def _is_called(node: exp.Expr, name: str) -> bool:
    """A column of that name, or what USING makes of two of them."""
    if isinstance(node, exp.Coalesce):
        return all(_is_called(part, name) for part in (node.this, *node.expressions))
    return isinstance(node, exp.Column) and node.name.lower() == name


def _check_table_alias(node: exp.Expr) -> None:
    if any(column.name.lower() in SPECIAL_NAMES for column in node.args.get("columns") or ()):
        raise forbidden("a list of columns may not give the name of a personal column")
    own = isinstance(node.parent, exp.Table) and node.parent.name.lower() == node.name.lower()
    if node.name.lower() in CATALOGUE and not own:
        raise forbidden(f"nothing else may be called {node.name}")


def _check_join(node: exp.Expr) -> None:
    if node.args.get("side") not in (None, "", "LEFT", "RIGHT") or node.args.get("kind") not in (
        None, "", "INNER", "OUTER", "CROSS",
    ):  # fmt: skip
        raise forbidden("joins are inner, left, right and cross")


def _check_limit(node: exp.Expr) -> None:
    number = node.args.get("expression")
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdigit() or len(number.name) > 9:
        raise forbidden("LIMIT and OFFSET take a whole number")


def _check_literal(node: exp.Expr) -> None:
    if node.args.get("is_string") and any(ord(char) < 32 for char in node.name):
        raise forbidden("a text has a control character")


def _check_type(node: exp.Expr) -> None:
    if node.this not in TYPES:
        raise forbidden("CAST to that type is not allowed")


def _check_var(node: exp.Expr) -> None:
    if node.name.upper() not in UNITS:
        raise forbidden("a word that is not among what a statement may have")


def _check_format(node: exp.Expr) -> None:
    form = node.args.get("format")
    if not isinstance(form, exp.Literal) or not _STRFTIME.match(form.name):
        raise forbidden("DATE_FORMAT takes a plain format, such as '%Y-%m'")


def _is_whole(node: object, most: int) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() and int(node.name[:9]) <= most


def _check_times(node: exp.Expr) -> None:
    if not _is_whole(node.args.get("times" if isinstance(node, exp.Repeat) else "expression"), MAX_TIMES):
        raise forbidden(f"LPAD, RPAD and REPEAT take a whole number of at most {MAX_TIMES}")


def _check_digits(node: exp.Expr) -> None:
    if not _is_whole(node.args.get("decimals" if isinstance(node, exp.Trunc) else "format"), 30):
        raise forbidden("TRUNCATE and FORMAT take how many digits, a whole number")


def _check_week(node: exp.Expr) -> None:
    mode = node.args.get("mode")
    if mode is not None and not (_is_whole(mode, 3) and mode.name in ("0", "1", "3")):
        raise forbidden("WEEK takes the modes 0, 1 and 3")


def _check_unit(node: exp.Expr) -> None:
    if not isinstance(node.args.get("this" if isinstance(node, exp.Extract) else "unit"), exp.Var):
        raise forbidden("a unit is one of " + ", ".join(sorted(UNITS)))


def _check_count_of(node: exp.Expr) -> None:
    if node.this is None:
        raise forbidden("COUNT takes *, or what is counted")


def _check_interval(node: exp.Expr) -> None:
    count, unit = node.this, node.args.get("unit")
    if not isinstance(unit, exp.Var) or count is None:
        raise forbidden("INTERVAL takes a number and a unit, such as INTERVAL 30 DAY")
    _check_count(count)
    around = node.parent
    if isinstance(around, exp.Anonymous) and str(around.this).lower() in ("adddate", "subdate"):
        return  # still to be put plainly
    if isinstance(around, exp.Add) and not isinstance(around.expression, exp.Interval):
        return  # turned round later
    if not (isinstance(around, exp.Add | exp.Sub) and node.arg_key == "expression") and not isinstance(
        around, exp.DateAdd | exp.DateSub
    ):
        raise forbidden("INTERVAL is added to a day or an instant, or taken from it")


def _check_shift(node: exp.Expr) -> None:
    if not isinstance(node.expression, exp.Interval):
        _check_count(node.expression)


def _check_count(count: exp.Expr) -> None:
    while isinstance(count, exp.Paren | exp.Neg):
        count = count.this
    if isinstance(count, exp.Literal) and not _WHOLE.match(count.name):
        raise forbidden("INTERVAL takes a whole number")


_CHECKS: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Count: _check_count_of,
    exp.Interval: _check_interval,
    exp.DateAdd: _check_shift,
    exp.DateSub: _check_shift,
    exp.Identifier: _check_identifier,
    exp.Alias: _check_alias,
    exp.TableAlias: _check_table_alias,
    exp.Join: _check_join,
    exp.Limit: _check_limit,
    exp.Offset: _check_limit,
    exp.Literal: _check_literal,
    exp.DataType: _check_type,
    exp.Var: _check_var,
    exp.TimeToStr: _check_format,
    exp.Pad: _check_times,
    exp.Repeat: _check_times,
    exp.Trunc: _check_digits,
    exp.NumberToStr: _check_digits,
    exp.Week: _check_week,
    exp.Extract: _check_unit,
    exp.TimestampDiff: _check_unit,
    exp.TimestampAdd: _check_unit,
}
