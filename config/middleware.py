"""Middleware of the whole site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _

from config.base.asked import are_text, fault_of, is_beyond
from config.base.clock import business_zone
from config.base.errors import DomainError
from config.base.outages import OUTAGES, outage
from config.base.trace import from_traceparent, set_trace_id
from guard.access.people import RefusalRecorded, record_refusal

API_PREFIX = "/api/"
CONSOLE_PREFIX = "/admin/"


def problem_response(error: DomainError, trace_id: str) -> HttpResponse:
    """An `application/problem+json` answer."""
    response = JsonResponse(error.problem(trace_id), status=error.status, json_dumps_params={"ensure_ascii": False})
    response["Content-Type"] = "application/problem+json"
    return response


class TraceMiddleware:
    """Takes or makes the trace id, answers it in `X-Trace-Id`, and gives API errors of Django itself our shape."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        trace_id = from_traceparent(request.headers.get("traceparent"))
        request.trace_id = trace_id  # type: ignore[attr-defined]
        set_trace_id(trace_id)
        response = self.get_response(request)
        if request.path.startswith(API_PREFIX):
            plain = "json" not in response.get("Content-Type", "")
            if plain and response.status_code == 404:
                response = problem_response(DomainError("NOT_FOUND", f"no route {request.path}"), trace_id)
            elif plain and response.status_code == 405:
                allow = response.get("Allow", "")
                error = DomainError("METHOD_NOT_ALLOWED", f"{request.method} is not one of {allow} here")
                response = problem_response(error, trace_id)
                response["Allow"] = allow
        response["X-Trace-Id"] = trace_id
        return response


# Scripts and connections are the console's own; Django's stock lists still bring a <style> element.
CONSOLE_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


def _actions() -> set[str]:
    """Names of the actions that the console's tables declare."""
    declared = (one for table in admin.site._registry.values() for one in table.actions or ())
    return {"delete_selected", *(one if isinstance(one, str) else one.__name__ for one in declared)}


def _query(request: HttpRequest) -> Iterator[tuple[str, str]]:
    for name, values in request.GET.lists():
        for value in values:
            yield name, str(value)


def _told(request: HttpRequest, sentence: str) -> HttpResponse:
    return render(request, "400.html", {"sentence": sentence}, status=400)


class ConsoleMiddleware:
    """The console's pages: people read and type business time (BUSINESS_TIME_ZONE) while storage and machines stay
    with UTC, a Content-Security-Policy lets no foreign or inline script run, and a refusal is an audit row."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path.startswith(CONSOLE_PREFIX):
            return self.get_response(request)
        with timezone.override(business_zone()):
            response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", CONSOLE_POLICY)
        return response

    def process_view(self, request: HttpRequest, view: object, args: object, kwargs: dict[str, object]) -> Any:
        """What stands in the address is told in words where it is nothing that a page could be asked."""
        if not request.path.startswith(CONSOLE_PREFIX):
            return None
        if not are_text(map(str, kwargs.values())):
            raise Http404  # of such a name there is nothing
        fault = fault_of(_query(request))
        return _told(request, fault) if fault else None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """One `authz/forbidden` row for a person whom a page or an action of the console refuses. What a page cannot
        do without and is away is a 503 that says so: also an audit log that takes no rows."""
        if not request.path.startswith(CONSOLE_PREFIX):
            return None
        if isinstance(exception, OverflowError):
            # Django's own pages hand numbers and days of the address on, and there may be none such.
            pieces = map(str, request.resolver_match.kwargs.values()) if request.resolver_match else ()
            if any(map(is_beyond, (*pieces, *(value for _name, value in _query(request))))):
                return _told(request, _("A number or a day in the address is beyond any that there is."))
        try:
            self._record_refusal(request, exception)
        except (DomainError, *OUTAGES) as error:
            exception = error
        if isinstance(exception, OUTAGES):
            exception = exception if isinstance(exception, DomainError) else outage(exception)
        if not isinstance(exception, DomainError) or exception.status != 503:
            return None
        response = render(request, "503.html", {"problem": exception}, status=503)
        response["Retry-After"] = "1"
        response["Cache-Control"] = "no-store"
        return response

    def _record_refusal(self, request: HttpRequest, exception: Exception) -> None:
        refused = isinstance(exception, PermissionDenied) and not isinstance(exception, RefusalRecorded)
        if refused and request.user.is_authenticated:
            match = request.resolver_match
            what, _, page = (match.url_name or "" if match else "").rpartition("_")
            named = request.POST.get("action", "") if request.method == "POST" else ""
            record_refusal(
                request.user,
                # Words of ours, never of the address or the form: those may name a customer.
                action=named if named in _actions() else page or (match.route if match else "")[-64:],
                object_type=what or "console",
                object_id=str(match.kwargs.get("object_id", "")) if match else "",
            )
