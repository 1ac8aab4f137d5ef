"""Re-exports, so that Django finds the tables of the rooms."""

import risk.rules.models  # noqa: F401
from risk.alerts.models import AlertAction, AlertOutbox, FeedHead, RiskAlert, RiskAlertHit
from risk.calendar.models import Holiday

__all__ = ["AlertAction", "AlertOutbox", "FeedHead", "Holiday", "RiskAlert", "RiskAlertHit"]
