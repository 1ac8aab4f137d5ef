"""With which alert an officer has judged a finding, however often it was revised since.

A new version of a rule, a corrected trade or a corrected holding gives an old finding other figures. Where its alert
was disposed of by then, the new hit is no part of what was judged (`alert_version` is NULL); the finding is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import Q

from risk.alerts.models import AlertAction, HitState, RiskAlert, RiskAlertHit

_GONE = tuple(f"hit_{state.value}" for state in (HitState.CANCELLED, HitState.SUPERSEDED, HitState.WITHDRAWN))
_UNREAD = ("figures", "subtypes", "alert__disposition_text", "alert__payload")


def judged_with(rows: Sequence[RiskAlertHit]) -> dict[int, RiskAlert]:
    """By the id of a live hit, the alert that was or will be judged with its finding; none for a finding that nobody
    has judged.

    A hit that belongs to what is judged: its own alert. One that came after the disposition: the alert of the last
    revision before it that stood in what was judged. A revision of the same finding has the same rule and evidence
    key; where that ends in a trade and its version, whichever version.
    rows: of one tenant, with their alerts. Cost: nothing where no hit came late, else 2 queries.
    """
    found = {row.pk: row.alert for row in rows if row.alert_version is not None}
    late = [row for row in rows if row.alert_version is None]
    if not late:
        return found
    before: dict[tuple[str, ...], list[RiskAlertHit]] = defaultdict(list)
    for row in _earlier(late):
        before[_finding(row)].append(row)
    gone = _gone(row for chain in before.values() for row in chain)
    for row in late:
        for earlier in before.get(_finding(row), []):
            if earlier.pk < row.pk and not _went_before(earlier, gone):
                found[row.pk] = earlier.alert
                break
    return found


def _earlier(late: Sequence[RiskAlertHit]) -> Iterable[RiskAlertHit]:
    """What was ever judged of the same people by the same rules; the newest first."""
    whose = Q(customer_id__in={row.customer_id for row in late} - {""})
    whose |= Q(customer_id="", advisor_id__in={row.advisor_id for row in late if not row.customer_id})
    rows = RiskAlertHit.objects.filter(
        whose, tenant=late[0].tenant, rule_id__in={row.rule_id for row in late}, alert_version__isnull=False
    )
    return rows.exclude(state=HitState.LIVE).select_related("alert").defer(*_UNREAD).order_by("-id")


def _finding(row: RiskAlertHit) -> tuple[str, ...]:
    """Equal for revisions of one finding."""
    evidence = row.evidence_key.removesuffix(f"@{row.trade_version}")
    return (row.rule_id, row.customer_id or f":{row.advisor_id}", evidence)


Gone = dict[tuple[str, str], list[datetime]]


def _gone(rows: Iterable[RiskAlertHit]) -> Gone:
    """When hits went out of their alerts without a revision, by alert and what its timeline says of them."""
    found: Gone = defaultdict(list)
    acts = AlertAction.objects.filter(alert_id__in={row.alert_id for row in rows}, action__in=_GONE).order_by()
    for alert_id, text, at in acts.values_list("alert_id", "text", "at"):
        found[alert_id, text].append(at)
    return found


def _went_before(row: RiskAlertHit, gone: Gone) -> bool:
    """Whether it was no longer there when its alert was judged."""
    judged_at = row.alert.confirmed_at or row.alert.disposed_at
    if judged_at is None:
        return False
    times = gone.get((row.alert_id, f"{row.rule_id} {row.trade_id}@{row.trade_version}"), [])
    return any(row.detected_at <= at <= judged_at for at in times)
