"""Analysts' queries to look at, and their grants. Texts are masked: the normalised form says what was asked."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.clock import now
from config.base.errors import DomainError
from guard.access.people import RefusalRecorded
from guard.access.staff_admin import ReadOnlyAdmin, person_of, presence_filter, request_tenant
from guard.access.unmasking import may_unmask, unmask
from memory.core.personal import CATALOGUE, GRANTABLE
from memory.profiles.queries import grants, selectors
from memory.profiles.queries.models import AnalyticsGrant, AnalyticsQueryLog
from memory.profiles.queries.unmasking import KIND

REFUSALS = (
    "SQL_PERSONAL_COLUMN", "SQL_SINGLE_PERSON", "SQL_FORBIDDEN", "SQL_NOT_ONE_SELECT", "SQL_UNKNOWN_NAME",
    "SQL_INVALID", "SQL_TOO_COMPLEX",
)  # fmt: skip
STATES = {
    "refused": gettext_lazy("refused"),
    "checked": gettext_lazy("checked only"),
    "running": gettext_lazy("running"),
    "unfinished": gettext_lazy("started, never finished"),
    "done": gettext_lazy("done"),
    "timeout": gettext_lazy("timed out"),
    "too_large": gettext_lazy("too large"),
    "failed": gettext_lazy("failed"),
}


class TableFilter(admin.SimpleListFilter):
    title = gettext_lazy("table")
    parameter_name = "table"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in CATALOGUE]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(tables__contains=f'"{self.value()}"') if self.value() in CATALOGUE else queryset


class CodeFilter(admin.SimpleListFilter):
    """Of the codes that there are, not of those in the table: reading them would be a walk through all of it."""

    title = gettext_lazy("code")
    parameter_name = "code"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(code, code) for code in REFUSALS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(code=self.value()) if self.value() in REFUSALS else queryset


@admin.register(AnalyticsQueryLog)
class AnalyticsQueryLogAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_id", "state", "code", "touched", "found", "took", "short")
    list_filter = ("decision", "mode", TableFilter, CodeFilter)
    exact_search = ("actor_id", "fingerprint", "query_id", "trace_id")
    search_help_text = gettext_lazy("Exactly an analyst, fingerprint, query or trace")
    ordering = ("-query_id",)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """The page's ends in one query."""
        page = super().get_changelist_instance(request)
        page.result_list = list(page.result_list)
        for entry in selectors.entries(page.result_list, texts=False):
            entry.log.entry = entry  # type: ignore[attr-defined]
        return page

    @admin.display(description=gettext_lazy("state"))
    def state(self, log: Any) -> str:
        return str(STATES[log.entry.state])

    @admin.display(description=gettext_lazy("tables"))
    def touched(self, log: AnalyticsQueryLog) -> str:
        return ", ".join(log.tables)

    @admin.display(description=gettext_lazy("rows"))
    def found(self, log: Any) -> str:
        return str(log.entry.end.rows) if log.entry.end else ""

    @admin.display(description=gettext_lazy("ms"))
    def took(self, log: Any) -> str:
        return str(log.entry.end.duration_ms) if log.entry.end else ""

    @admin.display(description=gettext_lazy("fingerprint"))
    def short(self, log: AnalyticsQueryLog) -> str:
        return log.fingerprint[:12]

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.unmask_view)
        return [path("<str:query_id>/unmask/", view, name="memory_analyticsquerylog_unmask"), *super().get_urls()]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        log = self.get_queryset(request).filter(pk=object_id).first()
        if log is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        return self._page(request, log)

    def _page(
        self, request: HttpRequest, log: AnalyticsQueryLog, *, clear: Any = None, error: str = ""
    ) -> HttpResponse:
        [entry] = selectors.entries([log])
        context = {
            **self.admin_site.each_context(request),
            "title": _("Query"),
            "opts": self.opts,
            "log": log,
            "end": entry.end,
            "state": STATES[entry.state],
            "kept": bool(entry.text),
            "text": clear["text"] if clear else "",
            "may_unmask": may_unmask(person_of(request), KIND),
            "error": error,
        }
        response = TemplateResponse(request, "memory/query.html", context, status=422 if error else 200)
        response["Cache-Control"] = "no-store"
        return response

    def unmask_view(self, request: HttpRequest, query_id: str) -> HttpResponse:
        """Shows the text in the answer to this POST alone. One row each time."""
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:memory_analyticsquerylog_change", args=[query_id]))
        log = self.get_queryset(request).filter(pk=query_id).first()
        try:
            clear = unmask(
                staff=person_of(request), kind=KIND, object_id=query_id, reason=request.POST.get("reason", "")
            )
        except DomainError as refused:
            if refused.code == "INVALID_REQUEST" and log is not None and self.has_view_permission(request):
                return self._page(request, log, error=_("Say why, in 5 to 200 characters."))
            if refused.status == 403:
                raise RefusalRecorded from refused
            raise Http404(_("No such query.")) from refused
        assert log is not None
        return self._page(request, log, clear=clear)


