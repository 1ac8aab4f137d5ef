"""What analysts ask all day: each with the columns that it reaches, and what comes of it, reckoned from the ORM."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer, CorePosition, CoreProduct, CoreTrade


class Facts(NamedTuple):
    trades: list[CoreTrade]
    customers: list[CoreCustomer]
    products: list[CoreProduct]
    assessments: list[CoreAssessment]
    assignments: list[CoreAssignment]
    positions: list[CorePosition]


def facts(tenant: str) -> Facts:
    models: tuple[Any, ...] = (CoreTrade, CoreCustomer, CoreProduct, CoreAssessment, CoreAssignment, CorePosition)
    return Facts(*(list(model.objects.filter(tenant=tenant).order_by("pk")) for model in models))


class Honest(NamedTuple):
    sql: str
    columns: str  # of the core, by the short names below
    rows: Callable[[Facts], Iterable[Iterable[Any]]]


SHORT = {
    "t": "core_trade", "c": "core_customer", "p": "core_product", "a": "core_assessment", "s": "core_assignment",
    "h": "core_position",
}  # fmt: skip


def by(rows: Iterable[Any], key: Callable[[Any], Any], what: Callable[[list[Any]], Any]) -> list[tuple[Any, Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [(name, what(members)) for name, members in groups.items()]


def total(rows: Iterable[Any]) -> Any:
    rows = list(rows)
    return sum((row.amount for row in rows), Decimal(0)) if rows else None


def month(moment: datetime) -> str:
    return moment.strftime("%Y-%m")


def done(f: Facts) -> list[CoreTrade]:
    return [t for t in f.trades if t.status == "executed"]


def kinds(f: Facts) -> dict[str, str]:
    return {c.customer_id: c.kind for c in f.customers}


def level(f: Facts) -> dict[str, int]:
    return {p.product_id: p.risk_level for p in f.products}


def c_level(f: Facts) -> dict[str, int]:
    return {a.customer_id: a.c_level for a in f.assessments}


TRADES = "FROM core_trade"
CUSTOMERS = "FROM core_customer"

HONEST: list[Honest] = [
    # counts and sums
    Honest(f"SELECT COUNT(*) {TRADES}", "", lambda f: [[len(f.trades)]]),
    Honest(f"SELECT COUNT(1) {TRADES}", "", lambda f: [[len(f.trades)]]),
    Honest(f"SELECT SUM(amount) {TRADES}", "t.amount", lambda f: [[total(f.trades)]]),
    Honest(f"SELECT MIN(amount), MAX(amount) {TRADES}", "t.amount",
           lambda f: [[min(t.amount for t in f.trades), max(t.amount for t in f.trades)]]),
    Honest(f"SELECT COUNT(fee) {TRADES}", "t.fee", lambda f: [[sum(t.fee is not None for t in f.trades)]]),
    Honest(f"SELECT COUNT(DISTINCT customer_id) {TRADES}", "t.customer_id",
           lambda f: [[len({t.customer_id for t in f.trades})]]),
    Honest(f"SELECT COUNT(DISTINCT product_id) AS n {TRADES} WHERE product_id <> ''", "t.product_id",
           lambda f: [[len({t.product_id for t in f.trades} - {""})]]),
    Honest(f"SELECT COALESCE(SUM(fee), 0) {TRADES}", "t.fee", lambda f: [[sum(t.fee or 0 for t in f.trades)]]),
    Honest(f"SELECT SUM(amount * 2) {TRADES}", "t.amount", lambda f: [[total(f.trades) * 2]]),
    Honest(f"SELECT SUM(amount) / COUNT(*) {TRADES}", "t.amount", lambda f: [[total(f.trades) / len(f.trades)]]),
    Honest(f"SELECT AVG(amount) AS mean {TRADES} WHERE status = 'executed'", "t.amount t.status",
           lambda f: [[total(done(f)) / len(done(f))]]),
    # groups
    Honest(f"SELECT status, COUNT(*) {TRADES} GROUP BY status", "t.status",
           lambda f: by(f.trades, lambda t: t.status, len)),
    Honest(f"SELECT status AS s, COUNT(*) AS n {TRADES} GROUP BY s ORDER BY n DESC, s", "t.status",
           lambda f: by(f.trades, lambda t: t.status, len)),
    Honest(f"SELECT status, COUNT(*) {TRADES} GROUP BY 1 ORDER BY 2", "t.status",
           lambda f: by(f.trades, lambda t: t.status, len)),
    Honest(f"SELECT trade_type, SUM(amount) {TRADES} GROUP BY trade_type", "t.amount t.trade_type",
           lambda f: by(f.trades, lambda t: t.trade_type, total)),
    Honest(f"SELECT channel, trade_type, COUNT(*) {TRADES} GROUP BY channel, trade_type", "t.channel t.trade_type",
           lambda f: [(*k, n) for k, n in Counter((t.channel, t.trade_type) for t in f.trades).items()]),
    Honest(f"SELECT status, SUM(amount) AS s {TRADES} GROUP BY status HAVING s > 50000", "t.amount t.status",
           lambda f: [r for r in by(f.trades, lambda t: t.status, total) if r[1] > 50000]),
    Honest(f"SELECT status {TRADES} GROUP BY status HAVING COUNT(*) > 16", "t.status",
           lambda f: [[s] for s, n in Counter(t.status for t in f.trades).items() if n > 16]),
    Honest(f"SELECT DISTINCT currency {TRADES}", "t.currency", lambda f: [[c] for c in {t.currency for t in f.trades}]),
    Honest(f"SELECT advisor_id, COUNT(DISTINCT customer_id) {TRADES} GROUP BY advisor_id",
           "t.advisor_id t.customer_id",
           lambda f: by(f.trades, lambda t: t.advisor_id, lambda m: len({t.customer_id for t in m}))),
    Honest(f"SELECT kind, COUNT(*) {CUSTOMERS} GROUP BY kind", "c.kind",
           lambda f: by(f.customers, lambda c: c.kind, len)),
    Honest("SELECT c_level, COUNT(DISTINCT customer_id) FROM core_assessment GROUP BY c_level",
           "a.c_level a.customer_id", lambda f: by(f.assessments, lambda a: a.c_level, len)),
    Honest("SELECT asset_class, AVG(risk_level) FROM core_product GROUP BY asset_class", "p.asset_class p.risk_level",
           lambda f: by(f.products, lambda p: p.asset_class, lambda m: Decimal(sum(p.risk_level for p in m)) / len(m))),
    # conditions
    Honest(f"SELECT trade_id {TRADES} WHERE amount > 5000", "t.amount t.trade_id",
           lambda f: [[t.trade_id] for t in f.trades if t.amount > 5000]),
    Honest(f"SELECT trade_id {TRADES} WHERE amount BETWEEN 900 AND 1200.5", "t.amount t.trade_id",
           lambda f: [[t.trade_id] for t in f.trades if 900 <= t.amount <= Decimal("1200.5")]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE status IN ('executed', 'reversed')", "t.status",
           lambda f: [[sum(t.status in ("executed", "reversed") for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE NOT (status = 'executed' OR channel = 'online')", "t.channel t.status",
           lambda f: [[sum(not (t.status == "executed" or t.channel == "online") for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE fee IS NULL", "t.fee", lambda f: [[sum(t.fee is None for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE cross_border AND currency = 'USD'", "t.cross_border t.currency",
           lambda f: [[sum(bool(t.cross_border) and t.currency == "USD" for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE trade_id LIKE 'T000%'", "t.trade_id",
           lambda f: [[sum(t.trade_id.startswith("T000") for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE customer_id IS NOT NULL", "t.customer_id", lambda f: [[len(f.trades)]]),
    Honest("SELECT product_id FROM core_product WHERE is_complex IS NULL OR risk_level >= 4",
           "p.is_complex p.product_id p.risk_level",
           lambda f: [[p.product_id] for p in f.products if p.is_complex is None or p.risk_level >= 4]),
    Honest(f"SELECT trade_id, amount {TRADES} ORDER BY amount DESC LIMIT 3", "t.amount t.trade_id",
           lambda f: [(t.trade_id, t.amount) for t in sorted(f.trades, key=lambda t: -t.amount)[:3]]),
    Honest(f"SELECT trade_id {TRADES} ORDER BY trade_id LIMIT 5 OFFSET 2", "t.trade_id",
           lambda f: [[t.trade_id] for t in sorted(f.trades, key=lambda t: t.trade_id)[2:7]]),
    Honest(f"SELECT trade_id {TRADES} ORDER BY trade_id LIMIT 2, 5", "t.trade_id",
           lambda f: [[t.trade_id] for t in sorted(f.trades, key=lambda t: t.trade_id)[2:7]]),
    Honest("SELECT * FROM core_product WHERE product_id = 'P1'",
           "p.asset_class p.is_cash_like p.is_complex p.issuer_id p.product_id p.risk_level p.valid_from",
           lambda f: [(p.product_id, "1000-01-01T00:00:00.000000Z", p.issuer_id, p.asset_class, p.risk_level,
                       p.is_complex, p.is_cash_like) for p in f.products if p.product_id == "P1"]),
    # CASE, arithmetic, text
    Honest(f"SELECT SUM(CASE WHEN status = 'executed' THEN amount ELSE 0 END) {TRADES}", "t.amount t.status",
           lambda f: [[total(done(f))]]),
    Honest(f"SELECT COUNT(CASE WHEN amount > 3000 THEN 1 END) {TRADES}", "t.amount",
           lambda f: [[sum(t.amount > 3000 for t in f.trades)]]),
    Honest(f"SELECT COUNT(DISTINCT CASE WHEN amount > 5500 THEN customer_id END) {TRADES}", "t.amount t.customer_id",
           lambda f: [[len({t.customer_id for t in f.trades if t.amount > 5500})]]),
    Honest(f"SELECT IF(amount > 3000, 'large', 'small') AS size, COUNT(*) {TRADES} GROUP BY size", "t.amount",
           lambda f: by(f.trades, lambda t: "large" if t.amount > 3000 else "small", len)),
    Honest(f"SELECT ROUND(SUM(amount), 0) {TRADES}", "t.amount", lambda f: [[round(total(f.trades))]]),
    Honest(f"SELECT UPPER(status), COUNT(*) {TRADES} GROUP BY UPPER(status)", "t.status",
           lambda f: by(f.trades, lambda t: t.status.upper(), len)),
    Honest(f"SELECT LEFT(trade_id, 4), COUNT(*) {TRADES} GROUP BY 1", "t.trade_id",
           lambda f: by(f.trades, lambda t: t.trade_id[:4], len)),
    Honest(f"SELECT FLOOR(amount / 1000) AS bucket, COUNT(*) {TRADES} GROUP BY bucket", "t.amount",
           lambda f: by(f.trades, lambda t: int(t.amount // 1000), len)),
    Honest("SELECT CONCAT(asset_class, '-', issuer_id), COUNT(*) FROM core_product GROUP BY 1",
           "p.asset_class p.issuer_id", lambda f: by(f.products, lambda p: f"{p.asset_class}-{p.issuer_id}", len)),
    Honest("SELECT 1 + 1, 'x'", "", lambda f: [[2, "x"]]),
    # days
    Honest(f"SELECT DATE_FORMAT(traded_at, '%Y-%m') AS m, SUM(amount) {TRADES} GROUP BY m ORDER BY m",
           "t.amount t.traded_at", lambda f: by(f.trades, lambda t: month(t.traded_at), total)),
    Honest(f"SELECT YEAR(traded_at), MONTH(traded_at), COUNT(*) {TRADES} GROUP BY YEAR(traded_at), MONTH(traded_at)",
           "t.traded_at",
           lambda f: [(*k, n) for k, n in Counter((t.traded_at.year, t.traded_at.month) for t in f.trades).items()]),
    Honest(f"SELECT DATE(traded_at), COUNT(*) {TRADES} GROUP BY DATE(traded_at)", "t.traded_at",
           lambda f: by(f.trades, lambda t: t.traded_at.date().isoformat(), len)),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE traded_at >= '2026-02-01' AND traded_at < '2026-03-01'", "t.traded_at",
           lambda f: [[sum(month(t.traded_at) == "2026-02" for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE DATEDIFF(traded_at, '2026-01-05') < 10", "t.traded_at",
           lambda f: [[sum((t.traded_at.date() - f.trades[0].traded_at.date()).days < 10 for t in f.trades)]]),
    Honest(f"SELECT COUNT(*) {TRADES} WHERE DATE(traded_at) <= DATE_ADD('2026-01-05', INTERVAL 7 DAY)", "t.traded_at",
           lambda f: [[sum(t.traded_at.date() <= f.trades[0].traded_at.date() + timedelta(7) for t in f.trades)]]),
    Honest("SELECT as_of, SUM(market_value) FROM core_position GROUP BY as_of", "h.as_of h.market_value",
           lambda f: by(f.positions, lambda h: h.as_of.isoformat(), lambda m: sum(h.market_value for h in m))),
    # joins
    Honest("SELECT c.kind, SUM(t.amount) FROM core_trade t JOIN core_customer c ON c.customer_id = t.customer_id "
           "GROUP BY c.kind", "c.customer_id c.kind t.amount t.customer_id",
           lambda f: by(f.trades, lambda t: kinds(f)[t.customer_id], total)),
    Honest("SELECT kind, COUNT(*) FROM core_trade JOIN core_customer USING (customer_id) GROUP BY kind",
           "c.customer_id c.kind t.customer_id", lambda f: by(f.trades, lambda t: kinds(f)[t.customer_id], len)),
    Honest("SELECT p.risk_level, COUNT(*) FROM core_trade t LEFT JOIN core_product p USING (product_id) "
           "GROUP BY p.risk_level", "p.product_id p.risk_level t.product_id",
           lambda f: by(f.trades, lambda t: level(f).get(t.product_id), len)),
    Honest("SELECT COUNT(*) FROM core_trade t, core_product p WHERE t.product_id = p.product_id AND p.risk_level > 3",
           "p.product_id p.risk_level t.product_id",
           lambda f: [[sum(level(f).get(t.product_id, 0) > 3 for t in f.trades)]]),
    Honest("SELECT a.c_level, SUM(t.amount) FROM core_trade t JOIN core_assessment a USING (customer_id) "
           "JOIN core_customer c USING (customer_id) WHERE c.kind = 'natural' GROUP BY a.c_level",
           "a.c_level a.customer_id c.customer_id c.kind t.amount t.customer_id",
           lambda f: by([t for t in f.trades if kinds(f)[t.customer_id] == "natural"],
                        lambda t: c_level(f)[t.customer_id], total)),
    Honest("SELECT COUNT(*) FROM core_trade a JOIN core_trade b ON a.trade_id = b.trade_id AND a.amount > 3000",
           "t.amount t.trade_id", lambda f: [[sum(t.amount > 3000 for t in f.trades)]]),
    Honest("SELECT s.advisor_id, SUM(h.market_value) FROM core_assignment s JOIN core_position h "
           "ON h.customer_id = s.customer_id GROUP BY s.advisor_id",
           "h.customer_id h.market_value s.advisor_id s.customer_id",
           lambda f: by(f.positions, lambda h: f"A{int(h.customer_id[1:]) % 2}",
                        lambda m: sum(h.market_value for h in m))),
    # subqueries
    Honest("SELECT COUNT(*) FROM core_trade WHERE customer_id IN (SELECT customer_id FROM core_assessment "
           "WHERE c_level >= 4)", "a.c_level a.customer_id t.customer_id",
           lambda f: [[sum(c_level(f)[t.customer_id] >= 4 for t in f.trades)]]),
    Honest("SELECT COUNT(*) FROM core_customer c WHERE EXISTS (SELECT 1 FROM core_trade t WHERE "
           "t.customer_id = c.customer_id AND t.amount > 5500)", "c.customer_id t.amount t.customer_id",
           lambda f: [[len({t.customer_id for t in f.trades if t.amount > 5500})]]),
    Honest("SELECT COUNT(*) FROM core_customer c WHERE NOT EXISTS (SELECT 1 FROM core_trade t WHERE "
           "t.customer_id = c.customer_id AND t.amount > 5500)", "c.customer_id t.amount t.customer_id",
           lambda f: [[len(f.customers) - len({t.customer_id for t in f.trades if t.amount > 5500})]]),
    Honest("SELECT COUNT(*) FROM core_trade WHERE amount > (SELECT AVG(amount) FROM core_trade)", "t.amount",
           lambda f: [[sum(t.amount > total(f.trades) / len(f.trades) for t in f.trades)]]),
    Honest("SELECT COUNT(*) FROM core_trade t WHERE t.amount = (SELECT MAX(u.amount) FROM core_trade u "
           "WHERE u.customer_id = t.customer_id)", "t.amount t.customer_id", lambda f: [[len(f.customers)]]),
    Honest("SELECT AVG(n) FROM (SELECT customer_id, COUNT(*) AS n FROM core_trade GROUP BY customer_id) x",
           "t.customer_id", lambda f: [[Decimal(len(f.trades)) / len(f.customers)]]),
    Honest("SELECT x.n, COUNT(*) FROM (SELECT COUNT(*) AS n FROM core_trade GROUP BY customer_id) x GROUP BY x.n",
           "t.customer_id",
           lambda f: [(n, k) for n, k in Counter(Counter(t.customer_id for t in f.trades).values()).items()]),
    Honest("SELECT c.kind, SUM(x.s) FROM (SELECT customer_id, SUM(amount) AS s FROM core_trade GROUP BY customer_id) x "
           "JOIN core_customer c ON c.customer_id = x.customer_id GROUP BY c.kind",
           "c.customer_id c.kind t.amount t.customer_id",
           lambda f: by(f.trades, lambda t: kinds(f)[t.customer_id], total)),
    Honest("SELECT status, COUNT(*) FROM (SELECT * FROM (SELECT status FROM core_trade) a) b GROUP BY status",
           "t.status", lambda f: by(f.trades, lambda t: t.status, len)),
    # WITH, UNION
    Honest("WITH big AS (SELECT customer_id, amount FROM core_trade WHERE amount > 3000) "
           "SELECT COUNT(*), COUNT(DISTINCT customer_id) FROM big", "t.amount t.customer_id",

           lambda f: [[sum(t.amount > 3000 for t in f.trades),
                       len({t.customer_id for t in f.trades if t.amount > 3000})]]),
    Honest("WITH a AS (SELECT product_id, amount FROM core_trade), b AS (SELECT product_id, SUM(amount) AS s FROM a "
           "GROUP BY product_id) SELECT MAX(s) FROM b", "t.amount t.product_id",
           lambda f: [[max(s for _p, s in by(f.trades, lambda t: t.product_id, total))]]),
    Honest("WITH x(y) AS (SELECT amount FROM core_trade) SELECT SUM(y) FROM x", "t.amount",
           lambda f: [[total(f.trades)]]),
    Honest("SELECT 'trades' AS what, COUNT(*) AS n FROM core_trade UNION ALL SELECT 'customers', COUNT(*) "
           "FROM core_customer ORDER BY n", "",
           lambda f: [["customers", len(f.customers)], ["trades", len(f.trades)]]),
    Honest("SELECT product_id FROM core_product UNION SELECT product_id FROM core_position",
           "h.product_id p.product_id", lambda f: [[p.product_id] for p in f.products]),
    Honest("SELECT COUNT(*) FROM (SELECT customer_id FROM core_trade UNION SELECT customer_id FROM core_position) u",
           "h.customer_id t.customer_id", lambda f: [[len(f.customers)]]),
    Honest("SELECT COUNT(*) FROM (SELECT customer_id FROM core_trade JOIN core_customer USING (customer_id) "
           "GROUP BY customer_id) x", "c.customer_id t.customer_id", lambda f: [[len(f.customers)]]),
    Honest("SELECT COUNT(DISTINCT CASE WHEN amount > 5500 THEN customer_id ELSE NULL END), "
           f"COUNT(DISTINCT IF(amount > 5500, customer_id, NULL)) {TRADES}", "t.amount t.customer_id",
           lambda f: [[len({t.customer_id for t in f.trades if t.amount > 5500})] * 2]),
    Honest("SELECT MAX(s) FROM (SELECT (SELECT COUNT(*) FROM core_trade t WHERE t.customer_id = c.customer_id) AS s "
           "FROM core_customer c) x", "c.customer_id t.customer_id",
           lambda f: [[max(Counter(t.customer_id for t in f.trades).values())]]),
    # windows
    Honest("SELECT trade_id, SUM(amount) OVER (ORDER BY trade_id) FROM core_trade WHERE trade_id < 'T0003'",
           "t.amount t.trade_id",
           lambda f: [(t.trade_id, total(f.trades[: n + 1])) for n, t in enumerate(f.trades[:3])]),
    Honest("SELECT trade_id FROM (SELECT trade_id, ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY amount DESC) "
           "AS place FROM core_trade) x WHERE place = 1", "t.amount t.customer_id t.trade_id",
           lambda f: [[t.trade_id] for t in f.trades[-len(f.customers):]]),
    Honest("SELECT trade_id, LAG(amount) OVER (ORDER BY trade_id) AS before_it FROM core_trade LIMIT 2",
           "t.amount t.trade_id", lambda f: [("T0000", None), ("T0001", f.trades[0].amount)]),
]  # fmt: skip


def columns_of(honest: Honest) -> tuple[str, ...]:
    pairs = (one.split(".") for one in honest.columns.split())
    return tuple(sorted(f"{SHORT[table]}.{column}" for table, column in pairs))
