"""A year of trading that breaks no rule, by construction and not by asking the rules.

- Every product bought has R <= C, under an assessment renewed every 300 days with the same class: nothing for 001.
- A portfolio starts with 7.5 % in each of ten products, at most two of one issuer and three of one class (fixed
  income aside), and a quarter in cash. All purchases together come to at most 20 % of it, sales to 6 %, and values
  drift by at most 10 % either way. At worst a product comes to (7.5+20) x 1.1/0.9 / 0.94 = 36 %, an issuer to 46 %, a
  class to 55 %: under 40, 50 and 80 %. A C1 portfolio holds R1 fixed income only, which has no limit. Nothing for 002.
- Everything is a transfer at home, one purchase a day of at most 1.25 % of nine million, sales of at most 1 %, all six
  540,000 but on six days: below 500,000 a day, and each below 0.8 of it. Nothing for 003 and 004.
- A turnover of 0.2, fees of a thousandth of that: nothing for 005.
- A purchase falls in every stretch of at most 80 days, so no two are 160 days apart; the largest is 4 times the
  smallest; the sales are fewer than eight and below 100,000; nobody trades at night. Nothing for 006.
- Ordinary investors buy nothing complex, and nothing above R3 from their sixty-fourth year on; nobody is assessed
  twice within 300 days. Nothing for 007.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from itertools import pairwise

from memory.core.demo.world import CENT, Person, Product, World, local, month_ends

BUYS, SALES = 16, 6
STRETCH = 80  # days without a purchase, at most twice
RENEW_DAYS = 300


def portfolio(world: World, person: Person) -> list[Product]:
    """Ten products (six for C1) that suit the person: at most two of an issuer, three of a class but fixed income."""
    level = min(person.c_level, 3) if person.careful else person.c_level
    suitable = [
        product
        for product in world.products.values()
        if product.risk_level <= level and not product.is_cash_like
        if product.is_complex is False or not person.ordinary
    ]
    world.rng.shuffle(suitable)
    # The riskier ones first, for a taste that fits the level; fixed income fills up.
    suitable.sort(key=lambda product: product.asset_class == "fixed_income")
    issuers: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    chosen: list[Product] = []
    for product in suitable:
        if issuers[product.issuer_id] < 2 and (
            classes[product.asset_class] < 3 or product.asset_class == "fixed_income"
        ):
            chosen.append(product)
            issuers[product.issuer_id] += 1
            classes[product.asset_class] += 1
        if len(chosen) == 10:
            break
    return chosen


def fund(world: World, person: Person, wealth: Decimal) -> list[Product]:
    """Fills the person's holdings for the start of the story; the products."""
    chosen = portfolio(world, person)
    each = (wealth * Decimal("0.75") / len(chosen)).quantize(CENT)
    person.holdings = {product.product_id: each for product in chosen}
    person.holdings[world.CASH] = wealth - each * len(chosen)
    return chosen


def live(world: World, person: Person, *, is_lowest: bool = False) -> None:
    """A customer's whole year: assessments, trades, month-end snapshots."""
    assess_regularly(world, person, is_lowest=is_lowest)
    trade_quietly(world, person, until=world.end, closes_until=world.end)


def assess_regularly(world: World, person: Person, *, is_lowest: bool = False) -> None:
    """Assessments of the same level from before the start, each within the last one's term."""
    assessed = world.start - timedelta(days=world.rng.randint(20, 200))
    while assessed <= world.end:
        world.assess(person, assessed, is_lowest=is_lowest)
        assessed += timedelta(days=RENEW_DAYS)


def trade_quietly(world: World, person: Person, *, until: date, closes_until: date) -> None:
    """Trades from the start to `until`; snapshots of the month-ends from before the start to `closes_until`."""
    wealth = world.amount(800_000, 9_000_000)
    chosen = fund(world, person, wealth)
    span = (until - world.start).days
    share = max(0.0, min(1.0, span / max(1, (world.end - world.start).days)))
    buys = max(round(world.rng.randint(6, BUYS) * share), -(-span // STRETCH), 0)
    most = wealth / 5 / max(buys, BUYS)
    diary = [(day, "buy") for day in _spread(world, until, buys)]
    diary += [(day, "sell") for day in _spread(world, until, round(world.rng.randint(0, SALES) * share))]
    if world.rng.random() < 0.3 and share > 0:
        diary.append((world.workday(world.start, until), "dividend"))
    diary.sort()
    first = world.start.replace(day=1) - timedelta(days=1)
    closes = month_ends(first, closes_until)
    drift = {product.product_id: Decimal(1) for product in chosen}
    for close in closes:
        while diary and diary[0][0] <= close:
            _trade(world, person, chosen, wealth, most, *diary.pop(0))
        for product in chosen:
            _drift(world, person, product.product_id, drift)
        world.snapshot(person, close)
    for entry in diary:
        _trade(world, person, chosen, wealth, most, *entry)


def _spread(world: World, until: date, count: int) -> list[date]:
    """As many days as asked, one in each of as many equal stretches from the start to `until`."""
    span = (until - world.start).days + 1
    edges = [world.start + timedelta(days=span * number // max(count, 1)) for number in range(count + 1)]
    return [world.workday(first, max(first, after - timedelta(days=1))) for first, after in pairwise(edges)]


def _trade(
    world: World, person: Person, chosen: list[Product], wealth: Decimal, most: Decimal, day: date, what: str
) -> None:
    product = world.rng.choice(chosen)
    at = local(day, world.rng.randint(9, 14), world.rng.randint(0, 59), world.rng.randint(0, 59))
    if what == "buy":
        amount = world.amount(int(most / 4) + 100, int(most))
        world.trade(person, product.product_id, amount, at, usd=world.rng.random() < 0.05)
    elif what == "sell":
        amount = min(world.amount(1_000, int(wealth * Decimal("0.01"))), person.holdings[product.product_id])
        world.trade(person, product.product_id, amount.quantize(CENT), at, trade_type="sell", solicited="")
    else:
        amount = world.amount(200, 1_000)
        world.trade(person, product.product_id, amount, at, trade_type="dividend", price="", solicited="")


def _drift(world: World, person: Person, product_id: str, drift: dict[str, Decimal]) -> None:
    """A month's change of value, within 10 % of where it began."""
    step = Decimal(world.rng.randint(-150, 160)) / 10_000
    moved = min(max(drift[product_id] * (1 + step), Decimal("0.9")), Decimal("1.1"))
    person.holdings[product_id] = (person.holdings[product_id] * moved / drift[product_id]).quantize(CENT)
    drift[product_id] = moved
