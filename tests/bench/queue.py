"""The officers' queue over a million alerts: each page as the console answers it, beside the bare SELECT of the same
page by the queue's own keyset and the rendering of an empty page.

All of them open or disposed of in one tenant, of every kind, level, rule and officer, with a hit each.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from guard.access.roles import RISK_OFFICER, ensure_roles
from risk.alerts.models import RiskAlert

QUEUE = "/admin/risk/riskalert/"
OFFICERS = 20
# Each of the queue's tabs and filters, common and rare ones, alone and two at a time.
VIEWS: dict[str, str] = {
    "first page": "",
    "advisor conduct": "tab=conduct",
    "large-amount reports": "tab=reports",
    "awaiting review": "tab=review",
    "put aside": "tab=quiet",
    "state: pending": "state=pending",
    "state: in review": "state=in_review",
    "state: disposed of": "state=done",
    "state: false positive": "state=false_positive",
    "level 2": "level=LEVEL_2",
    "rule: common": "rule=RISK-001",
    "rule: rare": "rule=RISK-007",
    "rule: none has it": "rule=RISK-006",
    "subtype": "subtype=concentration",
    "subtype: none has it": "subtype=odd_hour",
    "score 60 to 79": "min=60&max=79",
    "score 97": "min=97&max=97",
    "age: up to a day": "age=1d",
    "age: over 30 days": "age=30d%2B",
    "due: overdue": "due=overdue",
    "due: later": "due=later",
    "assignee: me": "assignee=me",
    "assignee: none": "assignee=none",
    "advisor": "advisor=ADV0007",
    "customer": "customer=C000077",
    "rule and score": "rule=RISK-001&min=60&max=79",
    "level and assignee": "level=LEVEL_1&assignee=none",
    "any state": "state=all",
    "any state of a rule, opened in 30 days": "state=all&rule=RISK-001&opened=30d",
    "age: 1 to 7 days": "age=1-7d",
    "level and age": "level=LEVEL_1&age=7-30d",
    "false positive in 30 days": "state=false_positive&since=30d",
    "confirmed of a rule in 30 days": "state=confirmed&rule=RISK-001&since=30d",
    "reason code": "state=done&code=K03&since=30d",
    "to review": "tab=review&state=others",
    "returned": "back=returned",
    "woken, of mine": "back=woken&assignee=me",
    "search": "q=C000077",
    "page 1,000": "page=1000",
    "the end": "before=%7E",
}

_ALERTS = """
INSERT INTO risk_alert (alert_id, tenant, alert_type, status, version, customer_id, advisor_id, score, subtypes,
    rule_ids, hit_count, escalation_level, payload, trace_id, disposition_code, disposition_text, disposed_at,
    opened_at, updated_at, assignee_id, claim_due_at, dispose_due_at, four_eyes, proposed_code, proposed_hash,
    proposed_quiet_days, proposed_status, proposed_text, snoozed_until, woken_by)
SELECT id, 'default', kind, status, 1, customer, advisor, score,
    ELT(pick, '["suitability_mismatch"]', '["concentration"]', '["large_amount"]', '["structuring"]',
        '["churning_turnover"]', '["suitability_mismatch","concentration"]', '["elderly_high_risk"]',
        '["assessment_expired"]'),
    ELT(pick, '["RISK-001"]', '["RISK-002"]', '["RISK-003"]', '["RISK-004"]', '["RISK-005"]',
        '["RISK-001","RISK-002"]', '["RISK-007"]', '["RISK-001"]'),
    1, IF(score < 40, '', ELT(1 + b % 20, 'LEVEL_1', 'LEVEL_1', 'LEVEL_1', 'LEVEL_2', '', '', '', '', '', '', '', '',
        '', '', '', '', '', '', '', '')),
    '{{}}', MD5(n), IF(status = 'closed', 'K03', ''), '', IF(done, opened + INTERVAL 1 DAY, NULL), opened, opened,
    IF(status = 'pending', NULL, {first} + c % {officers}),
    IF(score < 40, NULL, opened + INTERVAL 4 HOUR), opened + INTERVAL ELT(1 + score DIV 34, 120, 48, 9) HOUR, 0, '',
    '', 0, '', '', IF(status = 'pending' AND c % 50 = 0, NOW(6) + INTERVAL 1 DAY, NULL), ''
FROM (
    SELECT n, a, b, c, id, opened, score, pick, customer, advisor, kind,
        ELT(1 + c % 10, 'pending', 'pending', 'pending', 'pending', 'in_review', 'in_review', 'escalated', 'confirmed',
            'false_positive', 'closed') AS status, c % 10 >= 7 AS done
    FROM (
        SELECT n, CRC32(CONCAT('a', n)) AS a, CRC32(CONCAT('b', n)) AS b, CRC32(CONCAT('c', n)) AS c,
            LPAD(HEX(n), 32, '0') AS id, NOW(6) - INTERVAL (CRC32(CONCAT('o', n)) % 7776000) SECOND AS opened,
            CRC32(CONCAT('s', n)) % 101 AS score,
            IF(CRC32(CONCAT('p', n)) % 1000 = 0, 7, 1 + CRC32(CONCAT('p', n)) % 6) AS pick,
            CONCAT('C', LPAD(CRC32(CONCAT('k', n)) % 100000, 6, '0')) AS customer,
            CONCAT('ADV', LPAD(CRC32(CONCAT('v', n)) % 500, 4, '0')) AS advisor,
            ELT(1 + CRC32(CONCAT('t', n)) % 20, 'pattern', 'report', 'report', 'event', 'event', 'event', 'event',
                'event', 'event', 'event', 'event', 'event', 'event', 'event', 'event', 'event', 'event', 'event',
                'event', 'event') AS kind
        FROM (SELECT seq AS n FROM seq_{begin}_to_{end}) numbers
    ) drawn
) made
"""
_HITS = """
INSERT INTO risk_alert_hit (tenant, alert_id, rule_id, rule_version, evidence_key, revision, live_key, state,
    after_disposition, alert_version, customer_id, advisor_id, product_id, trade_id, trade_version, occurred_at, score,
    subtypes, figures, trace_id, detected_at)
