"""Plain helpers: one customer's facts, with everything ordinary unless a test says otherwise.

Trades are at noon in Shanghai on the day given; amounts are CNY unless rates are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from memory.core.facts import AssessmentFact, CustomerFact, CustomerRows, PositionFact, ProductFact, TradeFact
from memory.core.models import ALWAYS
from risk.rules.engine import Evaluation, default_rules, evaluate
from risk.rules.hit import Hit

SHANGHAI = ZoneInfo("Asia/Shanghai")
CUSTOMER = "c1"


def at(day: str, clock: str = "12:00:00") -> datetime:
    """An instant in Shanghai, stored as UTC."""
    return datetime.combine(date.fromisoformat(day), time.fromisoformat(clock), tzinfo=SHANGHAI).astimezone(UTC)


def make_trade(day: str = "2026-06-15", product: str = "p", amount: str | int = 1000, **fields: Any) -> TradeFact:
    clock = fields.pop("clock", "12:00:00")
    values: dict[str, Any] = {
        "trade_id": f"t-{day}-{clock}-{product}",
        "version": 1,
        "customer_id": CUSTOMER,
        "product_id": product,
        "advisor_id": "a1",
        "trade_type": "buy",
        "traded_at": at(day, clock),
        "amount": Decimal(amount),
        "currency": "CNY",
        "fx_cny": Decimal(1),
        "fx_usd": Decimal("0.14"),
        "quantity": None,
        "price": Decimal(1),
        "fee": None,
        "status": "executed",
        "channel": "online",
        "settle_method": "transfer",
        "cross_border": False,
        "plan_id": "",
        "solicited": None,
        "dual_recording_id": "",
        "risk_disclosure_id": "",
        "mismatch_confirm_id": "",
    }
    assert not set(fields) - set(values), set(fields) - set(values)
    return TradeFact(**{**values, **fields})


def make_product(product_id: str = "p", level: int = 3, **fields: Any) -> ProductFact:
    values: dict[str, Any] = {
        "valid_from": ALWAYS,
        "issuer_id": f"issuer-of-{product_id}",
        "asset_class": "mixed",
        "is_complex": False,
        "is_cash_like": False,
    }
    return ProductFact(product_id=product_id, risk_level=level, **{**values, **fields})


def make_customer(**fields: Any) -> CustomerFact:
    values: dict[str, Any] = {
        "customer_id": CUSTOMER,
        "valid_from": ALWAYS,
        "name": "",
        "kind": "natural",
        "birth_date": None,
        "investor_type": "ordinary",
        "opened_at": None,
    }
    return CustomerFact(**{**values, **fields})


def make_assessment(level: int = 3, day: str = "2026-01-15", clock: str = "12:00:00", **fields: Any) -> AssessmentFact:
    values = {"is_lowest": False, **fields}
    return AssessmentFact(customer_id=CUSTOMER, assessed_at=at(day, clock), c_level=level, **values)


def make_snapshot(as_of: str = "2026-05-31", **values: str | int) -> list[PositionFact]:
    day = date.fromisoformat(as_of)
    return [PositionFact(CUSTOMER, product, day, None, Decimal(value)) for product, value in values.items()]


def make_rows(
    trades: Iterable[TradeFact],
    *,
    products: Iterable[ProductFact] | None = None,
    customers: Iterable[CustomerFact] | None = None,
    assessments: Iterable[AssessmentFact] | None = None,
    positions: Iterable[PositionFact] = (),
) -> CustomerRows:
    return CustomerRows(
        customer_id=CUSTOMER,
        customers=tuple([make_customer()] if customers is None else customers),
        assessments=tuple([make_assessment()] if assessments is None else assessments),
        positions=tuple(positions),
        trades=tuple(trades),
        products=tuple([make_product()] if products is None else products),
    )


def judge(*args: Any, **kwargs: Any) -> Evaluation:
    """All rules, as an installation without rule versions has them."""
    return evaluate(make_rows(*args, **kwargs), default_rules())


def found(rule_id: str, *args: Any, **kwargs: Any) -> list[Hit]:
    return [hit for hit in judge(*args, **kwargs).hits if hit.rule_id == rule_id]
