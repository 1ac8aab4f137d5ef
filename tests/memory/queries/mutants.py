"""Statements that were honest once, and texts that never were: for whatever the parser makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.memory.queries import attacks
from tests.memory.queries.honest import HONEST
from tests.memory.queries.questions import QUESTIONS

CORPUS = (
    *(one.mysql for one in QUESTIONS), *(one.sqlite for one in QUESTIONS if one.sqlite),
    *(one.sql for one in HONEST), *attacks.PERSONAL, *(sql for sqls in attacks.ATTACKS.values() for sql in sqls),
)  # fmt: skip
BITS = (
    "SELECT", "FROM", "WHERE", "(", ")", ",", ";", "*", "''", "'", '"', "`", "1", "-1", "1" * 4400, "1e999", "0x",
    "0b2", "NULL", "XOR", "AND", "OR", "NOT", "UNION ALL", "JOIN", "ON", "USING", "AS", "GROUP BY", "ORDER BY",
    "HAVING",
    "LIMIT", "OFFSET", "OVER", "PARTITION BY", "ROWS BETWEEN", "INTERVAL", "DAY", "CASE", "WHEN", "THEN", "END", "WITH",
    "RECURSIVE", "EXISTS", "IN", "BETWEEN", "LIKE", "IS", "DISTINCT", "CAST(", "::date", "||", "@", "@@", ":=", "?",
    ":x", "{", "}", "[", "]", "$$", "--", "/*", "*/", "\\", "\x00", "\u200b", "，", "张", "😀", "core_trade", "amount",
    "customer_id", "NOW()", "CURRENT_DATE", "EXTRACT(", "SUBSTRING(", "TRIM(", "CONVERT(", "IF(", "JSON_TABLE(",
    "VALUES", "ROW(", "DATE", "TIMESTAMP", "COLLATE", "BINARY", "_utf8", "FOR UPDATE", "INTO", "PIVOT", "QUALIFY",
    "LATERAL", "ROLLUP", "FILTER (WHERE", "=>", "->", "->>", "<=>", "DIV", "MOD", "%", "~", "^", "&", "<<",
)  # fmt: skip


def mutants(seed: int, count: int) -> Iterator[str]:
    pick = Random(seed)
    for _each in range(count):
        words = pick.choice(CORPUS).replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
        for _change in range(pick.randint(1, 4)):
            place = pick.randrange(len(words) + 1)
            what = pick.randrange(6)
            if what == 0:
                words.insert(place, pick.choice(BITS))
            elif what == 1 and words:
                del words[place % len(words)]
            elif what == 2 and words:
                words[place % len(words)] = pick.choice(BITS)
            elif what == 3 and words:
                other = pick.randrange(len(words))
                words[place % len(words)], words[other] = words[other], words[place % len(words)]
            elif what == 4:
                words = words[:place]
            else:
                other_words = pick.choice(CORPUS).split(" ")
                words[place:place] = other_words[pick.randrange(len(other_words)) :][:6]
        yield " ".join(words)
