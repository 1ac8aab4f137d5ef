"""Whose a Redis key is, read from its name. The registry says what the parts of a name are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.conf import settings

from config.base.keys import DEFAULT_TENANT, Key, registered
from config.base.redis import client_for, translated

_PART = "[A-Za-z0-9_.-]{1,64}"
_SCAN = 1000


@dataclass(frozen=True, slots=True)
class Name:
    """A key of the live server. tenant: whose it is; parts: what the pattern's braces stand for."""

    name: str
    key: Key
    tenant: str
    parts: dict[str, str]


class Reader:
    """Reads names of some kinds of keys."""

    def __init__(self, keys: list[Key]) -> None:
        self._kinds = [(key, _pattern(key)) for key in keys]

    def read(self, name: str) -> Name | None:
        """None for a name of no such kind."""
        for key, pattern in self._kinds:
            found = pattern.match(name)
            if found is not None:
                parts = found.groupdict()
                return Name(name, key, parts.pop("tenant", None) or DEFAULT_TENANT, parts)
        return None

    def scan(self, url: str) -> Iterator[Name]:
        """Every key of the kinds on that server. Walks all names there, 1000 a round trip. Errors: RedisUnavailable."""
        if not self._kinds:
            return
        # A name that is no UTF-8 is not ours, and must not stop the reading of the rest.
        client = client_for(url, decoding_errors="surrogateescape")
        prefix = settings.REDIS_KEY_PREFIX
        cursor = 0
        while True:
            with translated():
                cursor, names = client.scan(cursor, match=f"{prefix}:*" if prefix else "*", count=_SCAN)
            for name in names:
                found = self.read(name)
                if found is not None:
                    yield found
            if not cursor:
                return


def _pattern(key: Key) -> re.Pattern[str]:
    body = re.escape(f"{settings.REDIS_KEY_PREFIX}:") if settings.REDIS_KEY_PREFIX else ""
    if key.scope == "tenant" and "{tenant}" not in key.pattern:
        body += f"(?:(?P<tenant>{_PART}):)?"
    for part in re.split(r"(\{\w+\})", key.pattern):
        if part.startswith("{"):
            body += f"(?P<{part[1:-1]}>{'.+' if part[1:-1] in key.free else _PART})"
        else:
            body += re.escape(part)
    return re.compile(body + r"\Z")


def naming(part: str) -> list[Key]:
    """The kinds whose names hold a `{part}`."""
    return [key for key in registered() if f"{{{part}}}" in key.pattern and key.type != "pub/sub"]


def of_domains(*domains: str) -> list[Key]:
    """The kinds of these domains (`sess`, `profile`) that belong to a tenant."""
    kinds = [key for key in registered() if key.pattern.split(":")[0] in domains and key.type != "pub/sub"]
    return [key for key in kinds if key.scope == "tenant" or "{tenant}" in key.pattern]
