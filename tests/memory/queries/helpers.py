"""Two tenants with the same customers by id; an analyst of each."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from guard.access.services import Caller
from memory.core.models import CoreAssessment, CoreAssignment, CoreCustomer, CorePosition, CoreProduct, CoreTrade
from memory.profiles.queries import services
from memory.profiles.queries.services import Answer

ANA = Caller("default", "analyst", "ana-1", "key-1")
EAST_ANA = Caller("east", "analyst", "ana-9", "key-9")
START = datetime(2026, 1, 5, 2, 30, tzinfo=UTC)
TYPES = ("buy", "sell", "dividend", "interest")
STATUSES = ("executed", "executed", "cancelled", "reversed")


def make_facts(
    tenant: str = "default", *, customers: int = 6, trades: int = 60, factor: int = 1, other_people: bool = False
) -> None:
    """other_people: the same facts of customers with other ids, names and birthdays, in another order."""
    ids = [f"Z{9999 - number}" if other_people else f"C{number:04d}" for number in range(customers)]
    CoreCustomer.objects.bulk_create(
        CoreCustomer(
            tenant=tenant, customer_id=one, name=f"王{number}{tenant}", kind="natural" if number % 3 else "entity",
            birth_date=date((1999 if other_people else 1950) + number, 3, 4),
            investor_type="ordinary" if number % 2 else "professional",
            opened_at=START - timedelta(days=100 * number),
        )
        for number, one in enumerate(ids)
    )  # fmt: skip
    CoreProduct.objects.bulk_create(
        CoreProduct(
            tenant=tenant, product_id=f"P{number}", issuer_id=f"I{number % 2}", risk_level=number % 5 + 1,
            asset_class=("cash", "equity", "mixed")[number % 3], is_complex=bool(number % 2) if number != 4 else None,
            is_cash_like=number % 3 == 0,
        )
        for number in range(5)
    )  # fmt: skip
    CoreAssessment.objects.bulk_create(
        CoreAssessment(
            tenant=tenant, customer_id=one, assessed_at=START + timedelta(days=number), c_level=number % 5 + 1
        )
        for number, one in enumerate(ids)
    )
    CoreAssignment.objects.bulk_create(
        CoreAssignment(tenant=tenant, advisor_id=f"A{number % 2}", customer_id=one) for number, one in enumerate(ids)
    )
    CorePosition.objects.bulk_create(
        CorePosition(
            tenant=tenant, customer_id=one, product_id=f"P{number % 5}", as_of=date(2026, 3, 1 + number % 3),
            quantity=Decimal(number + 1), market_value=Decimal("1000.25") * (number + 1) * factor,
        )
        for number, one in enumerate(ids)
    )  # fmt: skip
    CoreTrade.objects.bulk_create(
        CoreTrade(
            tenant=tenant, trade_id=f"T{number:04d}", version=1, customer_id=ids[number % customers],
            product_id=f"P{number % 5}" if number % 7 else "", advisor_id=f"A{number % 2}",
            trade_type=TYPES[number % 4], traded_at=START + timedelta(days=number, minutes=number),
            amount=Decimal("100.10") * (number + 1) * factor, currency="CNY" if number % 5 else "USD",
            fee=Decimal("0.5") if number % 3 else None, status=STATUSES[number % 4],
            channel=("branch", "online", "phone")[number % 3], cross_border=number % 10 == 0,
        )
        for number in range(trades)
    )  # fmt: skip


def ask(sql: str, caller: Caller = ANA, **named: Any) -> Answer:
    return services.run_query(caller=caller, sql=sql, **named)


def rows(sql: str, caller: Caller = ANA) -> list[list[Any]]:
    return [list(row) for row in ask(sql, caller).result.rows]
