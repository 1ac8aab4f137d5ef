"""Other spellings of what a statement may have, put as the one that is known further on: SQLite's and Postgres's ways
to say it, MySQL's second names, aliases with blanks and punctuation. Before anything is judged, or without a change of
what it means."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from datetime import datetime

from sqlglot import exp

from config.base.clock import business_date
from memory.profiles.queries.allowed import forbidden

OWN = ("_xh_", "_xa_")  # names of the gate's own begin so
_PLAIN = re.compile(r"[A-Za-z0-9_\u4e00-\u9fff]{1,64}\Z")
_MORE = frozenset(" -+/%().,:&|<>=·、，。：（）【】《》？！—…￥$€")
_STEP = re.compile(r"([+-]?\d{1,9}) (day|hour|minute|second|month|year)s?\Z")
_STARTS = {"start of day": "%Y-%m-%d", "start of month": "%Y-%m-01", "start of year": "%Y-01-01"}


def rename_odd(tree: exp.Expr) -> dict[str, str]:
    """Gives names with blanks, punctuation or letters of other scripts one of ours, everywhere alike; what each was.
    So what the database is given is never such a name. Errors: Refusal (SQL_FORBIDDEN)."""
    given: dict[str, str] = {}
    was: dict[str, str] = {}
    for node in tree.find_all(exp.Identifier):
        name = node.name
        if name.lower().startswith(OWN):
            raise forbidden(f"names that begin with {' or '.join(OWN)} are the gate's own")
        if _PLAIN.match(name) or not _may_be_shown(name):
            continue  # what may not be shown either, the list refuses
        new = given.setdefault(name.casefold(), f"_xa_{len(given) + 1}")
        was.setdefault(new, name)
        node.set("this", new)
        node.set("quoted", True)
    return was


def _may_be_shown(name: str) -> bool:
    return 1 <= len(name) <= 64 and name == name.strip() and all(
        char in _MORE or char == "_" or unicodedata.category(char)[0] in "LN" for char in name
    )  # fmt: skip


def put_plainly(tree: exp.Expr, moment: datetime) -> None:
    """moment: what NOW() and CURRENT_DATE stand for, so that a statement run again later can be explained.
    In place, inner parts first. Errors: Refusal (SQL_FORBIDDEN)."""
    for node in reversed(list(tree.walk())):
        other = _plain(node, moment)
        if other is not node:
            node.replace(other)


def _plain(node: exp.Expr, moment: datetime) -> exp.Expr:
    if isinstance(node, exp.CurrentTimestamp | exp.UtcTimestamp):
        return _instant(moment)
    if isinstance(node, exp.CurrentDate):
        return _day(moment)
    if isinstance(node, exp.Date | exp.TsOrDsToDate | exp.TsOrDsToTimestamp) and _is_now(node.this):
        today = not isinstance(node, exp.TsOrDsToTimestamp)
        return _day(moment) if today else _instant(moment)
    if isinstance(node, exp.TimestampAdd):
        return exp.DateAdd(this=node.this, expression=_count(node.expression), unit=node.args.get("unit"))
    if isinstance(node, exp.Add) and isinstance(node.this, exp.Interval):
        return exp.Add(this=node.expression, expression=node.this)
    if isinstance(node, exp.Filter):
        return _filtered(node)
    if isinstance(node, exp.Anonymous):
        make = _NAMED.get(str(node.this).lower())
        return make(list(node.expressions), moment) if make is not None else node
    return node


def _instant(moment: datetime) -> exp.Expr:
    """Typed, as NOW() is: a text would be compared as one, and reckoned with as the number that it begins with."""
    return exp.cast(exp.Literal.string(moment.strftime("%Y-%m-%d %H:%M:%S")), "DATETIME")


def _day(moment: datetime) -> exp.Expr:
    return exp.cast(exp.Literal.string(business_date(moment).isoformat()), "DATE")


def _is_now(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and node.name.lower() == "now"


def _filtered(node: exp.Filter) -> exp.Expr:
    """SUM(x) FILTER (WHERE c), as SUM(CASE WHEN c THEN x END)."""
    whole, where = node.this, node.expression
    if not isinstance(whole, exp.Count | exp.Sum | exp.Avg | exp.Min | exp.Max) or not isinstance(where, exp.Where):
        raise forbidden("FILTER goes with COUNT, SUM, AVG, MIN and MAX")
    inner = whole.this

    def when(value: exp.Expr) -> exp.Expr:
        return exp.Case(ifs=[exp.If(this=where.this.copy(), true=value)])

    if isinstance(inner, exp.Distinct):
        inner.set("expressions", [when(one.copy()) for one in inner.expressions])
    else:
        whole.set("this", when(exp.Literal.number(1) if isinstance(inner, exp.Star) else inner.copy()))
    return whole.copy()


def _now(values: list[exp.Expr], moment: datetime) -> exp.Expr:
    if values:
        raise forbidden("NOW takes nothing")
    return _instant(moment)


def _of(count: int, name: str, values: list[exp.Expr]) -> list[exp.Expr]:
    if len(values) != count:
        raise forbidden(f"{name} takes {count}")
    return values


def _count(node: exp.Expr) -> exp.Expr:
    """As it is read again after INTERVAL."""
    return exp.Literal.string(node.name) if isinstance(node, exp.Literal) else node


def _weekday(values: list[exp.Expr], _moment: datetime) -> exp.Expr:
    """Monday is 0; DAYOFWEEK has Sunday as 1."""
    [value] = _of(1, "WEEKDAY", values)
    shifted = exp.Add(this=exp.DayOfWeek(this=exp.TsOrDsToDate(this=value)), expression=exp.Literal.number(5))
    return exp.paren(exp.Mod(this=exp.paren(shifted, copy=False), expression=exp.Literal.number(7)), copy=False)


def _shifted(kind: type[exp.Expr], name: str) -> Callable[[list[exp.Expr], datetime], exp.Expr]:
    def make(values: list[exp.Expr], _moment: datetime) -> exp.Expr:
        value, by = _of(2, name, values)
        if isinstance(by, exp.Interval):
            return kind(this=value, expression=by.this, unit=by.args.get("unit"))
        return kind(this=value, expression=_count(by), unit=exp.Var(this="DAY"))

    return make


def _sqlite_date(values: list[exp.Expr], moment: datetime) -> exp.Expr:
    """DATE('now', '-1 month'), DATE(x, 'start of month'): one day, and what is done to it in order."""
    if not values:
        return _day(moment)
    found = _day(moment) if _is_now(values[0]) else values[0]
    day: exp.Expr = exp.TsOrDsToDate(this=found)
    for change in values[1:]:
        text = change.name.lower() if isinstance(change, exp.Literal) and change.is_string else ""
        step = _STEP.match(text)
        if text in _STARTS:
            format_ = exp.Literal.string(_STARTS[text])
            day = exp.TsOrDsToDate(this=exp.TimeToStr(this=day, format=format_))
        elif step is not None:
            count = exp.Literal.string(step[1].lstrip("+-"))
            kind = exp.DateSub if step[1].startswith("-") else exp.DateAdd
            day = kind(this=day, expression=count, unit=exp.Var(this=step[2].upper()))
        else:
            raise forbidden("DATE takes 'start of month', 'start of year', and steps such as '-3 month'")
    return day


def _sqlite_datetime(values: list[exp.Expr], moment: datetime) -> exp.Expr:
    [value] = _of(1, "DATETIME", values)
    return _instant(moment) if _is_now(value) else value


def _julianday(values: list[exp.Expr], moment: datetime) -> exp.Expr:
    [value] = _of(1, "JULIANDAY", values)
    later = _instant(moment) if _is_now(value) else value
    seconds = exp.TimestampDiff(
        this=later, expression=exp.Literal.string("2000-01-01 00:00:00"), unit=exp.Var(this="SECOND")
    )
    days = exp.Div(this=seconds, expression=exp.Literal.number("86400.0"))
    return exp.paren(exp.Add(this=days, expression=exp.Literal.number("2451544.5")), copy=False)


def _strftime(values: list[exp.Expr], _moment: datetime) -> exp.Expr:
    form, value = _of(2, "STRFTIME", values)
    return exp.TimeToStr(this=value, format=form)


def _mid(values: list[exp.Expr], _moment: datetime) -> exp.Expr:
    value, start, length = _of(3, "MID", values)
    return exp.Substring(this=value, start=start, length=length)


def _total(values: list[exp.Expr], _moment: datetime) -> exp.Expr:
    [value] = _of(1, "TOTAL", values)
    return exp.Coalesce(this=exp.Sum(this=value), expressions=[exp.Literal.number(0)])


_NAMED: dict[str, Callable[[list[exp.Expr], datetime], exp.Expr]] = {
    "now": _now,
    "weekday": _weekday,
    "adddate": _shifted(exp.DateAdd, "ADDDATE"),
    "subdate": _shifted(exp.DateSub, "SUBDATE"),
    "date": _sqlite_date,
    "datetime": _sqlite_datetime,
    "julianday": _julianday,
    "strftime": _strftime,
    "mid": _mid,
    "total": _total,
}
# Functions that sqlglot has no node for: these, and what stays one (allowed.py).
NAMED = frozenset(_NAMED)
