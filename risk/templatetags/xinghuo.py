"""Template filters of the console."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django import template

from memory.core.models import CustomerKind, InvestorType

register = template.Library()


@register.filter
def money(value: Any) -> str:
    """`1234567.5` becomes `1,234,567.50`; what is no number stays as it is."""
    try:
        return f"{Decimal(str(value)):,.2f}"
    except InvalidOperation:
        return str(value)


@register.filter
def kind_word(value: str) -> Any:
    """The words of a customer's kind."""
    return CustomerKind(value).label if value in CustomerKind.values else "—"


@register.filter
def investor_word(value: str) -> Any:
    """The words of an investor type."""
    return InvestorType(value).label if value in InvestorType.values else "—"


@register.filter
def percent(value: Any) -> str:
    """`0.634512` becomes `63.5 %`; what is no number is a dash."""
    try:
        return f"{Decimal(str(value)) * 100:.1f} %"
    except InvalidOperation:
        return "—"
