"""Secrets of channels at rest: Fernet (AES-128-CBC and HMAC-SHA256), with keys that rotate.

Newest key first; the newest encrypts, all decrypt. Where NOTIFY_SECRET_KEYS names none, the key is derived from
SECRET_KEY, and those derived from SECRET_KEY_FALLBACKS decrypt. Derived ones decrypt also after NOTIFY_SECRET_KEYS has
been set. Losing the key loses the tokens and nothing else: channels say so, and are given their secrets anew.
"""

from __future__ import annotations

import base64
import hmac
import json
from functools import lru_cache
from typing import TypedDict

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from config.base.fields import canonical_json


class Secrets(TypedDict, total=False):
    """address: of a webhook or robot, with its token. secret: what it signs with. password: of the mail account."""

    address: str
    secret: str
    password: str


class SecretLost(Exception):
    """None of the keys opens it, or it is another channel's. Its text holds nothing of it."""


def _key(secret: bytes) -> bytes:
    """RFC 5869 with SHA-256, one block, as Fernet wants it."""
    extracted = hmac.digest(b"xinghuo", secret, "sha256")
    return base64.urlsafe_b64encode(hmac.digest(extracted, b"risk.notify.secrets\x01", "sha256"))


@lru_cache(maxsize=8)
def _box(given: tuple[tuple[str, bytes], ...], secrets: tuple[str, ...]) -> MultiFernet:
    keys = [key for _name, key in given] + [secret.encode("utf-8", "surrogatepass") for secret in secrets]
    return MultiFernet([Fernet(_key(key)) for key in keys])


def _present() -> MultiFernet:
    return _box(tuple(settings.NOTIFY_SECRET_KEYS), (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


def seal(*, channel_id: str, secrets: Secrets) -> str:
    """The secrets as text for the database; opened again for this channel alone."""
    text = canonical_json({"channel": channel_id, "secrets": dict(secrets)})
    return _present().encrypt(text.encode()).decode("ascii")


def unseal(*, channel_id: str, sealed: str) -> Secrets:
    """Errors: SecretLost."""
    if not sealed:
        return {}
    try:
        held = json.loads(_present().decrypt(sealed.encode()))
    except (InvalidToken, ValueError):
        raise SecretLost("no key opens the secrets of this channel") from None
    if held.get("channel") != channel_id:
        raise SecretLost("the secrets are another channel's")
    found: Secrets = held["secrets"]
    return found


def reseal(*, sealed: str) -> str:
    """The same under the newest key. Errors: SecretLost."""
    try:
        return _present().rotate(sealed.encode()).decode("ascii")
    except InvalidToken:
        raise SecretLost("no key opens the secrets of this channel") from None
