"""Who sees which alerts. One rule for lists, searches, pages and acts: what is not in `alerts_of` does not exist.

Customers' and advisors' alerts are the officers' and managers'; faults in the data are the operators' (platform_admin),
to look at. A superuser sees both. Nobody acts on a fault: it is mended in the core system and then goes by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet

from guard.access.roles import may
from risk.alerts.merging import alert_type_of
from risk.alerts.models import AlertType, RiskAlert
from risk.rules.engine import MODULES

VIEW = "risk.view_riskalert"
DISPOSE = "risk.dispose_alert"
FAULTS = "risk.view_data_quality"


@dataclass(frozen=True)
class Sight:
    """cases: alerts about customers and advisors. faults: data quality. acts: claims and disposes of cases."""

    cases: bool
    faults: bool
    acts: bool

    @property
    def anything(self) -> bool:
        return self.cases or self.faults


def sight_of(user: AbstractBaseUser | AnonymousUser) -> Sight:
    """What a person's roles show and allow. Being a superuser shows everything and allows nothing."""
    if not user.is_active:
        return Sight(cases=False, faults=False, acts=False)
    return Sight(
        cases=user.has_perm(VIEW),  # type: ignore[union-attr,attr-defined]
        faults=user.has_perm(FAULTS),  # type: ignore[union-attr,attr-defined]
        acts=may(user, DISPOSE),
    )


def alerts_of(*, tenant: str, sight: Sight) -> QuerySet[RiskAlert]:
    """The tenant's alerts that this sight holds."""
    alerts = RiskAlert.objects.filter(tenant=tenant)
    if sight.cases and sight.faults:
        return alerts
    if sight.cases:
        return alerts.filter(~Q(alert_type=AlertType.DATA_QUALITY))
    return alerts.filter(alert_type=AlertType.DATA_QUALITY) if sight.faults else alerts.none()


def kinds_made() -> list[tuple[str, str]]:
    """The kinds of case that the rules of this installation can open, as choices."""
    made = {alert_type_of(rule_id) for rule_id in MODULES}
    return [(kind.value, str(kind.label)) for kind in AlertType if kind in made]
