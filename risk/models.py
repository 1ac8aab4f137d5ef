"""Re-exports, so that Django finds the tables of the rooms."""

from risk.alerts.models import AlertAction, AlertLook, AlertOutbox, FeedHead, RiskAlert, RiskAlertHit
from risk.calendar.models import Holiday
from risk.conduct.models import Campaign, ConductChange, ConductCursor, TradeRequest
from risk.console.models import SavedView
from risk.rules.models import Backtest, RiskRule, ShadowHit

__all__ = [
    "AlertAction", "AlertLook", "AlertOutbox", "Backtest", "Campaign", "ConductChange", "ConductCursor", "FeedHead",
    "Holiday", "RiskAlert", "RiskAlertHit", "RiskRule", "SavedView", "ShadowHit", "TradeRequest",
]  # fmt: skip
