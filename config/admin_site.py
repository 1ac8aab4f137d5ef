"""The console: Django's admin under Xinghuo's name."""

from __future__ import annotations

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy as _


class XinghuoAdminSite(AdminSite):
    site_header = _("Xinghuo risk console")
    site_title = _("Xinghuo")
    index_title = _("Overview")
    # The header leads to what people use; the list of all tables stands on the overview.
    enable_nav_sidebar = False

    def get_urls(self) -> list[Any]:
        from risk.console import overview
        from risk.console.customers.views import urls

        return [*overview.urls(self), *urls(self), *super().get_urls()]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from risk.console.feed import feed_context

        return {**super().each_context(request), **feed_context(request)}

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Django's, which answers 200 to whom it refuses; 429 to who is locked (guard.access.logins)."""
        response = super().login(request, extra_context)
        locked_for = getattr(request, "login_locked_for", 0)
        if locked_for:
            response.status_code = 429
            response["Retry-After"] = str(locked_for)
        return response

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from risk.console.overview import overview_context

        return super().index(request, {**overview_context(request), **(extra_context or {})})


class XinghuoAdminConfig(AdminConfig):
    default_site = "config.admin_site.XinghuoAdminSite"
