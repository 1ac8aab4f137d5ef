"""Rules in the console: which figures are in force, drafts of others, their trials, and who puts them into force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from config.base.asked import number
from config.base.clock import business_day_bounds
from config.base.errors import DomainError
from guard.access.people import RefusalRecorded
from guard.access.staff_admin import ReadOnlyAdmin, person_of, request_tenant
from risk.console.ruling.page import error_words, lines_of, page_of, rights, summaries, taken_of
from risk.console.words import RULES
from risk.rules import trials, versions
from risk.rules.figures import FIGURES
from risk.rules.models import RiskRule
from risk.rules.ruling import ALL_MODULES

REFUSALS = {
    "RULE_OWN_VERSION": gettext_lazy("You have set figures of this version: somebody else activates it."),
    "RULE_UNCHANGED": gettext_lazy("Nothing was saved: nothing would differ from the figures that are there."),
    "VERSION_CONFLICT": gettext_lazy(
        "It was not done: this version, or what is in force, has changed since you looked. Read it again."
    ),
    "RULE_STATUS": gettext_lazy("It was not done: the version's status does not allow it (any more)."),
    "INVALID_REQUEST": gettext_lazy("Nothing was saved: see the fields that are marked."),
}


@admin.register(RiskRule)
class RiskRuleAdmin(ReadOnlyAdmin):
    list_display = ("rule_id", "version", "status", "activated_by", "activated_at", "created_by", "created_at")
    list_select_related = ("activated_by", "created_by")
    list_filter = ("status",)
    exact_search = ("rule_id",)
    search_help_text = gettext_lazy("Exactly a rule, as RISK-002")
    change_list_template = "risk/rules/list.html"

    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        acts = {
            "save": self.save_view,
            "shadow": self.shadow_view,
            "activate": self.activate_view,
            "drop": self.drop_view,
            "backtest": self.backtest_view,
        }
        own = [path(f"<int:pk>/{act}/", wrap(view), name=f"risk_riskrule_{act}") for act, view in acts.items()]
        draft = path("rule/<str:rule_id>/", wrap(self.draft_view), name="risk_riskrule_draft")
        return [draft, *own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        mine = {"rules": summaries(request_tenant(request)), "may": rights(person_of(request))}
        return super().changelist_view(request, {**mine, **(extra_context or {})})

    # --- a new draft ----------------------------------------------------------------------------------------------

    def draft_view(self, request: HttpRequest, rule_id: str) -> HttpResponse:
        """A rule's figures in force, or with ?from=3 another version's, to make a draft of."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if rule_id not in ALL_MODULES:
            raise Http404
        tenant = request_tenant(request)
        now = versions.in_force(tenant=tenant, rule_id=rule_id)
        base = number(request.GET.get("from", ""))
        figures, told = now.figures, base
        if base is not None and base != now.version:
            row = RiskRule.objects.filter(tenant=tenant, rule_id=rule_id, version=base).first()
            if row is None and base != 1:
                raise Http404
            figures, _damaged = versions.readable(rule_id, row.params if row else {})
        typed: dict[str, str] = {}
        errors: dict[str, str] = {}
        status, refusal = 200, None
        if request.method == "POST":
            typed = _typed(request, rule_id)

            def work() -> RiskRule:
                return versions.draft_version(
                    tenant=tenant, rule_id=rule_id, params=_params(typed), reason=typed.get("reason", ""),
                    is_on="on" in typed, base_version=base, by=person_of(request),
                )  # fmt: skip

            row, refusal = self._tried(work)
            if row is not None:
                messages.success(request, _("Draft %(version)s is saved.") % {"version": row.version})
                return HttpResponseRedirect(reverse("admin:risk_riskrule_change", args=[row.pk]))
        if refusal is not None:
            status, errors = refusal.status, error_words(rule_id, refusal.extra.get("fields", {}))
        context = {
            **self.admin_site.each_context(request),
            "title": f"{rule_id} {RULES.get(rule_id, '')}",
            "opts": self.opts,
            "rule_id": rule_id,
            "name": RULES.get(rule_id, rule_id),
            "now": now,
            "base": told,
            "lines": lines_of(rule_id, {**figures, **typed}, now, errors),
            "reason": typed.get("reason", ""),
            "is_on": "on" in typed if typed else True,
            "errors": errors,
            "error": REFUSALS.get(refusal.code, refusal.detail) if refusal else "",
            "taken": taken_of(rule_id),
            "edits": rights(person_of(request)).change,
            "may": rights(person_of(request)),
            "versions": RiskRule.objects.filter(tenant=tenant, rule_id=rule_id)
            .select_related("created_by", "activated_by")
            .order_by("-version")[:50],
        }
        return TemplateResponse(request, "risk/rules/draft.html", context, status=status)

    # --- one version ----------------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return self._page(request, self._row(request, number(object_id) or 0), editing="edit" in request.GET)

    def _row(self, request: HttpRequest, pk: int) -> RiskRule:
        row: RiskRule | None = (
            self.get_queryset(request).select_related("created_by", "edited_by", "activated_by", "retired_by")
        ).filter(pk=pk, rule_id__in=list(ALL_MODULES)).first()  # fmt: skip
        if row is None:
            raise Http404
        return row

    def _page(
        self, request: HttpRequest, row: RiskRule, *, refusal: DomainError | None = None, **shown: Any
    ) -> HttpResponse:
        """shown: as `page_of` takes it."""
        errors = error_words(row.rule_id, refusal.extra.get("fields", {})) if refusal else {}
        context = {
            **self.admin_site.each_context(request),
            "title": f"{row.rule_id} · {row.version}",
            "opts": self.opts,
            **page_of(row, person_of(request), errors=errors, **shown),
            "error": REFUSALS.get(refusal.code, refusal.detail) if refusal else "",
        }
        status = refusal.status if refusal else 200
        return TemplateResponse(request, "risk/rules/version.html", context, status=status)

    # --- acts: POSTs that call a service, which decides -----------------------------------------------------------

    def save_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self._row(request, pk)
        typed = _typed(request, row.rule_id) if request.method == "POST" else {}

        def work(common: dict[str, Any]) -> Any:
            return versions.edit_draft(
                **common, params=_params(typed), reason=typed.get("reason", ""), is_on="on" in typed
            )

        return self._act(request, row, work, _("The draft is saved."), typed=typed)

    def shadow_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        told = _("It is in shadow. Past trades are judged in the background.")
        return self._act(request, self._row(request, pk), lambda common: versions.put_in_shadow(**common), told)

    def activate_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        seen = number(request.POST.get("seen_version", ""))
        told = _("It is in force. Every customer is judged by it in the background.")
        return self._act(
            request, self._row(request, pk), lambda common: versions.activate(**common, seen_version=seen), told
        )

    def drop_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        return self._act(request, self._row(request, pk), lambda common: versions.drop(**common), _("It is dropped."))

    def backtest_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self._row(request, pk)
        period = {name: request.POST.get(name, "")[:32] for name in ("first", "last")}

        def work(common: dict[str, Any]) -> Any:
            first, last = _period(period)
            return trials.ask(
                tenant=row.tenant, pk=row.pk, by=common["by"],
                since=business_day_bounds(first)[0] if first else None,
                until=business_day_bounds(last)[1] if last else None,
            )  # fmt: skip

        told = _("The backtest runs in the background; load the page again to see what it found.")
        return self._act(request, row, work, told, period=period)

    def _act(
        self,
        request: HttpRequest,
        row: RiskRule,
        work: Callable[[dict[str, Any]], Any],
        told: str,
        **shown: Any,
    ) -> HttpResponse:
        """shown: what was sent, which the page shows again where it is refused (see `page_of`)."""
        address = reverse("admin:risk_riskrule_change", args=[row.pk])
        if request.method != "POST":
            return HttpResponseRedirect(address)
        common = {
            "tenant": request_tenant(request),
            "pk": row.pk,
            "revision": number(request.POST.get("revision", "")) or 0,
            "by": person_of(request),
        }
        _done, refusal = self._tried(lambda: work(common))
        if refusal is None:
            messages.success(request, told)
            return HttpResponseRedirect(address)
        return self._page(request, self._row(request, row.pk), refusal=refusal, **shown)

    @staticmethod
    def _tried(work: Callable[[], Any]) -> tuple[Any, DomainError | None]:
        """What the service made, or its refusal; that of a role is the page's: 403, with the row it has written."""
        try:
            return work(), None
        except DomainError as refused:
            if refused.code == "FORBIDDEN":
                raise RefusalRecorded(refused.detail) from refused
            if refused.status == 503:
                raise  # nothing that another value would mend
            return None, refused


