"""The console: Django's admin under Xinghuo's name."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.utils.translation import gettext_lazy as _


class XinghuoAdminSite(AdminSite):
    site_header = _("Xinghuo risk console")
    site_title = _("Xinghuo")
    index_title = _("Overview")


class XinghuoAdminConfig(AdminConfig):
    default_site = "config.admin_site.XinghuoAdminSite"
