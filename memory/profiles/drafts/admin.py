"""Drafts in the console: what waits, and a page on which a reviewer reads, compares, approves or rejects.

The words may name the customer: whoever may review reads them, and each look is on record; others see where the review
stands. The customer and the recipient are masked for everybody until they are unmasked, for a reason.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.asked import number
from config.base.errors import DomainError
from guard.access.masking import mask
from guard.access.people import RefusalRecorded
from guard.access.roles import may
from guard.access.staff_admin import ReadOnlyAdmin, person_of
from guard.access.unmasking import may_unmask, unmask
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.profiles.drafts import selectors, services
from memory.profiles.drafts.differences import changed_fields, differences
from memory.profiles.drafts.models import AdvisorDraft, ReviewStatus
from memory.profiles.drafts.policies import OBJECT, REVIEW, is_author
from memory.profiles.drafts.unmasking import KIND


@admin.register(AdvisorDraft)
class AdvisorDraftAdmin(ReadOnlyAdmin):
    list_display = (
        "short", "review_status", "customer", "advisor_id", "revision", "submitted_at", "reviewed_by", "expires_at",
    )  # fmt: skip
    list_filter = ("review_status", "reviewer_kind")
    exact_search = ("draft_id", "customer_id", "advisor_id", "reviewed_by")
    search_help_text = gettext_lazy("Exactly a draft, customer, advisor or reviewer")
    ordering = ("-draft_id",)

    @admin.display(description=gettext_lazy("draft"))
    def short(self, draft: AdvisorDraft) -> str:
        return f"…{draft.draft_id[-12:]}"

    @admin.display(description=gettext_lazy("customer"))
    def customer(self, draft: AdvisorDraft) -> str:
        return mask(draft.customer_id)

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        acts = [
            path(f"<str:draft_id>/{act}/", wrap(view), name=f"memory_advisordraft_{act}")
            for act, view in (
                ("approve", self.approve_view),
                ("reject", self.reject_view),
                ("unmask", self.unmask_view),
            )
        ]
        return [*acts, *super().get_urls()]

    # --- the page -----------------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        draft = self.get_queryset(request).filter(pk=object_id).first()
        if draft is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        return self._page(request, draft)

    def _page(
        self, request: HttpRequest, draft: AdvisorDraft, *, error: str = "", reason: str = "", status: int = 200,
        clear: Any = None,
    ) -> HttpResponse:  # fmt: skip
        person = person_of(request)
        reads = may(person, REVIEW)
        revisions = selectors.revisions_of(draft)
        newest = revisions[-1]
        chosen = request.GET.get("from", "")
        before = [one for one in revisions[:-1] if str(one.number) == chosen] or revisions[:-1][-1:]
        old = before[-1] if before else None
        if reads:
            self._record_look(request, draft)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Draft"),
            "opts": self.opts,
            "draft": draft,
            "customer": clear["customer_id"] if clear else mask(draft.customer_id),
            "recipient": clear["recipient"] if clear else mask(newest.recipient),
            "clear": bool(clear),
            "reads": reads,
            "newest": newest,
            "old": old,
            "earlier": revisions[:-1],
            "lines": differences(old, newest) if reads else (),
            "changed": changed_fields(old, newest),
            "own": is_author(person, draft),
            "waits": draft.review_status == ReviewStatus.SUBMITTED,
            "may_unmask": may_unmask(person),
            "error": error,
            "reason": reason,
        }
        response = TemplateResponse(request, "memory/draft.html", context, status=status)
        response["Cache-Control"] = "no-store"
        return response

    def _record_look(self, request: HttpRequest, draft: AdvisorDraft) -> None:
        record(
            tenant=draft.tenant,
            event_type=EventType.UNMASK,
            decision=Decision.GRANTED,
            actor_type=ActorType.STAFF,
            actor_id=request.user.get_username()[:64],
            object_type=OBJECT,
            object_id=draft.draft_id,
            input_summary={"fields": ["subject", "body"], "reason": "review", "customer_id": draft.customer_id},
        )

    # --- acts: POSTs that call a service, which decides ---------------------------------------------------------

    def approve_view(self, request: HttpRequest, draft_id: str) -> HttpResponse:
        return self._act(request, draft_id, "approve")

    def reject_view(self, request: HttpRequest, draft_id: str) -> HttpResponse:
        return self._act(request, draft_id, "reject")

    def _act(self, request: HttpRequest, draft_id: str, act: str) -> HttpResponse:
        address = reverse("admin:memory_advisordraft_change", args=[draft_id])
        if request.method != "POST":
            return HttpResponseRedirect(address)
        sent = request.POST
        version = sent.get("version", "")
        common: dict[str, Any] = {
            "by": person_of(request), "draft_id": draft_id, "version": number(version) or 0,
        }  # fmt: skip
        try:
            if act == "approve":
                services.approve_draft(**common, content_hash=sent.get("content_hash", ""))
                messages.success(request, _("Approved: these words and no others may be sent."))
            else:
                services.reject_draft(**common, reason=sent.get("reason", ""))
                messages.success(request, _("Rejected: it is with its author again."))
        except DomainError as refused:
            return self._refused(request, draft_id, refused)
        return HttpResponseRedirect(address)

    def _refused(self, request: HttpRequest, draft_id: str, refused: DomainError) -> HttpResponse:
        if refused.status == 403:
            raise RefusalRecorded(refused.detail) from refused
        draft = self.get_queryset(request).filter(pk=draft_id).first()
        if refused.status == 404 or draft is None:
            raise Http404(_("No such draft.")) from refused
        told = {
            "VERSION_CONFLICT": _("The draft has changed since you opened it. Read it again."),
            "DRAFT_STATUS": _("The draft is no longer waiting for a review."),
            "DRAFT_EXPIRED": _("The draft waited too long and has expired."),
            "DRAFT_HASH_MISMATCH": _("The words are not those that were submitted. Nothing was approved."),
            "INVALID_REQUEST": _("Say why, in 1 to 500 characters."),
        }.get(refused.code, refused.detail)
        status = 422 if refused.code == "INVALID_REQUEST" else 409
        return self._page(request, draft, error=told, reason=request.POST.get("reason", "")[:500], status=status)

    def unmask_view(self, request: HttpRequest, draft_id: str) -> HttpResponse:
        """Shows the customer and the recipient in clear, in the answer to this POST alone. One row each time."""
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:memory_advisordraft_change", args=[draft_id]))
        draft = self.get_queryset(request).filter(pk=draft_id).first()
        try:
            clear = unmask(
                staff=person_of(request), kind=KIND, object_id=draft_id, reason=request.POST.get("reason", "")
            )
        except DomainError as error:
            if error.code == "INVALID_REQUEST" and draft is not None and self.has_view_permission(request):
                return self._page(request, draft, error=_("Say why, in 5 to 200 characters."), status=422)
            if error.status == 403:
                raise RefusalRecorded from error
            raise Http404(_("No such draft.")) from error
        assert draft is not None
        return self._page(request, draft, clear=clear)
