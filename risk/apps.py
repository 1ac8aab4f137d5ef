from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RiskConfig(AppConfig):
    name = "risk"
    verbose_name = _("Risk")

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from risk.feed.watch import tell_signed_out

        user_logged_out.connect(tell_signed_out, dispatch_uid="risk.feed.signed_out")