def _typed(request: HttpRequest, rule_id: str) -> dict[str, str]:
    """The figures that were sent, by name, with `reason` and `on`. What the page does not have is left out."""
    sent = {name: request.POST[f"f-{name}"][:64] for name in FIGURES[rule_id] if f"f-{name}" in request.POST}
    sent["reason"] = request.POST.get("reason", "")[:2000]
    if request.POST.get("on"):
        sent["on"] = "1"
    return sent


def _params(typed: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in typed.items() if name not in ("reason", "on")}


def _period(sent: Mapping[str, str]) -> tuple[date | None, date | None]:
    """The first and last day of a backtest. Errors: INVALID_REQUEST with the fields that are wrong."""
    days: dict[str, date | None] = {}
    wrong: dict[str, str] = {}
    for name, text in sent.items():
        try:
            day = date.fromisoformat(text) if text else None
        except ValueError:
            wrong[name] = "no day"
            continue
        if day is not None and not trials.MIN_YEAR <= day.year <= trials.MAX_YEAR:
            wrong[name] = "out of reach"
        days[name] = day
    first, last = days.get("first"), days.get("last")
    if not wrong and first and last and last < first:
        wrong["last"] = "before the first"
    if wrong:
        raise DomainError("INVALID_REQUEST", "; ".join(f"{name}: {why}" for name, why in wrong.items()), fields=wrong)
    return first, last
