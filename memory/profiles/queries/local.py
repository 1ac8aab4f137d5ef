"""What SQLite, the embedded default's database, does not have of the language: functions of ours stand in for it.

Its money columns are text there and are read as binary doubles: sums are good to 15 digits, as the decision page says.
"""

from __future__ import annotations

import hashlib
import math
import re
import sqlite3
from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from typing import Any

from sqlglot import exp

from memory.profiles.queries.ordering import MIXED

_PARTS: dict[type[exp.Expr], str] = {
    exp.Year: "year", exp.Month: "month", exp.Day: "day", exp.DayOfMonth: "day", exp.Quarter: "quarter",
    exp.Hour: "hour", exp.Minute: "minute", exp.Second: "second", exp.DayOfWeek: "dayofweek",
    exp.DayOfYear: "dayofyear", exp.WeekOfYear: "week3",
}  # fmt: skip
# Functions of ours that take what the node has in this order.
_CALLS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.TimestampDiff: ("xh_between", "this", "expression", "unit"),
    exp.Pad: ("xh_pad", "this", "expression", "fill_pattern", "is_left"),
    exp.Repeat: ("xh_repeat", "this", "times"),
    exp.Reverse: ("xh_reverse", "this"),
    exp.SubstringIndex: ("xh_substring_index", "this", "delimiter", "count"),
    exp.Trunc: ("xh_trunc", "this", "decimals"),
    exp.NumberToStr: ("xh_number", "this", "format"),
    exp.Sign: ("xh_sign", "this"),
    exp.Sqrt: ("xh_sqrt", "this"),
    exp.Ln: ("xh_ln", "this"),
    exp.Exp: ("xh_exp", "this"),
    exp.Pow: ("xh_pow", "this", "expression"),
    exp.Log: ("xh_log", "this", "expression"),
}
_SPREADS: dict[type[exp.Expr], str] = {
    exp.StddevPop: "xh_stddev_pop", exp.Stddev: "xh_stddev_pop", exp.StddevSamp: "xh_stddev_samp",
    exp.VariancePop: "xh_var_pop", exp.Variance: "xh_var_samp",
}  # fmt: skip


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _argument(value: object) -> exp.Expr:
    if isinstance(value, exp.Var):
        return exp.Literal.string(value.name.upper())
    if isinstance(value, exp.Expr):
        return value
    return exp.Null() if value is None else exp.Literal.number(int(bool(value)))


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
    if kind in _CALLS:
        name, *parts = _CALLS[kind]
        return _call(name, *(_argument(node.args.get(part)) for part in parts))
    if isinstance(node, exp.Extract):
        unit = node.this.name.lower()
        return _call("xh_part", exp.Literal.string("week0" if unit == "week" else unit), node.expression)
    if isinstance(node, exp.Week):
        mode = node.args.get("mode")
        return _call("xh_part", exp.Literal.string(f"week{mode.name if mode is not None else 0}"), node.this)
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "yearweek":
        mode = node.expressions[1].name if len(node.expressions) > 1 else "0"
        return _call("xh_part", exp.Literal.string(f"yearweek{mode}"), node.expressions[0])
    if isinstance(node, exp.ConcatWs):
        return _call("xh_concat_ws", *node.expressions)
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
    if isinstance(node, exp.Cast) and node.to.this in (exp.DataType.Type.BIGINT, exp.DataType.Type.INT):
        return _call("xh_whole", node.this)
    if isinstance(node, exp.Xor):
        # It has none. NOT makes 0 or 1 of each side, and leaves NULL one.
        sides = [exp.paren(exp.Not(this=exp.paren(side.copy()))) for side in (node.this, node.expression)]
        return exp.paren(exp.NEQ(this=sides[0], expression=sides[1]), copy=False)
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
    if name == "dayofyear":
        return moment.timetuple().tm_yday
    if name.startswith("week"):
        return _week(moment.date(), name[-1])
    if name.startswith("yearweek"):
        return _year_and_week(moment.date(), name[-1])
    return (moment.month + 2) // 3 if name == "quarter" else int(getattr(moment, name))


def _week(day: date, mode: str) -> int:
    """As MySQL counts them. 0: from Sundays, the first has one; 1: from Mondays, the first has four days; both with a
    week 0 before it. 3: as ISO 8601."""
    if mode == "3":
        return day.isocalendar().week
    first = day.replace(month=1, day=1).weekday()
    before = (first + 1) % 7 if mode == "0" else first
    whole = before == 0 if mode == "0" else before <= 3
    return (day.timetuple().tm_yday - 1 + before) // 7 + whole


def _year_and_week(day: date, mode: str) -> int:
    if mode != "0":
        year, week, _day = day.isocalendar()
        return year * 100 + week
    if _week(day, "0") == 0:
        day = date(day.year - 1, 12, 31)
    return day.year * 100 + _week(day, "0")


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
        number = _whole(count)
        if moment is None or number is None:
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