SELECT tenant, alert_id, JSON_VALUE(rule_ids, '$[0]'), 1, CONCAT('T', alert_id, '@1'), 1, CONCAT('T', alert_id, '@1'),
    'live', 0, 1, customer_id, advisor_id, 'F0101', CONCAT('T', alert_id), 1, opened_at, score, subtypes,
    '{{"assessed_on":"2026-03-02","channel":"branch","is_lowest":false,"product_risk_level":"R4","solicited":true,"tolerance_level":"C2","traded_on":"2026-11-29"}}',
    trace_id, opened_at
FROM risk_alert WHERE alert_id BETWEEN LPAD(HEX({begin}), 32, '0') AND LPAD(HEX({end}), 32, '0')
"""


def make_officers() -> User:
    """One of OFFICERS officers, whose numbers follow each other: the fifth, who has alerts."""
    ensure_roles()
    group = Group.objects.get(name=RISK_OFFICER)
    people = [User.objects.create_user(f"officer{number:02d}", is_staff=True) for number in range(OFFICERS)]
    group.user_set.add(*people)
    return people[4]


def make_alerts(number: int, first: int, *, begin: int = 1, batch: int = 10_000) -> None:
    """That many alerts with a hit each, in INSERTs of `batch` rows that MariaDB makes itself. Their indices are built
    at the end, in one go: to keep a dozen of them up row by row takes ten times as long."""
    with _unbounded() as cursor, _without_indices(cursor, "risk_alert"), _without_indices(cursor, "risk_alert_hit"):
        for start in range(begin, begin + number, batch):
            numbers = {"begin": start, "end": min(start + batch, begin + number) - 1}
            cursor.execute(_ALERTS.format(first=first, officers=OFFICERS, **numbers))
            cursor.execute(_HITS.format(**numbers))
    with _unbounded() as cursor:
        cursor.execute("ANALYZE TABLE risk_alert, risk_alert_hit")
        cursor.fetchall()


@contextmanager
def _unbounded() -> Iterator[Any]:
    """A cursor of the driver's: the console's own connection is cut where a statement takes as long as an ALTER."""
    import MySQLdb

    place = connection.settings_dict
    server = MySQLdb.connect(
        host=place["HOST"], port=int(place["PORT"]), user=place["USER"], passwd=place["PASSWORD"], db=place["NAME"],
        autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    with server.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        yield cursor
    server.close()


@contextmanager
def _without_indices(cursor: Any, table: str) -> Iterator[None]:
    """Those that no constraint needs."""
    cursor.execute(f"SHOW CREATE TABLE {table}")
    said = cursor.fetchone()[1]
    keys = [line.strip().rstrip(",") for line in said.splitlines() if line.strip().startswith("KEY ")]
    keys = [key for key in keys if "_fk_" not in key]
    names = [key.split("`")[1] for key in keys]
    cursor.execute(f"ALTER TABLE {table} {', '.join(f'DROP KEY {name}' for name in names)}")
    try:
        yield
    finally:
        cursor.execute(f"ALTER TABLE {table} {', '.join(f'ADD {key}' for key in keys)}")


def seconds_of(work: Callable[[], Any], times: int) -> float:
    """The median of so many, after one to warm up."""
    work()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def queue_times(alerts: int, times: int = 7) -> tuple[dict[str, float], float, float]:
    """Milliseconds: of each view, of the bare keyset SELECT of a page, and of an empty page of the console."""
    officer = make_officers()
    client = Client(SERVER_NAME="localhost")
    client.force_login(officer)
    empty = 1000 * seconds_of(lambda: _get(client, f"{QUEUE}?tab=conduct"), times)
    make_alerts(alerts, officer.pk - 4)
    bare = 1000 * seconds_of(_bare, times)
    # Again, between the views: an empty page on a machine as busy as theirs.
    empties = [empty]
    views = {}
    for name, view in VIEWS.items():
        views[name] = 1000 * seconds_of(lambda address=f"{QUEUE}?{view}": _get(client, address), times)  # type: ignore[misc]
        empties.append(1000 * seconds_of(lambda: _get(client, f"{QUEUE}?q=nobody"), 3))
    return views, bare, statistics.median(empties)


def _get(client: Client, address: str) -> None:
    assert client.get(address).status_code == 200


def _bare() -> None:
    """What a page cannot do without: its rows, by the key that the tab is sorted by."""
    rows = RiskAlert.objects.filter(tenant="default", alert_type="event", shelf="o")
    assert len(rows.order_by("queue_at", "alert_id")[:50]) == 50
