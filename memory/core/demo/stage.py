"""Where a planted case plays, who is in it, and the notes of what was planted.

Each case is a customer of its own whose quiet trading ends before the day of the case, so that nothing planted
touches anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.background import assess_regularly, trade_quietly
from memory.core.demo.world import Person, World, local, month_ends

PAPERS: dict[str, Any] = {"risk_disclosure_id": "RD-1", "mismatch_confirm_id": "MC-1"}
OWN_INITIATIVE: dict[str, Any] = {"solicited": "false", "channel": "online"}


@dataclass(frozen=True)
class Deed:
    """One row of the audit log about an advisor: a refusal of access to a customer or a product, or a reported request
    for a trade (code: '' where it was not refused)."""

    advisor_id: str
    at: datetime
    code: str
    customer_id: str = ""
    product_id: str = ""
    trade_id: str = ""


@dataclass
class Planted:
    """What was planted. violations: must be found, all and only those. silent: trades that must not hit.
    data_quality: trades that cannot be judged. conduct: rows of the audit log, with what must be found in them and
    which advisors must not be."""

    violations: list[dict[str, Any]] = field(default_factory=list)
    silent: list[dict[str, str]] = field(default_factory=list)
    data_quality: list[dict[str, Any]] = field(default_factory=list)
    conduct: list[Deed] = field(default_factory=list)
    conduct_violations: list[dict[str, Any]] = field(default_factory=list)
    conduct_silent: list[dict[str, str]] = field(default_factory=list)


class Stage:
    """Where a case plays: a day in the last months of the story, and the notes of what was planted."""

    def __init__(self, world: World, planted: Planted) -> None:
        self.world = world
        self.planted = planted
        reach = min(80, (world.end - world.start).days - 1)
        self.people: list[Person] = []
        self.day = world.workday(world.end - timedelta(days=max(reach, 0)), world.end)

    def at(self, minute: int = 30) -> Any:
        return local(self.day, 10, minute)

    def customer(self, c_level: int, *, is_lowest: bool = False, **who: Any) -> Person:
        """A customer with a valid assessment whose own trading ends three days before the case."""
        person = self.somebody(c_level, **who)
        assess_regularly(self.world, person, is_lowest=is_lowest)
        self.quietly(person)
        return person

    def somebody(self, c_level: int, **who: Any) -> Person:
        """A customer without anything yet, in the prime of life unless `born` is given."""
        person = self.world.person(c_level, **{"born": self.grown(), **who})
        self.people.append(person)
        return person

    def grown(self) -> date:
        """A birth date of somebody between thirty and sixty."""
        return self.world.end - timedelta(days=self.world.rng.randint(30 * 365, 60 * 365))

    def quietly(self, person: Person, *, trading: bool = True) -> None:
        """The person's year up to the case; trading=False: holdings alone."""
        until = self.day - timedelta(days=3) if trading else self.world.start - timedelta(days=1)
        trade_quietly(self.world, person, until=until, closes_until=self.day - timedelta(days=1))

    def product(self, level: int, asset_class: str | None = None, *, index: int = 0, is_complex: bool = False) -> str:
        """One of the products of that level (and class) that are complex, or are not."""
        found = [
            product.product_id
            for product in self.world.products.values()
            if product.risk_level == level and not product.is_cash_like and asset_class in (None, product.asset_class)
            if product.is_complex is is_complex
        ]
        return found[index % len(found)]

    def holder(self, c_level: int, holdings: dict[str, int], *, assessed: bool = True, **who: Any) -> Person:
        """A customer with exactly these holdings from the last month-end before the case, and no trades.

        assessed: two months before; otherwise the case has its own."""
        person = self.somebody(c_level, **who)
        if assessed:
            self.world.assess(person, self.day - timedelta(days=60))
        person.holdings = {product_id: Decimal(value) for product_id, value in holdings.items()}
        self.world.snapshot(person, self.last_close())
        return person

    def last_close(self) -> date:
        return self.day.replace(day=1) - timedelta(days=1)

    def finish(self) -> None:
        """The month-ends after the case, as it left its people."""
        for person in self.people:
            for close in month_ends(self.day, self.world.end):
                self.world.snapshot(person, close)

    def hit(self, rule: str, trade_id: str, score: int, *subtypes: str, key: str = "") -> None:
        """A finding to be made. key: its evidence key where the rule states another than the trade's own (the
        highest version of it, or for a savings plan the customer's month)."""
        self.planted.violations.append(
            {
                "rule": rule,
                "trade_id": trade_id,
                "evidence_key": key or self._key_of(trade_id),
                "subtypes": list(subtypes),
                "score": score,
            }
        )

    def _key_of(self, trade_id: str) -> str:
        rows = [row for row in self.world.tables["trades.csv"] if row["trade_id"] == trade_id]
        row = max(rows, key=lambda row: int(row["version"]))
        if row["plan_id"]:
            return f"{row['customer_id']}:{row['plan_id']}:{row['traded_at'][:7]}"
        return f"{trade_id}@{row['version']}"

    def reported(self, trade_id: str, total: Decimal) -> bool:
        """A natural person's domestic transfers of the day, with this one `total` in CNY: large from 500,000 on."""
        if total >= 500_000:
            self.hit("RISK-003", trade_id, 30, "large_amount", key=f"domestic:in:{self._key_of(trade_id)}")
        return total >= 500_000

    def miss(self, trade_id: str, why: str) -> None:
        self.planted.silent.append({"trade_id": trade_id, "why": why})


Case = Callable[[Stage], None]
SMALL = Decimal(8_000)  # about 1 % of the smallest portfolio: no concentration
