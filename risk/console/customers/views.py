"""Pages of customers: a search, one customer, what changed in a version of a profile, and the customer in clear."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.contrib.admin import AdminSite
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from config.base.errors import DomainError
from config.base.ids import check_id
from config.base.pii import hidden
from guard.access.masking import STARS, mask
from guard.access.people import RefusalRecorded
from guard.access.staff_admin import person_of
from guard.access.unmasking import may_unmask, unmask
from guard.audit.models import ActorType, Decision, EventType
from guard.audit.services import record
from memory.core.known import names_of
from memory.profiles import history
from memory.profiles.models import ProfileVersion
from risk.console.acts import recording_refusals
from risk.console.customers.page import author_of, customer_page
from risk.console.customers.refs import customer_of, ref_of
from risk.console.customers.shown import is_personal, is_told, label_of, said
from risk.console.customers.unmasking import KIND
from risk.console.feed import feed_seq, request_sight, request_tenant
from risk.console.forms import UnmaskForm


def urls(site: AdminSite) -> list[URLPattern]:
    """Below the admin's root."""
    views = CustomerPages(site)
    wrap = site.admin_view
    pages = (
        ("customers/", views.search, "customers"),
        ("customers/<str:kind>/<str:key>/", views.customer, "customer"),
        ("customers/<str:kind>/<str:key>/unmask/", views.unmask, "customer_unmask"),
        ("customers/<str:kind>/<str:key>/versions/<int:version_id>/", views.version, "customer_version"),
    )
    return [path(route, recording_refusals(wrap(view), name), name=name) for route, view, name in pages]


class CustomerPages:
    """Whoever sees cases sees their customers. Each page of a customer that is opened is one audit row."""

    def __init__(self, site: AdminSite) -> None:
        self._site = site

    def search(self, request: HttpRequest) -> HttpResponse:
        """A customer by exactly their id, which goes in the body of a POST and so into no log of addresses."""
        _require_cases(request)
        wrong = ""
        wanted = ""
        if request.method == "POST":
            wanted = request.POST.get("customer_id", "").strip()
            try:
                check_id("customer_id", wanted)
                ref = ref_of(tenant=request_tenant(request), customer_id=wanted)
                if ref is not None:
                    return HttpResponseRedirect(reverse("admin:customer", args=ref))
                wrong = _("Nothing is known of a customer with this id.")
            except DomainError as error:
                if error.status >= 500:
                    wrong = _("Nothing of ours names this customer, and the core system does not answer now.")
                else:
                    wrong = _("A customer id has 1 to 64 letters, digits, dots, dashes and underscores.")
        feed_seq(request)
        context = {**self._site.each_context(request), "title": _("Customers"), "wanted": wanted[:64], "wrong": wrong}
        return TemplateResponse(request, "risk/console/customers.html", context, status=404 if wrong else 200)

    def customer(self, request: HttpRequest, kind: str, key: str) -> HttpResponse:
        _require_cases(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        customer_id = self._found(request, kind, key)
        _record_view(request, customer_id, f"{kind}-{key}")
        return self._page(request, kind, key, customer_id)

    def unmask(self, request: HttpRequest, kind: str, key: str) -> HttpResponse:
        """Shows the customer in clear in the answer to this POST alone. One row each time."""
        _require_cases(request)
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:customer", args=(kind, key)))
        customer_id = self._found(request, kind, key)
        form = UnmaskForm(request.POST)
        if may_unmask(person_of(request)) and not form.is_valid():
            return self._page(request, kind, key, customer_id, unmasking=form, status=422)
        try:
            unmask(
                staff=person_of(request), kind=KIND, object_id=f"{kind}-{key}", reason=request.POST.get("reason", "")
            )
        except DomainError as error:
            if error.code == "FORBIDDEN":
                raise RefusalRecorded from error
            raise Http404(_("No such customer.")) from error
        return self._page(request, kind, key, customer_id, clear=True)

    def version(self, request: HttpRequest, kind: str, key: str, version_id: int) -> HttpResponse:
        """What a version of one of the customer's profiles changed; words and names stay masked."""
        _require_cases(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        customer_id = self._found(request, kind, key)
        rows = ProfileVersion.objects.filter(tenant=request_tenant(request), customer_id=customer_id)
        version = rows.filter(pk=version_id).first() if version_id < 2**63 else None
        if version is None:
            raise Http404(_("No such version."))
        before = history.version_before(version)
        _record_view(request, customer_id, f"{kind}-{key}")
        feed_seq(request)
        context = {
            **self._site.each_context(request),
            "title": _("Version %(number)d of %(layer)s")
            % {"number": version.version, "layer": version.get_layer_display()},
            "version": version,
            "before": before,
            "author": author_of(version, clear=False),
            "changes": [] if version.deleted else _changes(before, version, _whose(request, customer_id)),
            "back": reverse("admin:customer", args=(kind, key)),
            "shown_id": mask(customer_id),
        }
        return TemplateResponse(request, "risk/console/customer_version.html", context)

    def _found(self, request: HttpRequest, kind: str, key: str) -> str:
        customer_id = customer_of(tenant=request_tenant(request), kind=kind, key=key)
        if not customer_id:
            raise Http404(_("No such customer."))
        return customer_id

    def _page(
        self,
        request: HttpRequest,
        kind: str,
        key: str,
        customer_id: str,
        *,
        clear: bool = False,
        unmasking: UnmaskForm | None = None,
        status: int = 200,
    ) -> HttpResponse:
        feed_seq(request)
        page = customer_page(
            tenant=request_tenant(request), customer_id=customer_id, sight=request_sight(request), clear=clear
        )
        user = person_of(request)
        context: dict[str, Any] = {
            **self._site.each_context(request),
            "title": page.name or _("Customer"),
            "page": page,
            "kind": kind,
            "key": key,
            "may_unmask": may_unmask(user),
            "may_drafts": user.has_perm("memory.view_advisordraft"),
            "may_sessions": user.has_perm("memory.view_agentsession"),
            "unmasking": unmasking or UnmaskForm(),
        }
        return TemplateResponse(request, "risk/console/customer.html", context, status=status)


def _whose(request: HttpRequest, customer_id: str) -> set[str]:
    """What is hidden in words about this customer. 1 query."""
    return {customer_id, *names_of(request_tenant(request), {customer_id})}


def _changes(before: ProfileVersion | None, version: ProfileVersion, known: Collection[str]) -> list[dict[str, Any]]:
    old = None if before is None or before.deleted else before
    rows = []
    for change in history.diff(old, version):
        if not is_told(change.field):
            continue
        masked = is_personal(change.field)
        name = change.field.rpartition(".")[2]
        sides = [
            () if value is None else ((STARS,) if masked else tuple(hidden(one, known) for one in said(value, name)))
            for value in (change.before, change.after)
        ]
        rows.append({"label": label_of(change.field), "before": sides[0], "after": sides[1], "masked": masked})
    return rows


def _record_view(request: HttpRequest, customer_id: str, object_id: str) -> None:
    record(
        tenant=request_tenant(request),
        event_type=EventType.ALERT_VIEWED,
        decision=Decision.VIEWED,
        actor_type=ActorType.STAFF,
        actor_id=person_of(request).get_username(),
        object_type="customer",
        object_id=object_id[:64],
        input_summary={"customer_id": customer_id},
    )


def _require_cases(request: HttpRequest) -> None:
    if not request_sight(request).cases:
        raise PermissionDenied
