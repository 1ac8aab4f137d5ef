"""Who sees which alerts. One rule for lists, searches, pages and acts: what is not in `alerts_of` does not exist.

Customers' and advisors' alerts are the officers' and managers'; faults in the data are the operators' (platform_admin),
to look at. A superuser sees both. Nobody acts on a fault: it is mended in the core system and then goes by itself.
"""

from __future__ import annotations

from functools import cached_property

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet

from guard.access.roles import may
from risk.alerts.models import AlertType, RiskAlert

VIEW = "risk.view_riskalert"
DISPOSE = "risk.dispose_alert"
FAULTS = "risk.view_data_quality"


class Sight:
    """What a person's roles show and allow. Being a superuser shows everything and allows nothing."""

    def __init__(self, user: AbstractBaseUser | AnonymousUser) -> None:
        self._user = user
        self.cases: bool = user.has_perm(VIEW)  # type: ignore[union-attr,attr-defined]
        """Sees alerts about customers and advisors."""
        self.faults: bool = user.has_perm(FAULTS)  # type: ignore[union-attr,attr-defined]
        """Sees data quality."""

    @cached_property
    def acts(self) -> bool:
        """Claims and disposes of cases. Asked for late: every page of the admin asks what is seen."""
        return may(self._user, DISPOSE)

    @property
    def anything(self) -> bool:
        return self.cases or self.faults


def alerts_of(*, tenant: str, sight: Sight) -> QuerySet[RiskAlert]:
    """The tenant's alerts that this sight holds."""
    alerts = RiskAlert.objects.filter(tenant=tenant)
    if sight.cases and sight.faults:
        return alerts
    if sight.cases:
        return alerts.filter(~Q(alert_type=AlertType.DATA_QUALITY))
    return alerts.filter(alert_type=AlertType.DATA_QUALITY) if sight.faults else alerts.none()