class GrantForm(forms.Form):
    actor_id = forms.CharField(label=gettext_lazy("Analyst"), max_length=64)
    columns = forms.MultipleChoiceField(
        label=gettext_lazy("Columns"), choices=[(name, name) for name in GRANTABLE],
        widget=forms.SelectMultiple(attrs={"size": len(GRANTABLE)}),
    )  # fmt: skip
    days = forms.IntegerField(label=gettext_lazy("Days"), min_value=1, max_value=grants.MOST_DAYS, initial=7)
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=grants.MAX_REASON)


@admin.register(AnalyticsGrant)
class AnalyticsGrantAdmin(ReadOnlyAdmin):
    list_display = ("actor_id", "named", "reason", "granted_by", "granted_at", "expires_at", "in_force", "revoked_by")
    list_filter = (
        (
            "revoked_at",
            presence_filter(gettext_lazy("state"), there=gettext_lazy("revoked"), away=gettext_lazy("in force")),
        ),
    )
    exact_search = ("actor_id",)
    search_help_text = gettext_lazy("Exactly an analyst")
    ordering = ("-id",)
    actions = ("revoke",)
    fields = (
        "actor_id", "named", "reason", "granted_by", "granted_at", "expires_at", "revoked_at", "revoked_by",
    )  # fmt: skip
    readonly_fields = fields

    @admin.display(description=gettext_lazy("columns"))
    def named(self, grant: AnalyticsGrant) -> str:
        return ", ".join(grant.columns)

    @admin.display(description=gettext_lazy("in force"), boolean=True)
    def in_force(self, grant: AnalyticsGrant) -> bool:
        return grant.revoked_at is None and grant.expires_at > now()

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(grants.GRANT)  # type: ignore[union-attr]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = GrantForm(request.POST or None)
        list_url = reverse("admin:memory_analyticsgrant_changelist")
        if request.method == "POST" and form.is_valid():
            try:
                grants.grant_columns(by=person_of(request), tenant=request_tenant(request), **form.cleaned_data)
            except DomainError as refused:
                if refused.status == 403:
                    raise RefusalRecorded from refused
                form.add_error(None, refused.detail)
            else:
                messages.success(request, _("Granted; it counts from the next query on."))
                return HttpResponseRedirect(list_url)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Grant personal columns"),
            "opts": self.opts,
            "form": form,
            "list_url": list_url,
        }
        return TemplateResponse(request, "guard/admission_form.html", context)

    @admin.action(description=gettext_lazy("Revoke the selected grants"), permissions=["revoke"])
    def revoke(self, request: HttpRequest, rows: QuerySet[AnalyticsGrant]) -> None:
        done = sum(
            grants.revoke_grant(by=person_of(request), tenant=request_tenant(request), grant_id=pk)
            for pk in rows.values_list("pk", flat=True)
        )
        messages.success(request, _("%(count)d grants revoked.") % {"count": done})
