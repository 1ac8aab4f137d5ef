"""The core's rows as frozen values: what rules and pages work on, without the ORM.

None and '' mean "no evidence". Amounts are exact Decimals; instants are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class TradeFact:
    """One version of a trade; fields as in the `core_trade` table."""

    trade_id: str
    version: int
    customer_id: str
    product_id: str
    advisor_id: str
    trade_type: str
    traded_at: datetime
    amount: Decimal
    currency: str
    fx_cny: Decimal | None
    fx_usd: Decimal | None
    quantity: Decimal | None
    price: Decimal | None
    fee: Decimal | None
    status: str
    channel: str
    settle_method: str
    cross_border: bool | None
    plan_id: str
    solicited: bool | None
    dual_recording_id: str
    risk_disclosure_id: str
    mismatch_confirm_id: str


@dataclass(frozen=True, slots=True)
class ProductFact:
    """A product from valid_from on. risk_level: 1 to 5."""

    product_id: str
    valid_from: datetime
    issuer_id: str
    asset_class: str
    risk_level: int
    is_complex: bool | None
    is_cash_like: bool | None


@dataclass(frozen=True, slots=True)
class CustomerFact:
    """A customer from valid_from on."""

    customer_id: str
    valid_from: datetime
    name: str
    kind: str
    birth_date: date | None
    investor_type: str
    opened_at: datetime | None


@dataclass(frozen=True, slots=True)
class AssessmentFact:
    """One risk assessment. c_level: 1 to 5."""

    customer_id: str
    assessed_at: datetime
    c_level: int
    is_lowest: bool | None


@dataclass(frozen=True, slots=True)
class PositionFact:
    """A holding at the close of the day as_of, in CNY."""

    customer_id: str
    product_id: str
    as_of: date
    quantity: Decimal | None
    market_value: Decimal


@dataclass(frozen=True, slots=True)
class CustomerRows:
    """All core rows about one customer.

    trades: every version of every trade that is or once was this customer's (a correction may have moved it).
    products: every row of the products that its trades and positions name.
    """

    customer_id: str
    customers: tuple[CustomerFact, ...]
    assessments: tuple[AssessmentFact, ...]
    positions: tuple[PositionFact, ...]
    trades: tuple[TradeFact, ...]
    products: tuple[ProductFact, ...]
