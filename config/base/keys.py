"""The registry of Redis keys. A room declares its keys in its `keys.py`; no other code spells one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from django.conf import settings

from config.base.ids import check_id

KeyType = Literal["string", "hash", "list", "stream", "zset", "set", "pub/sub"]
Server = Literal["state", "cache"]
DEFAULT_TENANT = "default"

_registry: dict[str, Key] = {}


@dataclass(frozen=True)
class Key:
    """One kind of key.

    pattern: `{placeholders}` are identifiers of 1 to 64 of A-Z a-z 0-9 _ . - ; those in `free` may hold `:`.
    ttl: the longest TTL in seconds that such a key may have; None means it lives until deleted (streams).
    optional_ttl: for streams that exist with and without one.
    scope: "tenant" keys take a segment for tenants other than `default`; "system" keys never do, nor do
        patterns that name `{tenant}` themselves.
    server: where it is: REDIS_URL, or CACHE_REDIS_URL, which may evict it.
    on_loss: what happens when Redis loses it.
    """

    pattern: str
    type: KeyType
    ttl: int | None
    writers: str
    readers: str
    on_loss: str
    scope: Literal["tenant", "system"] = "tenant"
    server: Server = "state"
    free: tuple[str, ...] = ()
    # Fixed parts of the pattern that are one of a few words, for the check of a live server.
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False, default=re.compile(""))

    def __post_init__(self) -> None:
        body = ""
        for part in re.split(r"(\{\w+\})", self.pattern):
            if part.startswith("{"):
                body += ".+" if part[1:-1] in self.free else r"[A-Za-z0-9_.-]{1,64}"
            else:
                body += re.escape(part)
        tenant = r"(?:[A-Za-z0-9_.-]{1,64}:)?" if self._takes_tenant else ""
        object.__setattr__(self, "_regex", re.compile(tenant + body + r"\Z"))
        if self.pattern in _registry:
            raise ValueError(f"key {self.pattern!r} is declared twice")
        _registry[self.pattern] = self

    @property
    def _takes_tenant(self) -> bool:
        return self.scope == "tenant" and "{tenant}" not in self.pattern

    def __call__(self, tenant: str = DEFAULT_TENANT, **parts: str) -> str:
        """The full name of one key. Errors: INVALID_ID (422) when a part is not an identifier."""
        for name, value in parts.items():
            if name not in self.free:
                check_id(name, value)
        if "{tenant}" in self.pattern:
            parts["tenant"] = check_id("tenant", tenant)
        name = self.pattern.format(**parts)
        if self._takes_tenant and tenant != DEFAULT_TENANT:
            name = f"{check_id('tenant', tenant)}:{name}"
        return prefixed(name)

    def matches(self, name: str) -> bool:
        """Whether `name` (without REDIS_KEY_PREFIX) is one of this kind."""
        return self._regex.match(name) is not None


def prefixed(name: str) -> str:
    """`name` with REDIS_KEY_PREFIX before it: for pub/sub channels too, which database numbers do not separate."""
    prefix = settings.REDIS_KEY_PREFIX
    return f"{prefix}:{name}" if prefix else name


def registered() -> list[Key]:
    """Every declared key, by pattern."""
    return [_registry[pattern] for pattern in sorted(_registry)]


def match(name: str, keys: Iterable[Key] | None = None) -> Key | None:
    """The kind that `name` (without prefix) belongs to; the kind with the longest fixed part wins."""
    found = [key for key in (keys or registered()) if key.matches(name)]
    return max(found, key=lambda key: len(re.sub(r"\{\w+\}", "", key.pattern)), default=None)
