"""What an alert does to the customer's l3: the risk agent's write, by fields, so that repeating it changes nothing.

The profile is the memory's: this goes through its service, with its checks, versions and invalidation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q

from config.base.errors import DomainError
from guard.access.services import Caller
from memory.profiles import policies
from memory.profiles.models import CustomerProfileL3
from memory.profiles.services import Written, write_l3
from risk.alerts.deadlines import OPEN
from risk.alerts.models import AlertStatus, AlertType, HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import alert_score, band
from risk.alerts.selectors import get_alert

# What these rules say never leaves risk, and a score that they had moved would say it (RISK.md 6).
UNTOLD_RULES = frozenset({"RISK-003", "RISK-004", "RISK-008"})
_ATTEMPTS = 5
_MAX_ALERTS = 200  # that l3 lists

Entry = Mapping[str, Any]


def write_after_alert(
    *, caller: Caller, alert_id: str, flags: Sequence[Entry] = (), restrictions: Sequence[Entry] = ()
) -> Written:
    """Brings the l3 of the alert's customer up to date. Open and confirmed alerts count.

    risk_score, risk_level: of the highest alert, from live hits of rules that may be told. open_alerts, reasons:
    theirs, for risk alone. flags, restrictions: as `write_l3` takes them; one replaces that of the same code, others
    stay, and none are added but for a confirmed alert: an open one moves the score only.
    Idempotent: what stands there already is no new version. Two at once end with both.

    Errors: ALERT_NOT_FOUND, also for an alert about an advisor or about data; NEEDS_CONFIRMED_ALERT; those of
    `write_l3`. Costs 4 queries and, where something changed, those of `write_l3`.
    """
    # Before the alert is looked up: whoever may not write is not told which alerts there are.
    alert = _about_customer(caller, alert_id)
    policies.may_l3(caller, "write", customer_id=alert.customer_id)
    if (flags or restrictions) and alert.status != AlertStatus.CONFIRMED:
        said = f"the alert is {alert.status}: it moves the score only"
        raise DomainError("NEEDS_CONFIRMED_ALERT", said, status_now=alert.status)
    for attempt in range(_ATTEMPTS):
        row = CustomerProfileL3.objects.filter(tenant=caller.tenant, customer_id=alert.customer_id).first()
        before: dict[str, Any] = {**row.payload, **row.internal} if row else {}
        after = {
            **before,
            **_standing(alert),
            **_merged("flags", before, flags),
            **_merged("restrictions", before, restrictions),
        }
        if row is not None and after == before:
            return Written(row.version, row.updated_at, False)
        try:
            return write_l3(
                caller=caller, customer_id=alert.customer_id, payload=after, if_version=row.version if row else 0
            )
        except DomainError as error:
            # Somebody has written between the read and the lock: read again.
            if error.code != "VERSION_CONFLICT" or attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _about_customer(caller: Caller, alert_id: str) -> RiskAlert:
    if caller.agent != "risk":
        policies.may_l3(caller, "write", customer_id="-")
    alert = get_alert(tenant=caller.tenant, alert_id=alert_id)
    if not alert.customer_id or alert.alert_type not in (AlertType.EVENT, AlertType.REPORT):
        raise DomainError("ALERT_NOT_FOUND", f"alert {alert_id[:64]!r} is about no customer's trades")
    return alert


def _standing(alert: RiskAlert) -> dict[str, Any]:
    """What the customer's alerts say together. Two queries."""
    counting = list(
        RiskAlert.objects.filter(tenant=alert.tenant, customer_id=alert.customer_id)
        .filter(Q(status__in=OPEN) | Q(status=AlertStatus.CONFIRMED))
        .filter(alert_type__in=(AlertType.EVENT, AlertType.REPORT))
        .order_by("-opened_at", "-alert_id")[:_MAX_ALERTS]
    )
    hits: dict[str, list[tuple[str, int]]] = {}
    rows = RiskAlertHit.objects.filter(alert__in=counting, state=HitState.LIVE).exclude(rule_id__in=UNTOLD_RULES)
    for alert_id, rule_id, score in rows.order_by().values_list("alert_id", "rule_id", "score"):
        hits.setdefault(alert_id, []).append((rule_id, score))
    score = max((alert_score(found) for found in hits.values()), default=0)
    reasons = sorted({subtype for row in counting for subtype in row.subtypes})
    return {
        "risk_score": score,
        "risk_level": band(score),
        "open_alerts": sorted(row.alert_id for row in counting if row.status in OPEN),
        "reasons": reasons,
    }


def _merged(name: str, before: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    if not entries:
        return {}
    codes = {entry.get("code") for entry in entries}
    kept = [entry for entry in before.get(name) or () if entry.get("code") not in codes]
    return {name: [*kept, *(dict(entry) for entry in entries)]}
