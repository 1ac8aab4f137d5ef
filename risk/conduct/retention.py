"""How long this room's rows are kept."""

from config.base.retention import kept, passing, register
from risk.conduct.models import Campaign, ConductChange, ConductCursor, TradeRequest

register(
    kept(Campaign, "sales campaigns", "findings of that time are judged by them again"),
    kept(
        TradeRequest,
        "an index of `audit_log` by trade",
        "it is made of `audit_log`, which is kept",
        until="as `audit_log`",
    ),
    passing(ConductChange, "marks of advisors about whom something changed", "the scan that saw it is done"),
    kept(ConductCursor, "how far `audit_log` has been read, a row in all", "the readers' lock"),
)
