from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate


class ConfigConfig(AppConfig):
    """Last in INSTALLED_APPS: it wires what needs all the others."""

    name = "config"

    def ready(self) -> None:
        from guard.access.roles import ensure_roles

        # `risk` is the last app with tables: by its post_migrate every permission exists. (Django sends none for an
        # app without tables, such as this one.)
        post_migrate.connect(ensure_roles, sender=apps.get_app_config("risk"))
