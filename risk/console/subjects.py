"""Whom an alert is about, as pages name them."""

from __future__ import annotations

from guard.access.masking import mask
from risk.alerts.models import AlertType, RiskAlert


def subject_of(alert: RiskAlert) -> str:
    """Whom the alert is about: a customer masked, an advisor by id (officers have to speak with them)."""
    advisors = alert.alert_type == AlertType.PATTERN or not alert.customer_id
    return alert.advisor_id if advisors else mask(alert.customer_id)


def masked_name(name: str) -> str:
    """`王小明` becomes `王**`: the family name and as many stars as it takes to hide the rest."""
    return name[:1] + "**" if name else ""
