"""The core system's facts, to look at: they are written by the importer alone. Customers' names are masked."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from guard.access.masking import mask
from guard.access.staff_admin import ReadOnlyAdmin
from memory.core.models import (
    CoreAssessment,
    CoreAssignment,
    CoreCustomer,
    CoreFact,
    CorePosition,
    CoreProduct,
    CoreTrade,
)


class CoreAdmin(ReadOnlyAdmin):
    """Lists by the newest row; search is exact."""

    ordering = ("-id",)
    # A row's page would be headed by the customer's id in full; the list says all there is.
    list_display_links = None

    @admin.display(description=_("customer"))
    def customer(self, row: CoreFact) -> str:
        return mask(getattr(row, "customer_id", ""))


@admin.register(CoreCustomer)
class CoreCustomerAdmin(CoreAdmin):
    list_display = ("customer", "masked_name", "kind", "investor_type", "opened_at", "valid_from")
    list_filter = ("kind", "investor_type")
    exact_search = ("customer_id",)
    fields = ("tenant", "customer", "masked_name", "kind", "investor_type", "opened_at", "valid_from")
    readonly_fields = ("customer", "masked_name")

    @admin.display(description=_("name"))
    def masked_name(self, row: CoreCustomer) -> str:
        return row.name[:1] + "**" if row.name else ""


@admin.register(CoreProduct)
class CoreProductAdmin(CoreAdmin):
    list_display = ("product_id", "issuer_id", "asset_class", "risk_level", "is_complex", "is_cash_like", "valid_from")
    list_filter = ("asset_class", "risk_level")
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
    list_display = ("advisor_id", "customer", "valid_from", "valid_to")
    exact_search = ("customer_id", "advisor_id")
    fields = ("tenant", "advisor_id", "customer", "valid_from", "valid_to")
    readonly_fields = ("customer",)


@admin.register(CorePosition)
class CorePositionAdmin(CoreAdmin):
    list_display = ("customer", "product_id", "as_of", "quantity", "market_value")
    exact_search = ("customer_id", "product_id")
    fields = ("tenant", "customer", "product_id", "as_of", "quantity", "market_value")
    readonly_fields = ("customer",)


@admin.register(CoreTrade)
class CoreTradeAdmin(CoreAdmin):
    list_display = (
        "trade_id",
        "version",
        "customer",
        "trade_type",
        "product_id",
        "amount",
        "currency",
        "status",
        "traded_at",
    )
    list_filter = ("trade_type", "status", "channel")
    exact_search = ("trade_id", "customer_id", "product_id", "advisor_id")
    readonly_fields = ("customer",)
    exclude = ("customer_id",)
