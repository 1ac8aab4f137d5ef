"""How each cell of the six CSV files is read, and which columns a row cannot do without.

A required column is a key, or what the row means nothing without. Any other column may be absent or empty: that is
"no evidence", never an error. Missing customers, products, prices and rates are accepted here too: the rules turn
them into data quality findings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db import models

from config.base.clock import business_date, business_zone
from config.base.ids import ID_PATTERN
from memory.core.fields import DECIMAL_PLACES, MAX_DIGITS
from memory.core.models import (
    ALWAYS,
    AssetClass,
    Channel,
    CoreAssessment,
    CoreAssignment,
    CoreCustomer,
    CoreFact,
    CorePosition,
    CoreProduct,
    CoreTrade,
    CustomerKind,
    InvestorType,
    SettleMethod,
    TradeStatus,
    TradeType,
)

Parser = Callable[[str], Any]

_INSTANT = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d+))?([Zz]|[+-]\d{2}:\d{2})?\Z", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\Z", re.ASCII)
CURRENCY = re.compile(r"[A-Z]{3}\Z")
EARLIEST, LATEST = ALWAYS, datetime(9999, 1, 1, tzinfo=UTC)


def _fail(text: str, rule: str) -> ValueError:
    return ValueError(f"{text[:60]!r} {rule}")


def identifier(text: str) -> str:
    if not ID_PATTERN.match(text):
        raise _fail(text, "is not an id; use 1 to 64 of A-Z a-z 0-9 _ . -")
    return text


def free_text(text: str) -> str:
    if len(text) > 200:
        raise _fail(text, f"has {len(text)} characters; 200 are allowed")
    return text


def one_of(choices: type[models.TextChoices]) -> Parser:
    allowed = list(choices.values)  # Django makes this list anew at each access

    def parse(text: str) -> str:
        value = text.strip()
        if value not in allowed:
            raise _fail(text, f"is not one of {', '.join(allowed)}")
        return value

    return parse


def boolean(text: str) -> bool:
    value = text.strip().lower()
    if value not in {"true", "false"}:
        raise _fail(text, "is not true, false or empty")
    return value == "true"


def level(letter: str) -> Parser:
    def parse(text: str) -> int:
        value = text.strip()
        if not re.fullmatch(f"{letter}[1-5]", value, re.ASCII):
            raise _fail(text, f"is not one of {letter}1 to {letter}5")
        return int(value[1])

    return parse


def whole(text: str) -> int:
    value = text.strip()
    if not re.fullmatch(r"\d{1,9}", value, re.ASCII):
        raise _fail(text, "is not a whole number from 0 to 999999999")
    return int(value)


def number(text: str) -> Decimal:
    """An exact decimal: at most 28 digits before and 20 after the point, nothing is rounded."""
    value = text.strip()
    if not _NUMBER.match(value):
        raise _fail(text, "is not a number (digits and a point)")
    try:
        parsed = Decimal(value)
    except InvalidOperation:
        raise _fail(text, "is not a number") from None
    _sign, digits, exponent = parsed.as_tuple()
    assert isinstance(exponent, int)
    while len(digits) > 1 and digits[-1] == 0 and exponent < 0:
        digits, exponent = digits[:-1], exponent + 1
    if -exponent > DECIMAL_PLACES:
        raise _fail(text, f"has more than {DECIMAL_PLACES} decimals")
    if len(digits) + exponent > MAX_DIGITS - DECIMAL_PLACES:
        raise _fail(text, f"has more than {MAX_DIGITS - DECIMAL_PLACES} digits before the point")
    return parsed


def not_negative(text: str) -> Decimal:
    value = number(text)
    if value < 0:
        raise _fail(text, "is negative; the trade type tells the direction")
    return value


def rate(text: str) -> Decimal:
    value = number(text)
    if value <= 0:
        raise _fail(text, "is not a positive rate")
    return value


def currency(text: str) -> str:
    value = text.strip()
    if not CURRENCY.match(value):
        raise _fail(text, "is not a currency code such as CNY")
    return value


def day(text: str) -> date:
    """`YYYY-MM-DD`, or an instant's business day."""
    value = text.strip()
    if _DATE.match(value):
        try:
            parsed = date.fromisoformat(value)
        except ValueError:
            raise _fail(text, "is not a day of the calendar") from None
        if parsed.year < 1000:
            raise _fail(text, "lies before the year 1000")
        return parsed
    return business_date(instant(text))