def _between(later: Any, earlier: Any, unit: str) -> int | None:
    """Whole units from the one to the other, as TIMESTAMPDIFF counts them."""
    end, begin = _moment(later), _moment(earlier)
    if end is None or begin is None:
        return None
    if end < begin:
        turned = _between(earlier, later, unit)
        return -turned if turned is not None else None
    months = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}.get(unit)
    if months is None:
        seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "WEEK": 604800}[unit]
        return (end - begin) // timedelta(seconds=seconds)
    whole = (end.year - begin.year) * 12 + end.month - begin.month
    if (end.day, end.time()) < (begin.day, begin.time()):
        whole -= 1
    return whole // months


def _pad(value: Any, length: int, fill: Any, left: int) -> str | None:
    if value is None or fill is None:
        return None
    text = _text(value)
    if len(text) >= length:
        return text[:length]
    if not fill:
        return ""
    more = (str(fill) * length)[: length - len(text)]
    return more + text if left else text + more


def _text(value: Any) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _substring_index(value: Any, between: Any, count: Any) -> str | None:
    if value is None or between is None or count is None:
        return None
    if not between or not int(count):
        return ""
    parts = _text(value).split(str(between))
    return str(between).join(parts[: int(count)] if int(count) > 0 else parts[int(count) :])


def _concat_ws(between: Any, *values: Any) -> str | None:
    return None if between is None else str(between).join(_text(value) for value in values if value is not None)


def _trunc(value: Any, digits: int) -> float | None:
    if value is None:
        return None
    return float(Decimal(_text(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN))


def _number(value: Any, digits: int) -> str | None:
    if value is None:
        return None
    return f"{Decimal(_text(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,f}"


def _reckoned(how: Callable[..., float]) -> Callable[..., float | None]:
    """NULL of NULL, and where it has no value."""

    def reckon(*values: Any) -> float | None:
        try:
            return None if None in values else how(*map(float, values))
        except (ValueError, OverflowError, ZeroDivisionError):
            return None

    return reckon


def _left(value: Any, count: Any) -> str | None:
    return None if value is None or count is None else str(value)[: max(0, int(count))]


def _right(value: Any, count: Any) -> str | None:
    return None if value is None or count is None else str(value)[max(0, len(str(value)) - max(0, int(count))) :]


def _rounded(how: Callable[[float], int]) -> Callable[[Any], float | None]:
    def round_(value: Any) -> float | None:
        if value is None:
            return None
        number = float(value)
        # Past 64 bits there is no such integer here, and nothing behind the point either.
        return how(number) if abs(number) < 2**63 else number

    return round_


def _whole(value: Any) -> int | None:
    """As CAST(… AS SIGNED): a number rounded half away from nothing, of a text the whole number that it begins with."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        found = _BEGINS.match(value)
        return _bounded(int(found[0])) if found else 0
    return _bounded(int(Decimal(_text(float(value))).quantize(Decimal(1), ROUND_HALF_UP))) if abs(value) < 1e19 else (
        _MOST if value > 0 else -_MOST - 1
    )  # fmt: skip


_BEGINS = re.compile(r"\s*[+-]?[0-9]{1,30}")
_MOST = 2**63 - 1


def _bounded(number: int) -> int:
    return max(-_MOST - 1, min(_MOST, number))


def _mixed(salt: str, value: Any) -> str | None:
    return None if value is None else hashlib.sha256(f"{salt}{value}".encode()).hexdigest()


def _spread(least: int, root: bool) -> type:
    """Row by row, in no more room than three numbers (Welford): the time limit looks in between rows alone."""

    class Spread:
        def __init__(self) -> None:
            self.count, self.mean, self.squares = 0, 0.0, 0.0

        def step(self, value: Any) -> None:
            if value is None:
                return
            self.count += 1
            off = float(value) - self.mean
            self.mean += off / self.count
            self.squares += off * (float(value) - self.mean)

        def finalize(self) -> float | None:
            if self.count < least:
                return None
            variance = self.squares / (self.count - (least - 1))
            return math.sqrt(variance) if root else variance

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
    for name, count, made in (
        ("xh_between", 3, _between), ("xh_pad", 4, _pad), ("xh_substring_index", 3, _substring_index),
        ("xh_concat_ws", -1, _concat_ws), ("xh_trunc", 2, _trunc), ("xh_number", 2, _number),
        ("xh_repeat", 2, lambda value, times: None if value is None else _text(value) * times),
        ("xh_reverse", 1, lambda value: None if value is None else _text(value)[::-1]),
        ("xh_sign", 1, lambda value: None if value is None else (float(value) > 0) - (float(value) < 0)),
        ("xh_sqrt", 1, _reckoned(math.sqrt)), ("xh_ln", 1, _reckoned(math.log)), ("xh_exp", 1, _reckoned(math.exp)),
        ("xh_pow", 2, _reckoned(math.pow)), ("xh_log", 2, _reckoned(lambda base, value: math.log(value, base))),
    ):  # fmt: skip
        raw.create_function(name, count, made, deterministic=True)
    raw.create_function("xh_whole", 1, _whole, deterministic=True)
    raw.create_function(MIXED, 2, _mixed, deterministic=True)
    raw.create_aggregate("xh_stddev_pop", 1, _spread(1, root=True))
    raw.create_aggregate("xh_stddev_samp", 1, _spread(2, root=True))
    raw.create_aggregate("xh_var_pop", 1, _spread(1, root=False))
    raw.create_aggregate("xh_var_samp", 1, _spread(2, root=False))
