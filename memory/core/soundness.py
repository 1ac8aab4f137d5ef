"""Whether a trade of the core holds what `import_core` would have taken. A core of the firm's own holds what it likes.

The checks are those of the files (`columns.FILES`). Almost every trade passes, so a customer's trades are asked column
by column first; only where that fails is each cell read as a file's cell is. Of ids the length alone is asked: a firm's
own may hold other characters than those of a file, and such a trade can be judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

from config.base.ids import ID_PATTERN
from memory.core import columns
from memory.core.facts import TradeFact
from memory.core.models import Channel, CoreTrade, SettleMethod, TradeStatus, TradeType

ID_LENGTH = 64
LAST_VERSION = 999_999_999  # the highest that a file may name; stands for one that cannot be read: nothing is after it
NO_MOMENT = datetime(1970, 1, 1, tzinfo=UTC)  # stands for a time that cannot be read

_COLUMNS = next(spec.columns for spec in columns.FILES if spec.model is CoreTrade)
_WORDS = [
    (attrgetter("trade_type"), frozenset(TradeType.values)),
    (attrgetter("status"), frozenset(TradeStatus.values)),
    (attrgetter("channel"), frozenset(Channel.values) | {""}),
    (attrgetter("settle_method"), frozenset(SettleMethod.values) | {""}),
]
_IDS = [attrgetter(one.name) for one in _COLUMNS if one.parse is columns.identifier]
_NEEDED_IDS = [attrgetter(one.name) for one in _COLUMNS if one.parse is columns.identifier and one.required]
_RATES = [attrgetter(one.name) for one in _COLUMNS if one.parse is columns.rate]
_CURRENCY, _VERSION, _TIME, _AMOUNT = map(attrgetter, ("currency", "version", "traded_at", "amount"))


def all_sound(trades: Sequence[TradeFact]) -> bool:
    """Whether nothing in these trades needs a second look. Never True where a cell would be refused."""
    if not trades:
        return True
    try:
        for get, allowed in _WORDS:
            if not allowed.issuperset(map(get, trades)):
                return False
        for get in _NEEDED_IDS:
            if "" in map(get, trades):
                return False
        for get in _IDS:
            if max(map(len, map(get, trades))) > ID_LENGTH:
                return False
        for get in _RATES:
            if any(value <= 0 for value in set(map(get, trades)) - {None}):
                return False
        if not all(map(columns.CURRENCY.match, set(map(_CURRENCY, trades)) - {""})):
            return False
        versions, times = set(map(_VERSION, trades)), list(map(_TIME, trades))
        return (
            min(versions) >= 0
            and max(versions) <= LAST_VERSION
            and min(times) > columns.EARLIEST
            and max(times) < columns.LATEST
            and min(map(_AMOUNT, trades)) >= 0
        )
    except (TypeError, ArithmeticError):  # NULL where a value is needed, or no number
        return False


def unreadable(trade: TradeFact) -> tuple[str, ...]:
    """The columns that `import_core` would have refused, in the order of the file."""
    return tuple(column.name for column in _COLUMNS if not _reads(column, getattr(trade, column.name)))


def _reads(column: columns.Column, value: Any) -> bool:
    if value is None or value == "":
        return not column.required
    if column.parse is columns.identifier:
        return isinstance(value, str) and len(value) <= ID_LENGTH
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, datetime):
        text = value.isoformat()
    elif isinstance(value, Decimal):
        text = f"{value:f}"
    else:
        text = str(value)
    try:
        return bool(column.parse(text) == value)
    except (ValueError, ArithmeticError, TypeError):
        return False


def told_apart(trades: Sequence[TradeFact]) -> tuple[Sequence[TradeFact], Mapping[tuple[str, int], tuple[str, ...]]]:
    """(the trades, by (trade_id, version) the columns of those that cannot be read).

    In what is given back every value can be worked with: NULL in a text that may be empty is '', and what cannot be
    read is replaced, the id by a short one of its own, the version by LAST_VERSION, the time by NO_MOMENT, the status
    by `executed`, so that a finding can be made of it.
    """
    if all_sound(trades):
        return trades, {}
    kept, faults = [], {}
    for trade in trades:
        names = unreadable(trade)
        new: dict[str, Any] = {
            column.name: column.empty
            for column in _COLUMNS
            if column.name in names or (column.empty == "" and getattr(trade, column.name) is None)
        }
        standing = {
            "trade_id": _short(trade.trade_id), "version": LAST_VERSION, "traded_at": NO_MOMENT, "amount": Decimal(0),
            "trade_type": "", "status": TradeStatus.EXECUTED.value, "customer_id": trade.customer_id,
        }  # fmt: skip
        new.update({name: standing[name] for name in names if name in standing})
        one = replace(trade, **new) if new else trade
        kept.append(one)
        if names:
            faults[one.trade_id, one.version] = names
    return kept, faults


def _short(trade_id: Any) -> str:
    text = "" if trade_id is None else str(trade_id)
    plain = "".join(char if ID_PATTERN.match(char) else "_" for char in text[:40])
    return f"{plain}.{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
