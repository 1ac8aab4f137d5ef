"""What an alert does to the customer's l3: the risk agent's write, by fields, so that repeating it changes nothing.

The profile is the memory's: this goes through its service, with its checks, versions and invalidation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.matrix import Resource
from guard.access.services import Caller, authorize
from memory.profiles.derived import is_active
from memory.profiles.models import CustomerProfileL3
from memory.profiles.services import MAX_FAULTS, Written, record_write_refusal, write_l3
from risk.alerts.damage import refuse_damaged
from risk.alerts.deadlines import OPEN
from risk.alerts.models import AlertStatus, AlertType, HitState, RiskAlert, RiskAlertHit
from risk.alerts.scoring import alert_score, band
from risk.alerts.selectors import UNTOLD_RULES, get_alert, may_be_told

_ATTEMPTS = 5
_MAX_ALERTS = 200  # that l3 lists

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class WrittenAfter:
    """The customer's l3 as it now stands. unfounded: codes of restrictions that count although no alert of the customer
    is confirmed, nor was until its follow-up was done: to be looked at, and lifted with a PUT of the profile."""

    customer_id: str
    written: Written
    risk_score: int
    risk_level: str
    unfounded: list[str]


def may_write_after_alert(caller: Caller) -> None:
    """Errors: AUTH_403_SCOPE (403, one audit row): the risk agent alone writes what an alert does."""
    authorize(caller, Resource.ALERT, "write")
    authorize(caller, Resource.L3, "write")


def write_after_alert(
    *, caller: Caller, alert_id: str, flags: Sequence[Entry] = (), restrictions: Sequence[Entry] = ()
) -> WrittenAfter:
    """Brings the l3 of the alert's customer up to date. Open and confirmed alerts count.

    risk_score, risk_level: of the highest alert, from live hits of rules that may be told. open_alerts, reasons:
    theirs, for risk alone. flags, restrictions: as `write_l3` takes them; one replaces that of the same code (one of
    visibility risk only one that was risk's alone too, so that nothing goes from others' eyes), others stay, and none
    are added but for a confirmed alert: an open one moves the score only.
    Whatever follows from an alert of RISK-003 or RISK-004 alone is for risk's eyes: flags and restrictions that others
    would see are refused, and score and level, which advisors see, stay as they are, out of date too.
    Idempotent: what stands there already is no new version. Two at once end with both.

    Errors: AUTH_403_SCOPE; ALERT_NOT_FOUND, also for an alert about an advisor or about data; NEEDS_CONFIRMED_ALERT;
    INVALID_REQUEST that names the fields; ALERT_DAMAGED for one of the customer's; those of `write_l3`. Costs 5 queries
    and, where something changed, those of `write_l3`.
    """
    # Before the alert is looked up: whoever may not write is not told which alerts there are.
    may_write_after_alert(caller)
    alert = _about_customer(caller.tenant, alert_id)
    refuse_damaged(alert)
    if (flags or restrictions) and alert.status != AlertStatus.CONFIRMED:
        said = f"the alert is {alert.status}: it moves the score only"
        raise DomainError("NEEDS_CONFIRMED_ALERT", said, status_now=alert.status)
    _refuse_telling(caller, alert, {"flags": flags, "restrictions": restrictions})
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
            return _answer(alert, Written(row.version, row.updated_at, False), after)
        try:
            written = write_l3(
                caller=caller, customer_id=alert.customer_id, payload=after, if_version=row.version if row else 0
            )
        except DomainError as error:
            # Somebody has written between the read and the lock: read again.
            if error.code != "VERSION_CONFLICT" or attempt + 1 == _ATTEMPTS:
                raise
        else:
            return _answer(alert, written, after)
    raise AssertionError("unreachable")


def _about_customer(tenant: str, alert_id: str) -> RiskAlert:
    alert = get_alert(tenant=tenant, alert_id=alert_id)
    if not alert.customer_id or alert.alert_type not in (AlertType.EVENT, AlertType.REPORT):
        raise DomainError("ALERT_NOT_FOUND", f"alert {alert_id[:64]!r} is about no customer's trades")
    return alert


def _refuse_telling(caller: Caller, alert: RiskAlert, given: Mapping[str, Sequence[Entry]]) -> None:
    """Errors: INVALID_REQUEST, and one audit row that names the fields."""
    if may_be_told(alert.alert_type, alert.rule_ids):
        return
    names = [
        f"{name}.{place}"
        for name, entries in given.items()
        for place, entry in enumerate(entries)
        if entry.get("visibility", "risk") != "risk"
    ]
    if not names:
        return
    record_write_refusal(caller, "profile_l3", alert.customer_id, names)
    reason = "would tip off: what follows from this alert is risk's alone; make it visibility risk"
    errors = [{"field": name, "reason": reason} for name in names[:MAX_FAULTS]]
    raise DomainError("INVALID_REQUEST", f"{names[0]}: {reason}", errors=errors)


def _answer(alert: RiskAlert, written: Written, after: Mapping[str, Any]) -> WrittenAfter:
    found = after.get("restrictions") or ()
    counting = sorted({str(entry["code"]) for entry in found if is_active(entry, now())})
    if counting:
        of_customer = RiskAlert.objects.filter(tenant=alert.tenant, customer_id=alert.customer_id)
        if of_customer.filter(confirmed_at__isnull=False).exists():
            counting = []
    score = after.get("risk_score") or 0
    return WrittenAfter(alert.customer_id, written, score, after.get("risk_level") or band(score), counting)


def _standing(alert: RiskAlert) -> dict[str, Any]:
    """What the customer's alerts say together; after an alert that may not be told, only what risk alone sees.

    Two queries, or one."""
    counting = list(
        RiskAlert.objects.filter(tenant=alert.tenant, customer_id=alert.customer_id)
        .filter(Q(status__in=OPEN) | Q(status=AlertStatus.CONFIRMED))
        .filter(alert_type__in=(AlertType.EVENT, AlertType.REPORT))
        .order_by("-opened_at", "-alert_id")[:_MAX_ALERTS]
    )
    for row in counting:
        refuse_damaged(row)  # its reasons would be missing from what is said of the customer
    internal: dict[str, Any] = {
        "open_alerts": sorted(row.alert_id for row in counting if row.status in OPEN),
        "reasons": sorted({subtype for row in counting for subtype in row.subtypes}),
    }
    if not may_be_told(alert.alert_type, alert.rule_ids):
        return internal
    hits: dict[str, list[tuple[str, int]]] = {}
    rows = RiskAlertHit.objects.filter(alert__in=counting, state=HitState.LIVE).exclude(rule_id__in=UNTOLD_RULES)
    for alert_id, rule_id, score in rows.order_by().values_list("alert_id", "rule_id", "score"):
        hits.setdefault(alert_id, []).append((rule_id, score))
    score = max((alert_score(found) for found in hits.values()), default=0)
    return {**internal, "risk_score": score, "risk_level": band(score)}


def _merged(name: str, before: Mapping[str, Any], entries: Sequence[Entry]) -> dict[str, Any]:
    if not entries:
        return {}

    def is_hidden(entry: Entry) -> bool:
        return entry.get("visibility", "risk") == "risk"

    codes = {entry.get("code") for entry in entries}
    shown = {entry.get("code") for entry in entries if not is_hidden(entry)}
    kept = [
        entry for entry in before.get(name) or () if entry.get("code") not in (codes if is_hidden(entry) else shown)
    ]
    return {name: [*kept, *(dict(entry) for entry in entries)]}
