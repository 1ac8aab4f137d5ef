"""One customer's facts as of any instant, in exact numbers.

Built from the core's rows alone, so that a bulk scan and a single evaluation see the same. What the specification
says of all rules is decided here, once:

- The highest version of a trade is its final state, whoever's trade it then is; cancelled and reversed ones are
  skipped, and earlier versions do not exist for the rules.
- Order is (traded_at, trade_id); ids by bytes (Python's order of code points is UTF-8's order of bytes).
- A trade with a value that cannot be read (NULL where one is needed, out of range, an unknown word: what `import_core`
  refuses) is neither judged nor history. Other rows of that kind (customer, product, assessment) are not there.
- A trade without a customer, product, price (buys, sells, switches) or rate is neither judged nor history.
  The rate that suspends a trade is fx_cny, in which every amount is counted. fx_usd is an optional column that only
  limits in dollars need (see flows.py): its absence must not silence a suitability violation.
- Local dates are those of BUSINESS_TIME_ZONE. Amounts are CNY: amount times fx_cny, for CNY rows too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from config.base.clock import business_zone
from memory.core.facts import AssessmentFact, CustomerFact, CustomerRows, PositionFact, ProductFact, TradeFact
from memory.core.quick import made
from memory.core.soundness import told_apart
from risk.rules.hit import FinalTrade, Hit
from risk.rules.numbers import exact, rate_units, ticks, units

BUY_TYPES = frozenset({"buy", "switch_in"})
PRICED_TYPES = frozenset({"buy", "sell", "switch_in", "switch_out"})
EXECUTED = "executed"
_LEVELS = frozenset(range(1, 6))


class _Dated(Protocol):
    @property
    def valid_from(self) -> datetime: ...


Row = TypeVar("Row", bound=_Dated)


class _InForce(Generic[Row]):
    """Rows of one thing by valid_from: the row in force at an instant is the newest that began by then."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = sorted(rows, key=lambda row: row.valid_from)
        self._starts = [row.valid_from for row in self._rows]

    def at(self, moment: datetime) -> Row | None:
        if len(self._rows) == 1:
            return self._rows[0] if self._starts[0] <= moment else None
        index = bisect_right(self._starts, moment)
        return self._rows[index - 1] if index else None


