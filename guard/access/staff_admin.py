"""What every read-only table of the admin has in common."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.shortcuts import render
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from guard.access.roles import tenant_of

COUNT_LIMIT = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts up to COUNT_LIMIT rows and no further: COUNT(*) over millions would be the slowest part of the page."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:COUNT_LIMIT].count()) if isinstance(rows, QuerySet) else len(rows)


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows of the viewer's tenant, to look at. Nobody adds, edits or deletes here, superusers included.

    exact_search: fields in which the search box looks for exactly what is typed, by index.
    """

    exact_search: tuple[str, ...] = ()
    show_full_result_count = False
    paginator = CappedPaginator
    list_per_page = 50
    actions: Any = None
    show_facets = admin.ShowFacets.NEVER  # each facet would be a COUNT

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        # Django drops an action that a person may not take and says that none was chosen: a refusal is told, and kept.
        if request.method == "POST" and request.POST.get("action"):
            named = request.POST["action"]
            if named in {_name(one) for one in self.actions or ()} and named not in self.get_actions(request):
                raise PermissionDenied
        title = capfirst(self.opts.verbose_name_plural)
        try:
            return super().changelist_view(request, {"title": title, **(extra_context or {})})
        except DisallowedModelAdminLookup:
            # Said as a sentence; what was asked for is in no log.
            sentence = _("This list is filtered by what it offers, and by nothing else.")
            return render(request, "400.html", {"sentence": sentence}, status=400)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).filter(tenant=request_tenant(request))

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """What an address may filter by: the filters that the page offers, and exactly what its search box looks for.
        Anything else (`__startswith`, `__regex`, `__gte`, another table) would tell, letter by letter, what is masked.
        """
        return lookup in self._lookups(request)

    def _lookups(self, request: HttpRequest | None) -> set[str]:
        allowed = {f"{name}{how}" for name in self.exact_search for how in ("", "__exact")}
        filters: Any = self.get_list_filter(request) if request is not None else self.list_filter
        for one in filters:
            name, kind = one if isinstance(one, tuple | list) else ("", one) if isinstance(one, type) else (one, None)
            if kind is not None and issubclass(kind, admin.SimpleListFilter):
                allowed.add(str(kind.parameter_name))
            elif kind is not None and issubclass(kind, admin.EmptyFieldListFilter):
                allowed.add(f"{name}__isempty")
            elif name:
                allowed |= {f"{name}{how}" for how in ("", "__exact", "__isnull")}
        if self.date_hierarchy:
            allowed |= {f"{self.date_hierarchy}__{part}" for part in ("year", "month", "day")}
        return allowed

    def get_search_fields(self, request: HttpRequest) -> Any:
        return [f"{name}__exact" for name in self.exact_search]


def presence_filter(title: Any, *, there: Any, away: Any) -> type[admin.EmptyFieldListFilter]:
    """A filter by whether a column holds something, in words that say what it means: "in force" and "lifted" tell more
    than "not empty" and "empty"."""

    class PresenceFilter(admin.EmptyFieldListFilter):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.title = title

        def choices(self, changelist: Any) -> Iterator[Any]:
            words = {"isempty=1": away, "isempty=0": there}
            for choice in super().choices(changelist):
                said = (label for end, label in words.items() if end in str(choice["query_string"]))
                yield {**choice, "display": next(said, choice["display"])}

    return PresenceFilter


def _name(action: Any) -> str:
    return action if isinstance(action, str) else str(action.__name__)


def pretty(value: Any) -> SafeString:
    """JSON to read, escaped."""
    return format_html('<pre class="mono">{}</pre>', json.dumps(value, ensure_ascii=False, indent=2))


def person_of(request: HttpRequest) -> User:
    """Who asks, for a service that decides whether they may. Errors: PermissionDenied for nobody."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def request_tenant(request: HttpRequest) -> str:
    """The tenant of the person who asks, looked up once a request."""
    tenant: str | None = getattr(request, "_xinghuo_tenant", None)
    if tenant is None:
        tenant = tenant_of(request.user)
        request._xinghuo_tenant = tenant  # type: ignore[attr-defined]
    return tenant
