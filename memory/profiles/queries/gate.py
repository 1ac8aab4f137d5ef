"""What becomes of a statement: one function from text to verdict. It asks no database, and refuses by an exception of
its own that never leaves it.

What runs is never the text: it is the judged tree, written anew (rewriting.py). So comments, hints and whatever the
parser and the database would read differently have no way to the database.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.tokens import TokenType

from memory.core.personal import CATALOGUE
from memory.profiles.queries.aliases import expand_aliases, move_having, move_having_back
from memory.profiles.queries.allowed import Refusal, check_tree, forbidden
from memory.profiles.queries.grouped import check_grouped, check_positions
from memory.profiles.queries.groups import protect
from memory.profiles.queries.language import ExactMySQL
from memory.profiles.queries.ordering import check_windows
from memory.profiles.queries.reach import Output, Reached, reach
from memory.profiles.queries.spelling import put_plainly, rename_odd

# The parser tells of what it does not know with the text itself: that belongs into no log.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL + 1)

# One language, whose figures are known: what another means by `7 / 2`, `||`, a day minus a day or LIKE differs, and a
# translation that is nearly right gives a figure that is nearly right.
DIALECTS = ("mysql",)
MAX_CHARS = 10_000
_HIDING = ("/*!", "/*m!", "/*+")
_SCHEMA: dict[str, object] = {table: dict.fromkeys(columns, "VARCHAR") for table, columns in CATALOGUE.items()}
_SHAPE = re.compile(r"(?:%-?[A-Za-z]|[-/ :.年月日])*\Z")
_KNOWN = frozenset({*CATALOGUE, *(name for columns in CATALOGUE.values() for name in columns)})


@dataclass(frozen=True)
class Verdict:
    """code: '' is allowed. tables, columns: of the core that the statement reaches, however it calls them, also where
    it is refused, as far as that was found out. personal: those of the columns that need a grant, for how they are
    used. statement: qualified, to be rewritten; None where it is refused. least: customers that each row of the answer
    is of; 0 where no person's rows are in it, or the analyst may see them. left_out: counts the groups of fewer
    (groups.py). one_row: an answer of one row, unless it is of fewer."""

    code: str = ""
    detail: str = ""
    normalised: str = ""
    fingerprint: str = ""
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    personal: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    statement: exp.Query | None = field(default=None, repr=False)
    least: int = 0
    left_out: exp.Query | None = field(default=None, repr=False)
    one_row: bool = False

    @property
    def allowed(self) -> bool:
        return not self.code


def judge(
    sql: str, *, dialect: str = "mysql", granted: Collection[str] = (), moment: datetime, least: int = 1
) -> Verdict:
    """granted: full names of columns that this analyst may see. moment: what NOW() and CURRENT_DATE stand for.
    least: customers that a row of the answer must be of, as far as it is of tables without any such column.

    Cost: some milliseconds for a page of SQL; text, nodes, depth and tables are bounded. Never raises for a text.
    """
    normalised = ""
    reached = Reached()
    try:
        tree = _parsed(sql, dialect)
        odd = rename_odd(tree)
        names = {**_output_names(tree), **odd}
        check_tree(tree)
        _prepare(tree, moment)
        expand_aliases(tree)
        tree = _qualified(tree, dialect)
        check_tree(tree)
        reached = reach(tree)
        normalised = _normalised(tree)
        if reached.personal and (wanted := [name for name in reached.personal if name not in granted]):
            raise Refusal("SQL_PERSONAL_COLUMN", f"it reaches {', '.join(wanted)}, and there is no grant for that")
        check_grouped(tree)
        check_windows(tree)
        protected = protect(tree, least=least, seen={name.partition(".")[0] for name in granted})
    except Refusal as refusal:
        return Verdict(
            refusal.code, refusal.detail, normalised, _fingerprint(normalised), reached.tables, reached.columns,
            reached.personal,
        )  # fmt: skip
    except RecursionError:
        return Verdict("SQL_TOO_COMPLEX", "it is too deep")
    outputs = tuple(replace(output, name=names.get(output.name, output.name)) for output in reached.outputs)
    return Verdict(
        "", "", normalised, _fingerprint(normalised), reached.tables, reached.columns, reached.personal, outputs,
        protected.statement, least if protected.applies else 0, protected.left_out, protected.one_row,
    )  # fmt: skip


def _parsed(sql: str, dialect: str) -> exp.Query:
    if dialect not in DIALECTS:
        raise Refusal("SQL_INVALID", "statements are written in MySQL's language; dialect is mysql")
    if len(sql) > MAX_CHARS:
        raise Refusal("SQL_TOO_COMPLEX", f"the text has {len(sql)} characters; at most {MAX_CHARS}")
    if any((ord(char) < 32 and char not in "\t\r\n") or ord(char) == 127 for char in sql):
        raise forbidden("the text has a control character")
    if any(0xD800 <= ord(char) < 0xE000 for char in sql):
        raise forbidden("the text has half of a surrogate pair")
    if any(mark in sql.lower() for mark in _HIDING):
        raise forbidden("/*! … */, /*M! … */ and /*+ … */ may stand nowhere in the text")
    try:
        words = sqlglot.tokenize(sql, read=ExactMySQL)
        found = sqlglot.parse(sql, read=ExactMySQL)
    except (SqlglotError, ValueError, AttributeError, TypeError, IndexError, KeyError):
        raise Refusal("SQL_INVALID", "it cannot be parsed") from None
    first = next((word.text.upper() for word in words if word.text != "("), "")
    if first not in ("SELECT", "WITH"):
        raise Refusal("SQL_NOT_ONE_SELECT", "the statement is no SELECT")
    if any(word.token_type is TokenType.DPIPE for word in words):
        raise forbidden("|| is OR to MySQL, and joins texts elsewhere; write OR, or CONCAT")
    if any(word.text in ("{", "}") for word in words):
        raise forbidden("braces are not among what a statement may have")
    trees = [tree for tree in found if tree is not None]
    if len(trees) != 1 or len(found) > 2:
        raise Refusal("SQL_NOT_ONE_SELECT", f"the text has {len(trees)} statements")
    [tree] = trees
    while isinstance(tree, exp.Subquery) and set(filter(tree.args.get, tree.args)) == {"this"}:
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise Refusal("SQL_NOT_ONE_SELECT", "the statement is no SELECT")
    return tree.copy()


def _output_names(tree: exp.Query) -> dict[str, str]:
    """Names of the answer's columns as they were written, by how they are compared."""
    return {one.alias.lower(): one.alias for one in tree.selects if isinstance(one, exp.Alias)}


