from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MemoryConfig(AppConfig):
    name = "memory"
    verbose_name = _("Memory")

    def ready(self) -> None:
        from guard.access.services import register_assignment_resolver
        from guard.access.unmasking import register_unmasking
        from guard.admission.sessions import register_session_check
        from guard.audit.told import register_customers
        from guard.idempotency import register_subject_resolver
        from memory import answers
        from memory.core import keeping as core_keeping
        from memory.core.known import known_customers, names_of
        from memory.core.marking import on_customers_changed, on_facts_changed
        from memory.erasure import blocks, caches, keeping, principals, pseudonyms, registry
        from memory.profiles import erasing as profiles
        from memory.profiles.answers import erasing as answer_cache
        from memory.profiles.core_sync import forget_core_fields
        from memory.profiles.drafts import erasing as drafts
        from memory.profiles.drafts import unmasking as masked_drafts
        from memory.profiles.queries import keeping as queries
        from memory.profiles.queries import unmasking as masked_queries
        from memory.profiles.snapshots.grace import is_assigned
        from memory.profiles.snapshots.services import forget_snapshots
        from memory.sessions import erasing as sessions
        from memory.sessions.owners import check_writable

        register_assignment_resolver(is_assigned)
        register_customers(known_customers, names_of)
        register_session_check(check_writable)
        register_unmasking(masked_drafts.KIND, masked_drafts.clear_draft)
        register_unmasking(masked_queries.KIND, masked_queries.clear_query, permission=masked_queries.TEXTS)
        register_subject_resolver(answers.subject_of_request)
        on_customers_changed(forget_core_fields)
        on_facts_changed(forget_snapshots)
        # In this order they are removed: who may write first, what only the names of keys tell of last.
        for part in (
            principals.PART,
            blocks.PART,
            sessions.PART,
            profiles.PART,
            drafts.PART,
            queries.PART,
            answer_cache.PART,
            caches.PART,
            answers.PART,
            pseudonyms.PART,
        ):
            registry.register(part)
        keeping.register_own()
        core_keeping.register_own()
        queries.protect()
        queries.register_own()
