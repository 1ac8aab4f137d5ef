"""Made-up customers whose trades stand on the edges of RISK-005 and RISK-006: times at the ends of windows, at local
midnight and month ends, a microsecond to either side; amounts and quantities at the limits; whatever a delivery may
lack, correct or cancel."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from memory.core.facts import CustomerRows, PositionFact, ProductFact, TradeFact
from tests.risk.rules.build import CUSTOMER, SHANGHAI, at, make_customer, make_product, make_rows, make_trade

MICRO = timedelta(microseconds=1)
TYPES = ("buy", "sell", "switch_in", "switch_out", "transfer_in", "transfer_out", "dividend", "interest")
IDS = ("a", "B", "b", "é", "z", "￿", "𐀀", "0", "10", "9")  # by bytes, not by anybody's alphabet


def pick_id(rng: random.Random, number: int) -> str:
    return f"{rng.choice(IDS)}{number:03d}"


def jitter(rng: random.Random, moment: datetime) -> datetime:
    return moment + rng.choice((-MICRO, timedelta(0), timedelta(0), MICRO))


def products(rng: random.Random) -> list[ProductFact]:
    """Ordinary ones, cash, and one that becomes cash-like in the middle of the story."""
    return [
        make_product("p"), make_product("q", 5), make_product("cash", 1, is_cash_like=True),
        make_product("turns"),
        make_product("turns", valid_from=at("2026-01-01", "00:00:00"), is_cash_like=rng.choice((True, None))),
    ]  # fmt: skip


def spoiled(rng: random.Random, trades: list[TradeFact]) -> list[TradeFact]:
    """Some corrected, cancelled, moved to another customer, or lacking something; in any order."""
    found = list(trades)
    for trade in trades:
        chance = rng.random()
        if chance < 0.03:
            found.append(replace(trade, version=2, status=rng.choice(("cancelled", "reversed"))))
        elif chance < 0.06:
            found.append(replace(trade, version=3, amount=trade.amount * 2))
        elif chance < 0.07:
            found.append(replace(trade, version=2, customer_id="somebody-else"))
        elif chance < 0.08:
            found.append(replace(trade, version=2, price=None))
        elif chance < 0.09:
            found.append(replace(trade, version=2, fx_cny=None))
        elif chance < 0.10:
            found.append(replace(trade, version=2, product_id="unknown"))
    rng.shuffle(found)
    return found


def churner(seed: int) -> CustomerRows:
    """About a year of purchases around 100,000 of equity, six turns, 20 % of cost and 90 days of age."""
    rng = random.Random(seed)
    months = [at(f"{year}-{month:02d}-01", "00:00:00") for year in (2025, 2026) for month in range(1, 13)]
    last = jitter(rng, rng.choice(months[14:]))
    young = rng.random() < 0.4
    opened = last - timedelta(days=rng.choice((89, 90, 91, 180, 364, 365))) if young else at("2019-03-01")
    opened = jitter(rng, opened)
    neat = rng.random() < 0.4  # nothing but purchases, each month-end with its snapshot: figures come to the limits
    buys = rng.choice((5, 6, 7, 12))
    each = rng.choice(("100000", "99999.99", "100000.01", "150000", "50000", "16666.67"))
    fees = rng.choice(
        (
            (None,),
            (None, Decimal(0), Decimal(1500)),
            (Decimal("3333.33"), Decimal("3333.34")),
            (None, Decimal(20_000), Decimal("19999.99")),
        )
    )
    equity = rng.choice((100_000, 100_000, 50_000, 49_999, 60_000))
    moments = [last, last, last - timedelta(days=365), last - timedelta(days=365) - MICRO, opened + timedelta(days=90)]
    moments += [moment for moment in months if last - timedelta(days=400) <= moment <= last]
    trades = []
    for number in range(rng.randint(buys, buys + 10)):
        trade_type = "buy" if neat or number < buys or rng.random() < 0.4 else rng.choice(TYPES)
        moment = jitter(rng, rng.choice(moments))
        foreign = not neat and rng.random() < 0.1
        trades.append(
            make_trade(
                trade_id=pick_id(rng, number),
                traded_at=moment,
                trade_type=trade_type,
                product="p" if neat else rng.choice(("p", "p", "p", "q", "turns", "cash")),
                amount=each if neat or rng.random() < 0.8 else rng.choice(("100", "1000000", "600000")),
                currency="USD" if foreign else "CNY",
                fx_cny=Decimal("7.1") if foreign else Decimal(1),
                fee=rng.choice(fees),
                plan_id=rng.choice(("", "", "", "", "", "PLAN")),
                solicited=rng.choice((None, True, False)),
            )
        )
    positions = []
    if rng.random() < 0.95:
        first = rng.randint(0, 14)
        for month in months[first:]:
            if not neat and rng.random() < 0.3:
                continue
            as_of = (
                month - timedelta(days=0 if neat else rng.choice((0, 0, 0, 1, 12)))
            ).date()  # 16:00 UTC: the day before, or that
            shares = {"p": equity // 2, "cash": equity - equity // 2, "gone": rng.choice((0, 0, 0, -5))}
            positions += [
                PositionFact(CUSTOMER, product, as_of, None, Decimal(value)) for product, value in shares.items()
            ]
    customers = [make_customer(opened_at=opened)]
    if rng.random() < 0.1:
        customers.append(make_customer(valid_from=last - timedelta(days=30), opened_at=rng.choice((None, opened))))
    return make_rows(spoiled(rng, trades), products=products(rng), customers=customers, positions=positions)


def stranger(seed: int) -> CustomerRows:
    """Trades in bursts of a week, half a year apart: lots and the sales that take 80 % of them, sizes around five
    times the median, hours around 00:00 and 05:00."""
    rng = random.Random(seed)
    begin = at("2025-03-01", rng.choice(("00:00:00", "04:59:59.999999", "05:00:00", "12:00:00")))
    anchors = [begin]
    for _ in range(rng.choice((1, 2, 3))):
        anchors.append(anchors[-1] + timedelta(days=rng.choice((7, 30, 180, 181, 365))))
    habit = rng.choice(("20000", "20000.01", "100000"))
    trades = []
    for number in range(rng.choice((0, 0, 19, 20, 38, 40, 60))):
        hour = rng.choice((0, 4, 5)) if rng.random() < 0.05 else 12
        moment = begin + timedelta(days=number * 4 - 245, hours=hour - begin.astimezone(SHANGHAI).hour)
        trade_type = rng.choice(("buy", "sell"))
        trades.append(
            make_trade(trade_id=pick_id(rng, 100 + number), traded_at=moment, trade_type=trade_type, amount=habit)
        )
    for number in range(rng.choice((3, 12, 25, 45))):
        anchor = rng.choice(anchors)
        moment = jitter(rng, anchor + timedelta(days=rng.choice((0, 0, 1, 3, 7)), hours=rng.choice((0, 0, 3, 9, 16))))
        amount = habit if rng.random() < 0.6 else rng.choice(("100000", "99999.99", "50000", "49999.99", "500000"))
        units = rng.choice(("1000", "1000", "800", "799.9999", "200", "2000", "300.5"))
        trades.append(
            make_trade(
                trade_id=pick_id(rng, number),
                traded_at=moment,
                trade_type=rng.choice((*TYPES, "buy", "buy", "sell", "sell")),
                product=rng.choice(("p", "p", "p", "q", "turns", "cash")),
                amount=amount,
                quantity=None if rng.random() < 0.05 else Decimal(units) * rng.choice((1, 1, 1, 1, 0)),
                plan_id="PLAN" if rng.random() < 0.08 else "",
            )
        )
    positions = []
    for day in sorted(rng.sample(range(-40, 500), rng.choice((0, 0, 2, 6)))):
        as_of = (begin + timedelta(days=day)).date()
        for product in rng.sample(("p", "q", "turns"), rng.randint(1, 3)):
            held = rng.choice((None, "0", "-3", "100", "800", "1000"))
            quantity = None if held is None else Decimal(held)
            positions.append(PositionFact(CUSTOMER, product, as_of, quantity, Decimal(1000)))
    return make_rows(spoiled(rng, trades), products=products(rng), positions=positions)
