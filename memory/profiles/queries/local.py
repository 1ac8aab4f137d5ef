"""What SQLite, the embedded default's database, does not have of the language: functions of ours stand in for it.

Its money columns are text there and are read as binary doubles: sums are good to 15 digits, as the decision page says.
"""

from __future__ import annotations

import math
import sqlite3
import statistics
from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from sqlglot import exp

_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day", exp.Quarter: "quarter",
    exp.Hour: "hour", exp.DayOfWeek: "dayofweek",
}  # fmt: skip
_SPREADS: dict[type[exp.Expr], str] = {
    exp.StddevPop: "xh_stddev_pop", exp.Stddev: "xh_stddev_pop", exp.StddevSamp: "xh_stddev_samp",
    exp.VariancePop: "xh_var_pop", exp.Variance: "xh_var_samp",
}  # fmt: skip


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def for_sqlite(tree: exp.Query) -> exp.Query:
    """In place, inner parts first: a function may stand within another."""
    for select in tree.find_all(exp.Select):
        bare = select.args.get("having") is not None and select.args.get("group") is None
        if bare and not any(one.find(exp.AggFunc) for one in select.selects):
            # There a HAVING alone makes no group of all rows.
            one = exp.EQ(this=exp.Literal.number(1), expression=exp.Literal.number(1))
            select.set("group", exp.Group(expressions=[one]))
    for node in reversed(list(tree.walk())):
        if node is not tree and (other := _translated(node)) is not node:
            node.replace(other)
    return tree


def _translated(node: exp.Expr) -> exp.Expr:
    kind = type(node)
    if kind in _PARTS:
        return _call("xh_part", exp.Literal.string(_PARTS[kind]), node.this)
    if kind in _SPREADS:
        return _call(_SPREADS[kind], node.this)
    if isinstance(node, exp.TsOrDsToTimestamp):
        return node.this
    if isinstance(node, exp.TsOrDsToDate | exp.Date):
        return _call("xh_date", node.this)
    if isinstance(node, exp.LastDay):
        return _call("xh_last_day", node.this)
    if isinstance(node, exp.TimeToStr):
        return _call("xh_format", node.this, node.args["format"])
    if isinstance(node, exp.DateDiff):
        return _call("xh_days", node.this, node.expression)
    if isinstance(node, exp.DateAdd | exp.DateSub):
        return _shifted(node.this, node.expression, node.args.get("unit"), isinstance(node, exp.DateSub))
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        interval = node.expression
        return _shifted(node.this, interval.this, interval.args.get("unit"), isinstance(node, exp.Sub))
    if isinstance(node, exp.Cast) and node.to.this in (exp.DataType.Type.DATE,):
        return _call("xh_date", node.this)
    if isinstance(node, exp.Cast) and node.to.this in (exp.DataType.Type.DATETIME, exp.DataType.Type.TIMESTAMP):
        return _call("xh_moment", node.this)
    if isinstance(node, exp.Left | exp.Right):
        return _call("xh_left" if isinstance(node, exp.Left) else "xh_right", node.this, node.expression)
    if isinstance(node, exp.Ceil | exp.Floor):
        return _call("xh_ceil" if isinstance(node, exp.Ceil) else "xh_floor", node.this)
    return node


def _shifted(value: exp.Expr, count: exp.Expr, unit: exp.Expr | None, back: bool) -> exp.Expr:
    if isinstance(count, exp.Interval):
        unit = count.args.get("unit") or unit
        count = count.this
    name = unit.name.upper() if unit is not None else "DAY"
    return _call("xh_shift", value, exp.Neg(this=count) if back else count, exp.Literal.string(name))


# --- the functions ------------------------------------------------------------------------------------------------


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value)) if value is not None else None
    except ValueError:
        return None


def _part(name: str, value: Any) -> int | None:
    moment = _moment(value)
    if moment is None:
        return None
    if name == "dayofweek":
        return moment.isoweekday() % 7 + 1
    return (moment.month + 2) // 3 if name == "quarter" else int(getattr(moment, name))


def _date(value: Any) -> str | None:
    moment = _moment(value)
    return moment.date().isoformat() if moment else None


def _last_day(value: Any) -> str | None:
    moment = _moment(value)
    return moment.date().replace(day=monthrange(moment.year, moment.month)[1]).isoformat() if moment else None


def _format(value: Any, form: str) -> str | None:
    moment = _moment(value)
    return moment.strftime(form) if moment else None


def _days(later: Any, earlier: Any) -> int | None:
    one, other = _moment(later), _moment(earlier)
    return (one.date() - other.date()).days if one and other else None


def _shift(value: Any, count: Any, unit: str) -> str | None:
    moment = _moment(value)
    try:
        number = int(count)
        if moment is None:
            return None
        months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}.get(unit)
        if months is None:
            seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}[unit]
            moved = moment + timedelta(seconds=seconds * number)
        else:
            total = moment.year * 12 + moment.month - 1 + months * number
            year, month = divmod(total, 12)
            last = (date(year + (month == 11), (month + 1) % 12 + 1, 1) - timedelta(days=1)).day
            moved = moment.replace(year=year, month=month + 1, day=min(moment.day, last))
    except (TypeError, ValueError, OverflowError):
        return None
    whole_day = len(str(value)) == 10 and unit in ("DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
    return moved.date().isoformat() if whole_day else moved.isoformat(sep=" ")


def _left(value: Any, count: Any) -> str | None:
    return None if value is None or count is None else str(value)[: max(0, int(count))]


def _right(value: Any, count: Any) -> str | None:
    return None if value is None or count is None else str(value)[max(0, len(str(value)) - max(0, int(count))) :]


def _rounded(how: Callable[[float], int]) -> Callable[[Any], int | None]:
    return lambda value: None if value is None else how(float(value))


def _spread(how: Callable[[list[float]], float], least: int) -> type:
    class Spread:
        def __init__(self) -> None:
            self.values: list[float] = []

        def step(self, value: Any) -> None:
            if value is not None:
                self.values.append(float(value))

        def finalize(self) -> float | None:
            return how(self.values) if len(self.values) >= least else None

    return Spread


def teach(raw: sqlite3.Connection) -> None:
    """Gives a connection the functions that `for_sqlite` calls."""
    raw.create_function("xh_part", 2, _part, deterministic=True)
    raw.create_function("xh_date", 1, _date, deterministic=True)
    raw.create_function("xh_moment", 1, lambda v: m.isoformat(sep=" ") if (m := _moment(v)) else None)
    raw.create_function("xh_last_day", 1, _last_day, deterministic=True)
    raw.create_function("xh_format", 2, _format, deterministic=True)
    raw.create_function("xh_days", 2, _days, deterministic=True)
    raw.create_function("xh_shift", 3, _shift, deterministic=True)
    raw.create_function("xh_left", 2, _left, deterministic=True)
    raw.create_function("xh_right", 2, _right, deterministic=True)
    raw.create_function("xh_ceil", 1, _rounded(math.ceil), deterministic=True)
    raw.create_function("xh_floor", 1, _rounded(math.floor), deterministic=True)
    raw.create_aggregate("xh_stddev_pop", 1, _spread(statistics.pstdev, 1))
    raw.create_aggregate("xh_stddev_samp", 1, _spread(statistics.stdev, 2))
    raw.create_aggregate("xh_var_pop", 1, _spread(statistics.pvariance, 1))
    raw.create_aggregate("xh_var_samp", 1, _spread(statistics.variance, 2))
