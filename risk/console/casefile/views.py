"""The case file on the alert's page: made by a POST, listed with its hash, and checked when one is handed in.

It shows what the page shows, as masked. Whoever may act on the case may make one, and each is on the record; who only
looks, as a manager does, sees which there are.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import path, reverse
from django.utils.translation import gettext as _

from config.base.clock import business_zone
from config.base.uploads import too_much
from guard.access.staff_admin import person_of
from risk.alerts.models import AlertType, RiskAlert
from risk.console.casefile.content import local
from risk.console.casefile.making import case_files_of, found_by_hash, make_case_file, sha256_of
from risk.console.casework import sealed_off
from risk.console.feed import request_sight, request_tenant
from risk.console.sight import alerts_of


def casefile_context(alert: RiskAlert, request: HttpRequest) -> dict[str, Any]:
    sight = request_sight(request)
    if alert.alert_type == AlertType.DATA_QUALITY or not sight.cases:
        return {}
    return {"case_files": case_files_of(alert), "case_file": True, "makes_case_files": sight.acts}


class CaseFileViews(admin.ModelAdmin):  # type: ignore[type-arg]
    def casefile_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("<str:alert_id>/casefile/", wrap(self.casefile_view), name="risk_riskalert_casefile"),
            path("<str:alert_id>/check/", wrap(self.check_view), name="risk_riskalert_check"),
        ]

    def casefile_view(self, request: HttpRequest, alert_id: str) -> HttpResponseBase:
        """Makes the PDF in the reader's language. Recorded first: no record, no file."""
        if request.method != "POST":
            return _back(alert_id)
        alert = _case(request, alert_id)
        made = make_case_file(alert=alert, person=person_of(request), sight=request_sight(request))
        response = HttpResponse(made.content, content_type="application/pdf")
        name = f"case-{alert.pk}-{made.row.made_at.astimezone(business_zone()):%Y%m%d-%H%M%S}.pdf"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        response["X-Case-File-SHA256"] = made.row.sha256
        return sealed_off(response)

    def check_view(self, request: HttpRequest, alert_id: str) -> HttpResponseBase:
        """Whether a file that is handed in is one that was handed out, to the byte. The file is kept nowhere."""
        if request.method != "POST":
            return _back(alert_id)
        alert = _case(request, alert_id)
        file = request.FILES.get("handed_in")
        if file is None or too_much(request):
            messages.error(request, _("Choose the PDF that was handed in."))
            return _back(alert.pk)
        digest = sha256_of(file)  # type: ignore[arg-type]  # Django's File reads like one
        found = found_by_hash(tenant=alert.tenant, sha256=digest)
        here = next((row for row in found if row.alert_id == alert.pk), None)  # type: ignore[attr-defined]
        if here is not None:
            said = _("It is the case file that %(who)s made at %(at)s, to the byte. SHA-256 %(hash)s.")
            values = {"who": here.made_by.get_username(), "at": local(here.made_at), "hash": digest}
            messages.success(request, said % values)
        elif found:
            messages.warning(
                request,
                _("It is a case file, of another alert: %(alert)s.") % {"alert": found[0].alert_id},  # type: ignore[attr-defined]
            )
        else:
            messages.error(
                request, _("No case file that was handed out has these bytes. SHA-256 %(hash)s.") % {"hash": digest}
            )
        return _back(alert.pk)


def _case(request: HttpRequest, alert_id: str) -> RiskAlert:
    sight = request_sight(request)
    if not sight.cases or not sight.acts:
        raise PermissionDenied
    cases = alerts_of(tenant=request_tenant(request), sight=sight).exclude(alert_type=AlertType.DATA_QUALITY)
    alert = cases.select_related("assignee", "disposed_by", "proposed_by").filter(pk=alert_id).first()
    if alert is None:
        raise Http404(_("No such alert."))
    return alert


def _back(alert_id: str) -> HttpResponseRedirect:
    return HttpResponseRedirect(reverse("admin:risk_riskalert_change", args=[alert_id]))
