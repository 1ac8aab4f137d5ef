"""What of the core's facts is personal, and what analysts' statements may name at all.

Declared once, beside the models: who adds a column to a fact table decides here what it is; a test holds that each
column is in exactly one of the groups.

- PERSONAL: says who or what a person is. Reached only with a grant for the column.
- LINKING: an id that stands for a person. Without a grant it may join, group and be counted, and is never shown or
  compared with anything but another such column.
- HIDDEN: ours, not the core's; no statement can name it.
- The rest is plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from django.db import models

from memory.core.fields import ExactDecimalField
from memory.core.models import FACT_MODELS

HIDDEN = frozenset({"id", "tenant"})
CUSTOMER = "customer_id"  # whose a row is, in every table that has it
PERSONAL: Mapping[str, frozenset[str]] = {"core_customer": frozenset({"name", "birth_date"})}
LINKING: Mapping[str, frozenset[str]] = {
    "core_customer": frozenset({"customer_id"}),
    "core_assessment": frozenset({"customer_id"}),
    "core_assignment": frozenset({"customer_id"}),
    "core_position": frozenset({"customer_id"}),
    # A recording and the papers that a person signed stand for that person; so may a savings plan.
    "core_trade": frozenset(
        {"customer_id", "dual_recording_id", "risk_disclosure_id", "mismatch_confirm_id", "plan_id"}
    ),
}


class Kind(Enum):
    """What a value is, for its JSON."""

    TEXT = "text"
    WHOLE = "whole"
    MONEY = "money"
    BOOL = "bool"
    DATE = "date"
    INSTANT = "instant"


class Sort(Enum):
    PLAIN = "plain"
    LINKING = "linking"
    PERSONAL = "personal"


@dataclass(frozen=True, slots=True)
class CoreColumn:
    table: str
    name: str
    kind: Kind
    sort: Sort

    @property
    def full_name(self) -> str:
        return f"{self.table}.{self.name}"


def _kind(field: models.Field[object, object]) -> Kind:
    if isinstance(field, ExactDecimalField):
        return Kind.MONEY
    if isinstance(field, models.BooleanField):
        return Kind.BOOL
    if isinstance(field, models.DateTimeField):
        return Kind.INSTANT
    if isinstance(field, models.DateField):
        return Kind.DATE
    if isinstance(field, models.IntegerField):
        return Kind.WHOLE
    return Kind.TEXT


def _sort(table: str, name: str) -> Sort:
    if name in PERSONAL.get(table, ()):
        return Sort.PERSONAL
    return Sort.LINKING if name in LINKING.get(table, ()) else Sort.PLAIN


def _catalogue() -> dict[str, dict[str, CoreColumn]]:
    return {
        model._meta.db_table: {
            field.column: CoreColumn(
                model._meta.db_table, field.column, _kind(field), _sort(model._meta.db_table, field.column)
            )
            for field in model._meta.concrete_fields
            if field.column not in HIDDEN
        }
        for model in FACT_MODELS
    }


# table -> column -> what it is: all that analysts' statements can name.
CATALOGUE: Mapping[str, Mapping[str, CoreColumn]] = _catalogue()
# What needs a grant to be shown, as a grant names it.
GRANTABLE = tuple(
    column.full_name for columns in CATALOGUE.values() for column in columns.values() if column.sort is not Sort.PLAIN
)
