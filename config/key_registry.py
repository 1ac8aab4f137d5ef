"""The key registry as a document and as a check of a live Redis (`manage.py keys`)."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import redis
from django.conf import settings

from config.base.keys import Key, match, registered
from config.base.redis import translated

APPS = ("guard", "memory", "risk")
SCAN_BATCH = 500  # names a SCAN call, and TYPE and PTTL pairs a pipeline

Fault = Literal["unknown name", "wrong server", "wrong type", "no TTL", "TTL too long", "TTL where none may be"]


@dataclass(frozen=True)
class Finding:
    """One key of a live server that is not as declared. server: the setting that names it, or several."""

    key: str
    fault: Fault
    detail: str
    server: str = "REDIS_URL"


@dataclass(frozen=True)
class Place:
    """One database of a Redis server. settings: what names it. holds: whose keys belong there.

    foreign: how names begin that libraries make there, after the prefix. strict: a name that nobody declares is a
    finding; where only libraries are at home it is none.
    """

    settings: tuple[str, ...]
    url: str
    holds: frozenset[str]
    foreign: tuple[str, ...]
    strict: bool

    @property
    def name(self) -> str:
        return ", ".join(self.settings)


def places() -> list[Place]:
    """Where keys may be: the state's, the cache's and the channels' Redis; one that serves several is there once."""
    found: dict[str, Place] = {}
    for setting, holds, foreign, strict in (
        ("REDIS_URL", "state", "", True),
        ("CACHE_REDIS_URL", "cache", r"\d+:", True),  # Django's cache: version and name
        ("CHANNEL_REDIS_URL", "", "asgi[:_a-z]", False),
    ):
        url = getattr(settings, setting)
        one = found.get(url, Place((), url, frozenset(), (), False))
        found[url] = replace(
            one,
            settings=(*one.settings, setting),
            holds=one.holds | {holds},
            foreign=(*one.foreign, foreign) if foreign else one.foreign,
            strict=one.strict or strict,
        )
    return list(found.values())


def load() -> list[Key]:
    """Imports `keys.py` of every room, so that all declarations are there, and returns them by pattern."""
    for app in APPS:
        package = importlib.import_module(app)
        for room in pkgutil.iter_modules(package.__path__):
            name = f"{app}.{room.name}.keys"
            if room.ispkg and importlib.util.find_spec(name) is not None:
                importlib.import_module(name)
    return registered()


# --- document ---------------------------------------------------------------------------------------------------


def duration(seconds: int | None) -> str:
    """`2 h`, `10 m`, `90 s`, or `-` for none."""
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds % size == 0 and seconds >= size:
            # 24 h, as the design says it, not 1 d
            return f"{seconds // 3600} h" if seconds == 86400 else f"{seconds // size} {unit}"
    return f"{seconds} s"


def as_rows(keys: Sequence[Key]) -> list[dict[str, Any]]:
    return [
        {
            "pattern": key.pattern,
            "type": key.type,
            "ttl_seconds": key.ttl,
            "server": key.server,
            "scope": key.scope if "{tenant}" not in key.pattern else "names its tenant",
            "writers": key.writers,
            "readers": key.readers,
            "on_loss": key.on_loss,
        }
        for key in keys
    ]


def as_markdown(keys: Sequence[Key]) -> str:
    lines = [
        "# Redis keys",
        "",
        "Written by `manage.py keys --write` from the declarations in the rooms' `keys.py`; do not edit.",
        "",
        "`REDIS_KEY_PREFIX` and a colon go before every name, channels too, when it is set. A tenant other than",
        "`default` adds a segment after it to keys of scope `tenant`. TTL is the longest a key may have. Server:",
        "`state` is REDIS_URL, `cache` is CACHE_REDIS_URL, which may evict what it likes.",
        "",
        "| key | server | type | TTL | scope | written by | read by | when it is lost |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in as_rows(keys):
        cells = [
            f"`{row['pattern']}`",
            row["server"],
            row["type"],
            duration(row["ttl_seconds"]),
            row["scope"],
            row["writers"],
            row["readers"],
            row["on_loss"],
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


# --- check of a live server -------------------------------------------------------------------------------------


def check_live(client: redis.Redis, keys: Sequence[Key], place: Place) -> tuple[int, list[Finding]]:
    """Walks one database below REDIS_KEY_PREFIX; returns how many keys were looked at, and what is wrong.

    client: one that does not decode, for a foreign name may be any bytes. Keys that expire during the walk are
    left out. Errors: RedisUnavailable.
    """
    prefix = f"{settings.REDIS_KEY_PREFIX}:" if settings.REDIS_KEY_PREFIX else ""
    looked_at = 0
    findings: list[Finding] = []
    foreign = re.compile("|".join(place.foreign) or r"(?!)")
    for names in _walk(client, prefix):
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.type(name)
            pipe.pttl(name)
        with translated():
            answers = pipe.execute()
        for name, kind, ttl in zip(names, answers[::2], answers[1::2], strict=True):
            if kind == b"none" or ttl == -2:
                continue
            text = name.decode("utf-8", "backslashreplace")
            if foreign.match(text[len(prefix) :]):
                continue
            looked_at += 1
            finding = _judge(text, prefix, kind.decode(), ttl, keys, place)
            if finding is not None:
                findings.append(replace(finding, server=place.name))
    return looked_at, sorted(findings, key=lambda finding: (finding.fault, finding.key))


def _walk(client: redis.Redis, prefix: str) -> Iterator[list[bytes]]:
    pattern = re.sub(r"([\\*?\[\]^-])", r"\\\1", prefix) + "*"
    cursor = 0
    seen: set[bytes] = set()  # SCAN may give a name twice
    while True:
        with translated():
            cursor, names = client.scan(cursor, match=pattern, count=SCAN_BATCH)  # type: ignore[misc]
        fresh = [name for name in dict.fromkeys(names) if name not in seen]
        seen.update(fresh)
        if fresh:
            yield fresh
        if cursor == 0:
            return


def _judge(full_name: str, prefix: str, kind: str, ttl_ms: int, keys: Sequence[Key], place: Place) -> Finding | None:
    key = match(full_name[len(prefix) :], keys)
    if key is None and not place.strict:
        return None
    if key is None:
        return Finding(full_name, "unknown name", f"a {kind} that no keys.py declares")
    if key.server not in place.holds:
        return Finding(full_name, "wrong server", f"{key.pattern} is declared for the {key.server} Redis")
    if kind != key.type:
        return Finding(full_name, "wrong type", f"is a {kind}; {key.pattern} is declared as {key.type}")
    if key.ttl is None:
        if ttl_ms >= 0:
            return Finding(full_name, "TTL where none may be", f"goes away in {ttl_ms / 1000:.0f} s")
        return None
    if ttl_ms < 0:
        return Finding(full_name, "no TTL", f"{key.pattern} must go away within {duration(key.ttl)}")
    if ttl_ms > key.ttl * 1000:
        return Finding(full_name, "TTL too long", f"{ttl_ms / 1000:.0f} s; {key.pattern} allows {duration(key.ttl)}")
    return None
