"""Re-exports, so that Django finds the tables of the rooms."""

from risk.alerts.models import AlertAction, AlertOutbox, FeedHead, RiskAlert, RiskAlertHit
from risk.calendar.models import Holiday
from risk.conduct.models import Campaign, ConductChange, ConductCursor, TradeRequest
from risk.rules.models import Backtest, RiskRule, ShadowHit

__all__ = [
    "AlertAction", "AlertOutbox", "Backtest", "Campaign", "ConductChange", "ConductCursor", "FeedHead", "Holiday",
    "RiskAlert", "RiskAlertHit", "RiskRule", "ShadowHit", "TradeRequest",
]  # fmt: skip
