"""What versions in shadow would have found, beside what is in force. Nothing here opens, changes or tells an alert.

A scan hands over the facts that it has just judged. Of each version in shadow every finding is kept once
(risk_shadow_hit), with who finds it: the shadow, the version in force, or both. A later scan brings the rows up to
date: other figures replace the old, what neither finds any more is withdrawn.
Whatever goes wrong here is logged, counted on the version and goes no further: the real findings are settled by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import F

from config.base.clock import now
from config.base.db import retry_conflicts
from config.base.fields import canonical_json
from memory.core.facts import CustomerRows
from risk.rules.facts import Facts
from risk.rules.hit import Hit
from risk.rules.models import RiskRule, ShadowHit, ShadowSide, ShadowState
from risk.rules.ruling import Shadow

logger = logging.getLogger(__name__)

_KEPT = ("customer_id", "trade_id", "trade_version", "occurred_at", "score", "advisor_id")


def shadow_customer(*, tenant: str, facts: CustomerRows, shadows: Sequence[Shadow], active: Iterable[Hit]) -> None:
    """Keeps what each version in shadow says of a customer.

    active: what the rules in force have found in the same facts. Cost without a shadow: nothing; else each shadow's
    evaluation and one query, more where something changed. Errors: none.
    """
    if not shadows:
        return
    found = list(active)
    built: list[Facts] = []  # once for all shadows, and within what may fail

    def judged(shadow: Shadow) -> list[Hit]:
        if not built:
            built.append(Facts(facts))
        return [hit for rule in shadow.rules for hit in rule.evaluate(built[0], rule.params, rule.version)]

    for shadow in shadows:
        kept = {"rule_id": shadow.pk, "customer_id": facts.customer_id}
        _keep(tenant, shadow, kept, judged, found)


def shadow_advisor(
    *,
    tenant: str,
    advisor_id: str,
    since: datetime,
    until: datetime,
    shadows: Sequence[Shadow],
    judge: Callable[[Any], Iterable[Hit]],
    active: Iterable[Hit],
) -> None:
    """As `shadow_customer`, for an advisor's conduct in `[since, until)`. judge: a rule's findings there."""
    found = list(active)
    for shadow in shadows:
        kept = {
            "rule_id": shadow.pk, "advisor_id": advisor_id, "customer_id": "",
            "occurred_at__gte": since, "occurred_at__lt": until,
        }  # fmt: skip
        _keep(tenant, shadow, kept, lambda one: [hit for rule in one.rules for hit in judge(rule)], found)


def _keep(
    tenant: str,
    shadow: Shadow,
    kept: Mapping[str, Any],
    judged: Callable[[Shadow], list[Hit]],
    active: Sequence[Hit],
) -> None:
    try:
        _store(tenant, shadow, kept, sides(shadow, judged(shadow), active))
    except DatabaseError:
        logger.exception("a version in shadow could not be kept")
        _count_failure(shadow)
    except Exception:
        logger.exception("a version in shadow could not be evaluated")
        _count_failure(shadow)


def _count_failure(shadow: Shadow) -> None:
    try:
        with transaction.atomic():
            RiskRule.objects.filter(pk=shadow.pk).update(shadow_failures=F("shadow_failures") + 1)
    except DatabaseError:
        logger.debug("nor could that be counted")


Found = dict[tuple[str, str], tuple[Hit, str]]


def sides(shadow: Shadow, judged: Iterable[Hit], active: Iterable[Hit]) -> Found:
    """By (rule, evidence key): the finding, and who finds it. Both: the shadow's figures are kept."""
    speaks_of = {shadow.rule_id, *(rule.rule_id for rule in shadow.rules)}
    in_force = {(hit.rule_id, hit.evidence_key): hit for hit in active if hit.rule_id in speaks_of}
    found: Found = {key: (hit, ShadowSide.ACTIVE) for key, hit in in_force.items()}
    for hit in judged:
        key = (hit.rule_id, hit.evidence_key)
        found[key] = (hit, ShadowSide.BOTH if key in in_force else ShadowSide.SHADOW)
    return found


def _store(tenant: str, shadow: Shadow, kept: Mapping[str, Any], found: Found) -> None:
    if not _changes(kept, found):
        return

    attempts = count()

    def work() -> None:
        attempt = next(attempts)
        # A savepoint where a caller has a transaction: a failure here is none of theirs.
        with transaction.atomic():
            changes = _changes(kept, found)
            if attempt:
                _take(shadow, changes)
            _write(tenant, shadow, found, changes)

    # Two scans of one customer at once: the unique key refuses the second, which reads again. Or the trade was
    # another customer's before.
    retry_conflicts(work, also=(IntegrityError,))


@dataclass
class _Changes:
    """new: keys without a row. others: rows that say something else. gone: rows of what nobody finds any more."""

    new: list[tuple[str, str]]
    others: list[ShadowHit]
    gone: list[int]

    def __bool__(self) -> bool:
        return bool(self.new or self.others or self.gone)


def _changes(kept: Mapping[str, Any], found: Found) -> _Changes:
    """One query."""
    there = {(row.found_by, row.evidence_key): row for row in ShadowHit.objects.filter(**kept)}
    return _Changes(
        [key for key in found if key not in there],
        [row for key, row in there.items() if key in found and _differs(row, _values(*found[key]))],
        [row.pk for key, row in there.items() if key not in found and row.state == ShadowState.LIVE],
    )


def _take(shadow: Shadow, changes: _Changes) -> None:
    """Rows that another customer, or advisor, has under new keys go to whom the finding is now of. One query."""
    new = set(changes.new)
    rows = ShadowHit.objects.filter(rule=shadow.pk, evidence_key__in={key for _rule, key in new})
    taken = [row for row in rows if (row.found_by, row.evidence_key) in new]
    changes.others += taken
    changes.new = sorted(new - {(row.found_by, row.evidence_key) for row in taken})


def _values(hit: Hit, side: str) -> dict[str, Any]:
    return {
        **{name: getattr(hit, name) for name in _KEPT},
        "subtypes": list(hit.subtypes),
        "figures": dict(hit.figures),
        "side": side,
        "state": ShadowState.LIVE,
    }


def _write(tenant: str, shadow: Shadow, found: Found, changes: _Changes) -> None:
    moment = now()
    for row in changes.others:
        values = _values(*found[row.found_by, row.evidence_key])
        ShadowHit.objects.filter(pk=row.pk).update(**values, changed_at=moment)
    if changes.gone:
        ShadowHit.objects.filter(pk__in=changes.gone).update(state=ShadowState.WITHDRAWN, changed_at=moment)
    new = [
        ShadowHit(
            tenant=tenant,
            rule_id=shadow.pk,
            found_by=found[key][0].rule_id,
            evidence_key=found[key][0].evidence_key,
            first_seen=moment,
            changed_at=moment,
            **_values(*found[key]),
        )
        for key in changes.new
    ]
    ShadowHit.objects.bulk_create(new, 200)


def _differs(row: ShadowHit, values: Mapping[str, Any]) -> bool:
    return any(
        canonical_json(getattr(row, name)) != canonical_json(value)
        if name in ("subtypes", "figures")
        else getattr(row, name) != value
        for name, value in values.items()
    )
