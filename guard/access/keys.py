"""Redis keys of access. MySQL stands behind each: a lost key opens nothing."""

from __future__ import annotations

from config.base.keys import Key

# The longest that what is revoked could live: a refresh token's life (settings.REFRESH_TOKEN_SECONDS, at most).
MAX_TOKEN_SECONDS = 30 * 86_400
LOGIN_SECONDS = 30 * 60

TOKEN = Key(
    "guard:token:{jti}", "string", MAX_TOKEN_SECONDS,
    writers="guard.access.tokens, on a revocation: a token's jti, its family, or the key that it came of",
    readers="guard.access.tokens, with each request that carries a token",
    on_loss="revoked_token and agent_principal in MySQL are asked at least every 5 s, and refuse",
)  # fmt: skip
LOGIN = Key(
    "guard:login:{ip}:{date}", "string", LOGIN_SECONDS, scope="system",
    writers="guard.access.logins; a fixed window of 15 minutes, the account's counter has a keyed hash in place of ip",
    readers="guard.access.logins",
    on_loss="login_count in MySQL, which counts too, refuses",
)  # fmt: skip
INVALIDATE = Key(
    "cache:invalidate", "pub/sub", None, scope="system",
    writers="guard.access, when a key is revoked or rotated",
    readers="guard.access in every web process",
    on_loss="the key is read again from MySQL within 5 s",
)  # fmt: skip
