"""What Alice holds, and the snapshot of it as Wei asks for it."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from config.base.clock import business_date, now
from config.base.keys import prefixed
from memory.core.importer import import_tables
from memory.core.models import CorePosition, CoreProduct
from memory.profiles import leased
from memory.profiles.models import CustomerProfileL2
from memory.profiles.snapshots.selectors import read_snapshot
from tests.memory.profiles.helpers import (
    ALICE,
    WEI,
    make_assessment,
    make_assignment,
    make_caller,
    make_core_customer,
)

TODAY = business_date(now())
KEY = f"cache:advisor:snapshot:{WEI}:{ALICE}"


def make_product(product_id: str, level: int = 3, asset_class: str = "equity", **more: Any) -> None:
    CoreProduct.objects.create(product_id=product_id, risk_level=level, asset_class=asset_class, **more)


def make_position(product_id: str, value: str, day: date = TODAY, customer_id: str = ALICE, **more: Any) -> None:
    CorePosition.objects.create(
        customer_id=customer_id, product_id=product_id, as_of=day, market_value=value, **{"quantity": "1", **more}
    )


def snapshot(**more: Any) -> dict[str, Any]:
    return read_snapshot(caller=make_caller("advisor"), advisor_id=WEI, customer_id=ALICE, **more)


def cached() -> Any:
    value = leased.client().get(prefixed(KEY))
    return json.loads(value) if value else None


def copy() -> Any:
    row = CustomerProfileL2.objects.filter(customer_id=ALICE, advisor_id=WEI).first()
    return row and row.asset_snapshot


def make_alice() -> None:
    """Alice, C3, whom Wei has: 150,000 in an R5 equity fund, 30,000 in bonds, 20,000 in cash."""
    make_core_customer()
    make_assessment()
    make_assignment()
    make_product("p5", 5, issuer_id="i1")
    make_product("b2", 2, "fixed_income", issuer_id="i2")
    make_product("c1", 1, "cash", is_cash_like=True)
    make_position("p5", "150000.00")
    make_position("b2", "30000.005")
    make_position("c1", "20000")


def imported(value: str) -> None:
    row = {"customer_id": ALICE, "product_id": "p5", "as_of": TODAY.isoformat(), "market_value": value}
    import_tables(tenant="default", tables={"positions.csv": [row]})
