"""The audit log, to search, read and export. Nobody changes it here: the database's triggers refuse it to everybody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Exists
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from config.base.asked import moment
from config.base.clock import business_zone, now
from guard.access.staff_admin import ReadOnlyAdmin, pretty, request_tenant
from guard.audit.models import ActorType, AuditLog, Decision, EventType
from guard.audit.selectors import Found, Place, Search, as_csv, as_jsonl, find, page_of, stream
from guard.audit.services import record
from guard.audit.words import DECISIONS, EVENTS

EXPORT = "guard.export_auditlog"
_FORMATS = {"csv": (as_csv, "text/csv; charset=utf-8"), "jsonl": (as_jsonl, "application/x-ndjson")}
# Parameters of the page that are no columns. `before` turns the page.
_OWN = ("since", "until", "decision", "actor", "object", "code", "trace", "customer", "before")


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


class SearchForm(forms.Form):
    """Times are the business zone's, as the page shows them; a day alone as `until` is meant with the whole day."""

    since = forms.CharField(label=_("From"), required=False, max_length=32)
    until = forms.CharField(label=_("To"), required=False, max_length=32)
    event = forms.CharField(required=False, max_length=32, widget=forms.HiddenInput)
    decision = forms.ChoiceField(
        label=_("Decision"),
        required=False,
        choices=[("", _("All")), *((one.value, DECISIONS[one]) for one in Decision)],
    )
    actor = forms.CharField(label=_("Actor"), required=False, max_length=64)
    object = forms.CharField(label=_("Object"), required=False, max_length=64)
    code = forms.CharField(label=_("Code"), required=False, max_length=32)
    trace = forms.CharField(label=_("Trace"), required=False, max_length=32)
    customer = forms.CharField(label=_("Customer"), required=False, max_length=64)
    q = forms.CharField(required=False, max_length=64, widget=forms.HiddenInput)

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        # The filter beside the table has its parameter named so.
        self.fields["actor_type__exact"] = forms.CharField(required=False, max_length=16, widget=forms.HiddenInput)

    def clean_since(self) -> datetime | None:
        return _moment(self.cleaned_data["since"])

    def clean_until(self) -> datetime | None:
        text = self.cleaned_data["until"].strip()
        found = _moment(text)
        return found + timedelta(days=1) if found is not None and len(text) <= 10 else found

    def search(self) -> Search:
        """What can be read of it; what cannot is told by the form and finds nothing."""
        if not self.is_valid():
            return Search(event="-")
        asked = {name.removesuffix("__exact"): value for name, value in self.cleaned_data.items() if value}
        return Search(**asked)


def _moment(text: str) -> datetime | None:
    if not text.strip():
        return None
    found = moment(text, business_zone())
    if found is None:
        raise forms.ValidationError(_("Write it as 2026-11-30 or 2026-11-30 08:15."))
    return found


class KeysetList(ChangeList):
    """Pages by time, newest first: no COUNT, no OFFSET, and the thousandth page costs what the first does."""

    older: Place | None = None

    def get_filters_params(self, params: Any = None) -> Any:
        found = super().get_filters_params(params)
        for name in _OWN:
            found.pop(name, None)
        return found

    def get_query_string(self, new_params: Any = None, remove: Any = None) -> str:
        return super().get_query_string(
            new_params, [*(remove or ()), *(() if "before" in (new_params or {}) else ("before",))]
        )

    def get_results(self, request: HttpRequest) -> None:
        page = page_of(
            Found(self.queryset, _found(request).ways),
            size=self.list_per_page + 1,
            older_than=Place.read(request.GET.get("before", "")),
        )
        self.result_list = page[: self.list_per_page]
        last = self.result_list[-1] if len(page) > self.list_per_page else None
        self.older = Place(last.at, last.pk) if last else None
        self.result_count, self.full_result_count = len(self.result_list), None
        self.show_full_result_count, self.show_admin_actions = False, False
        self.can_show_all = self.multi_page = False
        self.paginator = Paginator(self.result_list, self.list_per_page)

    @property
    def older_link(self) -> str:
        return self.get_query_string({"before": self.older}) if self.older else ""

    @property
    def newest_link(self) -> str:
        return self.get_query_string() if "before" in self.params else ""


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
    sortable_by = ()
    search_help_text = _("Exactly a trace id, an actor, an object or a customer")
    list_display_links = ("at_exact",)
    fields = (
        "at_exact", "event", "outcome", "tenant", "actor_type", "actor_id", "on_behalf_of", "agent", "object_type",
        "object_id", "customer", "code", "risk_score", "trace_id", "summary",
    )  # fmt: skip
    readonly_fields = fields

    def get_urls(self) -> list[URLPattern]:
        export = path("export/<str:kind>/", self.admin_site.admin_view(self.export), name="guard_auditlog_export")
        return [export, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return KeysetList

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        # The term is part of the search that get_queryset has made.
        return queryset, False

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        if request.resolver_match and request.resolver_match.url_name == "guard_auditlog_changelist":
            rows = _found(request).rows  # of which KeysetList takes what fits the search's alternatives
        return rows

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        extra = {"search_form": _form(request), "may_export": request.user.has_perm(EXPORT)}  # type: ignore[union-attr]
        return super().changelist_view(request, {**extra, **(extra_context or {})})

    def export(self, request: HttpRequest, kind: str) -> HttpResponseBase:
        """What the search finds, as a file, streamed. Recorded first: no record, no file."""
        if not (self.has_view_permission(request) and request.user.has_perm(EXPORT)):  # type: ignore[union-attr]
            raise PermissionDenied
        form = _form(request)
        if kind not in _FORMATS or not form.is_valid():
            return HttpResponseRedirect(f"../../?{request.GET.urlencode()}")  # where the form says what is wrong
        tenant, search = request_tenant(request), form.search()
        record(
            tenant=tenant,
            event_type=EventType.EVIDENCE_EXPORTED,
            decision=Decision.EXPORTED,
            actor_type=ActorType.STAFF,
            actor_id=request.user.get_username(),
            object_type="audit_log",
            input_summary={"format": kind, "search": search.described(tenant)},
        )
        lines: Callable[[Any], Any]
        lines, content_type = _FORMATS[kind]
        response = StreamingHttpResponse(lines(stream(tenant, search)), content_type=content_type)
        name = f"audit-{now().astimezone(business_zone()):%Y%m%d-%H%M%S}.{kind}"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description=_("at"))
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


def _form(request: HttpRequest) -> SearchForm:
    form: SearchForm | None = getattr(request, "_xinghuo_audit_search", None)
    if form is None:
        form = SearchForm(request.GET)
        request._xinghuo_audit_search = form  # type: ignore[attr-defined]
    return form


def _found(request: HttpRequest) -> Found:
    found: Found | None = getattr(request, "_xinghuo_audit_found", None)
    if found is None:
        found = find(request_tenant(request), _form(request).search())
        request._xinghuo_audit_found = found  # type: ignore[attr-defined]
    return found
