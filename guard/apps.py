from django.apps import AppConfig
from django.db.models.signals import post_delete, post_migrate, post_save
from django.utils.translation import gettext_lazy as _


class GuardConfig(AppConfig):
    name = "guard"
    verbose_name = _("Guard")

    def ready(self) -> None:
        from guard.access.models import AgentPrincipal
        from guard.access.services import forget_saved_principal
        from guard.admission.budget import protect_ledger
        from guard.audit.triggers import install_after_migrate

        protect_ledger()
        post_migrate.connect(install_after_migrate, sender=self)
        for changed in (post_save, post_delete):
            changed.connect(forget_saved_principal, sender=AgentPrincipal, dispatch_uid="guard.forget_principal")
