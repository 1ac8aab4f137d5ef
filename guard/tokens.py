"""Signed tokens: what stands in them, and keys to sign them with. No database and no Redis here.

A token is a JSON Web Token, HS256 and nothing else. The keys are derived from SECRET_KEY; those derived from
SECRET_KEY_FALLBACKS verify, so that a new SECRET_KEY ends no token. The header's `kid` names the key.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import jwt
from django.conf import settings

from config.base.clock import now
from config.base.errors import DomainError
from config.base.ids import ID_PATTERN, new_id

ALGORITHM = "HS256"
ISSUER = "xinghuo"
MAX_LENGTH = 4096  # characters of a token that are looked at
Use = Literal["access", "refresh"]
_TEXTS = ("tenant", "agent", "actor", "principal", "jti", "fam", "use")


@dataclass(frozen=True)
class Claims:
    """Whom a token speaks for. generation: of a refresh token, how many came before it in its family."""

    use: Use
    tenant: str
    agent: str
    actor: str
    principal: str
    family: str
    jti: str
    generation: int
    issued_at: int  # seconds since 1970
    expires_at: int

    def seconds_left(self) -> float:
        return self.expires_at - now().timestamp()


def _derived(secret: str) -> bytes:
    """RFC 5869 with SHA-256, one block: a key of its own for this purpose."""
    extracted = hmac.digest(b"xinghuo", secret.encode("utf-8", "surrogatepass"), "sha256")
    return hmac.digest(extracted, b"guard.tokens\x01", "sha256")


@lru_cache(maxsize=8)
def _ring(secrets: tuple[str, ...]) -> dict[str, bytes]:
    """Keys by kid, the one that signs first."""
    ring: dict[str, bytes] = {}
    for secret in secrets:
        key = _derived(secret)
        ring.setdefault(hashlib.sha256(key).hexdigest()[:16], key)
    return ring


def _keys() -> dict[str, bytes]:
    return _ring((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


def sign(
    use: Use, *, tenant: str, agent: str, actor: str, principal: str, family: str, lifetime: timedelta,
    not_after: datetime | None = None, generation: int = 0,
) -> tuple[str, Claims]:  # fmt: skip
    """A token and what stands in it. not_after: it ends then, even where its lifetime would be longer."""
    at = now()
    ends = at + lifetime if not_after is None else min(at + lifetime, not_after)
    claims = Claims(
        use, tenant, agent, actor, principal, family, new_id(), generation, int(at.timestamp()), int(ends.timestamp())
    )
    kid, key = next(iter(_keys().items()))
    content = {
        "iss": ISSUER,
        "use": use,
        "tenant": tenant,
        "agent": agent,
        "actor": actor,
        "principal": principal,
        "fam": family,
        "jti": claims.jti,
        "gen": generation,
        "iat": claims.issued_at,
        "exp": claims.expires_at,
    }
    return jwt.encode(content, key, algorithm=ALGORITHM, headers={"kid": kid}), claims


def looks_like_token(text: str) -> bool:
    """Whether it has the shape of one, before anything of it is believed."""
    return text.count(".") == 2 and text.startswith("eyJ")


def verify(token: str, use: Use) -> Claims:
    """What stands in a token that we have signed, that is of this use, and whose time is not over.

    Errors: UNAUTHENTICATED for anything else, TOKEN_EXPIRED (401).
    """
    claims = _read(token)
    if claims is None or claims.use != use:
        raise DomainError("UNAUTHENTICATED", f"this is no {use} token of ours")
    if claims.expires_at <= now().timestamp():
        raise DomainError("TOKEN_EXPIRED")
    return claims


def verify_any(token: str) -> Claims | None:
    """As `verify`, of either use, also past its time; None for what we have not signed."""
    return _read(token)


# Digest of a token and of the ring that it was read with -> what stands in it. A signature that was right stays right.
_seen: dict[tuple[bytes, int], Claims] = {}
_SEEN_SIZE = 4096


def _read(token: str) -> Claims | None:
    if len(token) > MAX_LENGTH or not token.isascii() or not looks_like_token(token):
        return None
    name = (hashlib.sha256(token.encode()).digest(), hash((settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)))
    claims = _seen.get(name)
    if claims is None:
        claims = _checked(token)
        if claims is not None:
            if len(_seen) >= _SEEN_SIZE:
                _seen.clear()
            _seen[name] = claims
    return claims


def _checked(token: str) -> Claims | None:
    try:
        header = jwt.get_unverified_header(token)
        key = _keys().get(str(header.get("kid", "")))
        if key is None:
            return None
        content = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            # Time is checked by whoever asks, by this server's clock; `iat` only tells: servers' clocks differ.
            options={"require": ["exp", "iat", "jti", "iss"], "verify_exp": False, "verify_iat": False},
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return None
    texts: list[Any] = [content.get(name) for name in _TEXTS]
    numbers: list[Any] = [content.get(name) for name in ("gen", "iat", "exp")]
    if not all(isinstance(one, str) and ID_PATTERN.match(one) for one in texts):
        return None
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in numbers):
        return None
    tenant, agent, actor, principal, jti, family, found = texts
    if found not in ("access", "refresh"):
        return None
    return Claims(found, tenant, agent, actor, principal, family, jti, *numbers)
