"""Keys of seals, of rows' own macs and of anchors, by their ids. One secret, three purposes: each mac names its own.

Newest first; the newest signs, all verify. Where AUDIT_SEAL_KEYS names none, the key is derived from SECRET_KEY, and
those derived from SECRET_KEY_FALLBACKS verify. Derived ones verify also after AUDIT_SEAL_KEYS has been set.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache

from django.conf import settings

ROW, SECOND, SEAL, ANCHOR, END = (
    f"xinghuo.audit.{purpose}.v1\n".encode() for purpose in ("row", "row-second", "seal", "anchor", "export")
)
Ring = dict[str, bytes]


class UnknownKey(Exception):
    """A mac names a key that is not in the ring: whether it is right cannot be told."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id[:24]
        super().__init__(f"key {self.key_id!r} is not among the keys; add it to AUDIT_SEAL_KEYS")


def _hkdf(secret: str) -> bytes:
    """RFC 5869 with SHA-256, one block: extract with a fixed salt, expand with the purpose."""
    extracted = hmac.digest(b"xinghuo", secret.encode("utf-8", "surrogatepass"), "sha256")
    return hmac.digest(extracted, b"guard.audit.seal\x01", "sha256")


@lru_cache(maxsize=8)
def _ring(given: tuple[tuple[str, bytes], ...], secrets: tuple[str, ...]) -> Ring:
    ring = dict(given)
    for secret in secrets:
        key = _hkdf(secret)
        ring.setdefault(f"secret-{hashlib.sha256(key).hexdigest()[:8]}", key)
    return ring


def ring() -> Ring:
    """Every key of this installation by id, the one that signs first."""
    return _ring(tuple(settings.AUDIT_SEAL_KEYS), (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


def sign(purpose: bytes, content: bytes, *, keys: Ring | None = None) -> tuple[str, str]:
    """Id of the newest key, and the HMAC-SHA256 in 64 hex digits."""
    key_id, key = next(iter((keys or ring()).items()))
    return key_id, hmac.digest(key, purpose + content, "sha256").hex()


def sign_with(key_id: str, purpose: bytes, content: bytes, *, keys: Ring | None = None) -> str:
    """The HMAC-SHA256 with this one of the keys."""
    return hmac.digest((keys or ring())[key_id], purpose + content, "sha256").hex()


def holds(purpose: bytes, content: bytes, key_id: str, mac: str, keys: Ring) -> bool:
    """Whether this mac was made with that key. Errors: UnknownKey."""
    key = keys.get(key_id)
    if key is None:
        raise UnknownKey(key_id)
    made = hmac.digest(key, purpose + content, "sha256").hex()
    return hmac.compare_digest(made.encode(), mac.encode("utf-8", "surrogatepass"))
