"""Re-exports, so that Django finds the tables of the rooms."""

import risk.rules.models  # noqa: F401
from risk.alerts.models import AlertAction, AlertOutbox, FeedHead, RiskAlert, RiskAlertHit
from risk.calendar.models import Holiday
from risk.conduct.models import Campaign, ConductChange, ConductCursor, TradeRequest

__all__ = [
    "AlertAction", "AlertOutbox", "Campaign", "ConductChange", "ConductCursor", "FeedHead", "Holiday", "RiskAlert",
    "RiskAlertHit", "TradeRequest",
]  # fmt: skip
