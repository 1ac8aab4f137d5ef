"""The audit log, to search and read. Nobody changes it here: the database's triggers refuse it to everybody."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Exists
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from config.base.clock import business_zone
from guard.access.staff_admin import ReadOnlyAdmin, pretty, request_tenant
from guard.audit.models import AuditLog, EventType
from guard.audit.words import DECISIONS, EVENTS


class EventFilter(admin.SimpleListFilter):
    """By event, in words. Offered is what the tenant's log holds: one query, a probe of the index for each word of the
    vocabulary, however long the log is."""

    title = _("event")
    parameter_name = "event"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        rows = AuditLog.objects.filter(tenant=request_tenant(request))
        probes = {event.value: Exists(rows.filter(event_type=event.value).order_by()) for event in EventType}
        held = rows.order_by().annotate(**probes).values(*probes)[:1]
        there: dict[str, bool] = next(iter(held), {})
        return [(event.value, EVENTS.get(event.value, event.value)) for event in EventType if there.get(event.value)]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.filter(event_type=self.value()) if self.value() else queryset


@admin.register(AuditLog)
class AuditLogAdmin(ReadOnlyAdmin):
    list_display = (
        "at_exact",
        "event",
        "outcome",
        "actor_type",
        "actor_id",
        "object_type",
        "object_id",
        "code",
        "trace",
    )
    list_filter = (EventFilter, "actor_type")
    exact_search = ("trace_id", "actor_id", "on_behalf_of", "object_id")
    search_help_text = _("Exactly a trace id, an actor or an object")
    list_display_links = ("at_exact",)
    fields = (
        "at_exact", "event", "outcome", "tenant", "actor_type", "actor_id", "on_behalf_of", "agent",
        "object_type", "object_id", "code", "risk_score", "trace_id", "summary",
    )  # fmt: skip
    readonly_fields = fields

    @admin.display(description=_("at"), ordering="id")
    def at_exact(self, row: AuditLog) -> str:
        return row.at.astimezone(business_zone()).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

    @admin.display(description=_("event"))
    def event(self, row: AuditLog) -> Any:
        return EVENTS.get(row.event_type, row.event_type)

    @admin.display(description=_("decision"))
    def outcome(self, row: AuditLog) -> Any:
        return DECISIONS.get(row.decision, row.decision)

    @admin.display(description=_("trace"))
    def trace(self, row: AuditLog) -> str:
        if not row.trace_id:
            return ""
        return format_html('<a class="mono" href="?q={}">{}…</a>', row.trace_id, row.trace_id[:8])

    @admin.display(description=_("summary"))
    def summary(self, row: AuditLog) -> SafeString:
        return pretty(row.input_summary)
