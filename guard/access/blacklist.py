"""`guard:token:{id}`: what is revoked, known to every process at once. It only ever refuses.

Redis says "revoked", never "not revoked": what it does not know is asked of MySQL (tokens.check), so a Redis that is
away, was emptied, or never heard of a revocation opens nothing. Slow: one wait of at most REDIS_PATIENCE, then the
process does without it for a second.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.conf import settings

from config.base.redis import Client, RedisUnavailable, Script, client_for
from guard.access.keys import MAX_TOKEN_SECONDS, TOKEN

logger = logging.getLogger(__name__)

REDIS_PATIENCE = 0.08  # seconds, to connect and for an answer: what a control may cost more is 100 ms
_revoked = Script.beside(__file__, "revoked")
_mark = Script.beside(__file__, "revoke")


def quick() -> Client:
    """The state Redis, by a client that does not wait."""
    return client_for(settings.REDIS_URL, timeout=REDIS_PATIENCE)


def is_marked(tenant: str, ids: Sequence[str]) -> bool:
    """Whether Redis knows one of them as revoked; False where it cannot be asked. Cost: 1 round trip."""
    try:
        return bool(_revoked(quick(), [TOKEN(tenant, jti=one) for one in ids]))
    except RedisUnavailable:
        return False  # MySQL decides


def mark(tenant: str, ids: Sequence[str], seconds: float) -> None:
    """Puts them on the blacklist for so long. Redis away: MySQL alone refuses them, within 5 s."""
    ttl = max(1, min(MAX_TOKEN_SECONDS, int(seconds) + 1))
    try:
        client = quick()
        for one in ids:
            _mark(client, [TOKEN(tenant, jti=one)], [ttl])
    except RedisUnavailable:
        logger.warning("Redis is away: a revocation counts in other processes within 5 s, not at once")
