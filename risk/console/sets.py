"""Which sets of rules or subtypes there are among alerts, found in an index without reading it through.

What was found before is remembered, and the gaps between are looked into, each by one look at the index: a set that is
new since lies in one of them. So an answer is complete whatever was remembered, by any process.
"""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import QuerySet

from config.base.fields import canonical_json
from risk.alerts.models import SET_CHARS, RiskAlert
from risk.console.words import RULES, SUBTYPES

MOST = 64  # of one column; an installation has a dozen or two
ROUNDS = 12

# Codes alone, no tenant's data. Alerts of one rule, and of one subtype, are the usual ones.
_known: dict[str, set[str]] = {
    "rule_set": {canonical_json([rule]) for rule in RULES},
    "subtype_set": {canonical_json([subtype]) for subtype in SUBTYPES},
}


def sets_of(alerts: QuerySet[RiskAlert], column: str) -> list[str] | None:
    """The values of `rule_set` or `subtype_set` among these alerts, and perhaps some more; None where there are more
    than MOST. 1 query where nothing is new; at most ROUNDS. alerts: of one tenant, kind and shelf."""
    connection = connections[alerts.db]
    known = set(_known[column])
    for _round in range(ROUNDS):
        places = sorted(known)
        columns, parameters = [], []
        for low, high in zip(["", *places], [*places, None], strict=True):
            gap = alerts.filter(**{f"{column}__gt": low})
            if high is not None:
                gap = gap.filter(**{f"{column}__lt": high})
            sql, values = gap.order_by(column).values(column)[:1].query.sql_with_params()
            columns.append(f"({sql})")
            parameters += values
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(columns)}", parameters)
            found: set[Any] = {value for value in cursor.fetchone() if value is not None}
        if not found:
            _known[column] |= known
            return places
        known |= found
        if len(known) > MOST:
            return None
    return None


def may_hold(found: str, code: str) -> bool:
    """Whether a set has this code; one that is cut off may have it."""
    return canonical_json(code) in found or len(found) >= SET_CHARS
