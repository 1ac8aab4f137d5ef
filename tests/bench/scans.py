"""The scan of a generated year beside a bare loop that reads the same rows through the ORM's `values_list`.

A made-up core: people with 50 to 100 trades in a year and a snapshot a month, of whom some break each kind of rule as
people do (one in a few hundred trades hits), so that reading, evaluating and settling all have their share.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection

from memory.core import selectors
from memory.core.facts import AssessmentFact, CustomerFact, PositionFact, ProductFact, TradeFact
from memory.core.models import (
    ALWAYS,
    CoreAssessment,
    CoreChange,
    CoreCustomer,
    CorePosition,
    CoreProduct,
    CoreTrade,
)
from risk.rules import services
from risk.rules.evaluating import evaluate_trade

END = date(2026, 11, 29)
PRODUCTS = 60
_KINDS = ("buy", "buy", "buy", "sell", "dividend", "transfer_in")
_CLASSES = ("fixed_income", "mixed", "equity", "alternative")


# --- a core ---------------------------------------------------------------------------------------------------------


def make_products(tenant: str) -> None:
    """Sixty products of thirty issuers, R1 to R5; the first is cash."""
    rows = [
        CoreProduct(
            tenant=tenant, product_id=f"P{n:03d}", valid_from=ALWAYS, issuer_id=f"I{n % 30:02d}",
            asset_class="cash" if n == 0 else _CLASSES[n % 4], risk_level=1 if n == 0 else 1 + n % 5,
            is_complex=False, is_cash_like=n == 0,
        )
        for n in range(PRODUCTS)
    ]  # fmt: skip
    CoreProduct.objects.bulk_create(rows)


def make_customers(tenant: str, names: list[str], seed: int = 7) -> None:
    """Their rows, an assessment each, and twelve monthly snapshots of six holdings."""
    rng = random.Random(seed)
    people, assessments, positions = [], [], []
    for name in names:
        people.append(
            CoreCustomer(
                tenant=tenant, customer_id=name, valid_from=ALWAYS, name="", kind="natural",
                birth_date=date(rng.randint(1975, 2000), 6, 15), investor_type="ordinary",
                opened_at=datetime(2020, 1, 1, tzinfo=UTC),
            )
        )  # fmt: skip
        assessments.append(
            CoreAssessment(
                tenant=tenant, customer_id=name, assessed_at=datetime(2025, 12, 15, 2, tzinfo=UTC),
                c_level=5, is_lowest=False,
            )
        )  # fmt: skip
        held = rng.sample(range(1, PRODUCTS), 5)
        for month in range(12):
            day = END - timedelta(days=30 * month + 5)
            positions += [
                CorePosition(
                    tenant=tenant, customer_id=name, product_id=f"P{n:03d}", as_of=day, quantity=Decimal(90_000),
                    market_value=Decimal(rng.randint(5_000_000, 20_000_000)) / 100,
                )
                for n in (0, *held)
            ]  # fmt: skip
    CoreCustomer.objects.bulk_create(people, 1000)
    CoreAssessment.objects.bulk_create(assessments, 1000)
    CorePosition.objects.bulk_create(positions, 1000)


def trades_of(tenant: str, name: str, count: int, rng: random.Random, days: int = 365) -> Iterator[CoreTrade]:
    """One customer's trades, spread over the days before END, working hours mostly; one in 150 is out of line."""
    start = datetime(END.year, END.month, END.day, 8, tzinfo=UTC) - timedelta(days=days)
    for n in range(count):
        odd = rng.random() < 1 / 150
        level = rng.randrange(1, PRODUCTS)
        if 1 + level % 5 > 4 and not odd:
            level -= 1
        at = start + timedelta(days=days) * (n / count) - timedelta(minutes=rng.randrange(360))
        amount = Decimal(rng.randint(100_000, 900_000) * (60 if odd else 1)) / 100
        foreign = rng.random() < 0.05
        yield CoreTrade(
            tenant=tenant, trade_id=f"{name}-{n:07d}", version=1, customer_id=name, product_id=f"P{level:03d}",
            advisor_id=f"A{rng.randrange(40):03d}", trade_type=rng.choice(_KINDS), traded_at=at, amount=amount,
            currency="USD" if foreign else "CNY", fx_cny=Decimal("7.1032") if foreign else Decimal(1),
            fx_usd=Decimal(1) if foreign else Decimal("0.14078"), quantity=amount, price=Decimal("1.0412"),
            fee=(amount / 1000).quantize(Decimal("0.01")), status="executed", channel="online",
            settle_method="transfer", cross_border=False, plan_id="", solicited=rng.random() < 0.6,
            dual_recording_id="", risk_disclosure_id="", mismatch_confirm_id="",
        )  # fmt: skip


def make_year(tenant: str, customers: int, seed: int = 11) -> int:
    """A core of so many people with 50 to 100 trades each; how many trades."""
    rng = random.Random(seed)
    names = [f"B{n:06d}" for n in range(customers)]
    make_products(tenant)
    make_customers(tenant, names)
    made = 0
    for begin in range(0, customers, 50):
        rows = [
            trade for name in names[begin : begin + 50] for trade in trades_of(tenant, name, rng.randint(50, 100), rng)
        ]
        CoreTrade.objects.bulk_create(rows, 1000)
        made += len(rows)
    return made


