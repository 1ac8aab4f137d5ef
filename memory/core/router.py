"""Where the core tables live: in the main database, or read-only in the core system's own."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models

CORE_ALIAS = "core"
_FACT_NAMES = frozenset(
    {"corecustomer", "coreproduct", "coreassessment", "coreassignment", "coreposition", "coretrade"}
)


def _is_fact(model: type[models.Model]) -> bool:
    return model._meta.app_label == "memory" and model._meta.model_name in _FACT_NAMES


class CoreRouter:
    """Sends reads of the six fact tables to `core` when CORE_DATABASE_URL is set, and refuses their writes.

    core_change and core_import are ours and stay in the main database. Nothing is ever migrated on `core`.
    """

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str | None:
        return CORE_ALIAS if settings.CORE_IS_EXTERNAL and _is_fact(model) else None

    def db_for_write(self, model: type[models.Model], **hints: Any) -> str | None:
        """Errors: CORE_READ_ONLY for a fact table of an external core."""
        if _is_fact(model):
            from memory.core.models import refuse_if_external

            refuse_if_external()
        return None

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        if db == CORE_ALIAS:
            return False
        if app_label == "memory" and model_name in _FACT_NAMES:
            return not settings.CORE_IS_EXTERNAL
        return None
