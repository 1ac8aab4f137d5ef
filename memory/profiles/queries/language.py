"""MySQL as sqlglot reads it, but for functions of which it would drop arguments without a word: what was not read is
not what was asked (`DATE(x, 'start of month')` would be the day)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ParseError

_MOST = {
    "CEIL": 1, "CEILING": 1, "CHARINDEX": 3, "DATEDIFF": 2, "DATE_FORMAT": 2, "DATE_TO_DATE_STR": 1, "FLOOR": 1,
    "ISNULL": 1, "LENGTH": 1, "LEFTPAD": 3, "LIKE": 3, "LOCATE": 3, "LOG10": 1, "LOG2": 1, "LPAD": 3, "LTRIM": 2,
    "MOD": 2, "MONTHNAME": 1, "POSITION": 3, "RIGHTPAD": 3, "RPAD": 3, "RTRIM": 2, "TIME_TO_TIME_STR": 1, "TO_DAYS": 1,
    "TS_OR_DS_TO_DATE_STR": 1,
}  # fmt: skip


def _at_most(most: int, build: Callable[..., exp.Expr]) -> Callable[..., exp.Expr]:
    takes_dialect = "dialect" in getattr(build, "__code__", _at_most.__code__).co_varnames

    def made(args: Sequence[exp.Expr], dialect: Any = None) -> exp.Expr:
        if len(args) > most:
            raise ParseError("more arguments than the function takes")
        return build(args, dialect=dialect) if takes_dialect else build(args)

    return made


def _date(args: Sequence[exp.Expr]) -> exp.Expr:
    # SQLite's, with steps after the day: spelling.py puts it plainly.
    return exp.TsOrDsToDate(this=args[0]) if len(args) == 1 else exp.Anonymous(this="date", expressions=list(args))


class ExactMySQL(MySQL):
    class Parser(MySQL.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
            **MySQL.Parser.FUNCTIONS,
            **{name: _at_most(most, MySQL.Parser.FUNCTIONS[name]) for name, most in _MOST.items()
               if name in MySQL.Parser.FUNCTIONS},
            "DATE": _date,
        }  # fmt: skip
