"""Keys in Redis of sessions that MySQL has not: rows deleted by hand, a database put back from an old copy."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from redis.exceptions import ResponseError

from config.base import redis as base_redis
from config.base.keys import DEFAULT_TENANT, prefixed
from memory.sessions.findings import GHOST, Finding
from memory.sessions.healing import NAMES, read_item
from memory.sessions.looking import Stream, read_stream, reader
from memory.sessions.models import AgentSession, MessageDeadLetter

Name = tuple[str, str, str]  # tenant, agent, session id

_SCAN = 1000
_SESSIONS_A_QUERY = 500
# A tenant's segment comes before; keys that name no session (sess:pending, sess:epoch) have fewer parts.
_KEY = re.compile(r"(?:([A-Za-z0-9_.-]{1,64}):)?sess:([a-z]+):([A-Za-z0-9_.-]{1,64}):(\w+)\Z", re.ASCII)


@dataclass
class _Ghost:
    """keys: kind -> full name. unsaved: entry ids that are perhaps nowhere else."""

    keys: dict[str, str] = field(default_factory=dict)
    unsaved: set[str] = field(default_factory=set)


def _sessions_of_keys(client: Any) -> Iterator[dict[Name, _Ghost]]:
    """Every session that keys name, part by part. A SCAN of the whole database, 1 round trip for 1,000 keys."""
    prefix = prefixed("")
    pattern = re.sub(r"([\\*?\[\]^-])", r"\\\1", prefix) + "*sess:*"
    cursor = 0
    while True:
        with base_redis.translated():
            cursor, names = client.scan(cursor, match=pattern, count=_SCAN)
        found: dict[Name, _Ghost] = defaultdict(_Ghost)
        for full in names:
            parts = _KEY.match(full[len(prefix) :])
            if parts:
                tenant, agent, session_id, kind = parts.groups()
                found[tenant or DEFAULT_TENANT, agent, session_id].keys[kind] = full
        if found:
            yield found
        if cursor == 0:
            return


def _without_rows(found: dict[Name, _Ghost]) -> dict[Name, _Ghost]:
    """Those that MySQL has no session of. Asked after the keys were seen: a session's row is committed before them."""
    names = sorted({session_id for _, _, session_id in found})
    rows: set[Name] = set()
    for start in range(0, len(names), _SESSIONS_A_QUERY):
        part = AgentSession.objects.filter(session_id__in=names[start : start + _SESSIONS_A_QUERY])
        rows.update(part.values_list("tenant", "agent", "session_id"))
    return {name: ghost for name, ghost in found.items() if name not in rows}


def _is_session(client: Any, ghost: _Ghost) -> bool:
    """Whether there is more than a tombstone (late writers must meet it) or the mark of a reopening under way."""
    if set(ghost.keys) - {"ctx"}:
        return True
    try:
        with base_redis.translated():
            actor, deleted, gen = client.hmget(ghost.keys["ctx"], "actor", "deleted", "gen")
    except ResponseError:
        return True  # of another type
    return not deleted and (actor is not None or gen is None)


def _named(client: Any, ghost: _Ghost) -> set[str]:
    """Entries that the keys name and no receipt calls committed; '' for what cannot be read."""
    named: set[str] = set()
    with base_redis.translated():
        if "msgs" in ghost.keys and client.type(ghost.keys["msgs"]) == "list":
            for found in map(read_item, client.lrange(ghost.keys["msgs"], 0, -1)):
                named.add("" if found is None else found.entry_id)
        if "ids" in ghost.keys and client.type(ghost.keys["ids"]) == "hash":
            for entry_id, receipt in client.hgetall(ghost.keys["ids"]).items():
                if receipt.split(":")[2:3] == ["c"]:
                    named.discard(entry_id)
                else:
                    named.add(entry_id)
    return named


def _unsaved(client: Any, name: Name, ghost: _Ghost, stream: Stream) -> set[str]:
    tenant, agent, session_id = name
    named = _named(client, ghost)
    if not named:
        return named
    letters = MessageDeadLetter.objects.filter(tenant=tenant, session_id=session_id)
    queued = {
        entry.entry_id
        for ident, entries in stream.by_ident.items()
        if ident.split(" ")[1:] == [tenant, agent, session_id]
        for entry in entries
    }
    return named - set(letters.values_list("entry_id", flat=True)) - queued


def find(*, fix: bool, pause: float) -> list[Finding]:
    """Ghosts, one finding a session; with `fix` their keys are removed where they hold nothing unsaved.

    What they hold is unsaved where window or receipts name entries that are neither committed, nor queued, nor among
    the dead letters: such keys stay, until their time to live is over. Looks twice.
    Cost: a SCAN of the database, 1 query for each 1,000 keys, some round trips a ghost. Errors: RedisUnavailable.
    """
    client = reader()
    found: dict[Name, _Ghost] = {}
    for part in _sessions_of_keys(client):
        for name, ghost in _without_rows(part).items():
            found.setdefault(name, _Ghost()).keys.update(ghost.keys)
    found = {name: ghost for name, ghost in found.items() if _is_session(client, ghost)}
    if not found:
        return []
    time.sleep(pause)
    stream = read_stream()
    findings: list[Finding] = []
    for name, ghost in sorted(_without_rows(found).items()):
        with base_redis.translated():
            there = {kind: key for kind, key in ghost.keys.items() if client.exists(key)}
        if not there:
            continue
        tenant, agent, session_id = name
        unsaved = _unsaved(client, name, ghost, stream)
        kinds = sorted(there, key=lambda kind: NAMES.index(kind) if kind in NAMES else len(NAMES))
        why = f"{', '.join(kinds)} of a session that the database has not"
        if unsaved:
            why += f"; they hold {len(unsaved)} entries that may be nowhere else"
        finding = Finding(GHOST, tenant, session_id, agent, why=why)
        if fix and not unsaved:
            with base_redis.translated():
                client.delete(*there.values())
            finding.repaired = "removed"
        findings.append(finding)
    return findings
