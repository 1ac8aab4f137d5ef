from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RiskConfig(AppConfig):
    name = "risk"
    verbose_name = _("Risk")
