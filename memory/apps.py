from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MemoryConfig(AppConfig):
    name = "memory"
    verbose_name = _("Memory")

    def ready(self) -> None:
        from guard.access.services import register_assignment_resolver
        from memory.core.importer import on_customers_changed
        from memory.core.selectors import is_assigned
        from memory.profiles.core_sync import forget_core_fields

        register_assignment_resolver(is_assigned)
        on_customers_changed(forget_core_fields)
