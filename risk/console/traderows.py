"""The trades of an alert's page: which of them offend, what they need, and which finding speaks of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.utils.translation import gettext_lazy as _

from config.base.clock import business_date
from memory.core.facts import AssessmentFact, CustomerFact, ProductFact
from memory.core.models import Channel, CoreTrade, InvestorType, TradeType
from memory.profiles.derived import valid_until
from risk.console.corefacts import CoreFacts

BUYS = (TradeType.BUY, TradeType.SWITCH_IN)


@dataclass(frozen=True)
class Paper:
    """paper_id: '' where there is none; due: whether the law asked for it at that trade."""

    name: Any
    paper_id: str
    due: bool


@dataclass(frozen=True)
class TradeRow:
    """number: its place on the page, from 1. part: a finding counts it in, though another trade completed it.
    findings: numbers of those that speak of it. assessment: the latest at the trade."""

    number: int
    trade: CoreTrade
    product: ProductFact | None
    offending: bool
    part: bool
    findings: Sequence[int]
    assessment: AssessmentFact | None
    customer: CustomerFact | None

    @property
    def anchor(self) -> str:
        return f"trade-{self.number}"

    @property
    def dead(self) -> bool:
        return self.trade.status != "executed"

    @property
    def bought(self) -> bool:
        return self.trade.trade_type in BUYS

    @property
    def professional(self) -> bool:
        return self.customer is not None and self.customer.investor_type == InvestorType.PROFESSIONAL

    @property
    def above(self) -> bool:
        """Whether the product was above the tolerance that was assessed then."""
        found = self.product is not None and self.assessment is not None
        return found and self.product.risk_level > self.assessment.c_level  # type: ignore[union-attr]

    @property
    def mismatched(self) -> bool:
        """Bought above the tolerance that was assessed then, by an ordinary investor."""
        return self.bought and self.above and not self.professional

    @property
    def through(self) -> date | None:
        """The last day on which the assessment counts."""
        return valid_until(self.assessment.assessed_at) if self.assessment else None

    @property
    def expired(self) -> bool:
        return self.through is not None and business_date(self.trade.traded_at) > self.through

    @property
    def papers(self) -> list[Paper]:
        """In the order an officer asks for them. Due at a mismatch alone; the recording in a branch (RISK.md 2)."""
        branch = self.trade.channel == Channel.BRANCH
        return [
            Paper(_("dual recording"), self.trade.dual_recording_id, self.mismatched and branch),
            Paper(_("risk disclosure"), self.trade.risk_disclosure_id, self.mismatched),
            Paper(_("mismatch confirmation"), self.trade.mismatch_confirm_id, self.mismatched),
        ]


def trade_rows(facts: CoreFacts, offending: Collection[str], findings: Mapping[str, Sequence[int]]) -> list[TradeRow]:
    """offending: ids of the trades of hits that stand. findings: by trade id, the numbers of those that speak of it."""
    return [
        TradeRow(
            number,
            trade,
            facts.product(trade.product_id, trade.traded_at),
            trade.trade_id in offending,
            trade.trade_id not in offending and trade.trade_id in findings,
            findings.get(trade.trade_id, ()),
            facts.assessment(trade.traded_at),
            facts.customer(trade.traded_at),
        )
        for number, trade in enumerate(facts.trades, 1)
    ]
