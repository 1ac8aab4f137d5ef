"""Redis keys of idempotency."""

from config.base.keys import Key

KEPT_SECONDS = 24 * 3600

IDEM = Key(
    "guard:idem:{actor_id}:{key}",
    "hash",
    ttl=KEPT_SECONDS,
    writers="guard.idempotency",
    readers="guard.idempotency",
    on_loss="a repeat does its work anew; entry ids, If-Match and session ids still refuse doing it twice",
)
