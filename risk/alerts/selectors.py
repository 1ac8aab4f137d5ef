"""Reads of alerts, always within one tenant and always bounded."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.contrib.auth.models import Permission, User
from django.db.models import Count, Q, QuerySet

from config.base.errors import DomainError
from config.base.fields import Damaged
from config.base.keys import DEFAULT_TENANT
from guard.access.models import StaffMember
from memory.profiles.restrictions import Confirmed
from risk.alerts.models import DISPOSED, AlertAction, AlertStatus, AlertType, HitState, RiskAlert, RiskAlertHit

OPEN = (AlertStatus.PENDING, AlertStatus.IN_REVIEW, AlertStatus.ESCALATED)
OFFICERS_TYPES = (AlertType.EVENT, AlertType.PATTERN, AlertType.REPORT)

# What these rules say never leaves risk, and a score that they had moved would say it (RISK.md 6).
UNTOLD_RULES = frozenset({"RISK-003", "RISK-004", "RISK-008"})

# Bounds of one page of the console: hits and actions beyond them are read by keyset.
MAX_QUEUE = 200
MAX_HITS = 200
MAX_ACTIONS = 200


@dataclass(frozen=True)
class AlertPage:
    """All that the alert page shows of the alert itself, in four queries."""

    alert: RiskAlert
    hits: list[RiskAlertHit]
    actions: list[AlertAction]
    earlier: list[RiskAlert]

    @property
    def live_hits(self) -> list[RiskAlertHit]:
        return [hit for hit in self.hits if hit.state == HitState.LIVE]


def visible(tenant: str) -> QuerySet[RiskAlert]:
    """Every alert of the tenant, with its people."""
    return RiskAlert.objects.filter(tenant=tenant).select_related("assignee", "disposed_by")


def queue(
    *,
    tenant: str,
    statuses: Collection[str] = OPEN,
    alert_types: Collection[str] = OFFICERS_TYPES,
    assignee: User | None = None,
    unassigned: bool = False,
    offset: int = 0,
    limit: int = 50,
) -> list[RiskAlert]:
    """One page of the queue, highest score first, then oldest. One query; `limit` at most 200."""
    rows = visible(tenant).filter(status__in=statuses, alert_type__in=alert_types)
    if assignee is not None:
        rows = rows.filter(assignee=assignee)
    if unassigned:
        rows = rows.filter(assignee__isnull=True)
    offset, limit = max(0, offset), max(1, min(limit, MAX_QUEUE))
    return list(rows.order_by("-score", "opened_at", "alert_id")[offset : offset + limit])


def counts(*, tenant: str) -> dict[tuple[str, str], int]:
    """Open alerts by `(alert_type, status)`. One query."""
    rows = (
        RiskAlert.objects.filter(tenant=tenant, status__in=OPEN)
        .order_by()
        .values_list("alert_type", "status")
        .annotate(n=Count("alert_id"))
    )
    return {(kind, status): n for kind, status, n in rows}


def get_alert(*, tenant: str, alert_id: str) -> RiskAlert:
    """Errors: ALERT_NOT_FOUND, for another tenant's alert as well."""
    alert = visible(tenant).filter(alert_id=alert_id).first()
    if alert is None:
        raise DomainError("ALERT_NOT_FOUND", f"no alert {alert_id[:64]!r} in this tenant")
    return alert


def hits_of(*, alert: RiskAlert, live_only: bool = False, limit: int = MAX_HITS) -> list[RiskAlertHit]:
    """An alert's findings in the order of their trades, revisions included."""
    rows = RiskAlertHit.objects.filter(tenant=alert.tenant, alert=alert)
    if live_only:
        rows = rows.filter(state=HitState.LIVE)
    return list(rows.order_by("occurred_at", "id")[:limit])


def actions_of(*, alert: RiskAlert, limit: int = MAX_ACTIONS) -> list[AlertAction]:
    """The newest acts, oldest first."""
    rows = AlertAction.objects.filter(alert=alert).select_related("actor").order_by("-at", "-id")[:limit]
    return list(reversed(rows))


def earlier_alerts(*, alert: RiskAlert, limit: int = 20) -> list[RiskAlert]:
    """Other alerts of the same customer (of conduct: of the same advisor), newest first."""
    rows = visible(alert.tenant).exclude(pk=alert.pk)
    if alert.alert_type == AlertType.PATTERN:
        rows = rows.filter(alert_type=AlertType.PATTERN, advisor_id=alert.advisor_id)
    else:
        rows = rows.filter(customer_id=alert.customer_id)
    return list(rows.order_by("-opened_at", "alert_id")[:limit])


def alert_page(*, tenant: str, alert_id: str) -> AlertPage:
    """The alert with its hits, acts and earlier alerts. Four queries. Errors: ALERT_NOT_FOUND."""
    alert = get_alert(tenant=tenant, alert_id=alert_id)
    return AlertPage(alert, hits_of(alert=alert), actions_of(alert=alert), earlier_alerts(alert=alert))


def confirmed_alerts(tenant: str, customer_id: str) -> Confirmed:
    """What alerts about the customer's own trades that stand confirmed now allow: one reopened or closed since does not
    count, nor does one about an advisor's conduct or about data. One query."""
    rows = RiskAlert.objects.filter(tenant=tenant, customer_id=customer_id, status=AlertStatus.CONFIRMED)
    rows = rows.filter(alert_type__in=(AlertType.EVENT, AlertType.REPORT)).order_by()
    kinds = list(rows.values_list("alert_type", "rule_ids"))
    return Confirmed(there=bool(kinds), told=any(may_be_told(kind, rule_ids) for kind, rule_ids in kinds))


def may_be_told(alert_type: str, rule_ids: Iterable[str]) -> bool:
    """Whether what follows from an alert may leave risk: not where nothing but rules that nobody is told of made it."""
    if isinstance(rule_ids, Damaged):
        return False  # nobody knows what made it: fail closed
    rules = set(rule_ids)
    return alert_type == AlertType.EVENT and not (rules and rules <= UNTOLD_RULES)


def officers_of(tenant: str, limit: int = 200) -> list[str]:
    """Names of those whom an alert of the tenant can be assigned to, in order. One query."""
    may_dispose = Q(content_type__app_label="risk", codename="dispose_alert")
    permissions = Permission.objects.filter(may_dispose)
    people = User.objects.filter(is_active=True).filter(
        Q(groups__permissions__in=permissions) | Q(user_permissions__in=permissions)
    )
    elsewhere = StaffMember.objects.exclude(tenant=tenant).values("user_id")
    here = StaffMember.objects.filter(tenant=tenant).values("user_id")
    people = people.exclude(pk__in=elsewhere) if tenant == DEFAULT_TENANT else people.filter(pk__in=here)
    return list(people.order_by("username").values_list("username", flat=True).distinct()[:limit])


def is_disposed(alert: RiskAlert) -> bool:
    return alert.status in DISPOSED
