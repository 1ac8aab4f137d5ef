"""What officers do with an alert beside judging it: files, on its page.

Part of the alerts' admin (`risk.console.admin`), which gives each of these its address and records who is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.forms import Form
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from config.base.clock import business_date, now, rfc3339
from config.base.errors import DomainError
from config.base.pii import hidden
from guard.access.masking import mask
from guard.access.models import Agent
from guard.access.people import RefusalRecorded
from guard.access.roles import may
from guard.access.staff_admin import person_of
from guard.admission import pauses
from guard.admission.blocks import BLOCK, PAUSE
from guard.admission.models import ActorBlock
from memory.core import selectors as core
from risk.alerts import services
from risk.alerts.attaching import may_open, opened
from risk.alerts.casework import AlertAttachment, InformationRequest, RecipientKind, RequestState
from risk.alerts.handover import MOST, holders_of, open_work
from risk.alerts.models import AlertType, RiskAlert
from risk.alerts.requests import LONGEST
from risk.alerts.selectors import officers_of
from risk.alerts.sniffing import ENDINGS
from risk.alerts.stopping import ADVISOR, CUSTOMER, actor_of
from risk.console.feed import request_sight, request_tenant
from risk.console.forms import AnswerForm, AskForm, GoOnForm, HandoverForm, StopForm
from risk.console.queue import Page, top_hits
from risk.console.queueing import picked_of, tell
from risk.console.rows import cells, rows_of

MAX_QUESTIONS = 100
HANDOVER_COLUMNS = ("due", "score", "level", "sentence", "customer", "hits", "status")


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


@dataclass(frozen=True)
class QuestionRow:
    """state: as shown: an open one past its due is overdue. css: the tag's class."""

    question: InformationRequest
    state: Any
    css: str
    text: str
    closing: str
    recipient: str


def questions_of(alert: RiskAlert, words: Words, at: datetime) -> list[QuestionRow]:
    """Newest first; an alert has few. 1 query."""
    rows = InformationRequest.objects.filter(alert=alert).select_related("asked_by", "closed_by")
    found = []
    for row in rows.order_by("-asked_at", "-request_id")[:MAX_QUESTIONS]:
        late = row.state == RequestState.OPEN and row.due_at < at
        state = _("overdue") if late else row.get_state_display()
        css = "warn" if late else {"open": "pending", "answered": "good"}.get(row.state, "")
        found.append(QuestionRow(row, state, css, words(row.question), words(row.closing), words(row.recipient)))
    return found


def casework_context(
    alert: RiskAlert, request: HttpRequest, *, sent: Form | None = None, clear: bool = False
) -> dict[str, Any]:
    """For the partial templates of the alert's page. Nothing on faults in the data, which nobody works on."""
    if alert.alert_type == AlertType.DATA_QUALITY or not request_sight(request).cases:
        return {}
    words = Words(alert, clear=clear)
    day = business_date(now())
    return {
        "questions": questions_of(alert, words, now()),
        "recipient_kinds": RecipientKind.choices,
        "due_from": day,
        "due_default": day + timedelta(days=3),
        "due_to": day + LONGEST - timedelta(days=1),
        "asking": sent if isinstance(sent, AskForm) else AskForm(),
        "answering": sent if isinstance(sent, AnswerForm) else AnswerForm(),
        "stoppables": stoppable(alert, person_of(request), words, now()),
        "stop_minutes": StopForm.MINUTES,
        "stopping": sent if isinstance(sent, GoOnForm) else StopForm(),
        "files": files_of(alert, words),
        "may_open": may_open(person_of(request)),
        "file_endings": ",".join(ENDINGS),
    }


@dataclass(frozen=True)
class Stoppable:
    """An actor of the alert, or an AI agent, that can be stopped; and whether it is. until: None where it is not, or
    where nobody has said when it ends."""

    whom: str
    label: Any
    who: str
    stopped: bool = False
    until: datetime | None = None
    by: str = ""
    reason: str = ""


def stoppable(alert: RiskAlert, person: User, words: Words, at: datetime) -> list[Stoppable]:
    """What this person may stop, as it stands in the database now. 2 queries."""
    found = []
    if may(person, BLOCK):
        names = {ADVISOR: (_("advisor"), alert.advisor_id), CUSTOMER: (_("customer"), mask(alert.customer_id))}
        ids = [one for one in (alert.advisor_id, alert.customer_id) if one]
        rows = ActorBlock.objects.filter(tenant=alert.tenant, actor_id__in=ids, open=1, expires_at__gt=at)
        by_actor = {row.actor_id: row for row in rows}
        for whom, (label, shown) in names.items():
            if actor_id := actor_of(alert, whom):
                block = by_actor.get(actor_id)
                found.append(
                    Stoppable(whom, label, shown, True, block.expires_at, block.blocked_by, words(block.reason))
                    if block
                    else Stoppable(whom, label, shown)
                )
    if may(person, PAUSE):
        paused = {row.agent: row for row in pauses.in_force(at).filter(tenant=alert.tenant)}
        for agent in Agent.values:
            row = paused.get(agent)
            one = f"agent:{agent}", _("AI agent"), agent
            found.append(
                Stoppable(*one, True, row.expires_at, row.paused_by, words(row.reason)) if row else Stoppable(*one)
            )
    return found


