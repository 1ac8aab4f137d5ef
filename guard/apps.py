from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class GuardConfig(AppConfig):
    name = "guard"
    verbose_name = _("Guard")

    def ready(self) -> None:
        from guard.audit.triggers import install_after_migrate

        post_migrate.connect(install_after_migrate, sender=self)
