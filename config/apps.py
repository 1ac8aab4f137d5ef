from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    """Last in INSTALLED_APPS: it wires what needs all the others."""

    name = "config"

    def ready(self) -> None:
        from config import retention_registry
        from config.base.retention import faults
        from config.words_of_the_database import holds_every_character
        from guard.access.roles import ensure_roles

        checks.register(holds_every_character, checks.Tags.database)  # asked by `migrate`
        retention_registry.load()
        said = faults(settings.RETENTION)
        if said:
            raise ImproperlyConfigured("; ".join(said))

        # `risk` is the last app with tables: by its post_migrate every permission exists. (Django sends none for an
        # app without tables, such as this one.)
        post_migrate.connect(ensure_roles, sender=apps.get_app_config("risk"))
