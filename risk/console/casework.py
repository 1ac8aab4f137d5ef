"""What officers do with an alert beside judging it: files, on its page.

Part of the alerts' admin (`risk.console.admin`), which gives each of these its address and records who is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import FileResponse, Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _

from config.base.errors import DomainError
from config.base.pii import hidden
from guard.access.people import RefusalRecorded
from guard.access.staff_admin import person_of
from memory.core import selectors as core
from risk.alerts.attaching import may_open, opened
from risk.alerts.casework import AlertAttachment
from risk.alerts.models import AlertType, RiskAlert
from risk.alerts.sniffing import ENDINGS
from risk.console.feed import request_sight, request_tenant


@dataclass(frozen=True)
class FileRow:
    """name: without whom it names, '' where it was erased."""

    file: AlertAttachment
    name: str


class Words:
    """What was written about an alert, without the ids, names, numbers and addresses of people in it. clear: as it
    stands. Cost: 1 query of the core, the first time."""

    def __init__(self, alert: RiskAlert, *, clear: bool = False) -> None:
        self._alert, self._clear = alert, clear
        self._known: set[str] | None = None

    def __call__(self, text: str) -> str:
        if self._clear or not text:
            return text
        if self._known is None:
            tenant, customer_id = self._alert.tenant, self._alert.customer_id
            names = core.customer_history(tenant=tenant, customer_id=customer_id) if customer_id else []
            self._known = {customer_id, *(row.name or "" for row in names)}
        return hidden(text, self._known)


def files_of(alert: RiskAlert, words: Words) -> list[FileRow]:
    """Oldest first. 1 query."""
    rows = AlertAttachment.objects.filter(alert=alert).select_related("added_by")
    return [FileRow(row, words(row.file_name)) for row in rows]


def casework_context(alert: RiskAlert, request: HttpRequest, *, clear: bool = False) -> dict[str, Any]:
    """For the partial templates of the alert's page. Nothing on faults in the data, which nobody works on."""
    if alert.alert_type == AlertType.DATA_QUALITY or not request_sight(request).cases:
        return {}
    words = Words(alert, clear=clear)
    return {
        "files": files_of(alert, words),
        "may_open": may_open(person_of(request)),
        "file_endings": ",".join(ENDINGS),
    }


class CaseworkViews(admin.ModelAdmin):  # type: ignore[type-arg]
    """Each act is a POST that calls a service; a manager's is refused."""

    def casework_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path(
                "<str:alert_id>/file/<str:attachment_id>/", wrap(self.file_view), name="risk_riskalert_file"
            ),
        ]  # fmt: skip

    def file_view(self, request: HttpRequest, alert_id: str, attachment_id: str) -> HttpResponseBase:
        """A file as it was taken in. It is saved, never shown: whatever is in it runs in no page of ours."""
        if not request_sight(request).cases:
            raise PermissionDenied
        try:
            row, content = opened(alert_id=alert_id, attachment_id=attachment_id, person=person_of(request))
        except DomainError as error:
            if error.code == "FORBIDDEN":
                raise RefusalRecorded from error
            if error.status in (404, 410):
                raise Http404(_("No such file.")) from error
            raise
        alert = RiskAlert.objects.get(tenant=request_tenant(request), pk=row.alert_id)  # type: ignore[attr-defined]
        response = FileResponse(content, content_type=row.media_type)
        response["Content-Length"] = str(row.size)
        # The name goes through logs and disks that nobody masks.
        response["Content-Disposition"] = content_disposition_header(True, Words(alert)(row.file_name)) or "attachment"
        return sealed_off(response)


def sealed_off(response: HttpResponseBase) -> HttpResponseBase:
    """The answer is no page: it is not guessed at, runs nothing, and stays in no cache."""
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    response["Cache-Control"] = "no-store"
    return response