def _prepare(tree: exp.Expr, moment: datetime) -> None:
    """Names in lower case, as columns are compared; other spellings as the one that is known further on."""
    for node in list(tree.walk()):
        node.pop_comments()
        if isinstance(node, exp.Identifier):
            node.set("this", node.name.lower())
    put_plainly(tree, moment)
    if any(not select.selects for select in tree.find_all(exp.Select)):
        raise Refusal("SQL_INVALID", "a SELECT shows nothing")
    check_positions(tree)
    for select in tree.find_all(exp.Select):
        # Else a text would give its column its own words for a name.
        for place, one in enumerate(select.selects):
            if not isinstance(one, exp.Alias | exp.Column | exp.Star):
                select.expressions[place].replace(exp.alias_(one.copy(), f"_col_{place}"))


def _qualified(tree: exp.Query, dialect: str) -> exp.Query:
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            raise forbidden("a table is named by its name")
    ctes = {cte.alias for cte in tree.find_all(exp.CTE)}
    if unknown := sorted({table.name for table in tree.find_all(exp.Table)} - ctes - set(CATALOGUE)):
        raise Refusal("SQL_UNKNOWN_NAME", f"there is no table {unknown[0]}; there are {', '.join(CATALOGUE)}")
    try:
        # Aliases are expanded before (aliases.py): sqlglot would do it in projections too, where the database does
        # not, and there the text can double with each of them.
        move_having(tree)
        whole = qualify(tree, schema=_SCHEMA, dialect=dialect, expand_alias_refs=False)
    except (SqlglotError, ValueError, AttributeError, TypeError, IndexError, KeyError) as error:
        message = str(error).split(" Line:")[0][:120] if isinstance(error, SqlglotError) else "it cannot be resolved"
        raise Refusal("SQL_UNKNOWN_NAME", message) from None
    move_having_back(whole)
    if not isinstance(whole, exp.Query):
        raise Refusal("SQL_NOT_ONE_SELECT", "the statement is no SELECT")
    return whole


def _normalised(tree: exp.Query) -> str:
    """Without a single literal, and without a name that the analyst made up: neither can be told of a person then."""
    copy = tree.copy()
    names: dict[str, str] = {}
    for node in list(copy.walk()):
        if isinstance(node, exp.In) and node.expressions and all(isinstance(e, exp.Literal) for e in node.expressions):
            node.set("expressions", [exp.Placeholder()])
        elif isinstance(node, exp.Literal) and isinstance(node.parent, exp.TimeToStr):
            # Written as a text, whatever it is: only what is nothing but codes and separators is part of what is asked.
            if not _SHAPE.match(node.name):
                node.set("this", "?")
        elif isinstance(node, exp.Literal):
            node.replace(exp.Placeholder())
        elif isinstance(node, exp.Identifier) and node.name not in _KNOWN:
            node.set("this", names.setdefault(node.name, f"x{len(names) + 1}"))
    return copy.sql("mysql", comments=False, identify=False)


def _fingerprint(normalised: str) -> str:
    return hashlib.sha256(normalised.encode()).hexdigest() if normalised else ""
