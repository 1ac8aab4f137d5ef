"""The demo's cast and stage: products, people, and the rows they leave behind. Nothing here knows the rules' code.

Rows are cells as the CSV files hold them, so that the demo goes through the importer like any other data.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

from faker import Faker

ZONE = ZoneInfo("Asia/Shanghai")
CENT = Decimal("0.01")
CNY_RATES = ("1", "0.1405")  # fx_cny, fx_usd of a yuan
USD_RATES = ("7.1174", "1")

Cells = dict[str, str]


@dataclass(frozen=True)
class Product:
    """A product on the shelf. risk_level: 1 to 5. is_complex: None is not recorded."""

    product_id: str
    issuer_id: str
    asset_class: str
    risk_level: int
    is_complex: bool | None = False
    is_cash_like: bool = False


# class, risk level, how many, complex: 45 products beside the two cash-like ones
_SHELF = (
    ("fixed_income", 1, 6, False),
    ("fixed_income", 2, 8, False),
    ("mixed", 2, 4, False),
    ("mixed", 3, 6, False),
    ("equity", 3, 4, False),
    ("equity", 4, 5, False),
    ("alternative", 4, 3, True),
    ("alternative", 5, 3, True),
    ("derivative", 5, 3, True),
    ("equity", 5, 3, False),
)
ISSUERS = 12


def shelf() -> list[Product]:
    """All products: cash, a money fund, and 45 from twelve issuers in turn."""
    products = [
        Product("P000-CASH", "I00", "cash", 1, is_cash_like=True),
        Product("P001-MMF", "I01", "cash", 1, is_cash_like=True),
    ]
    for asset_class, level, count, is_complex in _SHELF:
        for _ in range(count):
            number = len(products)
            issuer = f"I{number % ISSUERS + 1:02d}"
            products.append(Product(f"P{number:03d}-R{level}", issuer, asset_class, level, is_complex))
    return products


def truth(value: bool | None) -> str:
    return "" if value is None else str(value).lower()


def local(day: date, hour: int, minute: int, second: int = 0) -> datetime:
    return datetime.combine(day, time(hour, minute, second), tzinfo=ZONE)


def month_ends(first: date, last: date) -> list[date]:
    """The last days of the months, from `first` to `last`, both in."""
    found = []
    day = first
    while day <= last:
        if (day + timedelta(days=1)).day == 1:
            found.append(day)
        day += timedelta(days=1)
    return found


@dataclass
class Person:
    """A customer being told of. holdings: CNY at this point of the story, by product id.

    careful: 65 or more by the end of the story, or soon after; not for entities and professionals.
    """

    customer_id: str
    advisor_id: str
    c_level: int
    careful: bool = False
    ordinary: bool = True
    holdings: dict[str, Decimal] = field(default_factory=dict)


class World:
    """The rows so far, and the means to add to them. Everything random comes from one seeded source."""

    CASH = "P000-CASH"

    def __init__(self, *, seed: int, advisors: int, days: int, end: date) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a story, no secret
        self.faker = Faker("zh_CN")
        self.faker.seed_instance(seed)
        self.end = end
        self.start = end - timedelta(days=days)
        self.products = {product.product_id: product for product in shelf()}
        self.advisors = [f"A{number:03d}" for number in range(1, advisors + 1)]
        self.tables: dict[str, list[Cells]] = {
            f"{name}.csv": [] for name in ("customers", "products", "assessments", "assignments", "positions", "trades")
        }
        self._people = 0
        self._trades = 0
        for product in self.products.values():
            self.rate_product(product, product.risk_level)

    # --- rows ---

    def rate_product(self, product: Product, level: int, valid_from: datetime | None = None) -> None:
        """The product's row from valid_from on."""
        self.tables["products.csv"].append(
            {
                "product_id": product.product_id,
                "issuer_id": product.issuer_id,
                "asset_class": product.asset_class,
                "risk_level": f"R{level}",
                "is_complex": truth(product.is_complex),
                "is_cash_like": truth(product.is_cash_like),
                "valid_from": valid_from.isoformat() if valid_from else "",
            }
        )

    def person(
        self,
        c_level: int,
        *,
        kind: str = "natural",
        investor_type: str = "ordinary",
        known: bool = True,
        born: date | None = None,
        opened: date | None = None,
    ) -> Person:
        """A new customer with an advisor. known=False: one that customers.csv has forgotten.

        born: default anybody of 24 to 82. opened: when the account was; default half a year or more before the story.
        """
        self._people += 1
        customer_id = f"C{self._people:06d}"
        advisor = self.advisors[self._people % len(self.advisors)]
        opened = opened or self.start - timedelta(days=self.rng.randint(200, 2500))
        natural = kind == "natural"
        # Faker's own date ranges end today, whatever day the story ends: count from the story's day instead.
        born = born or self.end - timedelta(days=self.rng.randint(24 * 365, 82 * 365))
        ordinary = investor_type != "professional"
        if known:
            self.tables["customers.csv"].append(
                {
                    "customer_id": customer_id,
                    "name": self.faker.name() if natural else self.faker.company(),
                    "kind": kind,
                    "birth_date": born.isoformat() if natural else "",
                    "investor_type": investor_type,
                    "opened_at": local(opened, 10, 0).isoformat(),
                    "valid_from": "",
                }
            )
        self.tables["assignments.csv"].append(
            {
                "advisor_id": advisor,
                "customer_id": customer_id,
                "valid_from": local(opened, 10, 0).isoformat(),
                "valid_to": "",
            }
        )
        careful = natural and ordinary and self.end - born > timedelta(days=64 * 365)
        return Person(customer_id, advisor, c_level, careful, ordinary)

    def assess(
        self, person: Person, day: date, *, is_lowest: bool = False, c_level: int = 0, at: datetime | None = None
    ) -> None:
        """One assessment, of the person's class unless another is given, some time after ten unless `at` is."""
        self.tables["assessments.csv"].append(
            {
                "customer_id": person.customer_id,
                "c_level": f"C{c_level or person.c_level}",
                "is_lowest": truth(is_lowest),
                "assessed_at": (at or local(day, 10, self.rng.randint(0, 59))).isoformat(),
            }
        )

    def snapshot(self, person: Person, as_of: date) -> None:
        """What the person holds at the close of the day."""
        for product_id, value in sorted(person.holdings.items()):
            if value > 0:
                self.tables["positions.csv"].append(
                    {
                        "customer_id": person.customer_id,
                        "product_id": product_id,
                        "as_of": as_of.isoformat(),
                        "quantity": str((value / self._price(product_id)).quantize(Decimal("0.0001"))),
                        "market_value": str(value.quantize(CENT)),
                    }
                )

    def trade(
        self,
        person: Person,
        product_id: str,
        amount: Decimal,
        at: datetime,
        *,
        trade_type: str = "buy",
        trade_id: str | None = None,
        usd: bool = False,
        **cells: str,
    ) -> str:
        """One row of trades.csv, and the person's holdings after it (a purchase is paid from cash); the trade's id.

        amount: CNY; with usd=True it is booked in dollars.
        """
        self._trades += trade_id is None
        trade_id = trade_id or f"T{self._trades:07d}"
        rates = USD_RATES if usd else CNY_RATES
        booked = (amount / Decimal(rates[0])).quantize(CENT, ROUND_HALF_UP)
        price = self._price(product_id)
        row = {
            "trade_id": trade_id,
            "version": "1",
            "customer_id": person.customer_id,
            "product_id": product_id,
            "advisor_id": person.advisor_id,
            "trade_type": trade_type,
            "traded_at": at.isoformat(),
            "amount": str(booked),
            "currency": "USD" if usd else "CNY",
            "fx_cny": rates[0],
            "fx_usd": rates[1],
            "quantity": str((booked / price).quantize(Decimal("0.0001"))),
            "price": str(price),
            "fee": str((booked * Decimal("0.001")).quantize(CENT)) if trade_type in {"buy", "sell"} else "",
            "status": "executed",
            "channel": self.rng.choice(("branch", "online", "online", "phone")),
            "settle_method": "transfer",
            "cross_border": "false",
            "plan_id": "",
            "solicited": self.rng.choice(("true", "false", "false", "")),
            "dual_recording_id": "",
            "risk_disclosure_id": "",
            "mismatch_confirm_id": "",
        }
        row.update(cells)
        self.tables["trades.csv"].append(row)
        if row["status"] == "executed":
            self._settle(person, product_id, amount, trade_type)
        return trade_id

    def _settle(self, person: Person, product_id: str, amount: Decimal, trade_type: str) -> None:
        held = person.holdings.get(product_id, Decimal(0))
        cash = person.holdings.get(self.CASH, Decimal(0))
        if trade_type in {"buy", "switch_in", "transfer_in"}:
            person.holdings[product_id] = held + amount
            if trade_type == "buy":
                person.holdings[self.CASH] = max(cash - amount, Decimal(0))
        elif trade_type in {"sell", "switch_out", "transfer_out"}:
            person.holdings[product_id] = max(held - amount, Decimal(0))
            if trade_type == "sell":
                person.holdings[self.CASH] = cash + amount
        elif trade_type in {"dividend", "interest"}:
            person.holdings[self.CASH] = cash + amount

    def _price(self, product_id: str) -> Decimal:
        """A product's unit price, the same all year: its number over a hundred above 1."""
        return Decimal(1) + Decimal(int(product_id[1:4])) / 100

    def amount(self, low: int, high: int) -> Decimal:
        """A plausible amount in CNY: whole hundreds."""
        return Decimal(self.rng.randint(low // 100, high // 100) * 100)

    def workday(self, first: date, last: date) -> date:
        """A Monday to Friday within [first, last]."""
        days = [first + timedelta(days=offset) for offset in range((last - first).days + 1)]
        return self.rng.choice([day for day in days if day.weekday() < 5] or days)
