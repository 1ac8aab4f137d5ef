"""What an external core's rows come to, customer by customer, worked out by its server: only digests travel.

A kind of rows has one digest a customer: how many rows, and the sum of a hash of each over all of its columns but
`id`. Columns are quoted, so that no two rows read alike; sums do not depend on an order. 60 bits a kind: that one of a
billion changes is not seen has a chance of one in a billion. (CRC32 would not do: two rows that exchange values of one
length can cancel out in it.) MySQL and MariaDB: SHA2, QUOTE. SQLite has neither: its connection's function `rows_hash`
(backends/sqlite3) hashes here.

Ids are compared byte by byte whatever the core's collations are, and pages are cut by the core's own order.
"""

# ruff: noqa: S608 - what is put into the text are names of our own tables and columns

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db import connections

from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer, CorePosition, CoreProduct, CoreTrade
from memory.core.router import CORE_ALIAS

# Where customers are named, in the order of the parts of a digest; `products` is the last part.
TABLES = (CoreTrade, CorePosition, CoreAssessment, CoreCustomer, CoreAssignment)
TRADES, POSITIONS, ASSESSMENTS, CUSTOMER, ASSIGNMENTS, PRODUCTS = range(6)
NOTHING = "."  # of a part without rows
GONE = " ".join([NOTHING] * 6)  # the digest of who is in no table
_PRODUCTS_AT_ONCE = 500
_TRADES = CoreTrade._meta.db_table


def is_there() -> None:
    """Errors: CoreUnavailable."""
    _rows("SELECT 1", [])


def next_tenant(table: int, after: str) -> str | None:
    """The tenant after this one in a table. One seek in its index."""
    found = _rows(f"SELECT MIN(tenant) FROM {TABLES[table]._meta.db_table} WHERE tenant > %s", [after])
    return found[0][0] if found else None


def customer_ids(table: int, tenant: str, after: str, size: int) -> tuple[set[str], str | None]:
    """The next `size` customers after `after` that a table names, and where the page ends; None: it was the last.

    Two statements on the index (tenant, customer_id) alone.
    """
    name = TABLES[table]._meta.db_table
    ends = _rows(
        f"SELECT DISTINCT customer_id FROM {name} WHERE tenant = %s AND customer_id > %s"
        " ORDER BY customer_id LIMIT 1 OFFSET %s",
        [tenant, after, size - 1],
    )
    end: str | None = ends[0][0] if ends else None
    until, values = ("", []) if end is None else (" AND customer_id <= %s", [end])
    # A page of one collation's order may hold several ids that it takes for the same: told apart by their bytes.
    rows = _rows(
        f"SELECT DISTINCT {_exactly('customer_id')} FROM {name} WHERE tenant = %s AND customer_id > %s{until}",
        [tenant, after, *values],
    )
    return {_text(row[0]) for row in rows}, end


def customers(tenant: str, ids: Sequence[str]) -> dict[str, str]:
    """The digest of each of these customers: six parts. 7 statements, and 1 more for each further 500 products.

    Trades: every version of every trade with a version of that customer, as the rules read them. Products: all rows of
    the products that the customer's trades and positions name.
    Cost on the server: it reads the customers' rows by index and hashes each, some 15 microseconds a row.
    """
    parts = {name: [NOTHING] * 6 for name in ids}
    for table in range(len(TABLES)):
        for name, found in _digests(table, tenant, ids).items():
            if name in parts:
                parts[name][table] = _short(found)
    named = {name: products for name, products in _products_of(tenant, ids).items() if name in parts}
    known = _products(tenant, {product for products in named.values() for product in products})
    for name, products in named.items():
        rated = [f"{product}={known[product]}" for product in sorted(products) if product in known]
        parts[name][PRODUCTS] = _short("\n".join(rated)) if rated else NOTHING
    return {name: " ".join(found) for name, found in parts.items()}


def differing(one: str, other: str) -> set[int]:
    """The parts in which two digests differ."""
    if not one or not other:
        return set(range(6))
    return {part for part, (a, b) in enumerate(zip(one.split(" "), other.split(" "), strict=True)) if a != b}


def _digests(table: int, tenant: str, ids: Sequence[str]) -> dict[str, str]:
    model = TABLES[table]
    who, within = _exactly("customer_id"), _marks(ids)
    if table == TRADES:
        own = f"SELECT DISTINCT {who} AS who, trade_id FROM {_TRADES} WHERE tenant = %s AND customer_id IN ({within})"
        rows = _rows(
            f"SELECT own.who, {_hash(model, 't.')} FROM ({own}) own JOIN {_TRADES} t"
            " ON t.tenant = %s AND t.trade_id = own.trade_id GROUP BY own.who",
            [tenant, *ids, tenant],
        )
    else:
        rows = _rows(
            f"SELECT {who} AS who, {_hash(model)} FROM {model._meta.db_table}"
            f" WHERE tenant = %s AND customer_id IN ({within}) GROUP BY who",
            [tenant, *ids],
        )
    return {_text(who): _text(digest) for who, digest in rows}


def _products_of(tenant: str, ids: Sequence[str]) -> dict[str, set[str]]:
    who, what, within = _exactly("customer_id"), _exactly("product_id"), _marks(ids)
    each = [
        f"SELECT DISTINCT {who} AS who, {what} AS what FROM {model._meta.db_table}"
        f" WHERE tenant = %s AND customer_id IN ({within})"
        for model in (CoreTrade, CorePosition)
    ]
    found: dict[str, set[str]] = defaultdict(set)
    for customer_id, product_id in _rows(" UNION ".join(each), [tenant, *ids, tenant, *ids]):
        found[_text(customer_id)].add(_text(product_id))
    return found


def _products(tenant: str, ids: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    wanted = sorted(ids)
    for start in range(0, len(wanted), _PRODUCTS_AT_ONCE):
        some = wanted[start : start + _PRODUCTS_AT_ONCE]
        rows = _rows(
            f"SELECT {_exactly('product_id')} AS what, {_hash(CoreProduct)} FROM {CoreProduct._meta.db_table}"
            f" WHERE tenant = %s AND product_id IN ({_marks(some)}) GROUP BY what",
            [tenant, *some],
        )
        found.update((_text(product_id), _text(digest)) for product_id, digest in rows)
    return found


# --- SQL ---------------------------------------------------------------------------------------------------------


def _hash(model: Any, prefix: str = "") -> str:
    columns = [f"{prefix}{field.column}" for field in model._meta.local_fields if not field.primary_key]
    if connections[CORE_ALIAS].vendor == "sqlite":
        return f"rows_hash({', '.join(columns)})"
    # As bytes: columns of different collations cannot be put together as text.
    text = f"CONCAT_WS(',', {', '.join(f'CAST(QUOTE({column}) AS BINARY)' for column in columns)})"
    return f"CONCAT(COUNT(*), ':', SUM(CAST(CONV(LEFT(SHA2({text}, 256), 15), 16, 10) AS UNSIGNED)))"


def _exactly(column: str) -> str:
    if connections[CORE_ALIAS].vendor == "sqlite":
        return f"CAST({column} AS BLOB)"
    return f"CAST(CONVERT({column} USING utf8mb4) AS BINARY)"


def _marks(values: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(values))


def _rows(sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
    with connections[CORE_ALIAS].cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes | bytearray) else str(value)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
