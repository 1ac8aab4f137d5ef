"""Conversations, to look at. What was said is shown only to those who may see messages, and each look is recorded."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from guard.access.masking import mask
from guard.access.staff_admin import ReadOnlyAdmin, pretty, request_tenant
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.sessions.models import AgentMessage, AgentSession, MessageDeadLetter


@admin.register(AgentSession)
class AgentSessionAdmin(ReadOnlyAdmin):
    list_display = ("session_id", "agent", "actor_masked", "customer", "created_at", "deleted_at", "messages_link")
    list_filter = ("agent",)
    exact_search = ("session_id", "customer_id")
    search_help_text = _("Exactly a session or a customer")
    fields = ("tenant", "session_id", "agent", "actor_masked", "customer", "created_at", "deleted_at", "messages_link")
    readonly_fields = ("actor_masked", "customer", "messages_link")

    @admin.display(description=_("actor"))
    def actor_masked(self, row: AgentSession) -> str:
        # The customer agent's actor is a customer.
        return mask(row.actor_id) if row.agent == "customer" else row.actor_id

    @admin.display(description=_("customer"))
    def customer(self, row: AgentSession) -> str:
        return mask(row.customer_id) or "—"

    @admin.display(description=_("messages"))
    def messages_link(self, row: AgentSession) -> SafeString:
        address = reverse("admin:memory_agentmessage_changelist")
        return format_html('<a href="{}?q={}">{}</a>', address, row.session_id, _("messages"))


@admin.register(AgentMessage)
class AgentMessageAdmin(ReadOnlyAdmin):
    list_display = ("entry_id", "session_id", "seq", "role", "entry_type", "agent", "size", "created_at")
    list_filter = ("role", "agent")
    search_fields = ("session_id",)
    search_help_text = _("Exactly a session id")
    ordering = ("-id",)
    fields = (
        "tenant", "session_id", "entry_id", "parent_entry_id", "seq", "entry_type", "role", "agent", "said",
        "extra", "size", "trace_id", "created_at",
    )  # fmt: skip
    readonly_fields = ("said", "extra")

    def get_queryset(self, request: HttpRequest) -> Any:
        # Contents may be megabytes each: the list does without them.
        return super().get_queryset(request).defer("content", "payload")

    def get_search_fields(self, request: HttpRequest) -> Any:
        return self.search_fields

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if not search_term.strip():
            return queryset, False
        # Through the session's row, which is what messages are indexed by.
        sessions = AgentSession.objects.filter(tenant=request_tenant(request), session_id=search_term.strip())
        return queryset.filter(session_row__in=list(sessions.values_list("pk", flat=True)[:10])), False

    @admin.display(description=_("content"))
    def said(self, row: AgentMessage) -> SafeString:
        return format_html('<pre class="x-said">{}</pre>', row.content[:20_000])

    @admin.display(description=_("payload"))
    def extra(self, row: AgentMessage) -> Any:
        return "—" if row.payload is None else pretty(row.payload)

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
                object_type="agent_message",
                object_id=object_id[:64],
            )
        return response


@admin.register(MessageDeadLetter)
class MessageDeadLetterAdmin(ReadOnlyAdmin):
    """Why each is here; not what it says."""

    list_display = ("id", "session_id", "entry_id", "seq", "reason")
    list_filter = ("reason",)
    exact_search = ("session_id", "entry_id")
    list_display_links = None
    exclude = ("raw",)
