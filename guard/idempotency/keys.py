"""Redis keys of idempotency."""

from django.conf import settings

from config.base.keys import Key

IDEM = Key(
    "guard:idem:{actor_id}:{key}",
    "hash",
    ttl=settings.IDEMPOTENCY_KEPT_SECONDS,
    writers="guard.idempotency",
    readers="guard.idempotency",
    on_loss="a repeat does its work anew; entry ids, If-Match and session ids still refuse doing it twice",
)
