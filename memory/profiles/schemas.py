"""What a profile may hold: one typed schema per writer, unknown fields refused, sizes bounded.

A schema is a version of itself: `schema_version` is stored with the fields, so that a later schema can read an older
row. Amounts are strings in JSON, instants RFC 3339 in UTC, days `YYYY-MM-DD`, and nothing else is taken for one. A
field that is null is a field that is not there.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    WithJsonSchema,
    model_validator,
)

from config.base.clock import rfc3339
from memory.profiles import wording

# Bytes of one writer's fields in their canonical spelling.
MAX_PAYLOAD_BYTES = 64 * 1024


def _plausible(moment: Any) -> Any:
    if not 1900 <= moment.year <= 2200:
        raise ValueError("is outside the years 1900 to 2200")
    return moment


_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def instant(text: str) -> dt.datetime:
    """An instant of RFC 3339 and nothing else: digits alone could be seconds, milliseconds or a day without its marks.

    Errors: ValueError.
    """
    if not _INSTANT.fullmatch(text):
        raise ValueError("is no instant of RFC 3339; send one such as 2026-11-30T08:00:00Z")
    try:
        return dt.datetime.fromisoformat(text.upper()).astimezone(dt.UTC)
    except OverflowError:
        raise ValueError("is outside the years 1900 to 2200") from None


def _as_instant(value: Any) -> Any:
    if isinstance(value, str):
        return instant(value)
    if not isinstance(value, dt.datetime):  # Python callers have one already
        raise ValueError("is no instant of RFC 3339; send one such as 2026-11-30T08:00:00Z")
    return value


def _as_day(value: Any) -> Any:
    if isinstance(value, str) and _DAY.fullmatch(value):
        return dt.date.fromisoformat(value)
    if type(value) is not dt.date:
        raise ValueError("is no day; send one such as 2026-11-30")
    return value


def _as_day_or_instant(value: Any) -> Any:
    if isinstance(value, str):
        return _as_day(value) if _DAY.fullmatch(value) else _as_instant(value)
    if not isinstance(value, dt.date):
        raise ValueError("is a day YYYY-MM-DD or an instant of RFC 3339")
    return value


def _one(value: Any) -> Any:
    # Python holds True and 1.0 for 1, JSON does not.
    if type(value) is not int:
        raise ValueError("is a whole number, 1")
    return value


_AMOUNT = re.compile(r"^[0-9]{1,16}(\.[0-9]{1,2})?$")


def _exact(value: Any) -> Any:
    """Money is a decimal string; a whole JSON number is as exact, one with a fraction was a binary float already."""
    if isinstance(value, bool | float):
        raise ValueError('is no exact amount; send a string such as "50000.00"')
    if isinstance(value, str) and not _AMOUNT.fullmatch(value):
        raise ValueError('is no amount; send digits and at most two decimals, such as "50000.00"')
    return Decimal(value) if isinstance(value, str | int) else value


Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_as_instant),
    AfterValidator(_plausible),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
]
Day = Annotated[dt.date, BeforeValidator(_as_day), AfterValidator(_plausible)]
DayOrInstant = Annotated[Day | Instant, BeforeValidator(_as_day_or_instant)]
Money = Annotated[
    Decimal,
    Field(ge=0, max_digits=18, decimal_places=2),
    BeforeValidator(_exact),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": _AMOUNT.pattern}, {"type": "integer", "minimum": 0}]},
        mode="validation",
    ),
]
Word = Annotated[str, Field(min_length=1, max_length=64)]
Line = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
RiskLevel = Literal["R1", "R2", "R3", "R4", "R5"]
Visibility = Literal["public", "advisor", "risk"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# A field that is refused for what it says: its dotted path and why.
Fault = tuple[str, str]


class Strict(BaseModel):
    """JSON's own types, none read as another; what JSON has as text (days, instants, amounts) by our own reading."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


