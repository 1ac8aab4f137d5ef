from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    """Last in INSTALLED_APPS: by its post_migrate every permission exists."""

    name = "config"

    def ready(self) -> None:
        from guard.access.roles import ensure_roles

        post_migrate.connect(ensure_roles, sender=self)
