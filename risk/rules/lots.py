"""First in, first out: which purchase a sale takes its units from, within a window, for one product.

The queue starts with what was held just before the window began: the newest snapshot's quantity closed by then (a
product absent from it is 0; with no snapshot, 0), rolled forward with every later trade up to the window. Then each
trade that counts, in order: what comes in joins the end, what goes out leaves from the front. More going out than is
there leaves nothing, not a debt. A quantity that is not given (or not above 0) moves nothing.

Nothing is replayed for a sale. Lay the lots on a tape in order of arrival: the queue is always the tape's last
`level` units, so the front is the end less the level, and the level after reflection at 0 is

    N(now) - min(N(start) - held, least N since the start)        N: units in less units out, summed

with a running minimum over the window. A product's trades are passed once, each sale is two bisections.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from config.base.clock import business_date
from risk.rules.facts import Facts, Snapshot, Trade

INCOMING = frozenset({"buy", "switch_in", "transfer_in"})
OUTGOING = frozenset({"sell", "switch_out", "transfer_out"})


@dataclass(frozen=True, slots=True)
class Taken:
    """What a sale took of one lot, in units. share: of the lot as it was bought, 0 to 1."""

    lot: Trade
    units: Fraction
    share: Fraction


def units_of(trade: Trade) -> Fraction:
    """The trade's quantity; 0 where none is given."""
    quantity = trade.fact.quantity
    return Fraction(quantity) if quantity is not None and quantity > 0 else Fraction(0)


class Lots:
    """One product's queue. Ask `taken` for its sales in order, each with the start of its window.

    moves: all of the customer's trades in the product, in order: what is held. counts: which of them are seen in the
    window. is_lot: which of those are purchases to be asked about.
    """

    def __init__(
        self,
        facts: Facts,
        product_id: str,
        moves: Sequence[Trade],
        *,
        counts: Callable[[Trade], bool],
        is_lot: Callable[[Trade], bool],
    ) -> None:
        self._facts = facts
        self._product_id = product_id
        moving = [(trade, units_of(trade)) for trade in moves if trade.fact.trade_type in INCOMING | OUTGOING]
        self._moves = [(trade, units) for trade, units in moving if units]
        # What was held before the window.
        self._snapshot: Snapshot | None = None
        self._held = Fraction(0)
        self._next = 0
        # The window: sums of units in and net before each trade that counts, and the lots' places on the tape.
        self._times: list[datetime] = []
        self._index: dict[str, int] = {}
        self._tape = [Fraction(0)]
        self._net = [Fraction(0)]
        self._lots: list[tuple[int, Trade]] = []  # number among the trades that count
        self._lot_numbers: list[int] = []
        self._lot_ends: list[Fraction] = []
        for trade, units in self._moves:
            if counts(trade):
                self._add(trade, units, is_lot(trade))
        self._least: deque[int] = deque()  # numbers whose net is the least from there on
        self._seen = 0

    def _add(self, trade: Trade, units: Fraction, is_lot: bool) -> None:
        number = len(self._times)
        incoming = trade.fact.trade_type in INCOMING
        self._times.append(trade.fact.traded_at)
        self._index[trade.fact.trade_id] = number
        self._tape.append(self._tape[-1] + (units if incoming else 0))
        self._net.append(self._net[-1] + (units if incoming else -units))
        if incoming and is_lot:
            self._lots.append((number, trade))
            self._lot_numbers.append(number)
            self._lot_ends.append(self._tape[-1])

    def taken(self, sale: Trade, since: datetime) -> Taken | None:
        """The lot bought since then of which this sale takes the largest share; None where it takes of none."""
        number = self._index.get(sale.fact.trade_id)
        if number is None:
            return None
        start = bisect_left(self._times, since)
        level = self._level(start, number, self._held_before(since))
        end = self._tape[number]
        front = end - level
        reach = min(front + units_of(sale), end)
        first = max(bisect_right(self._lot_ends, front), bisect_left(self._lot_numbers, start))
        best: Taken | None = None
        # The first lot may be partly gone already. If the second is not taken whole, the sale ended in it.
        for place in range(first, min(first + 2, len(self._lots))):
            lot_number, lot = self._lots[place]
            begins, ends = self._tape[lot_number], self._lot_ends[place]
            units = min(ends, reach) - max(begins, front)
            if lot_number >= number or units <= 0:
                break
            share = units / (ends - begins)
            if best is None or share > best.share:
                best = Taken(lot, units, share)
        return best

    def _level(self, start: int, number: int, held: Fraction) -> Fraction:
        """Units there just before the trade of this number, where `held` were there before the trade `start`."""
        while self._seen < number:
            self._seen += 1
            while self._least and self._net[self._least[-1]] >= self._net[self._seen]:
                self._least.pop()
            self._least.append(self._seen)
        while self._least and self._least[0] <= start:
            self._least.popleft()
        floor = self._net[start] - held
        if self._least:
            floor = min(floor, self._net[self._least[0]])
        return self._net[number] - floor

    def _held_before(self, moment: datetime) -> Fraction:
        snapshot = self._facts.snapshot_closed_by(business_date(moment))
        if snapshot is not None and snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._held = max(Fraction(snapshot.quantities.get(self._product_id) or 0), Fraction(0))
            self._next = bisect_right(self._moves, snapshot.as_of, key=lambda move: move[0].day)
        while self._next < len(self._moves) and self._moves[self._next][0].fact.traded_at < moment:
            trade, units = self._moves[self._next]
            if trade.fact.trade_type in INCOMING:
                self._held += units
            else:
                self._held = max(self._held - units, Fraction(0))
            self._next += 1
        return self._held