class Versioned(Strict):
    schema_version: Annotated[Literal[1], BeforeValidator(_one)] = 1

    def stored(self) -> dict[str, Any]:
        """The fields as JSON, those that are not there left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def unfit(self) -> Iterator[Fault]:
        """What is well formed and must not be kept, or not be shown, for what it says."""
        return iter(())


# --- l1 ---------------------------------------------------------------------------------------------------------


class Goal(Strict):
    kind: Word
    amount: Money | None = None
    date: Day | None = None
    priority: Annotated[int, Field(strict=True, ge=1, le=10)] | None = None


class LiquidityNeed(Strict):
    amount: Money
    by: Day | None = None


class Preferences(Strict):
    like: list[Line] | None = Field(None, max_length=50)
    avoid: list[Line] | None = Field(None, max_length=50)


class DoNotContact(Strict):
    channels: list[Word] | None = Field(None, max_length=20)
    hours: Word | None = Field(None, description="local hours, such as 22:00-08:00")
    until: DayOrInstant | None = None


class Consent(Strict):
    purpose: Line
    granted_at: Instant
    withdrawn_at: Instant | None = None


class L1Own(Versioned):
    """l1, what the customer told us: written by the customer agent, never the assessment."""

    occupation: Line | None = None
    income_band: Word | None = None
    net_assets_band: Word | None = None
    experience_years: Annotated[int, Field(strict=True, ge=0, le=100)] | None = None
    complex_experience: StrictBool | None = None
    goals: list[Goal] | None = Field(None, max_length=30)
    horizon_months: Annotated[int, Field(strict=True, ge=0, le=1200)] | None = None
    liquidity_needs: list[LiquidityNeed] | None = Field(None, max_length=30)
    max_drawdown_pct: Annotated[float, Field(strict=True, ge=0, le=100)] | None = None
    preferences: Preferences | None = None
    do_not_contact: DoNotContact | None = None
    language: Annotated[str, Field(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,3}$")] | None = None
    consents: list[Consent] | None = Field(None, max_length=50)


class L1Core(Versioned):
    """l1, from the core system: written by the core sync alone."""

    name: Annotated[str, Field(max_length=200)] | None = None
    gender: Word | None = None
    birth_date: Day | None = None
    id_no_masked: Word | None = None
    phone_masked: Word | None = None
    investor_type: Literal["ordinary", "professional"] | None = None
    civil_capacity: Word | None = None
    c_level: Literal["C1", "C2", "C3", "C4", "C5"] | None = None
    is_lowest: StrictBool | None = None
    assessed_at: Instant | None = None
    valid_until: Day | None = Field(None, description="last day on which the assessment counts")
    assessment_id: Id | None = None


# Computed at read, so that no cache can hold them past their day.
L1_DERIVED = frozenset({"is_elderly", "assessment_status"})
L1_CORE_ONLY = frozenset(L1Core.model_fields) - {"schema_version"}

# --- l2 ---------------------------------------------------------------------------------------------------------


class Note(Strict):
    text: Text
    at: Instant | None = Field(None, description="the write's instant where it is not given")
    trace_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None


class HouseholdMember(Strict):
    relation: Word
    note: Annotated[str, Field(max_length=500)] | None = None


class NextStep(Strict):
    action: Line
    due: DayOrInstant | None = None
    status: Word | None = None


class Explanation(Strict):
    product_id: Id
    text: Text
    at: Instant | None = Field(None, description="the write's instant where it is not given")


class L2Own(Versioned):
    """l2, an advisor's view of one customer: written by the advisor agent.

    Health and religion are refused (sensitive personal information that advice does not need), in every string.
    """

    stage: Word | None = None
    notes: list[Note] | None = Field(None, max_length=200)
    needs: Annotated[list[Text], Field(max_length=50), BeforeValidator(_as_list)] | None = None
    household: list[HouseholdMember] | None = Field(None, max_length=30)
    next_steps: list[NextStep] | None = Field(None, max_length=50)
    last_contact_at: Instant | None = None
    channel: Word | None = None
    explanations_given: list[Explanation] | None = Field(None, max_length=100)

    def unfit(self) -> Iterator[Fault]:
        for path, text in wording.texts(self.stored()):
            if wording.speaks_of_health_or_religion(text):
                yield path, "speaks of health or religion, which a profile does not keep; leave it out"


L2_SYSTEM_ONLY = frozenset({"asset_snapshot", "snapshot_at", "core_as_of"})

# --- l3 ---------------------------------------------------------------------------------------------------------


class Visible(Strict):
    visibility: Visibility = Field("risk", description="who may read it; where it is not said, risk alone")
    since: DayOrInstant | None = None
    until: DayOrInstant | None = Field(None, description="a day counts whole, an instant ends before itself")


class Flag(Visible):
    code: Id


class Restriction(Visible):
    code: Literal["max_risk_level", "no_complex", "no_new_purchase", "dual_recording_required", "callback_required"]
    value: RiskLevel | None = Field(None, description="the level, for max_risk_level")
    text: Annotated[str, Field(max_length=500)] | None = None

    @model_validator(mode="after")
    def _level_where_it_belongs(self) -> Restriction:
        if (self.code == "max_risk_level") != (self.value is not None):
            raise ValueError("value is a level R1 to R5 with max_risk_level, and absent with every other code")
        return self


class L3Shared(Versioned):
    """l3, what may leave MySQL: entries of visibility risk stay behind."""

    risk_score: Annotated[int, Field(strict=True, ge=0, le=100)] | None = None
    risk_level: Literal["low", "medium", "high", "critical"] | None = None
    flags: list[Flag] | None = Field(None, max_length=100)
    restrictions: list[Restriction] | None = Field(None, max_length=50)
    valid_until: DayOrInstant | None = None
    reviewed_by: Id | None = None


class L3Internal(Strict):
    """l3, what stays in MySQL and with risk."""

    aml_rating: Word | None = None
    reasons: Annotated[list[Text], Field(max_length=100), BeforeValidator(_as_list)] | None = None
    open_alerts: list[Id] | None = Field(None, max_length=200)


class L3Own(L3Shared, L3Internal):
    """l3, risk's view: written by the risk agent.

    Whatever leaves risk must not tip off: every string outside `L3Internal` and outside entries of visibility risk.
    """

    def unfit(self) -> Iterator[Fault]:
        for path, text in wording.texts(shown_outside_risk(self.stored())):
            told = wording.code_tips_off if path.startswith("flags.") and path.endswith(".code") else wording.tips_off
            if told(text):
                yield path, "would tip off: RISK-003, 004, 008 and reports are risk's alone; make it visibility risk"


L3_INTERNAL = frozenset(L3Internal.model_fields)


def shown_outside_risk(fields: dict[str, Any]) -> dict[str, Any]:
    """What others than risk may see, each entry at its own place in its list (None where it is risk's alone)."""
    return {
        name: [None if _is_risks_alone(entry) else entry for entry in value] if isinstance(value, list) else value
        for name, value in fields.items()
        if name not in L3_INTERNAL
    }


def _is_risks_alone(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("visibility") not in ("public", "advisor", None)
