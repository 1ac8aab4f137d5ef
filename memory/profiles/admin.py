"""Profiles, to look at: they are written through the API, where the access matrix decides. Each look is recorded."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from config.base.clock import business_date, now
from guard.access.masking import mask
from guard.access.staff_admin import ReadOnlyAdmin, pretty, request_tenant
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.profiles import derived, documents
from memory.profiles.core_sync import was_asked
from memory.profiles.models import CustomerProfileL1, CustomerProfileL2, CustomerProfileL3, Profile, ProfileVersion

ASSESSMENTS = {
    "valid": _("valid"),
    "expiring": _("expires within 30 days"),
    "expired": _("expired"),
    "missing": _("missing"),
}


class ProfileAdmin(ReadOnlyAdmin):
    list_display: tuple[str, ...] = ("customer", "version", "updated_at", "updated_by")
    exact_search: tuple[str, ...] = ("customer_id",)
    search_help_text = _("Exactly a customer")
    ordering = ("-id",)
    readonly_fields: ClassVar[tuple[str, ...]] = ("content",)
    exclude: ClassVar[tuple[str, ...]] = ("payload", "core", "internal", "asset_snapshot")

    @admin.display(description=_("customer"))
    def customer(self, row: Profile | ProfileVersion) -> str:
        return mask(row.customer_id)

    @admin.display(description=_("fields"))
    def content(self, row: Profile) -> SafeString:
        names = ("payload", "core", "internal", "asset_snapshot")
        return pretty({name: getattr(row, name) for name in names if getattr(row, name, None)})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        response = super().change_view(request, object_id, form_url, extra_context)
        if response.status_code == 200 and self.has_view_permission(request):
            record(
                tenant=request_tenant(request),
                event_type=EventType.UNMASK,
                decision=Decision.GRANTED,
                actor_type=ActorType.STAFF,
                actor_id=request.user.get_username(),
                object_type=self.opts.db_table[:32],
                object_id=object_id[:64],
            )
        return response


@admin.register(CustomerProfileL1)
class CustomerProfileL1Admin(ProfileAdmin):
    """assessment: as it stands today; the fields below say only when it was made and until when it counts."""

    readonly_fields = ("assessment", "content")

    @admin.display(description=_("risk assessment"))
    def assessment(self, row: CustomerProfileL1) -> str:
        if not was_asked(row):
            return str(_("not known yet: the core system has not been asked"))
        status = derived.assessment_status(documents.l1_document(row), business_date(now()))
        return str(ASSESSMENTS[status])


@admin.register(CustomerProfileL2)
class CustomerProfileL2Admin(ProfileAdmin):
    list_display = ("customer", "advisor_id", "version", "updated_at", "updated_by")
    exact_search = ("customer_id", "advisor_id")


@admin.register(CustomerProfileL3)
class CustomerProfileL3Admin(ProfileAdmin):
    pass


@admin.register(ProfileVersion)
class ProfileVersionAdmin(ProfileAdmin):
    """Each version as it was written. The page of the customer shows what changed, masked; this one shows all of it."""

    list_display = ("customer", "layer", "version", "at", "writer", "agent", "deleted")
    exact_search = ("customer_id", "trace_id")
    search_help_text = _("Exactly a customer, or a trace")
    list_filter = ("layer", "deleted")
    readonly_fields = ("content",)
    exclude = ("columns",)

    @admin.display(description=_("author"))
    def writer(self, row: ProfileVersion) -> str:
        return mask(row.author) if row.author == row.customer_id else row.author

    @admin.display(description=_("fields"))
    def content(self, row: ProfileVersion) -> SafeString:  # type: ignore[override]
        return pretty(row.columns)
