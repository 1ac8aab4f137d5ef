"""The core system's facts, to look at: they are written by the importer alone. Customers' names are masked."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from guard.access.masking import mask
from guard.access.staff_admin import ReadOnlyAdmin
from memory.core.models import (
    ALWAYS,
    CoreAssessment,
    CoreAssignment,
    CoreCustomer,
    CoreFact,
    CorePosition,
    CoreProduct,
    CoreTrade,
)


def _plain(number: Decimal | None) -> str:
    """`24100.00000` as `24,100.00`: at least two decimals, no trailing zeros beyond them."""
    if number is None:
        return "—"
    whole, _point, decimals = f"{number:,f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


class CoreAdmin(ReadOnlyAdmin):
    """Lists by the newest row; search is exact."""

    ordering = ("-id",)
    # A row's page would be headed by the customer's id in full; the list says all there is.
    list_display_links = None

    search_help_text = _("Exactly an id")

    @admin.display(description=_("valid from"), ordering="valid_from")
    def begins(self, row: CoreFact) -> Any:
        """The instant, or words for the one that stands for "at any time"."""
        begin = row.valid_from  # type: ignore[attr-defined]
        return _("always") if begin == ALWAYS else begin

    @admin.display(description=_("customer"))
    def customer(self, row: CoreFact) -> str:
        return mask(getattr(row, "customer_id", ""))


@admin.register(CoreCustomer)
class CoreCustomerAdmin(CoreAdmin):
    list_display = ("customer", "masked_name", "kind", "investor_type", "opened_at", "begins")
    list_filter = ("kind", "investor_type")
    exact_search = ("customer_id",)
    fields = ("tenant", "customer", "masked_name", "kind", "investor_type", "opened_at", "begins")
    readonly_fields = ("customer", "masked_name", "begins")

    @admin.display(description=_("name"))
    def masked_name(self, row: CoreCustomer) -> str:
        return row.name[:1] + "**" if row.name else ""


@admin.register(CoreProduct)
class CoreProductAdmin(CoreAdmin):
    list_display = ("product_id", "issuer_id", "asset_class", "risk_level", "is_complex", "is_cash_like", "begins")
    list_filter = ("asset_class", "risk_level")
    exclude = ("valid_from",)
    readonly_fields = ("begins",)
    exact_search = ("product_id", "issuer_id")


@admin.register(CoreAssessment)
class CoreAssessmentAdmin(CoreAdmin):
    list_display = ("customer", "c_level", "is_lowest", "assessed_at")
    list_filter = ("c_level",)
    exact_search = ("customer_id",)
    fields = ("tenant", "customer", "c_level", "is_lowest", "assessed_at")
    readonly_fields = ("customer",)


@admin.register(CoreAssignment)
class CoreAssignmentAdmin(CoreAdmin):
    list_display = ("advisor_id", "customer", "begins", "valid_to")
    exact_search = ("customer_id", "advisor_id")
    fields = ("tenant", "advisor_id", "customer", "begins", "valid_to")
    readonly_fields = ("customer", "begins")


@admin.register(CorePosition)
class CorePositionAdmin(CoreAdmin):
    list_display = ("customer", "product_id", "as_of", "units", "value")
    exact_search = ("customer_id", "product_id")
    fields = ("tenant", "customer", "product_id", "as_of", "units", "value")
    readonly_fields = ("customer", "units", "value")

    @admin.display(description=_("quantity"))
    def units(self, row: CorePosition) -> str:
        return _plain(row.quantity)

    @admin.display(description=_("market value"))
    def value(self, row: CorePosition) -> str:
        return _plain(row.market_value)


@admin.register(CoreTrade)
class CoreTradeAdmin(CoreAdmin):
    list_display = (
        "trade_id",
        "version",
        "customer",
        "trade_type",
        "product_id",
        "sum",
        "currency",
        "status",
        "traded_at",
    )
    list_filter = ("trade_type", "status", "channel")
    exact_search = ("trade_id", "customer_id", "product_id", "advisor_id")
    readonly_fields = ("customer",)
    exclude = ("customer_id",)

    @admin.display(description=_("amount"))
    def sum(self, row: CoreTrade) -> str:
        return _plain(row.amount)
