"""The alerts in the admin: a live queue and a page to work on one alert. Nothing is added, edited or deleted here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from config.base.clock import now, rfc3339
from config.base.errors import DomainError
from guard.access.people import RefusalRecorded
from guard.access.staff_admin import person_of
from guard.access.unmasking import may_unmask, unmask
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.alerts.evidence import evidence_hash
from risk.alerts.judging import needs_four_eyes
from risk.alerts.looking import look
from risk.alerts.models import AlertType, RiskAlert
from risk.alerts.selectors import officers_of
from risk.console.acts import (
    ACTS,
    DONE,
    allowed_acts,
    conflict_of,
    form_of,
    overtaken,
    perform,
    recording_refusals,
)
from risk.console.casefile.views import CaseFileViews, casefile_context
from risk.console.casework import CaseworkViews, casework_context
from risk.console.feed import feed_seq, request_sight, request_tenant
from risk.console.forms import (
    ApprovalForm,
    AssignmentForm,
    DispositionForm,
    NoteForm,
    ReopenForm,
    ReturnForm,
    SnoozeForm,
    UnmaskForm,
)
from risk.console.page import alert_page
from risk.console.queueing import QueueViews, require_sight
from risk.console.rows import clock_words, due_chip
from risk.console.sight import alerts_of
from risk.console.since import since_answer
from risk.console.unmasking import KIND


@admin.register(RiskAlert)
class RiskAlertAdmin(CaseFileViews, CaseworkViews, QueueViews):
    """Queue, page and the officers' acts. Every act is a POST that calls a service; a manager's is refused. Each
    refusal leaves an audit row."""

    # --- who may: see risk.console.sight; nobody adds, edits or deletes ------------------------------------------

    def has_view_permission(self, request: HttpRequest, obj: RiskAlert | None = None) -> bool:
        return request_sight(request).anything

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request_sight(request).anything

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: RiskAlert | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: RiskAlert | None = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> Any:
        return alerts_of(tenant=request_tenant(request), sight=request_sight(request))

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        acts = [path(f"<str:alert_id>/{name}/", wrap(self._act(name)), name=f"risk_riskalert_{name}") for name in ACTS]
        acts.append(path("<str:alert_id>/unmask/", wrap(self.unmask_view), name="risk_riskalert_unmask"))
        acts.append(path("<str:alert_id>/since/", wrap(self.since_view), name="risk_riskalert_since"))
        urls = [*self.queue_urls(), *self.casework_urls(), *self.casefile_urls(), *acts, *super().get_urls()]
        for url in urls:
            if url.name:
                url.callback = recording_refusals(url.callback, url.name.removeprefix("risk_riskalert_"))
        return urls

    # --- one alert ----------------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The alert's page; opening it is an audit row."""
        require_sight(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        alert = self._alert(request, object_id)
        record(
            tenant=alert.tenant,
            event_type=EventType.ALERT_VIEWED,
            decision=Decision.VIEWED,
            actor_type=ActorType.STAFF,
            actor_id=request.user.get_username(),
            object_type="risk_alert",
            object_id=alert.pk,
        )
        page = self._page(request, alert)
        look(alert=alert, person=request.user)
        return page

    def since_view(self, request: HttpRequest, alert_id: str) -> HttpResponse:
        """What has happened to the alert since the page that asks showed it. The page was on record when it opened."""
        require_sight(request)
        return since_answer(request, self._alert(request, alert_id))

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        require_sight(request)
        return super().history_view(request, object_id, extra_context)

    def _alert(self, request: HttpRequest, alert_id: str) -> RiskAlert:
        found = (
            self.get_queryset(request)
            .select_related("assignee", "disposed_by", "proposed_by")
            .filter(pk=alert_id)
            .first()
        )
        if found is None:
            raise Http404(_("No such alert."))
        alert: RiskAlert = found
        return alert

    def _page(
        self,
        request: HttpRequest,
        alert: RiskAlert,
        *,
        sent: Form | None = None,
        act: str = "",
        conflict: dict[str, Any] | None = None,
        status: int = 200,
        clear: Mapping[str, str] | None = None,
        unmasking: UnmaskForm | None = None,
    ) -> HttpResponse:
        feed_seq(request)
        sight = request_sight(request)
        allowed = allowed_acts(alert, request.user, sight)
        page = alert_page(alert, sight, person=request.user, clear=clear is not None)
        written = sent["text"].value() or "" if sent is not None and "text" in sent.fields else ""
        context = {
            **self.admin_site.each_context(request),
            "title": page.words.capitalize() if page.words.isascii() else page.words,
            "opts": self.opts,
            "page": page,
            "alert": alert,
            "acts": allowed,
            "disposition": sent if isinstance(sent, DispositionForm) else DispositionForm(alert=alert),
            "reopening": sent if isinstance(sent, ReopenForm) and act == "reopen" else ReopenForm(),
            "returning": sent if isinstance(sent, ReturnForm) else ReturnForm(),
            "approval": sent if isinstance(sent, ApprovalForm) else ApprovalForm(),
            "assignment": sent if isinstance(sent, AssignmentForm) else AssignmentForm(),
            "snoozing": sent if isinstance(sent, SnoozeForm) else SnoozeForm(),
            "officers": officers_of(alert.tenant) if "assign" in allowed else (),
            "evidence_hash": evidence_hash(alert),
            "four_eyes": needs_four_eyes(alert),
            "due": due_chip(alert),
            "clock": {"now": rfc3339(now()), **clock_words()},
            "may_sessions": request.user.has_perm("memory.view_agentsession"),  # type: ignore[union-attr]
            "note": sent if isinstance(sent, NoteForm) else NoteForm(),
            **casefile_context(alert, request),
            **casework_context(alert, request, sent=sent, clear=clear is not None),
            "conflict": conflict,
            "written": written,
            # What was written stays visible: in its form, or, where the alert takes that act no more, to be copied.
            "in_form": act in allowed,
            # Faults in the data are mended in the core; whose they are is nobody's business here.
            "may_unmask": bool(alert.customer_id)
            and sight.cases
            and alert.alert_type != AlertType.DATA_QUALITY
            and may_unmask(request.user),  # type: ignore[arg-type]
            "unmasking": unmasking or UnmaskForm(),
            "clear": clear,
            "queue_url": reverse("admin:risk_riskalert_changelist"),
            "customer_url": reverse("admin:customer", args=("alert", alert.pk))
            if alert.customer_id and sight.cases and alert.alert_type != AlertType.DATA_QUALITY
            else "",
        }
        return TemplateResponse(request, "risk/console/alert.html", context, status=status)

    def _act(self, name: str) -> Callable[[HttpRequest, str], HttpResponse]:
        def view(request: HttpRequest, alert_id: str) -> HttpResponse:
            return self.act_view(request, alert_id, name)

        view.__name__ = f"{name}_view"
        return view

    def act_view(self, request: HttpRequest, alert_id: str, name: str) -> HttpResponse:
        """One act of an officer.

        1. Only POST; a GET (the language switch after a conflict) leads to the page. 2. The role: refused with 403
        and an audit row, whatever the alert. 3. The form. 4. The service, which decides about status, version and
        text. 5. A conflict shows the alert anew, who acted, what and when, and what the officer had typed.
        """
        address = reverse("admin:risk_riskalert_change", args=[alert_id])
        if request.method != "POST":
            return HttpResponseRedirect(address)
        sight = request_sight(request)
        if not sight.acts:
            raise PermissionDenied
        alert = self._alert(request, alert_id)
        if alert.alert_type == AlertType.DATA_QUALITY:
            raise PermissionDenied
        form = form_of(name, alert, request)
        if not form.is_valid():
            late = None if name in allowed_acts(alert, request.user, sight) else overtaken(alert)
            return self._page(request, alert, sent=form, act=name, conflict=late, status=409 if late else 422)
        try:
            perform(name, alert, request.user, form.cleaned_data)
        except DomainError as error:
            if error.code == "FORBIDDEN":  # the role was taken away a moment ago; the service has recorded it
                raise RefusalRecorded from error
            fresh = self._alert(request, alert_id)
            if isinstance(form, DispositionForm):
                form.alert = fresh
            conflict = conflict_of(error)
            return self._page(request, fresh, sent=form, act=name, conflict=conflict, status=error.status)
        messages.success(request, DONE[name])
        return HttpResponseRedirect(address)

    def unmask_view(self, request: HttpRequest, alert_id: str) -> HttpResponse:
        """Shows whom the alert is about in clear, in the answer to this POST alone. One row each time."""
        address = reverse("admin:risk_riskalert_change", args=[alert_id])
        if request.method != "POST":
            return HttpResponseRedirect(address)
        form = UnmaskForm(request.POST)
        alert = (
            self.get_queryset(request)
            .select_related("assignee", "disposed_by", "proposed_by")
            .filter(pk=alert_id)
            .first()
        )
        if alert is not None and may_unmask(request.user) and not form.is_valid():  # type: ignore[arg-type]
            return self._page(request, alert, unmasking=form, status=422)
        try:
            clear = unmask(
                staff=person_of(request),
                kind=KIND,
                object_id=alert_id,
                reason=request.POST.get("reason", ""),
            )
        except DomainError as error:
            if error.code == "FORBIDDEN":
                raise RefusalRecorded from error
            raise Http404(_("No such alert.")) from error
        assert alert is not None
        response = self._page(request, alert, clear=clear)
        response["Cache-Control"] = "no-store"
        return response
