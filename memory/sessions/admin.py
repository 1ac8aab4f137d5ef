"""Conversations, to look at. What was said is shown only to those who may see messages, and each look is recorded."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from config.base.asked import number
from config.base.errors import DomainError
from guard.access.masking import mask
from guard.access.staff_admin import ReadOnlyAdmin, person_of, pretty, request_tenant
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.sessions.dead_letters import drop_letter, retry_letter, visible_tenants
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
            _looked_at(request, "agent_message", object_id)
        return response


@admin.register(MessageDeadLetter)
class MessageDeadLetterAdmin(ReadOnlyAdmin):
    """Why each is here, to everybody who may see the list; what it says, only to those who may read messages."""

    list_display = ("id", "created_at", "session_id", "entry_id", "seq", "reason", "outcome", "settled_by")
    list_filter = ("settled", "reason")
    exact_search = ("session_id", "entry_id")
    search_help_text = _("Exactly a session or an entry")
    actions = ("retry", "drop")
    change_form_template = "memory/dead_letter.html"
    readonly_fields = ("outcome", "said")

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = MessageDeadLetter.objects.filter(tenant__in=visible_tenants(request_tenant(request))).order_by("-id")
        return rows.defer("raw")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        names = [
            "created_at", "tenant", "session_id", "entry_id", "seq", "reason", "detail", "stream_id", "outcome",
            "settled_at", "settled_by",
        ]  # fmt: skip
        return [*names, "said"] if may_read(request) else names

    def has_settle_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memory.change_messagedeadletter")  # type: ignore[union-attr]

    @admin.display(description=_("outcome"))
    def outcome(self, letter: MessageDeadLetter) -> str:
        return str(letter.get_settled_display() or _("waiting"))

    @admin.display(description=_("entry"))
    def said(self, letter: MessageDeadLetter) -> SafeString:
        return format_html('<pre class="x-said">{}</pre>', letter.raw[:20_000])

    @admin.action(description=_("Retry the selected letters"), permissions=["settle"])
    def retry(self, request: HttpRequest, letters: Any) -> None:
        self._settle(request, list(letters.values_list("pk", flat=True)), "retry")

    @admin.action(description=_("Drop the selected letters"), permissions=["settle"])
    def drop(self, request: HttpRequest, letters: Any) -> HttpResponse | None:
        pks = list(letters.values_list("pk", flat=True))
        if request.POST.get("sure"):
            self._settle(request, pks, "drop")
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Drop dead letters"),
            "opts": self.opts,
            "letters": letters,
            "chosen": pks,
        }
        return TemplateResponse(request, "memory/drop_letters.html", context)

    def _settle(self, request: HttpRequest, pks: list[int], verb: str) -> None:
        """Each letter by itself: one that cannot be settled does not hold up the others."""
        who: dict[str, Any] = {"by": person_of(request), "tenant": request_tenant(request)}
        done = 0
        for pk in pks:
            try:
                if verb == "retry":
                    retry_letter(letter_id=pk, **who)
                else:
                    drop_letter(letter_id=pk, **who)
            except DomainError as refused:
                messages.error(request, f"{pk}: {refused.detail}")
            else:
                done += 1
        if done:
            text = _("%(count)d letters became messages.") if verb == "retry" else _("%(count)d letters dropped.")
            messages.success(request, text % {"count": done})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Shows the letter; a POST with `retry` or `drop` decides about it."""
        if request.method == "POST":
            if not self.has_settle_permission(request):
                raise PermissionDenied
            verb = "retry" if "retry" in request.POST else "drop" if "drop" in request.POST else ""
            letter = number(object_id)
            if verb and letter is not None:
                self._settle(request, [letter], verb)
            return HttpResponseRedirect(reverse("admin:memory_messagedeadletter_changelist"))
        extra = {**(extra_context or {}), "may_settle": self.has_settle_permission(request)}
        response = super().change_view(request, object_id, form_url, extra)
        if response.status_code == 200 and may_read(request):
            _looked_at(request, "message_dead_letter", object_id)
        return response


def may_read(request: HttpRequest) -> bool:
    """Whether this person may see what is said in conversations."""
    return request.user.has_perm("memory.view_agentmessage")  # type: ignore[union-attr]


def _looked_at(request: HttpRequest, what: str, object_id: str) -> None:
    record(
        tenant=request_tenant(request),
        event_type=EventType.UNMASK,
        decision=Decision.GRANTED,
        actor_type=ActorType.STAFF,
        actor_id=request.user.get_username(),
        object_type=what,
        object_id=object_id[:64],
    )
