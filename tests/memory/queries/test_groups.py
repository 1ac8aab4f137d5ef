"""Small groups: what is shown without a grant is of at least five customers, whichever way a statement asks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from config.base.clock import now
from config.base.errors import DomainError
from memory.core.models import CoreCustomer, CorePosition, CoreTrade
from memory.core.personal import GRANTABLE
from memory.profiles.queries.gate import judge
from memory.profiles.queries.models import AnalyticsGrant
from tests.memory.queries import attacks
from tests.memory.queries.helpers import START, ask, make_facts, rows

pytestmark = pytest.mark.django_db(transaction=True)

# The one customer of an investor type of their own, who alone has a trade of these figures.
LONE, LONE_OPENED = "C9999", "2001-02-03 04:05:06"
AMOUNT = "987654.32"


@pytest.fixture(autouse=True)
def five(settings: Any) -> None:
    settings.ANALYTICS_MIN_GROUP = 5


@pytest.fixture
def twelve_and_one() -> None:
    make_facts(customers=12, trades=120)
    CoreCustomer.objects.create(
        customer_id=LONE, name="李独", kind="entity", investor_type="special", opened_at=LONE_OPENED + "Z"
    )
    CoreTrade.objects.create(
        trade_id="T9999", version=1, customer_id=LONE, product_id="P1", advisor_id="A9", trade_type="buy",
        traded_at=START, amount=AMOUNT, currency="HKD", status="executed", channel="branch",
    )  # fmt: skip
    CorePosition.objects.create(customer_id=LONE, product_id="P1", as_of=START.date(), market_value=AMOUNT)


THEM = f"opened_at = '{LONE_OPENED}'"
JOINED = "core_trade t JOIN core_customer c ON c.customer_id = t.customer_id"

REFUSED = [
    "SELECT trade_id, amount FROM core_trade",
    "SELECT amount FROM core_trade ORDER BY amount DESC LIMIT 1",
    f"SELECT kind FROM core_customer WHERE {THEM}",
    "SELECT c_level FROM core_assessment",
    "SELECT advisor_id FROM core_assignment",
    "SELECT market_value FROM core_position",
    "WITH x AS (SELECT amount FROM core_trade) SELECT amount FROM x",
    "SELECT amount FROM (SELECT * FROM (SELECT amount FROM core_trade) a) b",
    "SELECT product_id FROM core_product UNION ALL SELECT trade_id FROM core_trade",
    "SELECT trade_id, SUM(amount) OVER (ORDER BY trade_id) FROM core_trade",
    "SELECT DISTINCT SUM(amount) OVER (PARTITION BY trade_id) FROM core_trade",
    "SELECT p.product_id, t.amount FROM core_product p LEFT JOIN core_trade t ON t.product_id = p.product_id",
    "SELECT product_id, (SELECT amount FROM core_trade WHERE trade_id = 'T9999') FROM core_product",
    "SELECT (SELECT MAX(amount) FROM core_trade GROUP BY customer_id LIMIT 1) FROM core_product",
    "SELECT COUNT(*) FROM core_product WHERE (SELECT amount FROM core_trade WHERE trade_id = 'T9999') > 5",
    "SELECT COUNT(*) FROM core_product WHERE risk_level IN (SELECT COUNT(*) FROM core_trade GROUP BY customer_id)",
    "SELECT AVG(v) FROM (SELECT FIRST_VALUE(amount) OVER (ORDER BY trade_id = 'T9999' DESC) AS v FROM core_trade) x",
    "SELECT AVG(v) FROM (SELECT SUM(CASE WHEN trade_id = 'T9999' THEN amount END) OVER () AS v FROM core_trade) x",
    "SELECT AVG(v) FROM (SELECT LAG(amount) OVER (ORDER BY amount) AS v FROM core_trade) x",
    "SELECT COUNT(*) FROM core_product WHERE EXISTS (SELECT amount FROM core_trade INTERSECT SELECT 987654.32)",
    "SELECT AVG((SELECT u.amount FROM core_trade u WHERE u.trade_id = 'T9999' OR u.customer_id = t.customer_id "
    "LIMIT 1)) FROM core_trade t",
    "SELECT status, (SELECT MAX(u.amount) FROM core_trade u WHERE u.customer_id = t.customer_id) AS m FROM "
    "core_trade t GROUP BY status, t.customer_id",
    f"SELECT MAX(CASE WHEN c.{THEM} THEN t.amount ELSE 0 END) FROM {JOINED}",
    f"SELECT MAX(t.amount * (c.opened_at = '2020-12-25 02:00:00')) FROM {JOINED}",
    f"SELECT MAX(CONCAT(c.opened_at, '|', t.trade_id, '|', t.amount)) FROM {JOINED}",
    "SELECT MIN(trade_id) FROM core_trade",
    "SELECT status FROM core_trade GROUP BY status HAVING MAX(amount * (currency = 'HKD')) > 5",
    "SELECT MAX(v) FROM (SELECT amount * (currency = 'HKD') AS v FROM core_trade) x",
    "WITH x (a) AS (SELECT amount * (currency = 'HKD') FROM core_trade) SELECT MAX(a) FROM x",
    "SELECT MAX(v) FROM (SELECT customer_id, SUM(amount * (currency = 'HKD')) AS v FROM core_trade GROUP BY "
    "customer_id) x",
    "SELECT MAX(v) FROM (SELECT amount AS v FROM core_trade WHERE currency = 'HKD' UNION ALL SELECT quantity FROM "
    "core_position) x",
    "SELECT kind, COUNT(*) FROM core_customer GROUP BY kind WITH ROLLUP",
]  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_a_single_customers_row_is_no_answer(sql: str, settings: Any) -> None:
    verdict = judge(sql, moment=now(), least=5)
    assert verdict.code in ("SQL_SINGLE_PERSON", "SQL_PERSONAL_COLUMN"), (verdict.code, verdict.detail)
    assert judge(sql, moment=now(), least=5, granted=GRANTABLE).allowed


# Each would show, or tell by one answer from another, what one customer has.
WITHHELD = [
    f"SELECT COUNT(*) FROM core_customer WHERE {THEM}",
    f"SELECT SUM(t.amount) FROM {JOINED} WHERE c.{THEM}",
    f"SELECT COUNT(*) FROM {JOINED} WHERE c.{THEM} AND t.amount > 900000",
    f"SELECT COUNT(*) FROM {JOINED} WHERE c.{THEM} AND t.amount > 999999",
    f"SELECT c.kind, MAX(t.amount) FROM {JOINED} WHERE c.{THEM} GROUP BY c.kind",
    "SELECT SUM(amount) FROM (SELECT amount FROM core_trade ORDER BY amount DESC LIMIT 1) x",
    f"SELECT AVG(s) FROM (SELECT SUM(t.amount) AS s FROM {JOINED} WHERE c.{THEM} GROUP BY t.customer_id) x",
    f"WITH x AS (SELECT t.* FROM {JOINED} WHERE c.{THEM}) SELECT SUM(amount) FROM x",
    "SELECT DISTINCT currency FROM core_trade WHERE currency = 'HKD'",
    "SELECT SUM(t.amount) FROM core_trade t JOIN core_customer c ON c.investor_type = 'special'",
    "SELECT MAX(c.opened_at) FROM core_trade t JOIN core_customer c ON c.investor_type = 'special'",
    "SELECT c.opened_at, COUNT(*) FROM core_trade t LEFT JOIN core_customer c ON c.investor_type = 'special' "
    "GROUP BY c.opened_at",
    "SELECT product_id FROM core_product WHERE product_id IN (SELECT product_id FROM core_trade WHERE currency = "
    "'HKD' AND amount > 900000)",
    "SELECT product_id FROM core_product WHERE EXISTS (SELECT 1 FROM core_trade WHERE currency = 'HKD' AND "
    "amount > 900000)",
    "SELECT product_id FROM core_product p WHERE EXISTS (SELECT 1 FROM core_trade t WHERE t.currency = 'HKD' AND "
    "t.product_id = p.product_id)",
    "SELECT product_id FROM core_product WHERE (SELECT SUM(amount) FROM core_trade WHERE currency = 'HKD') > 900000",
    "SELECT product_id FROM core_product JOIN (SELECT SUM(amount) AS s FROM core_trade WHERE currency = 'HKD') x "
    "ON x.s > 900000",
    "SELECT product_id FROM core_position WHERE market_value > 900000 UNION SELECT product_id FROM core_position "
    "WHERE market_value > 900000",
    "SELECT x.s FROM (SELECT currency, SUM(amount) AS s FROM core_trade GROUP BY currency) x WHERE currency = 'HKD'",
    "SELECT SUM(s) FROM (SELECT amount AS s FROM core_trade WHERE currency = 'HKD' UNION ALL SELECT market_value "
    "FROM core_position WHERE market_value > 900000) x",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM core_trade WHERE currency = 'HKD' UNION ALL SELECT COUNT(*) FROM "
    "core_position WHERE market_value > 900000) x",
    "SELECT 1 FROM core_trade WHERE currency = 'HKD' GROUP BY 1 = 1",
    "SELECT 1 AS one FROM core_trade WHERE currency = 'HKD' HAVING COUNT(*) > 0",
]  # fmt: skip


@pytest.mark.parametrize("sql", WITHHELD)
def test_what_is_of_few_is_left_out_and_its_being_there_is_not_told(sql: str, twelve_and_one: None) -> None:
    with_them = ask(sql)
    assert list(with_them.result.rows) == [], with_them.result
    CoreTrade.objects.filter(customer_id=LONE).delete()
    CorePosition.objects.filter(customer_id=LONE).delete()
    without = ask(sql)
    assert (without.result.rows, without.withheld) == (with_them.result.rows, with_them.withheld)


FIGURES = [
    f"SELECT COUNT(*) > 100, SUM(CASE WHEN c.{THEM} THEN t.amount END) FROM {JOINED}",
    f"SELECT COUNT(*) > 100, SUM(CASE WHEN c.{THEM} THEN t.amount ELSE 0 END) FROM {JOINED}",
    f"SELECT COUNT(*) > 100, AVG(IF(c.{THEM}, t.amount, 0)) FROM {JOINED}",
    f"SELECT COUNT(*) > 100, SUM(t.amount * (c.{THEM})) FROM {JOINED}",
    f"SELECT COUNT(*) > 100, COUNT(DISTINCT CASE WHEN c.{THEM} THEN t.amount END) FROM {JOINED}",
    "SELECT COUNT(*) > 100, SUM(u.amount) FROM core_trade t LEFT JOIN core_trade u ON u.customer_id = t.customer_id "
    "AND u.currency = 'HKD'",
    "SELECT COUNT(*) > 10, SUM((SELECT SUM(t.amount) FROM core_trade t WHERE t.customer_id = c.customer_id AND "
    "t.currency = 'HKD')) FROM core_customer c",
    "SELECT COUNT(*) > 10, SUM(x.s) FROM core_customer c LEFT JOIN (SELECT customer_id, SUM(amount) AS s FROM "
    "core_trade WHERE currency = 'HKD' GROUP BY customer_id) x ON x.customer_id = c.customer_id",
    "SELECT COUNT(*) > 1, (SELECT SUM(amount) FROM core_trade WHERE currency = 'HKD') FROM core_product",
]  # fmt: skip


@pytest.mark.parametrize("sql", FIGURES)
def test_a_figure_of_few_in_a_group_of_many_is_null(sql: str, twelve_and_one: None) -> None:
    assert rows(sql) == [[1, None]]


def test_how_many_were_left_out_is_told_where_that_is_of_enough_itself(twelve_and_one: None) -> None:
    by_status = ask("SELECT status, COUNT(*) AS n FROM core_trade GROUP BY status ORDER BY status")
    # Two groups, so of two customers at least: not enough to tell.
    assert by_status.withheld is not None
    assert (by_status.withheld.under, by_status.withheld.rows) == (5, None), by_status.result.rows
    by_currency = ask("SELECT currency, COUNT(*) FROM core_trade GROUP BY currency")
    assert [row[0] for row in by_currency.result.rows] == ["CNY", "USD"]
    # One group of one customer: that it is there is not told.
    assert by_currency.withheld is not None
    assert by_currency.withheld.rows is None
    each = ask("SELECT trade_id, SUM(amount) FROM core_trade GROUP BY trade_id")
    assert each.withheld is not None
    assert (list(each.result.rows), each.withheld.rows) == ([], 121)
    assert ask("SELECT SUM(amount) FROM core_trade").withheld.rows == 0  # type: ignore[union-attr]
    assert ask("SELECT SUM(amount) FROM core_trade WHERE currency = 'HKD'").withheld.rows == 1  # type: ignore[union-attr]


def test_the_best_that_may_be_shown_are_as_many_as_were_asked_for(twelve_and_one: None) -> None:
    """What is left out takes no place of what is shown, and its place among them is not told."""
    top = rows("SELECT currency, MAX(amount) AS m FROM core_trade GROUP BY currency ORDER BY m DESC LIMIT 1")
    assert top[0][0] in ("CNY", "USD")


def test_a_running_total_goes_over_what_is_shown_alone(twelve_and_one: None) -> None:
    found = rows(
        "SELECT currency, SUM(SUM(amount)) OVER (ORDER BY currency), SUM(SUM(amount)) OVER () FROM core_trade "
        "GROUP BY currency ORDER BY currency"
    )
    whole = sum(trade.amount for trade in CoreTrade.objects.exclude(currency="HKD"))
    assert float(found[-1][1]) == float(found[-1][2]) == pytest.approx(float(whole))


def test_products_alone_are_nobodys(twelve_and_one: None) -> None:
    answer = ask("SELECT product_id, risk_level FROM core_product WHERE risk_level = 3")
    assert answer.withheld is None
    assert list(map(list, answer.result.rows)) == [["P2", 3]]


def test_a_grant_shows_the_rows_of_its_table(twelve_and_one: None) -> None:
    AnalyticsGrant.objects.create(
        tenant="default", actor_id="ana-1", columns=["core_trade.customer_id"], reason="x", granted_by="root",
        expires_at=now() + timedelta(days=1),
    )  # fmt: skip
    answer = ask("SELECT customer_id, amount FROM core_trade WHERE currency = 'HKD'")
    assert list(map(list, answer.result.rows)) == [[LONE, AMOUNT]]
    assert answer.withheld is None
    with pytest.raises(DomainError) as caught:
        ask("SELECT kind FROM core_customer")
    assert caught.value.code == "SQL_SINGLE_PERSON"
    with pytest.raises(DomainError):
        ask("SELECT t.amount, c.kind FROM core_trade t JOIN core_customer c ON c.customer_id = t.customer_id")


def test_one_turns_it_off(twelve_and_one: None, settings: Any) -> None:
    settings.ANALYTICS_MIN_GROUP = 1
    answer = ask("SELECT amount FROM core_trade WHERE currency = 'HKD'")
    assert (list(map(list, answer.result.rows)), answer.withheld) == ([[AMOUNT]], None)


@pytest.mark.parametrize("part", ["", "PARTITION BY p.asset_class "])
@pytest.mark.parametrize(
    "figure",
    [
        "RANK() OVER ({}ORDER BY SUM(t.amount) DESC)",
        "ROW_NUMBER() OVER ({}ORDER BY SUM(t.amount))",
        "LAG(SUM(t.amount)) OVER ({}ORDER BY SUM(t.amount))",
        "SUM(SUM(t.amount)) OVER ({})",
    ],
)
@pytest.mark.parametrize("more", ["", "JOIN core_customer c ON c.customer_id = t.customer_id "])
def test_a_window_over_groups_has_them_all(figure: str, part: str, more: str, twelve_and_one: None) -> None:
    source = f"FROM core_trade t JOIN core_product p ON p.product_id = t.product_id {more}"
    known = rows(f"SELECT p.asset_class, p.product_id, SUM(t.amount) {source}GROUP BY p.asset_class, p.product_id")
    assert len(known) == 5
    found = rows(f"SELECT p.asset_class, p.product_id, SUM(t.amount) AS s, {figure.format(part)} AS r {source}"
                 "GROUP BY p.asset_class, p.product_id")  # fmt: skip
    assert [row[:3] for row in found] == known
    apart = figure.format(part).replace("SUM(t.amount)", "p.s")
    assert found == rows(
        f"SELECT p.asset_class, p.product_id, p.s, {apart} AS r FROM (SELECT p.asset_class, p.product_id, "
        f"SUM(t.amount) AS s {source}GROUP BY p.asset_class, p.product_id) p"
    )


HONEST = [
    ("SELECT COUNT(*), COUNT(DISTINCT customer_id) FROM core_trade", [[121, 13]]),
    ("SELECT COUNT(*) FROM core_customer c WHERE EXISTS (SELECT 1 FROM core_trade t WHERE t.customer_id = "
     "c.customer_id AND t.amount > 11000)", [[12]]),
    ("SELECT COUNT(*) FROM core_customer c WHERE NOT EXISTS (SELECT 1 FROM core_trade t WHERE t.customer_id = "
     "c.customer_id AND t.amount > 5000 AND t.status = 'executed')", [[6]]),
    ("SELECT COUNT(*) FROM core_trade WHERE customer_id IN (SELECT customer_id FROM core_assessment WHERE c_level < 5)",
     [[100]]),
    ("SELECT COUNT(*) FROM core_trade WHERE amount > (SELECT AVG(amount) FROM core_trade WHERE currency = 'CNY')",
     [[60]]),
    ("SELECT ROUND(AVG(n), 0) FROM (SELECT COUNT(*) AS n FROM core_trade GROUP BY customer_id) x", [["9"]]),
    ("SELECT n, COUNT(*) FROM (SELECT COUNT(*) AS n FROM core_trade GROUP BY customer_id) x GROUP BY n", [[10, 12]]),
    ("SELECT c.kind, COUNT(*) FROM core_trade t JOIN core_customer c USING (customer_id) GROUP BY c.kind "
     "ORDER BY c.kind", [["entity", 41], ["natural", 80]]),
    ("SELECT c.kind, COUNT(DISTINCT c.customer_id) FROM core_customer c LEFT JOIN core_trade t ON t.customer_id = "
     "c.customer_id AND t.currency = 'HKD' WHERE t.trade_id IS NULL GROUP BY c.kind", [["natural", 8]]),
    ("SELECT COUNT(*) FROM (SELECT customer_id FROM core_trade UNION SELECT customer_id FROM core_position) u", [[13]]),
    ("SELECT ROUND(SUM(s), 0) FROM (SELECT (SELECT COUNT(*) FROM core_trade t WHERE t.customer_id = c.customer_id) "
     "AS s FROM core_customer c) x", [["121"]]),
    ("SELECT MAX(n) FROM (SELECT customer_id, COUNT(*) AS n FROM core_trade GROUP BY customer_id) x", [[10]]),
    ("WITH x (a) AS (SELECT n FROM (SELECT COUNT(*) AS n FROM core_trade GROUP BY customer_id) y) SELECT MAX(a) "
     "FROM x", [[10]]),
    ("SELECT COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY amount DESC) AS place "
     "FROM core_trade) x WHERE place = 1", [[13]]),
    ("SELECT COUNT(*), SUM(CASE WHEN channel = 'branch' THEN 1 ELSE 0 END) FROM core_trade WHERE currency = 'CNY'",
     [[96, None]]),
    ("SELECT DISTINCT currency FROM core_trade ORDER BY currency", [["CNY"], ["USD"]]),
    ("WITH m AS (SELECT currency, COUNT(*) AS n FROM core_trade GROUP BY currency) SELECT currency, n, "
     "LAG(n) OVER (ORDER BY currency) FROM m ORDER BY currency", [["CNY", 96, None], ["USD", 24, 96]]),
    ("SELECT product_id FROM core_product WHERE product_id IN (SELECT product_id FROM core_trade WHERE status = "
     "'executed') AND risk_level < 3 ORDER BY product_id", [["P0"], ["P1"]]),
    ("SELECT 'trades' AS what, COUNT(*) AS n FROM core_trade UNION ALL SELECT 'customers', COUNT(*) FROM "
     "core_customer ORDER BY n", [["customers", 13], ["trades", 121]]),
    ("SELECT 1 + 1", [[2]]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "expected"), HONEST)
def test_sums_over_many_are_as_they_are(sql: str, expected: list[list[Any]], twelve_and_one: None) -> None:
    assert rows(sql) == expected


def test_names_of_the_gates_own_are_nobodys() -> None:
    assert judge("SELECT amount AS _xh_k1 FROM core_trade", moment=now()).code == "SQL_FORBIDDEN"


def test_a_short_text_makes_no_large_statement() -> None:
    inner = "1"
    for level in range(14):
        inner = f"(SELECT SUM(COALESCE({inner}, amount)) FROM core_trade t{level})"
    verdict = judge(f"SELECT {inner}", moment=now(), least=5)
    assert verdict.code in ("SQL_TOO_COMPLEX", ""), verdict
    if verdict.statement is not None:
        assert sum(1 for _node in verdict.statement.walk()) < 20_000


def test_what_reaches_a_person_is_refused_for_that_first() -> None:
    for sql in attacks.PERSONAL:
        assert judge(sql, moment=now(), least=5).code in ("SQL_PERSONAL_COLUMN", "SQL_FORBIDDEN")
