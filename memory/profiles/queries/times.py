"""Days and instants are no numbers. Databases make one of them silently, and each another: `CURRENT_DATE - 30` is
20261100 to one, 1996 to the next, and never thirty days ago. So nothing is reckoned with a day but by INTERVAL and the
functions for it, and a day is compared with a day."""

from __future__ import annotations

import re
from collections.abc import Collection

from sqlglot import exp

from memory.profiles.queries.allowed import forbidden

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*\Z")
_MADE = (exp.DateAdd, exp.DateSub, exp.LastDay, exp.TsOrDsToDate, exp.TsOrDsToTimestamp, exp.Date, exp.CurrentDate,
         exp.CurrentTimestamp)  # fmt: skip
_TYPES = (exp.DataType.Type.DATE, exp.DataType.Type.DATETIME, exp.DataType.Type.TIMESTAMP)
_SAME = (exp.Paren, exp.Min, exp.Max, exp.Nullif, exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue,
         exp.Window)  # fmt: skip
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
_OF_NUMBERS = (
    exp.Neg, exp.Sum, exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.Abs,
    exp.Round, exp.Floor, exp.Ceil, exp.Trunc, exp.Sign, exp.Sqrt, exp.Ln, exp.Exp, exp.Log, exp.Pow, exp.NumberToStr,
)  # fmt: skip
_COMPARISONS = (exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_HOW = "; use INTERVAL, DATEDIFF or TIMESTAMPDIFF"


def is_time(node: exp.Expr | None, columns: Collection[int]) -> bool:
    """columns: nodes (by id) that are a day or an instant."""
    if isinstance(node, exp.Column):
        return id(node) in columns
    if isinstance(node, _MADE):
        return True
    if isinstance(node, exp.Cast):
        return node.to.this in _TYPES
    if isinstance(node, exp.Add | exp.Sub):
        return isinstance(node.expression, exp.Interval)
    if isinstance(node, _SAME):
        return is_time(node.this, columns)
    if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
        return any(is_time(one, columns) for one in (node.this, *node.expressions))
    if isinstance(node, exp.Case | exp.If):
        branches = node.args.get("ifs") or () if isinstance(node, exp.Case) else (node,)
        results = [*(one.args["true"] for one in branches), node.args.get("default"), node.args.get("false")]
        return any(is_time(one, columns) for one in results)
    if isinstance(node, exp.Subquery):
        return is_time(node.this, columns)
    return isinstance(node, exp.Select) and len(node.selects) == 1 and is_time(node.selects[0].unalias(), columns)


def check_times(query: exp.Expr, columns: Collection[int]) -> None:
    """Of this query's own expressions. Errors: Refusal (SQL_FORBIDDEN)."""
    stack = list(query.iter_expressions())
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            continue
        stack.extend(node.iter_expressions())
        if isinstance(node, _ARITHMETIC):
            _check_arithmetic(node, columns)
        elif _takes_a_number(node) and is_time(node.this, columns):
            raise forbidden("a day or an instant is no number" + _HOW)
        else:
            _check_compared(node, columns)


_TEXTS = (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR, exp.DataType.Type.TEXT)


def _takes_a_number(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return node.to.this not in (*_TYPES, *_TEXTS)
    return isinstance(node, _OF_NUMBERS)


def _check_arithmetic(node: exp.Expr, columns: Collection[int]) -> None:
    if isinstance(node.expression, exp.Interval):
        return
    for side in (node.this, node.expression):
        plain = side.unnest()
        if is_time(plain, columns):
            raise forbidden("nothing is added to a day or an instant, or taken from it, but an INTERVAL" + _HOW)
        if isinstance(plain, exp.Literal) and plain.is_string and not _NUMBER.match(plain.name):
            raise forbidden("a text is no number" + _HOW)


def _check_compared(node: exp.Expr, columns: Collection[int]) -> None:
    if isinstance(node, _COMPARISONS):
        sides = [node.this, node.expression]
    elif isinstance(node, exp.Between):
        sides = [node.this, node.args["low"], node.args["high"]]
    elif isinstance(node, exp.In):
        sides = [node.this, *node.expressions]
    else:
        return
    numbers = [one.unnest() for one in sides]
    if any(isinstance(one, exp.Literal) and not one.is_string for one in numbers) and any(
        is_time(one, columns) for one in sides
    ):
        raise forbidden("a day is compared with a day, such as '2026-01-05', and not with a number")
