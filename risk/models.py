"""Re-exports, so that Django finds the tables of the rooms."""

import risk.rules.models  # noqa: F401
from risk.alerts.models import AlertAction, AlertOutbox, FeedHead, RiskAlert, RiskAlertHit

__all__ = ["AlertAction", "AlertOutbox", "FeedHead", "RiskAlert", "RiskAlertHit"]
