"""What a rule finds: the contract between the rules (which judge) and the alerts (which keep)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

DATA_QUALITY = "DATA-QUALITY"


@dataclass(frozen=True)
class Hit:
    """One rule's finding on one piece of evidence.

    rule_id: `RISK-001` ... `RISK-008`, or DATA_QUALITY for facts that are missing (operators, not published).
    evidence_key: unique per tenant and rule: `trade_id@version` or what the rule states.
    occurred_at: `traded_at` of the completing trade; its business day is the alert's day.
    score: 0 to 100. subtypes: in the rule's order, no repeats.
    figures: what was compared with what, JSON: limits, shares, levels. Money and ratios are strings. Equal
        figures, score and subtypes mean "the same hit", whichever version of the rule says so.
    """

    rule_id: str
    rule_version: int
    evidence_key: str
    customer_id: str
    trade_id: str
    trade_version: int
    occurred_at: datetime
    score: int
    subtypes: tuple[str, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)
    advisor_id: str = ""
    product_id: str = ""


@dataclass(frozen=True)
class FinalTrade:
    """The final state of a trade id: its highest version and that version's status."""

    version: int
    status: str  # executed, cancelled, reversed
