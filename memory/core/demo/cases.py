"""The planted cases: violations with what they must score, and near misses that must stay silent.

Each case is a customer of its own whose quiet trading ends before the day of the case, so that nothing planted
touches anything else. Expected scores are worked out by hand from the specification, beside each case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from memory.core.demo.background import assess_regularly, trade_quietly
from memory.core.demo.world import Person, World, local, month_ends

PAPERS: dict[str, Any] = {"risk_disclosure_id": "RD-1", "mismatch_confirm_id": "MC-1"}
OWN_INITIATIVE: dict[str, Any] = {"solicited": "false", "channel": "online"}


@dataclass
class Planted:
    """What was planted. violations: must be found, all and only those. silent: trades that must not hit.
    data_quality: trades that cannot be judged."""

    violations: list[dict[str, Any]] = field(default_factory=list)
    silent: list[dict[str, str]] = field(default_factory=list)
    data_quality: list[dict[str, Any]] = field(default_factory=list)


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
        person = self.world.person(c_level, **who)
        self.people.append(person)
        return person

    def quietly(self, person: Person, *, trading: bool = True) -> None:
        """The person's year up to the case; trading=False: holdings alone."""
        until = self.day - timedelta(days=3) if trading else self.world.start - timedelta(days=1)
        trade_quietly(self.world, person, until=until, closes_until=self.day - timedelta(days=1))

    def product(self, level: int, asset_class: str | None = None, *, index: int = 0) -> str:
        found = [
            product.product_id
            for product in self.world.products.values()
            if product.risk_level == level and not product.is_cash_like and asset_class in (None, product.asset_class)
        ]
        return found[index % len(found)]

    def holder(self, c_level: int, holdings: dict[str, int]) -> Person:
        """A customer with exactly these holdings from the last month-end before the case, and no trades."""
        person = self.somebody(c_level)
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