def instant(text: str) -> datetime:
    """RFC 3339 with Z or an offset, as UTC; digits beyond microseconds are dropped (the database holds six)."""
    value = text.strip()
    found = _INSTANT.match(value)
    if not found:
        raise _fail(text, "is not an RFC 3339 time such as 2026-11-30T09:30:00+08:00")
    day_part, clock, fraction, offset = found.groups()
    if offset is None:
        raise _fail(text, "has no time zone; add Z or an offset such as +08:00")
    zone = "+00:00" if offset in "Zz" else offset
    try:
        parsed = datetime.fromisoformat(f"{day_part}T{clock}.{(fraction or '0')[:6]:0<6}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise _fail(text, "is not a time of the calendar") from None
    if not EARLIEST < parsed < LATEST:
        raise _fail(text, "lies outside the years 1000 to 9998")
    return parsed


def instant_or_day(text: str) -> datetime:
    """RFC 3339, or a bare day, which means its first instant in the business time zone."""
    value = text.strip()
    if _DATE.match(value):
        return datetime.combine(day(value), time(), tzinfo=business_zone()).astimezone(UTC)
    return instant(text)


@dataclass(frozen=True)
class Column:
    """One column: its parser, whether a row needs it, and what an absent or empty cell is stored as."""

    name: str
    parse: Parser
    required: bool = False
    empty: Any = None


@dataclass(frozen=True)
class FileSpec:
    """One CSV file: its model, columns and natural key. marks: its rows are facts that rules read."""

    name: str
    model: type[CoreFact]
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    marks: bool = True
    check: Callable[[dict[str, Any]], None] = lambda row: None

    @property
    def required(self) -> list[str]:
        return [column.name for column in self.columns if column.required]

    @property
    def one_line(self) -> frozenset[str]:
        """The columns whose cells cannot hold a line break."""
        return frozenset(column.name for column in self.columns if column.parse is not free_text)

    def read(self, cells: dict[str, str]) -> dict[str, Any]:
        """The row's values. Errors: ValueError naming every faulty column, its value and what is allowed."""
        row: dict[str, Any] = {}
        faults = []
        for column in self.columns:
            text = cells.get(column.name, "")
            if not text.strip():
                if column.required:
                    faults.append(f"{column.name} is empty")
                row[column.name] = column.empty
                continue
            try:
                row[column.name] = column.parse(text)
            except ValueError as error:
                faults.append(f"{column.name} {error}")
        if faults:
            raise ValueError("; ".join(faults))
        self.check(row)
        return row


def _valid_to_after_valid_from(row: dict[str, Any]) -> None:
    if row["valid_to"] is not None and row["valid_to"] < row["valid_from"]:
        raise ValueError("valid_to lies before valid_from")


# In this order they are imported: a trade's customer and product are there before it.
FILES: tuple[FileSpec, ...] = (
    FileSpec(
        "customers.csv",
        CoreCustomer,
        ("customer_id", "valid_from"),
        (
            Column("customer_id", identifier, required=True),
            Column("name", free_text, empty=""),
            Column("kind", one_of(CustomerKind), empty=""),
            Column("birth_date", day),
            Column("investor_type", one_of(InvestorType), empty=""),
            Column("opened_at", instant_or_day),
            Column("valid_from", instant_or_day, empty=ALWAYS),
        ),
    ),
    FileSpec(
        "products.csv",
        CoreProduct,
        ("product_id", "valid_from"),
        (
            Column("product_id", identifier, required=True),
            Column("issuer_id", identifier, empty=""),
            Column("asset_class", one_of(AssetClass), empty=""),
            Column("risk_level", level("R"), required=True),
            Column("is_complex", boolean),
            Column("is_cash_like", boolean),
            Column("valid_from", instant_or_day, empty=ALWAYS),
        ),
    ),
    FileSpec(
        "assessments.csv",
        CoreAssessment,
        ("customer_id", "assessed_at"),
        (
            Column("customer_id", identifier, required=True),
            Column("c_level", level("C"), required=True),
            Column("is_lowest", boolean),
            Column("assessed_at", instant_or_day, required=True),
        ),
    ),
    FileSpec(
        "assignments.csv",
        CoreAssignment,
        ("advisor_id", "customer_id", "valid_from"),
        (
            Column("advisor_id", identifier, required=True),
            Column("customer_id", identifier, required=True),
            Column("valid_from", instant_or_day, empty=ALWAYS),
            Column("valid_to", instant_or_day),
        ),
        marks=False,
        check=_valid_to_after_valid_from,
    ),
    FileSpec(
        "positions.csv",
        CorePosition,
        ("customer_id", "product_id", "as_of"),
        (
            Column("customer_id", identifier, required=True),
            Column("product_id", identifier, required=True),
            Column("as_of", day, required=True),
            Column("quantity", number),
            Column("market_value", number, required=True),
        ),
    ),
    FileSpec(
        "trades.csv",
        CoreTrade,
        ("trade_id", "version"),
        (
            Column("trade_id", identifier, required=True),
            Column("version", whole, required=True),
            Column("customer_id", identifier, required=True),
            Column("product_id", identifier, empty=""),
            Column("advisor_id", identifier, empty=""),
            Column("trade_type", one_of(TradeType), required=True),
            Column("traded_at", instant, required=True),
            Column("amount", not_negative, required=True),
            Column("currency", currency, empty=""),
            Column("fx_cny", rate),
            Column("fx_usd", rate),
            Column("quantity", number),
            Column("price", number),
            Column("fee", number),
            Column("status", one_of(TradeStatus), required=True),
            Column("channel", one_of(Channel), empty=""),
            Column("settle_method", one_of(SettleMethod), empty=""),
            Column("cross_border", boolean),
            Column("plan_id", identifier, empty=""),
            Column("solicited", boolean),
            Column("dual_recording_id", identifier, empty=""),
            Column("risk_disclosure_id", identifier, empty=""),
            Column("mismatch_confirm_id", identifier, empty=""),
        ),
    ),
)


def header_faults(spec: FileSpec, header: Iterable[str]) -> tuple[list[str], list[str]]:
    """(required columns that are missing, columns that are unknown), in order."""
    names = list(header)
    known = {column.name for column in spec.columns}
    return [name for name in spec.required if name not in names], [name for name in names if name not in known]