# --- rates ----------------------------------------------------------------------------------------------------------

_READ: tuple[tuple[Any, Any], ...] = (
    (CoreTrade, TradeFact), (CoreCustomer, CustomerFact), (CoreAssessment, AssessmentFact),
    (CorePosition, PositionFact), (CoreProduct, ProductFact),
)  # fmt: skip


def _read(tenant: str, tables: int) -> int:
    """A bare loop over the columns that the rules need; how many rows of trades."""
    counts = []
    for model, kind in _READ[:tables]:
        names = [field.name for field in fields(kind)]
        counts.append(sum(1 for _row in model.objects.filter(tenant=tenant).values_list(*names).iterator(5000)))
    return counts[0]


@contextmanager
def _clocked(shares: dict[str, float], module: Any, name: str, share: str) -> Iterator[None]:
    real = getattr(module, name)

    def clocked(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*args, **kwargs)
        finally:
            shares[share] = shares.get(share, 0.0) + time.perf_counter() - began

    setattr(module, name, clocked)
    try:
        yield
    finally:
        setattr(module, name, real)


def _rate(trades: int, work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return trades / (time.perf_counter() - began)


def scan_rates(tenant: str, rounds: int = 3) -> dict[str, float]:
    """Trades a second: the bare loops, the first scan (every hit is new) and later ones (nothing is), interleaved;
    and where the time of the later ones goes, in shares of 1."""
    trades = _read(tenant, 1)
    found: dict[str, list[float]] = {"trades": [], "all rows": [], "again": []}
    services.mark(tenant=tenant, customer_ids=selectors.known_customer_ids(tenant=tenant))
    first = _rate(trades, lambda: services.scan(tenant=tenant))
    shares: dict[str, float] = {}
    total = 0.0
    for _ in range(rounds):
        found["trades"].append(_rate(trades, lambda: _read(tenant, 1)))
        found["all rows"].append(_rate(trades, lambda: _read(tenant, len(_READ))))
        with (
            _clocked(shares, services, "customers_facts", "reading"),
            _clocked(shares, services, "evaluate", "evaluating"),
        ):
            began = time.perf_counter()
            services.scan(tenant=tenant, everything=True)
            took = time.perf_counter() - began
        total += took
        found["again"].append(trades / took)
    assert not CoreChange.objects.filter(tenant=tenant).exists()
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    return {**medians, "first": first, **{f"share {name}": spent / total for name, spent in shares.items()}}


# --- one trade ------------------------------------------------------------------------------------------------------

PER_CUSTOMER = 100


def history_costs(*sizes: int, sample: int = 60) -> dict[int, float]:
    """Milliseconds to evaluate one new trade (median of `sample` customers, 100 trades each) with so many trades in
    the database, by size, ascending."""
    found, made = {}, 0
    make_products("history")
    for size in sorted(sizes):
        _grow("history", made, size)
        made = size
        rng = random.Random(size)
        took = []
        for number in rng.sample(range(size // PER_CUSTOMER), sample):
            name = f"B{number:06d}"
            trade = next(trades_of("history", name, 1, rng, days=0))
            trade.trade_id = f"new-{size}-{number}"
            trade.save(force_insert=True)
            began = time.perf_counter()
            evaluate_trade(tenant="history", trade_id=trade.trade_id)
            took.append(1000 * (time.perf_counter() - began))
        found[size] = statistics.median(took[10:])
    return found


BLOCK = 10_000  # trades that are made up; the rest are their copies under other names


def _grow(tenant: str, since: int, until: int) -> None:
    """More trades, of more customers. MariaDB copies the first block."""
    if not since:
        names = [f"B{number:06d}" for number in range(BLOCK // PER_CUSTOMER)]
        make_customers(tenant, names, seed=since)
        rng = random.Random(since)
        CoreTrade.objects.bulk_create(
            [trade for name in names for trade in trades_of(tenant, name, PER_CUSTOMER, rng)], 2000
        )
        since = BLOCK
    while since < until:
        many = min(BLOCK, until - since)  # each statement within the deadline of a connection
        for model in (CoreCustomer, CoreAssessment, CorePosition, CoreTrade):
            _copy(model, tenant, many // PER_CUSTOMER, since // PER_CUSTOMER)
        since += many


def _copy(model: Any, tenant: str, customers: int, further: int) -> None:
    """The rows of the first customers, again for those so many numbers later."""
    columns = [field.column for field in model._meta.local_concrete_fields if not field.primary_key]
    later = "CONCAT('B', LPAD(CAST(SUBSTR(customer_id, 2, 6) AS UNSIGNED) + %s, 6, '0'))"
    taken = {"customer_id": later, "trade_id": f"CONCAT({later}, SUBSTR(trade_id, 8))"}
    chosen = ", ".join(taken.get(column, column) for column in columns)
    table = model._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {table} "
            "WHERE tenant = %s AND customer_id < %s AND customer_id LIKE 'B%%'"
            + (" AND trade_id NOT LIKE 'new-%%'" if "trade_id" in columns else ""),
            [*[further] * sum(column in taken for column in columns), tenant, f"B{customers:06d}"],
        )