def _mismatch(c_level: int, level: int, score: int, **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(c_level)
        trade = stage.world.trade(person, stage.product(level), SMALL, stage.at(), **{**OWN_INITIATIVE, **cells})
        stage.hit("RISK-001", trade, score, "suitability_mismatch")

    return case


def _lowest(level: int, **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(1, is_lowest=True)
        trade = stage.world.trade(person, stage.product(level), SMALL, stage.at(), **{**OWN_INITIATIVE, **cells})
        stage.hit("RISK-001", trade, 95, "suitability_lowest")

    return case


def _confirmed(**cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(2)
        row = {**OWN_INITIATIVE, **PAPERS, **cells}
        trade = stage.world.trade(person, stage.product(4), SMALL, stage.at(), **row)
        stage.hit("RISK-001", trade, 30, "suitability_confirmed")

    return case


def _missing(stage: Stage) -> None:
    person = stage.somebody(3)
    stage.quietly(person, trading=False)
    trade = stage.world.trade(person, stage.product(2), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.hit("RISK-001", trade, 70, "assessment_missing")


def _a_year_before(day: date) -> date:
    return day.replace(year=day.year - 1, day=28 if (day.month, day.day) == (2, 29) else day.day)


def _assessed_to_end_on(stage: Stage, c_level: int, last_day: date) -> Person:
    """A customer whose newest assessment is valid through last_day, and who traded under valid ones until then."""
    world = stage.world
    person = stage.somebody(c_level)
    newest = _a_year_before(last_day)
    day = newest
    while day > world.start - timedelta(days=30):
        day -= timedelta(days=300)
        world.assess(person, day)
    world.assess(person, newest)
    stage.quietly(person)
    return person


def _expired(level: int, score: int, *subtypes: str) -> Case:
    def case(stage: Stage) -> None:
        person = _assessed_to_end_on(stage, 3, stage.day - timedelta(days=1))
        trade = stage.world.trade(person, stage.product(level), SMALL, stage.at(), **OWN_INITIATIVE)
        stage.hit("RISK-001", trade, score, *subtypes)

    return case


def _valid_on_the_last_day(stage: Stage) -> None:
    if (stage.day.month, stage.day.day) == (2, 29):  # no day of the year before ends on it
        stage.day -= timedelta(days=1)
    person = _assessed_to_end_on(stage, 3, stage.day)
    trade = stage.world.trade(person, stage.product(3), SMALL, local(stage.day, 23, 59, 59), **OWN_INITIATIVE)
    stage.miss(trade, "the assessment is valid through this day")


def _plan(stage: Stage) -> None:
    """A savings plan in too risky a product: the first purchase of each month holds the month's key."""
    world = stage.world
    person = stage.customer(2)
    first = stage.day.replace(day=1)
    months = [first, (first - timedelta(days=1)).replace(day=1)]
    months.append((months[1] - timedelta(days=1)).replace(day=1))
    product = stage.product(3)
    for month in months:
        held = False
        for day in (5, 20):
            at = month.replace(day=day)
            if not world.start <= at <= world.end:
                continue
            trade = world.trade(
                person, product, Decimal(1_000), local(at, 9, 15), plan_id="PLAN-1", **OWN_INITIATIVE
            )  # fmt: skip
            if not held:
                stage.hit("RISK-001", trade, 60, "suitability_mismatch")
                held = True
            else:
                stage.miss(trade, "the month's key is held by the plan's first purchase")


def _corrected_into_a_violation(stage: Stage) -> None:
    person = stage.customer(2)
    trade = stage.world.trade(person, stage.product(2), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.world.trade(person, stage.product(3), SMALL, stage.at(), trade_id=trade, version="2", **OWN_INITIATIVE)
    stage.hit("RISK-001", trade, 60, "suitability_mismatch")


def _corrected_out_of_it(stage: Stage) -> None:
    person = stage.customer(2)
    trade = stage.world.trade(person, stage.product(3), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.world.trade(person, stage.product(2), SMALL, stage.at(), trade_id=trade, version="2", **OWN_INITIATIVE)
    stage.miss(trade, "the final version is suitable")


def _undone(status: str) -> Case:
    def case(stage: Stage) -> None:
        person = stage.customer(2)
        row = {**OWN_INITIATIVE, "status": status}
        trade = stage.world.trade(person, stage.product(5), SMALL, stage.at(), **row)
        stage.miss(trade, f"the trade was {status}")

    return case


def _at_the_level(stage: Stage) -> None:
    trade = stage.world.trade(stage.customer(3), stage.product(3), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.miss(trade, "R equals C")


def _professional(stage: Stage) -> None:
    person = stage.somebody(1, investor_type="professional")
    stage.quietly(person, trading=False)
    trade = stage.world.trade(person, stage.product(5), SMALL, stage.at(), **OWN_INITIATIVE)
    stage.miss(trade, "professional investors are exempt")


def _sale_above_the_level(stage: Stage) -> None:
    person = stage.customer(1, is_lowest=True)
    product = stage.product(5)
    stage.world.trade(person, product, SMALL, stage.at(5), trade_type="transfer_in", price="", **OWN_INITIATIVE)
    row = {**OWN_INITIATIVE, "trade_type": "sell"}
    trade = stage.world.trade(person, product, SMALL, stage.at(), **row)
    stage.miss(trade, "a sale never hits")


def _rated_up_later(stage: Stage) -> None:
    """Its own product, so that nobody else is touched: R2 when bought, R4 afterwards."""
    world = stage.world
    number = len(world.products)
    template = world.products[stage.product(2, "mixed")]
    product = type(template)(f"P{number:03d}-UP", template.issuer_id, template.asset_class, 6)
    world.products[product.product_id] = product  # level 6: in nobody's portfolio
    world.rate_product(product, 2)
    world.rate_product(product, 4, local(stage.day + timedelta(days=1), 0, 0))
    trade = world.trade(stage.customer(2), product.product_id, SMALL, stage.at(), **OWN_INITIATIVE)
    stage.miss(trade, "R4 only since the next day")


# --- concentration: others are R1 fixed income of six issuers, none of them the issuer of what is bought ------------


def _others(stage: Stage, total: int, bought: str) -> dict[str, int]:
    issuer = stage.world.products[bought].issuer_id
    found = [
        product.product_id
        for product in stage.world.products.values()
        if product.asset_class == "fixed_income" and product.risk_level == 1 and product.issuer_id != issuer
    ][:4]
    return {product_id: total // len(found) for product_id in found}


def _bought(
    level: int, asset_class: str, others: int, amount: str, score: int | None, why: str = "", **cells: Any
) -> Case:
    """Cash just covers the purchase, so the denominator is others + amount."""

    def case(stage: Stage) -> None:
        product = stage.product(level, asset_class)
        cash = int(Decimal(amount))
        person = stage.holder(5, {**_others(stage, others, product), stage.world.CASH: cash})
        trade = stage.world.trade(person, product, Decimal(amount), stage.at(), **{**OWN_INITIATIVE, **cells})
        reported = stage.reported(trade, Decimal(amount))
        if score is not None:
            stage.hit("RISK-002", trade, score, "concentration")
        elif not reported:
            stage.miss(trade, why)

    return case


def _issuer(existing: int, others: int, amount: int, score: int | None) -> Case:
    def case(stage: Stage) -> None:
        world = stage.world
        product = stage.product(3, "mixed")
        issuer = world.products[product].issuer_id
        sibling = next(
            p.product_id for p in world.products.values()
            if p.issuer_id == issuer and p.product_id != product and not p.is_cash_like and p.risk_level < 6
        )  # fmt: skip
        person = stage.holder(5, {**_others(stage, others, product), sibling: existing, world.CASH: amount})
        trade = world.trade(person, product, Decimal(amount), stage.at(), **OWN_INITIATIVE)
        if score is None:
            stage.miss(trade, "the issuer comes to exactly 50 %")
        else:
            stage.hit("RISK-002", trade, score, "concentration")

    return case


def _class(each: int, others: int, amount: int, score: int | None) -> Case:
    def case(stage: Stage) -> None:
        world = stage.world
        equities = [stage.product(3, "equity", index=index) for index in range(4)]
        holdings = {**_others(stage, others, equities[3]), **dict.fromkeys(equities[:3], each), world.CASH: amount}
        person = stage.holder(5, holdings)
        trade = world.trade(person, equities[3], Decimal(amount), stage.at(), **OWN_INITIATIVE)
        if score is None:
            stage.miss(trade, "the class comes to exactly 80 %")
        else:
            stage.hit("RISK-002", trade, score, "concentration")

    return case


def _switched(stage: Stage) -> None:
    """Half of a million in fixed income switched into one R3 fund: 50 % of 40, 50 + 40 x 0.1/0.6."""
    world = stage.world
    product = stage.product(3, "mixed")
    person = stage.holder(5, _others(stage, 1_000_000, product))
    for minute, source in enumerate(list(person.holdings)[:2]):
        at = stage.at(10 + minute)
        world.trade(person, source, Decimal(250_000), at, trade_type="switch_out", **OWN_INITIATIVE)
    trade = world.trade(person, product, Decimal(500_000), stage.at(20), trade_type="switch_in", **OWN_INITIATIVE)
    stage.hit("RISK-002", trade, 57, "concentration")


def _rolled_forward(stage: Stage) -> None:
    """300,000 twice beside 600,000: a third, then half. Only the second is over 40 %."""
    world = stage.world
    product = stage.product(3, "mixed")
    person = stage.holder(5, _others(stage, 600_000, product))
    first = world.trade(person, product, Decimal(300_000), stage.at(5), **OWN_INITIATIVE)
    second = world.trade(person, product, Decimal(300_000), stage.at(45), **OWN_INITIATIVE)
    stage.miss(first, "a third of the assets")
    stage.hit("RISK-002", second, 57, "concentration")
    stage.reported(second, Decimal(600_000))  # with the first


def _no_snapshot(stage: Stage) -> None:
    person = stage.world.person(5)
    stage.world.assess(person, stage.day - timedelta(days=60))
    trade = stage.world.trade(person, stage.product(5), Decimal(500_000), stage.at(), **OWN_INITIATIVE)
    stage.reported(trade, Decimal(500_000))  # no snapshot by then: not judged for concentration


def _unjudged(missing: str, *, known: bool = True, product_id: str = "", **cells: Any) -> Case:
    def case(stage: Stage) -> None:
        person = stage.world.person(2, known=known)
        stage.world.assess(person, stage.day - timedelta(days=60))
        product = product_id or stage.product(5)
        trade = stage.world.trade(person, product, SMALL, stage.at(), **{**OWN_INITIATIVE, **cells})
        stage.planted.data_quality.append({"trade_id": trade, "missing": [missing]})

    return case


# name, how often, case; a short story plays them from the top
CASES: tuple[tuple[int, Case], ...] = (
    (3, _lowest(5)),
    (3, _mismatch(2, 3, 60)),
    (2, _bought(3, "mixed", 500_000, "500000", 57)),  # 50 % of 40: 50 + 40 x 0.1/0.6
    (3, _confirmed()),
    (3, _missing),
    (3, _expired(3, 50, "assessment_expired")),
    (2, _issuer(400_000, 300_000, 300_000, 66)),  # 70 % of 50: 50 + 40 x 0.2/0.5
    (2, _class(200_000, 150_000, 250_000, 60)),  # 85 % of 80: 50 + 40 x 0.05/0.2
    (2, _mismatch(2, 4, 80, solicited="true")),  # 50 + 20 + 10
    (1, _mismatch(2, 5, 80, channel="phone")),
    (1, _mismatch(3, 4, 60, trade_type="switch_in")),
    (2, _mismatch(2, 3, 60, channel="branch", **PAPERS)),  # no dual recording
    (1, _mismatch(2, 3, 70, solicited="true", **PAPERS)),
    (1, _lowest(2, channel="branch", dual_recording_id="DR-1", **PAPERS)),  # no exception
    (1, _confirmed(channel="branch", dual_recording_id="DR-1")),
    (2, _expired(4, 65, "suitability_mismatch", "assessment_expired")),  # 60 + 5
    (1, _plan),
    (1, _corrected_into_a_violation),
    (2, _bought(5, "alternative", 500_000, "500000", 67)),  # 56.67 + 10
    (1, _bought(2, "fixed_income", 300_000, "700000", 60)),  # 70 % of 60: 50 + 40 x 0.1/0.4
    (1, _bought(3, "mixed", 600_000, "400000.01", 50)),
    (1, _rolled_forward),
    (1, _switched),
    (1, _at_the_level),
    (1, _valid_on_the_last_day),
    (1, _professional),
    (1, _sale_above_the_level),
    (1, _undone("cancelled")),
    (1, _undone("reversed")),
    (1, _corrected_out_of_it),
    (1, _rated_up_later),
    (1, _bought(3, "mixed", 600_000, "400000", None, "exactly 40 %")),
    (1, _bought(2, "fixed_income", 400_000, "600000", None, "exactly 60 %, R2")),
    (1, _bought(1, "fixed_income", 4, "900000", None, "R1 has no limit")),
    (1, _bought(5, "derivative", 40_000, "59999.99", None, "assets of 99,999.99 are not judged")),
    (1, _issuer(200_000, 500_000, 300_000, None)),
    (1, _class(200_000, 200_000, 200_000, None)),
    (1, _no_snapshot),
    (1, _unjudged("missing_price", price="")),
    (1, _unjudged("missing_rate", fx_cny="", fx_usd="")),
    (1, _unjudged("missing_customer", known=False)),
    (1, _unjudged("missing_product", product_id="P999-NONE")),
)


def plant(world: World, planted: Planted, most: int) -> None:
    """Plays the cases, at most `most` of them."""
    played = 0
    for times, case in CASES:
        for _ in range(times):
            if played == most:
                return
            stage = Stage(world, planted)
            case(stage)
            stage.finish()
            played += 1