def handover_rows(request: HttpRequest, of: User) -> tuple[list[dict[str, Any]], int]:
    """What an officer has in hand, MOST rows at most, and how many there are in all."""
    tenant = request_tenant(request)
    work = open_work(tenant=tenant, of=of)
    alerts = list(work.select_related("assignee")[:MOST])
    return rows_of(Page(alerts, top_hits=top_hits(alerts)), tenant=tenant, columns=HANDOVER_COLUMNS), work.count()


class CaseworkViews(admin.ModelAdmin):  # type: ignore[type-arg]
    """Each act is a POST that calls a service; a manager's is refused."""

    def casework_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        return [
            path("handover/", wrap(self.handover_view), name="risk_riskalert_handover"),
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
            if error.code == "ATTACHMENT_DAMAGED":
                return render(request, "risk/console/file_damaged.html", {"code": error.code}, status=error.status)
            raise
        alert = RiskAlert.objects.get(tenant=request_tenant(request), pk=row.alert_id)  # type: ignore[attr-defined]
        response = FileResponse(content, content_type=row.media_type)
        response["Content-Length"] = str(row.size)
        # The name goes through logs and disks that nobody masks.
        response["Content-Disposition"] = content_disposition_header(True, Words(alert)(row.file_name)) or "attachment"
        return sealed_off(response)

    def handover_view(self, request: HttpRequest) -> HttpResponse:
        """All that one officer has in hand, to be given to another for one reason.

        1. The role: a manager is refused, also the page. 2. GET lists what would move. 3. POST moves what the page
        showed, each alert by itself; those that somebody was first at are named with who it was.
        """
        if not request_sight(request).acts:
            raise PermissionDenied
        tenant = request_tenant(request)
        given = request.POST if request.method == "POST" else request.GET
        of = _colleague(tenant, given.get("of", ""))
        form = HandoverForm(request.POST, tenant=tenant) if request.method == "POST" else None
        status = 200
        if of is not None and form is not None:
            if form.is_valid() and form.cleaned_data["to"].pk != of.pk:
                try:
                    done = services.hand_over(
                        officer=person_of(request), of=of, to=form.cleaned_data["to"],
                        text=form.cleaned_data["text"],
                        picked=[picked_of(words) for words in request.POST.getlist("pick")],
                    )  # fmt: skip
                except DomainError as error:
                    if error.code == "FORBIDDEN":
                        raise RefusalRecorded from error
                    if error.status >= 500:
                        raise
                    form.add_error("to", _("Choose another officer, and leave some alerts to be moved."))
                else:
                    moved = sum(outcome.error is None for outcome in done)
                    tell(request, done, ngettext("%(n)d alert is handed over.", "%(n)d alerts are handed over.", moved))
                    return HttpResponseRedirect(f"{request.path}?{urlencode({'of': of.get_username()})}")
            elif form.is_valid():
                form.add_error("to", _("Choose another officer."))
            status = 422
        rows, total = handover_rows(request, of) if of is not None else ([], 0)
        officers = officers_of(tenant)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Hand over open work"),
            "opts": self.opts,
            "of": of.get_username() if of is not None else "",
            "holders": holders_of(tenant),
            "officers": [name for name in officers if of is None or name != of.get_username()],
            "rows": rows,
            "total": total,
            "most": MOST,
            "cells": cells(HANDOVER_COLUMNS),
            "form": form or HandoverForm(),
            "clock": rfc3339(now()),
            "queue_url": reverse("admin:risk_riskalert_changelist"),
        }
        return TemplateResponse(request, "risk/console/handover.html", context, status=status)


def _colleague(tenant: str, name: str) -> User | None:
    """Whoever has alerts of the tenant in hand; also one who has left the house."""
    person = User.objects.filter(username=name[:150]).first() if name else None
    return person if person is not None and name in holders_of(tenant) else None


def sealed_off(response: HttpResponseBase) -> HttpResponseBase:
    """The answer is no page: it is not guessed at, runs nothing, and stays in no cache."""
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    response["Cache-Control"] = "no-store"
    return response
