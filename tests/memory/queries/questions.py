"""What analysts of a wealth manager ask, in MySQL's spelling and in SQLite's where that is another."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    what: str
    mysql: str
    sqlite: str = ""  # the same where it is empty


T, C, H = "core_trade", "core_customer", "core_position"
TC = f"{T} t JOIN {C} c ON c.customer_id = t.customer_id"
TP = f"{T} t JOIN core_product p ON p.product_id = t.product_id"
DONE = "status = 'executed'"

QUESTIONS: list[Question] = [
    # time
    Question("turnover a year", f"SELECT EXTRACT(YEAR FROM traded_at) AS y, SUM(amount) FROM {T} GROUP BY y",
             f"SELECT strftime('%Y', traded_at) + 0 AS y, SUM(amount) FROM {T} GROUP BY y"),
    Question("turnover a month", f"SELECT DATE_FORMAT(traded_at, '%Y-%m') AS m, SUM(amount) FROM {T} GROUP BY m",
             f"SELECT strftime('%Y-%m', traded_at) AS m, SUM(amount) FROM {T} GROUP BY m"),
    Question("turnover a quarter", f"SELECT YEAR(traded_at), QUARTER(traded_at), SUM(amount) FROM {T} GROUP BY 1, 2"),
    Question("turnover a week", f"SELECT WEEK(traded_at) AS w, SUM(amount) FROM {T} GROUP BY w ORDER BY w"),
    Question("turnover an ISO week", f"SELECT WEEK(traded_at, 3) AS w, COUNT(*) FROM {T} GROUP BY w",
             f"SELECT WEEKOFYEAR(traded_at) AS w, COUNT(*) FROM {T} GROUP BY w"),
    Question("year and week", f"SELECT YEARWEEK(traded_at, 1) AS w, COUNT(*) FROM {T} GROUP BY w"),
    Question("by weekday", f"SELECT WEEKDAY(traded_at) AS d, COUNT(*) FROM {T} GROUP BY d",
             f"SELECT (strftime('%w', traded_at) + 6) % 7 AS d, COUNT(*) FROM {T} GROUP BY d"),
    Question("by day of week", f"SELECT DAYOFWEEK(traded_at) AS d, COUNT(*) FROM {T} GROUP BY d"),
    Question("by hour", f"SELECT HOUR(traded_at) AS h, COUNT(*) FROM {T} GROUP BY h",
             f"SELECT CAST(strftime('%H', traded_at) AS INTEGER) AS h, COUNT(*) FROM {T} GROUP BY h"),
    Question("by hour, extracted", f"SELECT EXTRACT(HOUR FROM traded_at) AS h, COUNT(*) FROM {T} GROUP BY h"),
    Question("by the first of the month",
             f"SELECT DATE_FORMAT(traded_at, '%Y-%m-01') AS m, COUNT(*) FROM {T} GROUP BY m",
             f"SELECT date(traded_at, 'start of month') AS m, COUNT(*) FROM {T} GROUP BY m"),
    Question("by the end of the month", f"SELECT LAST_DAY(traded_at) AS m, COUNT(*) FROM {T} GROUP BY m"),
    Question("trades of a quarter", f"SELECT COUNT(*) FROM {T} WHERE EXTRACT(QUARTER FROM traded_at) = 1"),
    Question("since half a year",
             f"SELECT COUNT(*) >= 0 FROM {T} WHERE traded_at >= DATE_SUB(CURDATE(), INTERVAL 6 MONTH)",
             f"SELECT COUNT(*) >= 0 FROM {T} WHERE traded_at >= date('now', '-6 month')"),
    Question("within 30 days", f"SELECT COUNT(*) FROM {T} WHERE DATEDIFF(traded_at, '2026-01-05') BETWEEN 0 AND 30"),
    Question("days since the account was opened", f"SELECT AVG(DATEDIFF(t.traded_at, c.opened_at)) FROM {TC}"),
    Question("months as a customer",
             f"SELECT TIMESTAMPDIFF(MONTH, c.opened_at, t.traded_at) DIV 24 AS m, COUNT(*) FROM {TC} "
             "GROUP BY m"),
    Question("days, fractions too",
             f"SELECT ROUND(AVG(TIMESTAMPDIFF(SECOND, c.opened_at, t.traded_at) / 86400), 3) FROM {TC}",
             f"SELECT ROUND(AVG(julianday(t.traded_at) - julianday(c.opened_at)), 3) FROM {TC}"),
    Question("a week later", f"SELECT COUNT(*) FROM {T} WHERE DATE_ADD(traded_at, INTERVAL 1 WEEK) < '2026-03-01'",
             f"SELECT COUNT(*) FROM {T} WHERE ADDDATE(traded_at, 7) < '2026-03-01'"),
    Question("three days before", f"SELECT COUNT(*) FROM {T} WHERE SUBDATE(traded_at, INTERVAL 3 DAY) < '2026-03-01'"),
    Question("a year, a week later", f"SELECT COUNT(*) FROM {T} WHERE TIMESTAMPADD(DAY, 7, traded_at) < '2026-03-01'"),
    Question("by the day of the year", f"SELECT DAYOFYEAR(traded_at) DIV 60 AS d, COUNT(*) FROM {T} GROUP BY d"),
    Question("by the minute", f"SELECT MINUTE(traded_at) DIV 15 AS q, COUNT(*) FROM {T} GROUP BY q"),
    Question("today", f"SELECT COUNT(*) >= 0 FROM {T} WHERE DATE(traded_at) = CURDATE()",
             f"SELECT COUNT(*) >= 0 FROM {T} WHERE date(traded_at) = date('now')"),
    Question("by month's name", f"SELECT MONTHNAME(traded_at) AS m, COUNT(*) FROM {T} GROUP BY m"),
    # money
    Question("mean and spread", f"SELECT ROUND(STDDEV(amount), 2), ROUND(VARIANCE(amount), 0), AVG(amount) FROM {T}"),
    Question("spread of a sample",
             f"SELECT currency, ROUND(STDDEV_SAMP(amount), 2), ROUND(VAR_SAMP(amount), 0) FROM {T} "
             "GROUP BY currency"),
    Question("cut to two digits", f"SELECT TRUNCATE(AVG(amount), 2) FROM {T}"),
    Question("written with commas", f"SELECT FORMAT(SUM(amount), 2) FROM {T}"),
    Question("fees or none", f"SELECT SUM(COALESCE(fee, 0)), SUM(IFNULL(fee, 0)) FROM {T}",
             f"SELECT total(COALESCE(fee, 0)), SUM(ifnull(fee, 0)) FROM {T}"),
    Question("fees of the amount", f"SELECT SUM(fee) / NULLIF(SUM(amount), 0) * 100 AS pct FROM {T}"),
    Question("the larger of two", f"SELECT SUM(GREATEST(amount, 5000)), SUM(LEAST(amount, 5000)) FROM {T}",
             f"SELECT SUM(max(amount, 5000)), SUM(min(amount, 5000)) FROM {T}"),
    Question("size classes",
             f"SELECT CASE WHEN amount < 5000 THEN 'small' WHEN amount < 20000 THEN 'middle' ELSE 'large' END AS "
             f"size, COUNT(*), SUM(amount) FROM {T} GROUP BY size"),
    Question("large and small", f"SELECT IF(amount > 20000, 'large', 'small') AS size, COUNT(*) FROM {T} GROUP BY size",
             f"SELECT iif(amount > 20000, 'large', 'small') AS size, COUNT(*) FROM {T} GROUP BY size"),
    Question("orders of magnitude", f"SELECT FLOOR(LOG10(amount)) AS o, COUNT(*) FROM {T} GROUP BY o"),
    Question("geometric mean", f"SELECT ROUND(EXP(AVG(LN(amount))), 2) FROM {T}"),
    Question("root mean square", f"SELECT ROUND(SQRT(AVG(POWER(amount, 2))), 2) FROM {T}"),
    Question("in and out",
             f"SELECT SUM(CASE WHEN trade_type = 'buy' THEN amount WHEN trade_type = 'sell' THEN -amount END) "
             f"FROM {T} WHERE {DONE}"),
    Question("sign of what came", f"SELECT SIGN(SUM(amount) - 100000) FROM {T}"),
    Question("as whole numbers", f"SELECT CAST(SUM(amount) AS SIGNED) FROM {T}",
             f"SELECT CAST(SUM(amount) AS INTEGER) FROM {T}"),
    Question("as decimals", f"SELECT CAST(AVG(amount) AS DECIMAL(18, 2)) FROM {T}"),
    Question("rounded to a figure", f"SELECT ROUND(SUM(amount), 2), CEILING(AVG(amount)), FLOOR(AVG(amount)) FROM {T}"),
    Question("remainder", f"SELECT MOD(CAST(amount AS SIGNED), 2) AS r, COUNT(*) FROM {T} GROUP BY r",
             f"SELECT CAST(amount AS INTEGER) % 2 AS r, COUNT(*) FROM {T} GROUP BY r"),
    # who, by kind
    Question("customers by kind", f"SELECT kind, COUNT(DISTINCT customer_id) FROM {C} GROUP BY kind"),
    Question("active customers", f"SELECT COUNT(DISTINCT customer_id) FROM {T} WHERE {DONE}"),
    Question("turnover by kind", f"SELECT c.kind, SUM(t.amount) FROM {TC} GROUP BY c.kind HAVING SUM(t.amount) > 0"),
    Question("turnover a head",
             f"SELECT c.kind, SUM(t.amount) / COUNT(DISTINCT t.customer_id) FROM {TC} GROUP BY c.kind"),
    Question("by tolerance", "SELECT a.c_level, COUNT(DISTINCT t.customer_id) FROM core_trade t JOIN core_assessment a "
             "USING (customer_id) GROUP BY a.c_level"),
    Question("mismatches",
             "SELECT p.risk_level - a.c_level AS above, COUNT(*) FROM core_trade t JOIN core_assessment a ON "
             "a.customer_id = t.customer_id JOIN core_product p ON p.product_id = t.product_id GROUP BY above"),
    Question("without a trade", f"SELECT COUNT(*) FROM {C} c LEFT JOIN {T} t ON t.customer_id = c.customer_id "
             "WHERE t.trade_id IS NULL"),
    Question("never sold", f"SELECT COUNT(*) FROM {C} c WHERE NOT EXISTS (SELECT 1 FROM {T} t WHERE t.customer_id = "
             "c.customer_id AND t.trade_type = 'sell')"),
    Question("bought large",
             f"SELECT COUNT(*) FROM {C} WHERE customer_id IN (SELECT customer_id FROM {T} WHERE amount > 20000)"),
    Question("trades a customer",
             f"SELECT AVG(n), MAX(n) FROM (SELECT customer_id, COUNT(*) AS n FROM {T} GROUP BY customer_id) x"),
    Question("how many have how many",
             f"SELECT n, COUNT(*) FROM (SELECT COUNT(*) AS n FROM {T} GROUP BY customer_id) x GROUP BY n"),
    Question("holdings by decile",
             "SELECT d, COUNT(*), SUM(s) FROM (SELECT s, NTILE(4) OVER (ORDER BY s DESC) AS d FROM (SELECT "
             f"customer_id, SUM(market_value) AS s FROM {H} GROUP BY customer_id) x) y GROUP BY d"),
    Question("last trade of each",
             f"SELECT status, COUNT(*) FROM (SELECT status, ROW_NUMBER() OVER (PARTITION BY customer_id "
             f"ORDER BY traded_at DESC) AS place FROM {T}) x WHERE place = 1 GROUP BY status"),
    Question("days between trades",
             "SELECT ROUND(AVG(d), 1) FROM (SELECT DATEDIFF(traded_at, LAG(traded_at) OVER (PARTITION BY "
             f"customer_id ORDER BY traded_at)) AS d FROM {T}) x"),
    Question("years as a customer",
             f"SELECT TIMESTAMPDIFF(YEAR, opened_at, '2026-06-30') DIV 4 AS y, COUNT(*) FROM {C} GROUP BY y"),
    # products
    Question("turnover by class", f"SELECT p.asset_class, SUM(t.amount) FROM {TP} GROUP BY p.asset_class"),
    Question("share by class", f"SELECT p.asset_class, SUM(t.amount) / SUM(SUM(t.amount)) OVER () AS share FROM {TP} "
             "GROUP BY p.asset_class"),
    Question("best sold",
             f"SELECT p.product_id, SUM(t.amount) AS s FROM {TP} GROUP BY p.product_id ORDER BY s DESC LIMIT 3"),
    Question("ranked",
             f"SELECT p.product_id, RANK() OVER (ORDER BY SUM(t.amount) DESC) AS r FROM {TP} GROUP BY p.product_id"),
    Question("ranked in a class",
             "SELECT p.asset_class, p.product_id, DENSE_RANK() OVER (PARTITION BY p.asset_class ORDER BY "
             f"COUNT(*) DESC) AS r FROM {TP} GROUP BY p.asset_class, p.product_id"),
    Question("cumulative share",
             "SELECT p.product_id, CUME_DIST() OVER (ORDER BY SUM(t.amount)) AS c FROM core_trade t JOIN "
             "core_product p ON p.product_id = t.product_id GROUP BY p.product_id"),
    Question("held by how many",
             f"SELECT product_id, COUNT(DISTINCT customer_id) AS n FROM {H} GROUP BY product_id ORDER BY n"),
    Question("not held", f"SELECT product_id FROM core_product WHERE product_id NOT IN (SELECT product_id FROM {H})"),
    Question("code in five digits",
             "SELECT LPAD(SUBSTRING(product_id, 2), 5, '0'), RPAD(product_id, 6, '*') FROM core_product"),
    Question("names put together", "SELECT CONCAT_WS('/', asset_class, issuer_id, product_id) FROM core_product",
             "SELECT CONCAT(asset_class, '/', issuer_id, '/', product_id) FROM core_product"),
    Question("words replaced",
             "SELECT REPLACE(asset_class, 'mixed', 'balanced') AS a, COUNT(*) FROM core_product GROUP BY a"),
    Question("part before", "SELECT SUBSTRING_INDEX(CONCAT(issuer_id, '-', product_id), '-', 1) FROM core_product"),
    Question("stars for levels", "SELECT product_id, REPEAT('*', 3), REVERSE(product_id) FROM core_product"),
    Question("where it stands",
             "SELECT INSTR(product_id, 'P'), LOCATE('P', product_id), LENGTH(TRIM(product_id)) FROM core_product",
             "SELECT instr(product_id, 'P'), instr(product_id, 'P'), length(trim(product_id)) FROM core_product"),
    Question("upper and lower",
             "SELECT UPPER(asset_class), LCASE(product_id), MID(product_id, 1, 1) FROM core_product"),
    # series
    Question("growth",
             "WITH m AS (SELECT DATE_FORMAT(traded_at, '%Y-%m') AS m, SUM(amount) AS s FROM core_trade GROUP BY m) "
             "SELECT m, s, s - LAG(s) OVER (ORDER BY m) AS d FROM m",
             "WITH m AS (SELECT strftime('%Y-%m', traded_at) AS m, SUM(amount) AS s FROM core_trade GROUP BY m) "
             "SELECT m, s, s - LAG(s) OVER (ORDER BY m) AS d FROM m"),
    Question("running total",
             "SELECT MONTH(traded_at) AS m, SUM(SUM(amount)) OVER (ORDER BY MONTH(traded_at)) FROM core_trade "
             "GROUP BY MONTH(traded_at)"),
    Question("moving mean", "SELECT m, AVG(s) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM (SELECT "
             "MONTH(traded_at) AS m, SUM(amount) AS s FROM core_trade GROUP BY MONTH(traded_at)) x"),
    Question("first and last",
             "SELECT m, FIRST_VALUE(s) OVER (ORDER BY m), NTH_VALUE(s, 2) OVER (ORDER BY m ROWS BETWEEN UNBOUNDED "
             "PRECEDING AND UNBOUNDED FOLLOWING) FROM (SELECT MONTH(traded_at) AS m, SUM(amount) AS s FROM core_trade "
             "GROUP BY MONTH(traded_at)) x"),
    Question("cancelled of all", f"SELECT SUM(status = 'cancelled') / COUNT(*) FROM {T}",
             f"SELECT SUM(status = 'cancelled') * 1.0 / COUNT(*) FROM {T}"),
    Question("counted by what",
             f"SELECT COUNT(CASE WHEN {DONE} THEN 1 END), COUNT(CASE WHEN NOT {DONE} THEN 1 END) FROM {T}",
             f"SELECT COUNT(*) FILTER (WHERE {DONE}), COUNT(*) FILTER (WHERE NOT {DONE}) FROM {T}"),
    Question("customers by what", f"SELECT COUNT(DISTINCT CASE WHEN {DONE} THEN customer_id END) FROM {T}",
             f"SELECT COUNT(DISTINCT customer_id) FILTER (WHERE {DONE}) FROM {T}"),
    # shape
    Question("pivoted",
             f"SELECT channel, SUM(CASE WHEN trade_type = 'buy' THEN amount ELSE 0 END) AS buy, SUM(CASE WHEN "
             f"trade_type = 'sell' THEN amount ELSE 0 END) AS sell FROM {T} GROUP BY channel"),
    Question("named in Chinese",
             f'SELECT kind AS "客户 类型", COUNT(*) AS "人数(位)" FROM {C} GROUP BY kind ORDER BY 1'),
    Question("named with blanks",
             f"SELECT channel AS `Sales channel`, COUNT(*) AS '% of all' FROM {T} GROUP BY `Sales channel`",
             f'SELECT channel AS "Sales channel", COUNT(*) AS "% of all" FROM {T} GROUP BY `Sales channel`'),
    Question("two figures side by side",
             f"SELECT (SELECT COUNT(*) FROM {T}) AS trades, (SELECT COUNT(*) FROM {C}) AS customers"),
    Question("above the mean", f"SELECT COUNT(*) FROM {T} WHERE amount > (SELECT AVG(amount) FROM {T})"),
    Question("distinct pairs", f"SELECT DISTINCT channel, trade_type FROM {T} ORDER BY channel, trade_type"),
    Question("one under the other",
             f"SELECT 'buy' AS what, SUM(amount) AS s FROM {T} WHERE trade_type = 'buy' UNION ALL SELECT 'sell', "
             f"SUM(amount) FROM {T} WHERE trade_type = 'sell' ORDER BY what"),
]  # fmt: skip

# Honest too, and refused: docs/decisions/0020-analysts-sql.md says why.
WITH_A_REASON = {
    "GROUP_CONCAT": f"SELECT channel, GROUP_CONCAT(DISTINCT currency) FROM {T} GROUP BY channel",
    "REGEXP": f"SELECT COUNT(*) FROM {T} WHERE product_id REGEXP '^P[0-3]$'",
    "WITH RECURSIVE": "WITH RECURSIVE d AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM d WHERE n < 12) SELECT n FROM d",
    "STR_TO_DATE": f"SELECT COUNT(*) FROM {T} WHERE traded_at > STR_TO_DATE('05.01.2026', '%d.%m.%Y')",
    "FULL JOIN": f"SELECT COUNT(*) FROM {T} t FULL JOIN {H} h ON h.customer_id = t.customer_id",
    "printf": f"SELECT printf('%.2f', SUM(amount)) FROM {T}",
}
ROLLUP = "SELECT asset_class, SUM(risk_level) FROM core_product GROUP BY asset_class WITH ROLLUP"  # SQLite has none

# Each with what MySQL and MariaDB give.
VALUES: list[tuple[str, object]] = [
    ("WEEK('2026-01-03')", 0), ("WEEK('2026-01-04')", 1), ("WEEK('2026-01-04', 1)", 1), ("WEEK('2027-01-02', 1)", 0),
    ("WEEK('2027-01-03', 3)", 53), ("WEEK('2024-12-31', 1)", 53), ("WEEKOFYEAR('2024-12-30')", 1),
    ("YEARWEEK('2026-01-03')", 202552), ("YEARWEEK('2027-01-02', 1)", 202653), ("DAYOFYEAR('2024-12-31')", 366),
    ("WEEKDAY('2026-01-05')", 0), ("WEEKDAY('2026-01-04')", 6), ("EXTRACT(WEEK FROM '2026-01-04')", 1),
    ("EXTRACT(MINUTE FROM '2026-01-04 05:06:07')", 6), ("SECOND('2026-01-04 05:06:07')", 7),
    ("TIMESTAMPDIFF(MONTH, '2026-01-31', '2026-02-28')", 0), ("TIMESTAMPDIFF(MONTH, '2026-03-15', '2026-01-14')", -2),
    ("TIMESTAMPDIFF(YEAR, '2020-02-29', '2026-02-28')", 5),
    ("TIMESTAMPDIFF(DAY, '2026-01-02', '2026-01-01 23:00:00')", 0),
    ("TIMESTAMPDIFF(HOUR, '2026-01-01', '2026-01-02 01:59:59')", 25),
    ("LPAD('7', 3, '0')", "007"), ("LPAD('12345', 3, '0')", "123"), ("RPAD('ab', 5, 'xy')", "abxyx"),
    ("REPLACE('aXbX', 'X', '--')", "a--b--"), ("REPEAT('ab', 3)", "ababab"), ("REPEAT('ab', 0)", ""),
    ("REVERSE('abc')", "cba"),
    ("SUBSTRING_INDEX('a-b-c', '-', 2)", "a-b"), ("SUBSTRING_INDEX('a-b-c', '-', -1)", "c"),
    ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"), ("TRUNCATE(12.345, 2)", "12.34"), ("TRUNCATE(-1.999, 1)", "-1.9"),
    ("FORMAT(1234567.891, 2)", "1,234,567.89"), ("SIGN(-3)", -1), ("SQRT(-1)", None), ("LN(0)", None),
    ("POWER(2, 10)", "1024"),
    ("LOG10(1000)", "3"), ("LOG(2, 8)", "3"), ("INSTR('abc', 'c')", 3),
    ("DATE_ADD('2026-01-31', INTERVAL 1 MONTH)", "2026-02-28"),
    ("ADDDATE('2026-01-31', 1)", "2026-02-01"), ("SUBDATE('2026-03-01', INTERVAL 1 DAY)", "2026-02-28"),
    ("MID('abcdef', 2, 3)", "bcd"), ("LAST_DAY('2024-02-01')", "2024-02-29"),
]  # fmt: skip
