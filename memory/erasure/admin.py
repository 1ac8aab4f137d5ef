"""Receipts and legal holds, to look at; a hold is released here or by `manage.py legal_hold`."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from config.base.errors import DomainError
from guard.access.masking import mask
from guard.access.staff_admin import ReadOnlyAdmin, person_of, presence_filter, pretty, request_tenant
from memory.erasure.holds import release_hold
from memory.erasure.models import ErasureReceipt, LegalHold


@admin.register(ErasureReceipt)
class ErasureReceiptAdmin(ReadOnlyAdmin):
    """Whom it is about is known by a keyed hash alone: whoever has the id finds it with `erase_customer`."""

    list_display = ("id", "scope", "short", "state", "by", "started_at", "finished_at")
    list_filter = ("state", "scope")
    exact_search = ("subject",)
    search_help_text = _("Exactly a subject")
    fields = (
        "scope", "tenant", "subject", "state", "by", "reason", "started_at", "finished_at", "what_went", "what_stayed",
        "what_is_left",
    )  # fmt: skip
    readonly_fields = fields

    @admin.display(description=_("subject"))
    def short(self, receipt: ErasureReceipt) -> str:
        return f"{receipt.subject[:16]}…"

    @admin.display(description=_("removed"))
    def what_went(self, receipt: ErasureReceipt) -> SafeString:
        return pretty(receipt.removed)

    @admin.display(description=_("kept"))
    def what_stayed(self, receipt: ErasureReceipt) -> SafeString:
        return pretty(receipt.kept)

    @admin.display(description=_("still to do"))
    def what_is_left(self, receipt: ErasureReceipt) -> SafeString:
        return pretty(receipt.remains)


@admin.register(LegalHold)
class LegalHoldAdmin(ReadOnlyAdmin):
    list_display = ("id", "customer", "reason", "placed_by", "placed_at", "released_by", "released_at")
    list_filter = (("released_at", presence_filter(_("state"), there=_("lifted"), away=_("in force"))),)
    exact_search = ("customer_id",)
    search_help_text = _("Exactly a customer")
    actions = ("release",)
    fields = ("tenant", "customer", "reason", "placed_by", "placed_at", "released_by", "released_at")
    readonly_fields = fields

    @admin.display(description=_("customer"))
    def customer(self, hold: LegalHold) -> str:
        return mask(hold.customer_id)

    def has_release_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memory.change_legalhold")  # type: ignore[union-attr]

    @admin.action(description=_("Release the selected holds"), permissions=["release"])
    def release(self, request: HttpRequest, holds: Any) -> None:
        released = 0
        for pk in holds.filter(released_at=None).values_list("pk", flat=True):
            try:
                release_hold(hold_id=pk, by=person_of(request), tenant=request_tenant(request))
            except DomainError as refused:
                messages.error(request, f"{pk}: {refused.detail}")
            else:
                released += 1
        if released:
            messages.success(request, _("%(count)d holds released.") % {"count": released})
