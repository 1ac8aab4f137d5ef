"""Re-exports, so that Django finds the tables of the rooms."""

from risk.alerts.casework import AlertAttachment, AttachmentChunk, CaseFile, InformationRequest
from risk.alerts.models import AlertAction, AlertLook, AlertOutbox, FeedHead, RiskAlert, RiskAlertHit
from risk.calendar.models import Holiday
from risk.conduct.models import Campaign, ConductChange, ConductCursor, TradeRequest
from risk.console.models import AlertTally, SavedView
from risk.notify.models import NotifyChannel, NotifyCursor, NotifyDelivery, NotifyRule
from risk.rules.models import Backtest, RiskRule, ShadowHit

__all__ = [
    "AlertAction", "AlertAttachment", "AlertLook", "AlertOutbox", "AlertTally", "AttachmentChunk", "Backtest",
    "Campaign", "CaseFile", "ConductChange", "ConductCursor", "FeedHead", "Holiday", "InformationRequest",
    "NotifyChannel", "NotifyCursor", "NotifyDelivery", "NotifyRule", "RiskAlert", "RiskAlertHit", "RiskRule",
    "SavedView", "ShadowHit", "TradeRequest",
]  # fmt: skip