@dataclass(frozen=True, slots=True)
class Trade:
    """A live trade that can be judged. units: its amount in 1/10^20 of its currency. ticks: in 1/TICK CNY. day, hour:
    of its local time."""

    fact: TradeFact
    customer: CustomerFact
    product: ProductFact
    units: int
    ticks: int
    day: date
    hour: int

    @property
    def amount(self) -> Fraction:
        """CNY, exact; made anew each time."""
        return exact(self.ticks)

    @property
    def is_buy(self) -> bool:
        return self.fact.trade_type in BUY_TYPES

    @property
    def evidence_key(self) -> str:
        """`trade_id@version`, or for a savings plan `customer:plan_id:month` (001, 002, 007)."""
        if self.fact.plan_id:
            return f"{self.fact.customer_id}:{self.fact.plan_id}:{self.day:%Y-%m}"
        return f"{self.fact.trade_id}@{self.fact.version}"

    def hit(
        self,
        rule_id: str,
        version: int,
        *,
        score: int,
        subtypes: tuple[str, ...],
        figures: Mapping[str, Any],
        evidence_key: str = "",
    ) -> Hit:
        """A rule's finding on this trade, under its evidence key or one that the rule states."""
        return Hit(
            rule_id=rule_id,
            rule_version=version,
            evidence_key=evidence_key or self.evidence_key,
            customer_id=self.fact.customer_id,
            trade_id=self.fact.trade_id,
            trade_version=self.fact.version,
            occurred_at=self.fact.traded_at,
            score=score,
            subtypes=subtypes,
            figures=figures,
            advisor_id=self.fact.advisor_id,
            product_id=self.fact.product_id,
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """A live trade that cannot be judged, or not by limits in dollars, and what it lacks: of missing_customer,
    _product, _price, _rate, _currency; or unreadable_value, with the columns whose values cannot be read."""

    fact: TradeFact
    missing: tuple[str, ...]
    unreadable: tuple[str, ...] = ()


class Snapshot:
    """What was held at the close of the day as_of. What is made of its rows is made when a rule first asks for it."""

    __slots__ = ("_quantities", "_rows", "_values", "as_of")

    def __init__(self, as_of: date, rows: Sequence[PositionFact]) -> None:
        self.as_of = as_of
        self._rows = rows
        self._values: dict[str, int] | None = None
        self._quantities: dict[str, Decimal | None] | None = None

    @property
    def values(self) -> dict[str, int]:
        """Product id to ticks of CNY, never below 0."""
        if self._values is None:
            self._values = {row.product_id: max(ticks(row.market_value), 0) for row in self._rows}
        return self._values

    @property
    def quantities(self) -> dict[str, Decimal | None]:
        """Product id to units, as delivered; None is no evidence."""
        if self._quantities is None:
            self._quantities = {row.product_id: row.quantity for row in self._rows}
        return self._quantities


class FinalTrades(Mapping[str, FinalTrade]):
    """Trade id to its final state, made when it is asked for: few of many ever are."""

    def __init__(self, highest: Mapping[str, TradeFact]) -> None:
        self._highest = highest

    def __getitem__(self, trade_id: str) -> FinalTrade:
        trade = self._highest[trade_id]
        return FinalTrade(trade.version, trade.status)

    def __iter__(self) -> Iterator[str]:
        return iter(self._highest)

    def __len__(self) -> int:
        return len(self._highest)


class Facts:
    """A customer's trades in order, with what was known at each."""

    def __init__(self, rows: CustomerRows) -> None:
        self.customer_id = rows.customer_id
        self._customer = _InForce(row for row in rows.customers if row.valid_from is not None)
        by_product: dict[str, list[ProductFact]] = defaultdict(list)
        for product in rows.products:
            if product.valid_from is not None and product.risk_level in _LEVELS:
                by_product[product.product_id].append(product)
        self._products = {product_id: _InForce(history) for product_id, history in by_product.items()}
        readable = (row for row in rows.assessments if row.assessed_at is not None and row.c_level in _LEVELS)
        self._assessments = sorted(readable, key=lambda row: row.assessed_at)
        self._assessed = [row.assessed_at for row in self._assessments]
        self._positions = rows.positions
        self._zone = business_zone()
        # What several rules make of these facts, by name: made once.
        self.made: dict[str, Any] = {}
        trades, unreadable = told_apart(rows.trades)
        final = {trade.trade_id: trade for trade in trades}
        if len(final) < len(trades):  # some have several versions
            final = {}
            for trade in trades:
                known = final.get(trade.trade_id)
                if known is None or trade.version > known.version:
                    final[trade.trade_id] = trade
        self.final_trades = FinalTrades(final)
        live = [trade for trade in final.values() if trade.status == EXECUTED and trade.customer_id == rows.customer_id]
        live.sort(key=attrgetter("traded_at", "trade_id"))
        refused: tuple[Fault, ...] = ()
        if unreadable:
            refused = tuple(
                Fault(trade, ("unreadable_value",), unreadable[trade.trade_id, trade.version])
                for trade in live
                if (trade.trade_id, trade.version) in unreadable
            )
            live = [trade for trade in live if (trade.trade_id, trade.version) not in unreadable]
        # Products whose one row was in force at all of these trades: no need to look for it at each.
        self._always = {
            product_id: history[0]
            for product_id, history in by_product.items()
            if live and len(history) == 1 and history[0].valid_from <= live[0].traded_at
        }
        self.faults: Sequence[Fault]
        self.trades: Sequence[Trade]
        self.trades, self.faults = self._judged(live)
        self.faults = (*refused, *self.faults)

    def _judged(self, live: Iterable[TradeFact]) -> tuple[Sequence[Trade], Sequence[Fault]]:
        """Trades and faults, each in order."""
        columns: list[tuple[Any, ...]] = []
        faults: list[Fault] = []
        always, zone = self._always, self._zone
        for fact in live:
            at, rate = fact.traded_at, fact.fx_cny
            customer = self.customer_at(at)
            product = always.get(fact.product_id) or self.product_at(fact.product_id, at)
            priced = fact.price is not None or fact.trade_type not in PRICED_TYPES
            if customer is not None and product is not None and priced and rate is not None:
                local, amount = at.astimezone(zone), units(fact.amount)
                columns.append((fact, customer, product, amount, amount * rate_units(rate), local.date(), local.hour))
                continue
            lacks = (
                ("missing_customer", customer is None),
                ("missing_product", product is None),
                ("missing_price", not priced),
                ("missing_rate", rate is None),
            )
            faults.append(Fault(fact, tuple(name for name, absent in lacks if absent)))
        return tuple(made(Trade, list(zip(*columns, strict=True)))) if columns else (), tuple(faults)

    @cached_property
    def buys(self) -> Sequence[Trade]:
        """The purchases among the trades, in order."""
        return [trade for trade in self.trades if trade.fact.trade_type in BUY_TYPES]

    @cached_property
    def days(self) -> Sequence[date]:
        """The business day of each trade, in order."""
        return [trade.day for trade in self.trades]

    def customer_at(self, moment: datetime) -> CustomerFact | None:
        """The customer's row in force then."""
        return self._customer.at(moment)

    @property
    def always(self) -> Mapping[str, ProductFact]:
        """Of products with one row, in force at every trade, that row: for loops that ask for many at each trade."""
        return self._always

    def product_at(self, product_id: str, moment: datetime) -> ProductFact | None:
        """The product's row in force then."""
        history = self._products.get(product_id)
        return history.at(moment) if history else None

    def assessment_at(self, moment: datetime) -> AssessmentFact | None:
        """The newest assessment made by then, that instant included."""
        index = bisect_right(self._assessed, moment)
        return self._assessments[index - 1] if index else None

    @property
    def assessments(self) -> Sequence[AssessmentFact]:
        """All of them in order of time; a rule takes those made by the instant it judges."""
        return self._assessments

    @cached_property
    def _snapshots(self) -> list[Snapshot]:
        by_day: dict[date, list[PositionFact]] = defaultdict(list)
        for position in self._positions:
            by_day[position.as_of].append(position)
        return [Snapshot(day, by_day[day]) for day in sorted(by_day)]

    @cached_property
    def _snapshot_days(self) -> list[date]:
        return [snapshot.as_of for snapshot in self._snapshots]

    @property
    def first_snapshot_day(self) -> date | None:
        """as_of of the customer's oldest snapshot."""
        return self._snapshot_days[0] if self._snapshot_days else None

    def snapshot_closed_by(self, day: date) -> Snapshot | None:
        """The newest snapshot whose day is over on `day`: as_of is the close of that day, so as_of < day.

        It is the customer's as a whole: a product absent from it is 0, whatever an older one says.
        """
        return self.snapshot_until(day)[0]

    def snapshot_until(self, day: date) -> tuple[Snapshot | None, date]:
        """As `snapshot_closed_by`, and the last day for which the answer is the same."""
        days = self._snapshot_days
        index = bisect_left(days, day)
        return (self._snapshots[index - 1] if index else None), (days[index] if index < len(days) else date.max)


class Holdings:
    """Positions rolled forward trade by trade from the newest closed snapshot, at amount, never below 0.

    Call `before(trade)` for each of the facts' trades in order, or `at_close(day)` for days in order; what it gives
    holds until the next call.
    BUY and transfer_in add; sell, switch_out and transfer_out take away, each step stopping at 0 (a sale for more
    than the last known value leaves nothing, not a debt that a later purchase would have to fill). A trade moves
    its own product alone, so only trades in cash-like products move cash.
    """

    _ADD = frozenset({"buy", "switch_in", "transfer_in"})
    _TAKE = frozenset({"sell", "switch_out", "transfer_out"})

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._snapshot: Snapshot | None = None
        self._values: dict[str, int] = {}
        self._holds_until = date.min  # the last day on which the snapshot is still the newest that is closed
        self._next = 0  # index of the first trade not applied yet

    def before(self, trade: Trade) -> dict[str, int] | None:
        """Product id to ticks of CNY just before `trade`; None without a snapshot closed by then (not to be judged)."""
        if not self._start(trade.day):
            return None
        trades = self._facts.trades
        while trades[self._next] is not trade:
            self._apply(trades[self._next])
            self._next += 1
        return self._values

    def at_close(self, day: date) -> dict[str, int] | None:
        """Product id to ticks of CNY at the close of `day`, its trades and snapshot in; None without a snapshot."""
        if not self._start(day + timedelta(days=1)):
            return None
        trades = self._facts.trades
        while self._next < len(trades) and trades[self._next].day <= day:
            self._apply(trades[self._next])
            self._next += 1
        return self._values

    def _start(self, day: date) -> bool:
        """Begins anew where a newer snapshot has closed by `day`; False where there is none at all."""
        if self._snapshot is not None and day <= self._holds_until:
            return True
        snapshot, self._holds_until = self._facts.snapshot_until(day)
        if snapshot is None:
            return False
        if self._snapshot is not snapshot:
            self._snapshot = snapshot
            self._values = dict(snapshot.values)
            self._next = bisect_right(self._facts.days, snapshot.as_of)
        return True

    def _apply(self, trade: Trade) -> None:
        product_id = trade.fact.product_id
        held = self._values.get(product_id, 0)
        if trade.fact.trade_type in self._ADD:
            self._values[product_id] = held + trade.ticks
        elif trade.fact.trade_type in self._TAKE:
            self._values[product_id] = max(held - trade.ticks, 0)
