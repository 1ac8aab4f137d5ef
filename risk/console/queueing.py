"""The pages of the queue: the list, its live rows, what is done to several alerts, views under a name, the file.

Part of the alerts' admin (`risk.console.admin`), which gives each of them its address and records who is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    JsonResponse,
    QueryDict,
    StreamingHttpResponse,
)
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from config.base.asked import number
from config.base.clock import business_zone, now, rfc3339
from config.base.errors import DomainError
from guard.access.people import RefusalRecorded
from guard.access.staff_admin import person_of
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from risk.alerts import services
from risk.alerts.bulk import MOST, Outcome, Picked, rule_of
from risk.alerts.evidence import evidence_hashes
from risk.alerts.looking import new_hits
from risk.alerts.models import AlertType, RiskAlert
from risk.alerts.selectors import officers_of
from risk.console import export, saved
from risk.console.acts import conflict_of
from risk.console.counting import capped, tab_counts
from risk.console.feed import feed_seq, request_sight, request_tenant
from risk.console.filters import (
    AGES,
    ASSIGNEES,
    BACKS,
    CODES,
    COLUMNS,
    DEFAULT_COLUMNS,
    DUES,
    LEVELS,
    SPANS,
    STATES,
    TABS,
    Filters,
    columns_of,
    hour_of,
    tabs_of,
)
from risk.console.forms import AssigneeForm, BulkDispositionForm
from risk.console.queue import Page, matching, page_of_reading, reading_of, top_hits
from risk.console.recent import recent_view
from risk.console.rows import cells, rows_of
from risk.console.sight import alerts_of
from risk.console.words import RULES, SUBTYPES, subtype_words

MAX_ROWS = 50  # rows that one request of the live list may ask for
_CHOSEN = "queue_columns"  # in the session: the columns that were last asked for


def require_sight(request: HttpRequest) -> None:
    if not request_sight(request).anything:
        raise PermissionDenied


class QueueViews(admin.ModelAdmin):  # type: ignore[type-arg]
    """The list of alerts and what is done from it. Acts are POSTs that call services; a manager's are refused."""

    def queue_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        views = {
            "rows": self.rows_view,
            "bulk": self.bulk_view,
            "next": self.next_view,
            "view": self.view_view,
            "export": self.export_view,
            "recent": recent_view,
        }
        return [path(f"{name}/", wrap(view), name=f"risk_riskalert_{name}") for name, view in views.items()]

    # --- the list -----------------------------------------------------------------------------------------------

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The queue. `feed_seq` is read before the rows, so that the socket goes on from what is shown."""
        require_sight(request)
        tenant, sight = request_tenant(request), request_sight(request)
        filters = Filters.of(request.GET, sight)
        columns = _columns(request)
        feed_seq(request)
        counts = tab_counts(tenant=tenant, user=request.user, sight=sight)
        reading = reading_of(tenant=tenant, user=request.user, sight=sight, filters=filters)
        page = page_of_reading(reading, user=request.user, filters=filters)
        held = reading.count() if filters.narrowed else None
        acts = sight.acts and filters.tab != "faults"
        officers = officers_of(tenant) if sight.cases else []
        following, earlier = page.next_after, page.previous_before
        context = {
            **self.admin_site.each_context(request),
            "title": _("Alerts") if sight.cases else _("Data quality"),
            "opts": self.opts,
            "filters": filters,
            "tabs": [_tab(name, filters, counts) for name in tabs_of(sight)],
            "choices": _choices(filters, officers) if filters.tab != "faults" else {},
            "states": list(STATES[filters.tab].items()),
            "found": capped(held, reading.count_limit) if held is not None else "",
            "rows": rows_of(page, tenant=tenant, columns=columns),
            "cells": cells(columns),
            "columns": [(name, label, name in columns) for name, label in COLUMNS.items()],
            "picking": acts,
            "officers": officers if acts else [],
            "views": saved.views_of(tenant=tenant, person=request.user),
            "may_share": saved.may_share(request.user),
            "kept": filters.kept() + f"&cols={','.join(columns)}",
            "kept_pairs": list(QueryDict(filters.query()).items()),
            "here": request.GET.urlencode(),
            "clock": rfc3339(now()),
            "complete": not following and not earlier,
            "page_number": page.number,
            "furthest": reading.furthest,
            "at_end": filters.before == "~",
            "next_link": filters.link(after=following, page=page.number + 1) if following else "",
            "previous_link": _previous(filters, page) if earlier else "",
            "first_link": filters.link(),
            "last_link": filters.link(before="~") if following else "",
            "export_link": reverse("admin:risk_riskalert_export") + filters.link(),
            "export_most": f"{export.MOST:,}",
            **(extra_context or {}),
        }
        return TemplateResponse(request, "risk/console/queue.html", context)

    def rows_view(self, request: HttpRequest) -> HttpResponse:
        """Rows of the queue by `?id=`, for the page that shows it: with whether they belong to its filters, and the
        counts on the tabs. Ids of other tenants are as good as unknown. `plain`: for a list without choices."""
        require_sight(request)
        tenant, sight = request_tenant(request), request_sight(request)
        filters = Filters.of(request.GET, sight)
        plain = "plain" in request.GET
        columns = columns_of(request.GET["plain"]) if plain else _columns(request)
        ids = request.GET.getlist("id")[:MAX_ROWS]
        order = {alert_id: place for place, alert_id in enumerate(ids)}
        alerts = list(alerts_of(tenant=tenant, sight=sight).filter(pk__in=ids).select_related("assignee"))
        alerts.sort(key=lambda alert: order[alert.pk])
        belonging = set(
            matching(tenant=tenant, user=request.user, sight=sight, filters=filters)
            .filter(pk__in=[alert.pk for alert in alerts])
            .values_list("pk", flat=True)
        )
        new = new_hits(alert_ids=[alert.pk for alert in alerts], person=request.user)
        page = Page(alerts, top_hits=top_hits(alerts), new_hits=new)
        shared = {"cells": cells(columns), "picking": sight.acts and not plain and filters.tab != "faults"}
        rows = [
            {
                "alert_id": row["alert"].pk,
                "matches": row["alert"].pk in belonging,
                "html": render_to_string("risk/console/_row.html", {"row": row, **shared}),
            }
            for row in rows_of(page, tenant=tenant, columns=columns)
        ]
        counts = tab_counts(tenant=tenant, user=request.user, sight=sight)
        response = JsonResponse({"rows": rows, "counts": counts, "clock": rfc3339(now())})
        response["Cache-Control"] = "no-store"
        return response

    # --- acts ---------------------------------------------------------------------------------------------------

    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        """One act on the alerts that were chosen: claim, assign, or dispose with one reason.

        1. Only POST. 2. The role. 3. The alerts are cases in sight. 4. The service, for each in a transaction of its
        own: those that somebody else was first at are named with who it was, the others are done.
        """
        if request.method != "POST":
            return _back(request)
        if not request_sight(request).acts:
            raise PermissionDenied
        picked = [picked_of(words) for words in request.POST.getlist("pick")]
        faults = RiskAlert.objects.filter(
            tenant=request_tenant(request),
            pk__in=[one.alert_id for one in picked[: MOST + 1]],
            alert_type=AlertType.DATA_QUALITY,
        )
        if faults.exists():
            raise PermissionDenied
        if not 0 < len(picked) <= MOST:
            messages.error(
                request,
                _("Choose some alerts first.") if not picked else _("At most %(most)d at once.") % {"most": MOST},
            )
            return _back(request)
        try:
            return self._bulk(request, request.POST.get("act", ""), picked)
        except DomainError as error:
            if error.code == "FORBIDDEN":  # the role was taken away a moment ago; the service has recorded it
                raise RefusalRecorded from error
            if error.status >= 500:
                raise
            messages.error(request, _refused(error))
            return _back(request)

    def _bulk(self, request: HttpRequest, act: str, picked: Sequence[Picked]) -> HttpResponse:
        officer = person_of(request)
        if act == "claim":
            done = services.claim_many(officer=officer, picked=picked)
            tell(request, done, ngettext("%(n)d alert is yours.", "%(n)d alerts are yours.", _done(done)))
        elif act == "assign":
            form = AssigneeForm(request.POST, tenant=request_tenant(request))
            if not form.is_valid():
                messages.error(request, _("Choose an officer."))
                return _back(request)
            done = services.assign_many(officer=officer, picked=picked, to=form.cleaned_data["to"])
            tell(request, done, ngettext("%(n)d alert is assigned.", "%(n)d alerts are assigned.", _done(done)))
        elif act == "dispose":
            return self._disposing(request, picked)
        return _back(request)

    def _disposing(self, request: HttpRequest, picked: Sequence[Picked]) -> HttpResponse:
        """First shows what is to be disposed of, with its evidence; what that page sends is done."""
        tenant, ids = request_tenant(request), [one.alert_id for one in picked]
        rule = rule_of(tenant, ids)
        by_id = {row.pk: row for row in RiskAlert.objects.filter(tenant=tenant, pk__in=ids).select_related("assignee")}
        alerts = [by_id[alert_id] for alert_id in ids if alert_id in by_id]
        confirmed = "confirm" in request.POST
        form = BulkDispositionForm(request.POST if confirmed else None, alert=max(alerts, key=lambda one: one.score))
        if confirmed and form.is_valid():
            done = services.dispose_many(
                officer=person_of(request),
                picked=picked,
                to_status=form.cleaned_data["status"],
                code=form.cleaned_data["code"],
                text=form.cleaned_data["text"],
            )
            tell(request, done, ngettext("%(n)d alert is disposed of.", "%(n)d alerts are disposed of.", _done(done)))
            return _back(request)
        hashes = evidence_hashes(alerts) if not confirmed else {one.alert_id: one.evidence_hash for one in picked}
        versions = {one.alert_id: one.version for one in picked}
        columns = ("score", "sentence", "customer", "hits", "assignee", "status")
        context = {
            **self.admin_site.each_context(request),
            "title": _("Dispose of several alerts"),
            "opts": self.opts,
            "rule": rule,
            "rule_name": RULES.get(rule, rule),
            "number": len(alerts),
            "rows": rows_of(Page(alerts, top_hits=top_hits(alerts)), tenant=tenant, columns=columns),
            "cells": cells(columns),
            "picks": [f"{one.pk}~{versions[one.pk]}~{hashes[one.pk]}" for one in alerts],
            "disposition": form,
            "back": QueryDict(request.POST.get("back", "")).urlencode(),
            "clock": rfc3339(now()),
        }
        return TemplateResponse(request, "risk/console/bulk.html", context, status=422 if confirmed else 200)

    def next_view(self, request: HttpRequest) -> HttpResponse:
        """Claims the most urgent alert of the tab that nobody has, and opens it."""
        if request.method != "POST":
            return _back(request)
        sight = request_sight(request)
        if not sight.acts:
            raise PermissionDenied
        filters = Filters.of(QueryDict(request.POST.get("back", "")), sight)
        kinds = [kind for kind in TABS[filters.tab].kinds if kind != AlertType.DATA_QUALITY]
        try:
            alert = services.claim_next(officer=person_of(request), kinds=kinds)
        except DomainError as error:
            if error.code == "FORBIDDEN":
                raise RefusalRecorded from error
            raise
        if alert is None:
            messages.info(request, _("Nothing waits here that nobody has."))
            return _back(request)
        messages.success(request, _("The alert is yours."))
        return HttpResponseRedirect(reverse("admin:risk_riskalert_change", args=[alert.pk]))

    # --- views under a name -------------------------------------------------------------------------------------

    def view_view(self, request: HttpRequest) -> HttpResponse:
        """Saves the view that is shown, or removes one of theirs."""
        require_sight(request)
        if request.method != "POST":
            return _back(request)
        person, given = person_of(request), request.POST
        if "remove" in given:
            if saved.remove_view(person=person, view_id=number(given["remove"]) or 0):
                messages.success(request, _("The view is removed."))
            return _back(request)
        shown = QueryDict(given.get("back", ""))
        query = Filters.of(shown, request_sight(request)).kept() + f"&cols={','.join(_columns(request, shown))}"
        try:
            saved.save_view(person=person, name=given.get("name", ""), query=query, shared="shared" in given)
        except DomainError as error:
            if error.code == "FORBIDDEN":
                raise RefusalRecorded from error
            if error.status >= 500:
                raise
            messages.error(request, _refused(error))
        else:
            messages.success(request, _("The view is saved."))
        return _back(request)

    # --- the file -----------------------------------------------------------------------------------------------

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """What the view holds, as CSV, streamed. Recorded first: no record, no file."""
        require_sight(request)
        tenant, sight = request_tenant(request), request_sight(request)
        filters, columns = Filters.of(request.GET, sight), _columns(request)
        record(
            tenant=tenant,
            event_type=EventType.EVIDENCE_EXPORTED,
            decision=Decision.EXPORTED,
            actor_type=ActorType.STAFF,
            actor_id=request.user.get_username(),
            object_type="risk_alert",
            input_summary={
                "format": "csv",
                "filters": filters.described(),
                "columns": list(columns),
                "at_most": export.MOST,
            },
        )
        reading = reading_of(tenant=tenant, user=request.user, sight=sight, filters=filters)
        lines = export.exported(reading, tenant=tenant, columns=columns)
        response = StreamingHttpResponse(lines, content_type="text/csv; charset=utf-8")
        name = f"alerts-{now().astimezone(business_zone()):%Y%m%d-%H%M%S}.csv"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        response["Cache-Control"] = "no-store"
        return response


# --- what the pages are made of -------------------------------------------------------------------------------------


def _tab(name: str, filters: Filters, counts: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "label": TABS[name].label,
        "link": Filters(tab=name).link(),
        "current": name == filters.tab and not filters.search,
        "count": counts.get(name),
    }


def _choices(filters: Filters, officers: Sequence[str]) -> dict[str, list[tuple[str, Any]]]:
    known = list(officers)
    if filters.assignee and filters.assignee not in (*ASSIGNEES, *known):
        known.append(filters.assignee)
    spans = [(name, label) for name, (label, _days) in SPANS.items()]
    hour = bool(hour_of(filters.opened))
    return {
        "level": list(LEVELS.items()),
        "rule": [(rule, f"{rule} {words}") for rule, words in RULES.items() if rule.startswith("RISK-")],
        "subtype": [
            (code, subtype_words([code])) for code in SUBTYPES if not code.startswith(("missing_", "unreadable_"))
        ],
        "age": [(name, label) for name, (label, _over, _up_to) in AGES.items()],
        "due": list(DUES.items()),
        "back": list(BACKS.items()),
        "opened": [*spans, *([(filters.opened, filters.opened.replace("T", " ") + ":00")] if hour else [])],
        "since": spans if filters.newest_first and filters.state not in ("all", "period") else [],
        "code": list(CODES.items()) if filters.newest_first and filters.state not in ("all", "period") else [],
        "assignee": [*ASSIGNEES.items(), *((name, name) for name in known)],
    }  # fmt: skip


def _columns(request: HttpRequest, query: QueryDict | None = None) -> tuple[str, ...]:
    """Those that the address names, from then on kept in the session; the ones that were kept; the default."""
    query = request.GET if query is None else query
    chosen = query.getlist("col") or [query.get("cols", "")]
    if any(chosen):
        columns = columns_of(",".join(chosen))
        if request.session.get(_CHOSEN) != ",".join(columns):
            request.session[_CHOSEN] = ",".join(columns)
        return columns
    kept = request.session.get(_CHOSEN, "")
    return columns_of(kept) if isinstance(kept, str) and kept else DEFAULT_COLUMNS


def _previous(filters: Filters, page: Page) -> str:
    if page.number == 2 and filters.before != "~":
        return filters.link()
    return filters.link(before=page.previous_before, page=max(page.number - 1, 1))


def picked_of(words: str) -> Picked:
    """Of `id~version` or `id~version~hash`; a version that is none matches nothing."""
    alert_id, _tilde, rest = words.partition("~")
    version, _tilde, evidence = rest.partition("~")
    return Picked(alert_id[:64], number(version[:9]) or 0, evidence[:64])


def _back(request: HttpRequest) -> HttpResponseRedirect:
    """To the queue as it was. What is sent stands behind a `?` of ours, so that it leads nowhere else."""
    back = QueryDict(request.POST.get("back", "")).urlencode()
    address = reverse("admin:risk_riskalert_changelist")
    return HttpResponseRedirect(f"{address}?{back}" if back else address)


def _done(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.error is None for outcome in outcomes)


def tell(request: HttpRequest, outcomes: Sequence[Outcome], sentence: str) -> None:
    """How many are done, and of each that is not, who was first or what has changed."""
    if done := _done(outcomes):
        messages.success(request, sentence % {"n": done})
    for outcome in outcomes:
        if outcome.error is not None:
            said = conflict_of(outcome.error)
            words = " ".join(part for part in (said["headline"], said["detail"]) if part)
            messages.warning(request, _("Alert %(alert)s: %(what)s") % {"alert": outcome.alert_id, "what": words})


def _refused(error: DomainError) -> str:
    sentences = {
        "name": _("A name has 1 to 40 characters; a person keeps at most %(most)d views.") % {"most": saved.MOST},
        "pick": _("Choose 1 to %(most)d different alerts.") % {"most": MOST},
    }
    said = conflict_of(error)
    return str(sentences.get(error.extra.get("field", ""), f"{said['headline']} {said['detail']}".strip()))
